/*
 * The world: a heap of events in virtual time.
 *
 * Invariants: time never goes back; events of one time run in the order in which they were made.
 */
#include "runtime/backend/sim/state.h"
#include "runtime/base/hash.h"

static uint64_t clock_now(void *context)
{
    const struct sl_sim *sim = context;
    return sim->now;
}

struct sl_sim *sl_sim_create(const struct sl_sim_options *options, uint32_t world, struct sl_mem *mem)
{
    SL_ASSERT(options->link > 0 && options->pack_rate > 0 && world > 0);
    struct sl_sim *sim = sl_new(mem, sizeof *sim, "simulated world");
    if (sim == NULL)
        return NULL;
    /* Time 0 means "no time" in completions. */
    *sim = (struct sl_sim){.options = *options, .mem = mem, .world = world, .now = SL_SIM_BEGIN};
    sim->clock = (struct sl_clock){clock_now, sim};
    sim->devices = sl_new_array(mem, world, sizeof *sim->devices, "simulated devices");
    sim->stack = sl_new_array(mem, world, sizeof *sim->stack, "simulated world");
    sim->seen = sl_new_array(mem, world, sizeof *sim->seen, "simulated world");
    if (sim->devices == NULL || sim->stack == NULL || sim->seen == NULL) {
        sl_sim_destroy(sim);
        return NULL;
    }
    return sim;
}

void sl_sim_destroy(struct sl_sim *sim)
{
    if (sim == NULL)
        return;
    sl_free(sim->mem, sim->devices);
    sl_free(sim->mem, sim->stack);
    sl_free(sim->mem, sim->seen);
    sl_free(sim->mem, sim->heap);
    sl_free(sim->mem, sim);
}

uint64_t sl_sim_now(const struct sl_sim *sim)
{
    return sim->now;
}

const struct sl_clock *sl_sim_clock(struct sl_sim *sim)
{
    return &sim->clock;
}

uint64_t sl_sim_trace(const struct sl_sim *sim)
{
    return sim->trace;
}

void sl_sim_note(struct sl_sim *sim, uint32_t rank, uint32_t what, uint64_t detail)
{
    sim->trace = sl_mix64(sim->trace ^ sl_mix64(sim->now ^ sl_mix64(((uint64_t)rank << 32 | what) ^ sl_mix64(detail))));
}

static _Bool before(const struct sl_sim_event *a, const struct sl_sim_event *b)
{
    return a->time != b->time ? a->time < b->time : a->number < b->number;
}

static void swap(struct sl_sim_event *a, struct sl_sim_event *b)
{
    struct sl_sim_event held = *a;
    *a = *b;
    *b = held;
}

sluice_status sl_sim_at(struct sl_sim *sim, uint64_t time, sl_sim_act act, void *context, uint64_t argument)
{
    sluice_status status =
        sl_grow(sim->mem, &sim->heap, &sim->capacity, sim->count + 1, sizeof *sim->heap, "simulated events");
    if (status != SLUICE_OK)
        return status;
    size_t at = sim->count++;
    sim->heap[at] =
        (struct sl_sim_event){time < sim->now ? sim->now : time, sim->events_made++, act, context, argument};
    while (at > 0 && before(&sim->heap[at], &sim->heap[(at - 1) / 2])) {
        swap(&sim->heap[at], &sim->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    return SLUICE_OK;
}

static void do_nothing(void *context, uint64_t argument)
{
    (void)context;
    (void)argument;
}

void sl_sim_forget(struct sl_sim *sim, const void *context)
{
    for (size_t i = 0; i < sim->count; i++)
        if (sim->heap[i].context == context)
            sim->heap[i].act = do_nothing;
}

static struct sl_sim_event take_first(struct sl_sim *sim)
{
    struct sl_sim_event first = sim->heap[0];
    sim->heap[0] = sim->heap[--sim->count];
    for (size_t at = 0;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < sim->count; child++)
            if (before(&sim->heap[child], &sim->heap[least]))
                least = child;
        if (least == at)
            return first;
        swap(&sim->heap[at], &sim->heap[least]);
        at = least;
    }
}

_Bool sl_sim_next(struct sl_sim *sim, uint64_t until)
{
    if (sim->count == 0 || sim->heap[0].time > until) {
        if (until != UINT64_MAX && until > sim->now)
            sim->now = until;
        return 0;
    }
    struct sl_sim_event event = take_first(sim);
    sim->now = event.time;
    event.act(event.context, event.argument);
    return 1;
}
