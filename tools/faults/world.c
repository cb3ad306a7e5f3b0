/*
 * world.c: the loop of the made-up world: what can happen now, one of it by the seed, and what follows.
 *
 * - Everything that follows from an event is done before the next: the engine's and the arbiter's
 *   contract.
 * - Faults strike at random steps while `faults_left`; gates that are not stuck open at last, pauses are
 *   resumed at last, so every world must settle.
 */
#include "tools/faults/world.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/hash.h"
#include "runtime/control/arbiter_run.h"
#include "tools/faults/world_state.h"

enum happening {
    SUBMIT,
    TO_ARBITER,
    FROM_ARBITER,
    GATE,
    NODE,
    ABORTED,
    TIMER,
    TICK,
    RESUME,
    REPORT_LOSS,
    FAULT,
    HAPPENINGS_MAX = 512
};

struct choice {
    enum happening what;
    uint32_t rank;
};

uint32_t world_below(struct world *world, uint32_t bound)
{
    return (uint32_t)sl_random_below(&world->random, bound);
}

_Bool world_chance(struct world *world, uint32_t percent)
{
    return world_below(world, 100) < percent;
}

void world_trace(struct world *world, uint64_t value)
{
    world->result->trace = sl_mix64(world->result->trace ^ value) + 1;
}

void world_violated(struct world *world, const char *format, ...)
{
    size_t used = strlen(world->result->text);
    va_list arguments;
    world->failed = 1;
    va_start(arguments, format);
    vsnprintf(world->result->text + used, sizeof world->result->text - used, format, arguments);
    va_end(arguments);
    used = strlen(world->result->text);
    snprintf(world->result->text + used, sizeof world->result->text - used, "\n");
}

void world_put(struct world *world, struct inbox *inbox, const struct sl_note *note)
{
    size_t need = inbox->first + inbox->count + 1;
    if (sl_grow(world->mem, &inbox->notes, &inbox->capacity, need, sizeof *inbox->notes, "inbox"))
        sl_assert_failed("memory for an inbox", __FILE__, __LINE__);
    inbox->notes[inbox->first + inbox->count++] = *note;
}

static struct sl_note inbox_take(struct inbox *inbox)
{
    SL_ASSERT(inbox->count > 0);
    inbox->count--;
    return inbox->notes[inbox->first++];
}

static void see_grant(struct world *world, const struct sl_note *note)
{
    if (note->kind != SL_NOTE_GRANT && note->kind != SL_NOTE_STOP_AT)
        return;
    struct run_spec *run = &world->run[(uint32_t)note->key];
    for (uint32_t i = run->granted; i < note->a; i++)
        run->granted_at[i] = ++world->order;
    run->granted = (uint32_t)note->a;
}

void world_drain_arbiter(struct world *world)
{
    struct sl_note note;
    while (sl_arbiter_next(world->arbiter, &note)) {
        see_grant(world, &note);
        for (uint32_t i = 0; i < world->ranks; i++)
            if (!world->rank[i].dead)
                world_put(world, &world->rank[i].from_arbiter, &note);
    }
}

static uint32_t run_of(struct world *world, uint32_t rank, const void *owner)
{
    for (uint32_t i = 0; i < world->runs; i++)
        if (owner == &world->run[i].part[rank])
            return i;
    return UINT32_MAX;
}

static void see_vote(struct world *world, uint32_t rank, const struct sl_note *note)
{
    if (note->kind != SL_NOTE_VOTE || note->status != SLUICE_OK)
        return;
    struct part *part = &world->run[(uint32_t)note->key].part[rank];
    part->decided_vote |= note->a == SL_PHASE_DECIDE;
    part->final_vote |= note->a == SL_PHASE_FINAL;
}

static void act(struct world *world, uint32_t rank, const struct sl_action *action)
{
    struct rank *on = &world->rank[rank];
    uint32_t run = run_of(world, rank, action->owner);
    struct part *part = run < world->runs ? &world->run[run].part[rank] : NULL;
    world_trace(world, (uint64_t)action->kind << 32 | action->window << 16 | action->event << 8 | rank);
    if (world->options.faults & WORLD_ALONE && part) /* a world of one tells nobody of its votes */
        part->decided_vote = part->final_vote = 1;
    switch (action->kind) {
    case SL_ACTION_LAUNCH:
        SL_ASSERT(part != NULL);
        check_launch(world, rank, run, action->window);
        part->in_flight += (uint32_t)__builtin_popcount(part->flags[action->window]);
        backend_launch(world, rank, run, action->window, part->flags[action->window]);
        world->result->launches++;
        break;
    case SL_ACTION_COMMIT:
        SL_ASSERT(part != NULL);
        check_commit(world, rank, run);
        part->in_flight++;
        backend_launch(world, rank, run, 0, COMMIT_BIT);
        break;
    case SL_ACTION_TELL:
        see_vote(world, rank, &action->note);
        if (world->arbiter)
            world_put(world, &on->to_arbiter, &action->note);
        break;
    case SL_ACTION_EMIT:
        check_emit(world, rank, run, action);
        break;
    case SL_ACTION_ABORT:
        world->result->aborts++;
        on->aborting = on->broken = 1;
        break;
    case SL_ACTION_RELEASE:
        check_release(world, rank, run);
        break;
    case SL_ACTION_POISON:
        if (on->poisoned)
            world_violated(world, "rank %u: poisoned twice", rank);
        on->poisoned = on->broken = 1;
        break;
    }
}

static void drain_engine(struct world *world, uint32_t rank)
{
    struct sl_action action;
    uint32_t count = 0;
    while (!world->failed && sl_engine_next(world->rank[rank].engine, &action)) {
        act(world, rank, &action);
        if (++count > 10000)
            world_violated(world, "rank %u: actions without end", rank);
    }
}

void world_event(struct world *world, uint32_t rank, const struct sl_engine_event *event)
{
    sl_engine_event(world->rank[rank].engine, event, world->now);
    drain_engine(world, rank);
}

static void submit(struct world *world, uint32_t rank)
{
    struct rank *on = &world->rank[rank];
    struct part *part = &world->run[on->submit_order[on->submitted++]].part[rank];
    sluice_status status = SLUICE_LIMIT;
    if (!(world->options.faults & WORLD_REFUSED) || world_chance(world, 80))
        status = sl_engine_add_run(on->engine, &part->config, world->now, &part->index);
    part->submitted = status == SLUICE_OK;
    part->refused = !part->submitted;
    drain_engine(world, rank);
    if (!part->refused || !world->arbiter)
        return;
    struct sl_note note = {.kind = SL_NOTE_REQUEST, .a = SL_REQUEST_FAIL, .key = part->config.key, .rank = rank};
    note.status = status;
    snprintf(note.text, sizeof note.text, "rank %u cannot begin (made up)", rank);
    world_put(world, &on->to_arbiter, &note);
}

static void open_gate(struct world *world, uint32_t rank)
{
    uint32_t run = world_below(world, world->runs);
    uint32_t k = world_below(world, GATES_MAX);
    for (uint32_t i = 0; i < world->runs * GATES_MAX; i++, k++) {
        struct part *part = &world->run[(run + k / GATES_MAX) % world->runs].part[rank];
        uint32_t index = k % GATES_MAX;
        if (index >= part->config.gate_count || part->gates[index].open || part->gate_stuck[index])
            continue;
        if (!part->submitted || part->gone) {
            part->gates[index].open = 1;
            return;
        }
        struct sluice_error error;
        struct sl_engine_event event = {.kind = SL_EVENT_GATE, .run = part->index, .index = index};
        if ((world->options.faults & WORLD_GATE_FAILS) && world_chance(world, 3)) {
            sl_error_set(&error, SLUICE_DEVICE, "world", "a made-up query error");
            event.error = &error;
            part->gate_stuck[index] = 1;
        }
        world_event(world, rank, &event);
        return;
    }
}

static _Bool has_closed_gate(struct world *world, uint32_t rank)
{
    for (uint32_t i = 0; i < world->runs; i++) {
        struct part *part = &world->run[i].part[rank];
        for (uint32_t k = 0; k < part->config.gate_count; k++)
            if (!part->gates[k].open && !part->gate_stuck[k])
                return 1;
    }
    return 0;
}

void world_request(struct world *world, uint32_t rank, struct part *part, enum sl_request kind)
{
    struct sl_engine_event event = {.kind = SL_EVENT_REQUEST, .run = part->index, .index = kind};
    if (part->submitted && !part->gone)
        world_event(world, rank, &event);
}

static void resume(struct world *world, uint32_t rank)
{
    for (uint32_t i = 0; i < world->runs; i++) {
        struct part *part = &world->run[i].part[rank];
        if (part->paused) {
            part->paused = 0;
            world_request(world, rank, part, SL_REQUEST_RESUME);
            return;
        }
    }
}

static _Bool has_paused(struct world *world, uint32_t rank)
{
    for (uint32_t i = 0; i < world->runs; i++)
        if (world->run[i].part[rank].paused)
            return 1;
    return 0;
}

static uint32_t list_rank(struct world *world, uint32_t rank, struct choice *choices)
{
    struct rank *on = &world->rank[rank];
    uint32_t count = 0;
    if (world->arbiter && on->to_arbiter.count > 0)
        choices[count++] = (struct choice){TO_ARBITER, rank};
    if (on->dead)
        return count;
    if (on->from_arbiter.count > 0)
        choices[count++] = (struct choice){FROM_ARBITER, rank};
    if (on->submitted < world->runs)
        choices[count++] = (struct choice){SUBMIT, rank};
    if (has_closed_gate(world, rank))
        choices[count++] = (struct choice){GATE, rank};
    if (backend_candidates(world, rank) > 0)
        choices[count++] = (struct choice){NODE, rank};
    if (on->aborting)
        choices[count++] = (struct choice){ABORTED, rank};
    if (sl_engine_timer(on->engine) <= world->now)
        choices[count++] = (struct choice){TIMER, rank};
    if (has_paused(world, rank) && world_chance(world, 10))
        choices[count++] = (struct choice){RESUME, rank};
    if ((world->faults_left > 0 || world->pauses_left > 0) && world_chance(world, 10))
        choices[count++] = (struct choice){FAULT, rank};
    return count;
}

static uint32_t list(struct world *world, struct choice *choices)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < world->ranks; i++)
        count += list_rank(world, i, choices + count);
    if (world->arbiter && sl_arbiter_timer(world->arbiter) <= world->now)
        choices[count++] = (struct choice){TICK, 0};
    if (world->unreported)
        choices[count++] = (struct choice){REPORT_LOSS, 0};
    if (count > 0)
        return count;
    for (uint32_t i = 0; i < world->ranks; i++)
        if (!world->rank[i].dead && has_paused(world, i))
            choices[count++] = (struct choice){RESUME, i};
    return count;
}

static void happen(struct world *world, const struct choice *choice)
{
    struct rank *on = &world->rank[choice->rank];
    struct sl_engine_event event = {.run = UINT32_MAX};
    struct sl_note note;
    world_trace(world, (uint64_t)choice->what << 8 | choice->rank);
    switch (choice->what) {
    case SUBMIT:
        submit(world, choice->rank);
        break;
    case TO_ARBITER:
        note = inbox_take(&on->to_arbiter);
        sl_arbiter_note(world->arbiter, &note, world->now);
        world_drain_arbiter(world);
        break;
    case FROM_ARBITER:
        note = inbox_take(&on->from_arbiter);
        event.kind = SL_EVENT_NOTE;
        event.note = &note;
        world_event(world, choice->rank, &event);
        break;
    case GATE:
        open_gate(world, choice->rank);
        break;
    case NODE:
        backend_complete(world, choice->rank, world_below(world, backend_candidates(world, choice->rank)));
        break;
    case ABORTED:
        fault_end_abort(world, choice->rank);
        break;
    case TIMER:
        event.kind = SL_EVENT_TIME;
        world_event(world, choice->rank, &event);
        break;
    case TICK:
        sl_arbiter_tick(world->arbiter, world->now);
        world_drain_arbiter(world);
        break;
    case RESUME:
        resume(world, choice->rank);
        break;
    case REPORT_LOSS:
        fault_report_loss(world);
        break;
    case FAULT:
        fault_strike(world, choice->rank);
        break;
    case HAPPENINGS_MAX:
        break;
    }
}

/* Nothing can happen now: to the next deadline. False: there is none. */
static _Bool jump(struct world *world)
{
    uint64_t next = world->arbiter ? sl_arbiter_timer(world->arbiter) : UINT64_MAX;
    for (uint32_t i = 0; i < world->ranks; i++) {
        uint64_t timer = world->rank[i].dead ? UINT64_MAX : sl_engine_timer(world->rank[i].engine);
        next = timer < next ? timer : next;
    }
    if (next == UINT64_MAX)
        return 0;
    world->now = next > world->now ? next : world->now;
    return 1;
}

static void explain(struct world *world)
{
    char text[512];
    for (uint32_t i = 0; i < world->ranks; i++) {
        for (uint32_t run = 0; run < world->runs; run++) {
            struct part *part = &world->run[run].part[i];
            if (world->rank[i].dead || !part->submitted || part->gone)
                continue;
            sl_engine_explain(world->rank[i].engine, part->index, world->now, text, sizeof text);
            world_violated(world, "%s", text);
        }
    }
}

static void open_world(struct world *world)
{
    struct sl_arbiter_config arbiter = {.world = world->ranks, .runs_max = RUNS_MAX, .mem = world->mem};
    if (!(world->options.faults & WORLD_ALONE))
        world->arbiter = sl_arbiter_create(&arbiter);
    for (uint32_t i = 0; i < world->ranks; i++) {
        struct sl_engine_config engine = {.mem = world->mem, .rank = i, .world = world->ranks, .runs_max = RUNS_MAX};
        world->rank[i].engine = sl_engine_create(&engine);
        SL_ASSERT(world->rank[i].engine);
    }
    world->faults_left = 1 + world_below(world, 2);
    world->pauses_left = world->options.faults & WORLD_PAUSE ? 4 : 0;
}

/* When everybody is alive and took part, the arbiter keeps nothing. */
static void check_arbiter(struct world *world)
{
    _Bool all = world->arbiter != NULL;
    for (uint32_t i = 0; i < world->ranks; i++)
        for (uint32_t run = 0; run < world->runs; run++)
            all = all && !world->rank[i].dead;
    if (all && world->arbiter->runs > 0)
        world_violated(world, "the arbiter still keeps %u runs", world->arbiter->runs);
}

static void close_world(struct world *world)
{
    for (uint32_t i = 0; i < world->ranks; i++) {
        world->result->strays += (uint32_t)sl_engine_stray(world->rank[i].engine);
        sl_engine_destroy(world->rank[i].engine);
        sl_free(world->mem, world->rank[i].to_arbiter.notes);
        sl_free(world->mem, world->rank[i].from_arbiter.notes);
    }
    sl_arbiter_destroy(world->arbiter);
    sl_free(world->mem, world);
}

static void loop(struct world *world)
{
    struct choice choices[HAPPENINGS_MAX];
    while (!world->failed) {
        uint32_t count = list(world, choices);
        if (count == 0 && !jump(world))
            break;
        if (count > 0) {
            happen(world, &choices[world_below(world, count)]);
            world->now += world_below(world, 60000);
        }
        if (++world->result->steps > STEPS_MAX)
            world_violated(world, "not settled after %u steps", STEPS_MAX);
    }
}

_Bool world_run(const struct world_options *options, struct world_result *ret)
{
    memset(ret, 0, sizeof *ret);
    struct world *world = sl_new(sl_mem_default(), sizeof *world, "world");
    SL_ASSERT(world);
    world->mem = sl_mem_default();
    world->options = *options;
    world->result = ret;
    world->random.state = sl_mix64(options->seed + 1);
    world->now = 1000000;
    world_draw(world);
    open_world(world);
    loop(world);
    if (!world->failed)
        check_end(world);
    if (!world->failed)
        check_arbiter(world);
    _Bool good = !world->failed;
    if (!good) {
        explain(world);
        world_violated(world, "seed %llu faults %#x", (unsigned long long)options->seed, options->faults);
    }
    close_world(world);
    return good;
}
