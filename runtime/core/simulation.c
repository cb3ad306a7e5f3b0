/*
 * Invariants: runtimes are stepped until none wants to go on at the present time, then time moves to the next
 * event; a note reaches the arbiter, and its answers every rank, in the order in which they were sent.
 */
#include "runtime/core/simulation.h"

#include <string.h>

#include "runtime/control/arbiter.h"
#include "runtime/core/runtime_object.h"
#include "runtime/core/sealed.h"
#include "sluice/transfer.h"

enum { ROUNDS_MAX = 8 };
/* Without any progress for this long a rank gives up: longer than any group of a plan could take. */
#define STALL_LEAST (100 * SLUICE_SECOND)

struct round {
    uint32_t kind, have;
    uint64_t id;
    struct sl_bytes *parts; /* per rank; owned */
};

struct rank {
    struct simulation *simulation;
    uint32_t number;
    sluice_runtime *runtime;
    sluice_plan *plan;
    sluice_transfer *transfer;
    _Bool sealed, ended, released, closed;
    uint64_t ended_ns;
    struct sluice_error error; /* of a failed seal or transfer */
};

struct simulation {
    const struct sl_plan *plan;
    const struct sl_simulation_options *options;
    struct sl_mem *mem;
    struct sl_sim *sim;
    struct sl_arbiter *arbiter;
    uint32_t world;
    struct rank *ranks;
    struct round rounds[ROUNDS_MAX];
    uint64_t stall_ns;
    sluice_status broken; /* a step of the simulation itself failed */
};

/* --- the control plane --- */

struct flight {
    struct simulation *simulation;
    struct sl_note note;
};

static void deliver(void *context, uint64_t argument)
{
    struct flight *flight = context;
    struct simulation *s = flight->simulation;
    (void)argument;
    for (uint32_t r = 0; r < s->world; r++)
        if (!s->ranks[r].closed)
            sl_runtime_on_note(s->ranks[r].runtime, &flight->note);
    sl_free(s->mem, flight);
}

static sluice_status fly(struct simulation *s, const struct sl_note *note, sl_sim_act act)
{
    struct flight *flight = sl_new(s->mem, sizeof *flight, "simulated note");
    if (flight == NULL)
        return SLUICE_NOMEM;
    *flight = (struct flight){s, *note};
    return sl_sim_at(s->sim, sl_sim_now(s->sim) + s->options->note_ns, act, flight, 0);
}

static void answer(struct simulation *s)
{
    struct sl_note note;
    while (sl_arbiter_next(s->arbiter, &note))
        if (s->broken == SLUICE_OK)
            s->broken = fly(s, &note, deliver);
}

static void arbitrate(void *context, uint64_t argument)
{
    struct flight *flight = context;
    struct simulation *s = flight->simulation;
    (void)argument;
    sl_arbiter_note(s->arbiter, &flight->note, sl_sim_now(s->sim));
    answer(s);
    sl_free(s->mem, flight);
}

static sluice_status tell(void *context, const struct sl_note *note)
{
    struct rank *rank = context;
    struct sl_note copy = *note;
    copy.rank = rank->number;
    return fly(rank->simulation, &copy, arbitrate);
}

static void end_round(void *context, uint64_t index)
{
    struct simulation *s = context;
    struct round *round = &s->rounds[index];
    uint8_t *data = NULL;
    size_t bytes = 0;
    struct sluice_error error = {0};
    struct round ended = *round;
    sluice_status status = sl_runtime_reduce(NULL, ended.kind, ended.parts, s->world, s->mem, &data, &bytes, &error);
    *round = (struct round){0};
    for (uint32_t r = 0; r < s->world; r++) {
        sl_runtime_on_round(s->ranks[r].runtime, ended.kind, ended.id, status, &error, data, bytes);
        sl_free(s->mem, (void *)(uintptr_t)ended.parts[r].data);
    }
    sl_free(s->mem, ended.parts);
    sl_free(s->mem, data);
}

static struct round *find_round(struct simulation *s, uint32_t kind, uint64_t id)
{
    struct round *unused = NULL;
    for (uint32_t i = 0; i < ROUNDS_MAX; i++) {
        if (s->rounds[i].parts != NULL && s->rounds[i].kind == kind && s->rounds[i].id == id)
            return &s->rounds[i];
        if (s->rounds[i].parts == NULL)
            unused = &s->rounds[i];
    }
    SL_ASSERT(unused != NULL);
    unused->parts = sl_new_array(s->mem, s->world, sizeof *unused->parts, "simulated round");
    unused->kind = kind;
    unused->id = id;
    return unused->parts == NULL ? NULL : unused;
}

static sluice_status give_part(void *context, uint32_t kind, uint64_t id, const void *data, size_t bytes,
                               uint64_t timeout_ns)
{
    struct rank *rank = context;
    struct simulation *s = rank->simulation;
    (void)timeout_ns;
    struct round *round = find_round(s, kind, id);
    uint8_t *copy = sl_new(s->mem, bytes, "simulated round");
    if (round == NULL || copy == NULL)
        return SLUICE_NOMEM;
    memcpy(copy, data, bytes);
    round->parts[rank->number] = (struct sl_bytes){copy, bytes};
    if (++round->have < s->world)
        return SLUICE_OK;
    return sl_sim_at(s->sim, sl_sim_now(s->sim), end_round, s, (uint64_t)(round - s->rounds));
}

/* --- ranks --- */

static void on_event(const struct sluice_event *event, void *user)
{
    struct rank *rank = user;
    switch ((enum sluice_event_kind)event->kind) {
    case SLUICE_EVENT_SEALED:
        rank->sealed = 1;
        break;
    case SLUICE_EVENT_COMPLETED:
    case SLUICE_EVENT_COMMITTED:
    case SLUICE_EVENT_CANCELLED:
        rank->ended = 1;
        rank->ended_ns = event->time_ns;
        break;
    case SLUICE_EVENT_FAILED:
        rank->ended = 1;
        rank->ended_ns = event->time_ns;
        rank->error = *event->error;
        break;
    case SLUICE_EVENT_RELEASED:
        rank->released = 1;
        break;
    case SLUICE_EVENT_CLOSED:
        rank->closed = 1;
        break;
    case SLUICE_EVENT_STARTED:
    case SLUICE_EVENT_WINDOW:
    case SLUICE_EVENT_PARAM:
    case SLUICE_EVENT_STAGED:
    case SLUICE_EVENT_STALLED:
    case SLUICE_EVENT_PEER_LOST:
        break;
    }
}

/* What a simulated rank would log is in the result. */
static void be_silent(enum sluice_log_level level, const char *topic, const char *text, void *user)
{
    (void)level;
    (void)topic;
    (void)text;
    (void)user;
}

static sluice_status open_rank(struct simulation *s, struct rank *rank)
{
    struct sl_runtime_hooks hooks = {
        .clock = sl_sim_clock(s->sim), .backend = sl_sim_backend(), .backend_extra = s->sim, .threadless = 1};
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    if (s->world > 1)
        hooks.link = (struct sl_link){rank, tell, give_part};
    options.delivery = SLUICE_DELIVER_FD;
    options.on_event = on_event;
    options.on_log = be_silent;
    options.user = rank;
    options.world = s->world;
    options.rank = rank->number;
    options.address = "127.0.0.1"; /* never used: the link is ours */
    options.port = 1;
    options.seal_timeout_ns = UINT64_MAX;
    options.stall_timeout_ns = s->stall_ns;
    options.staging_bytes_max = UINT64_MAX;
    return sl_runtime_open_with(&options, &hooks, &rank->runtime);
}

static sluice_status fill_plan(struct simulation *s, struct rank *rank)
{
    const struct sl_plan *plan = s->plan;
    struct sl_plan *store = &rank->plan->store;
    sluice_status status = SLUICE_OK;
    for (size_t p = 0; status == SLUICE_OK && p < plan->param_count; p++) {
        const struct sl_param *param = &plan->params[p];
        const struct sluice_param copy = {param->id, param->dtype, param->bytes, param->row_bytes,
                                          sl_param_name(plan, param->id)};
        status = sl_plan_add_param(store, &copy);
    }
    for (size_t b = 0; status == SLUICE_OK && b < plan->buffer_count; b++) {
        const struct sl_buffer *buffer = &plan->buffers[b];
        status = sl_plan_add_buffer(store, buffer->param, buffer->rank, (enum sluice_role)buffer->role, buffer->bytes);
    }
    for (size_t t = 0; status == SLUICE_OK && t < plan->task_count; t++)
        status = sl_plan_add_task(store, &plan->tasks[t]);
    return status;
}

#define NO_BUFFER UINT64_MAX

static void need(uint64_t *have, uint64_t bytes)
{
    if (*have == NO_BUFFER || bytes > *have)
        *have = bytes;
}

/* Bytes of this rank's buffers, at 2 * parameter + role: what tasks touch, and what the plan says beside. */
static void measure(const struct sl_plan *plan, uint32_t rank, uint64_t *ret_bytes)
{
    for (size_t i = 0; i < 2 * plan->param_count; i++)
        ret_bytes[i] = NO_BUFFER;
    for (size_t t = 0; t < plan->task_count; t++) {
        const struct sluice_task *task = &plan->tasks[t];
        if (task->source == rank)
            need(&ret_bytes[2 * task->param + SLUICE_ROLE_SOURCE], sl_region_end(&task->from));
        if (task->destination == rank)
            need(&ret_bytes[2 * task->param + SLUICE_ROLE_DESTINATION], sl_region_end(&task->to));
    }
    for (size_t b = 0; b < plan->buffer_count; b++)
        if (plan->buffers[b].rank == rank)
            need(&ret_bytes[2 * plan->buffers[b].param + plan->buffers[b].role], plan->buffers[b].bytes);
}

/* Buffers lie one behind the other where no process has memory: they are never touched. */
static sluice_status bind_plan(struct simulation *s, struct rank *rank)
{
    uint64_t address = UINT64_C(1) << 62;
    size_t count = 2 * s->plan->param_count;
    uint64_t *bytes = sl_new_array(s->mem, count, sizeof *bytes, "simulated buffers");
    sluice_status status = bytes != NULL ? SLUICE_OK : SLUICE_NOMEM;
    if (status == SLUICE_OK)
        measure(s->plan, rank->number, bytes);
    for (size_t i = 0; status == SLUICE_OK && i < count; i++) {
        if (bytes[i] == NO_BUFFER)
            continue;
        status = sluice_plan_bind(rank->plan, (uint32_t)(i / 2), (enum sluice_role)(i % 2), (void *)(uintptr_t)address,
                                  bytes[i]);
        address += (bytes[i] + 511) & ~UINT64_C(255);
    }
    sl_free(s->mem, bytes);
    return status;
}

static sluice_status start_rank(struct simulation *s, uint32_t number)
{
    struct rank *rank = &s->ranks[number];
    *rank = (struct rank){.simulation = s, .number = number};
    sluice_status status = open_rank(s, rank);
    if (status == SLUICE_OK)
        status = sluice_plan_create(s->world, &rank->plan);
    if (status == SLUICE_OK)
        status = fill_plan(s, rank);
    if (status == SLUICE_OK)
        status = bind_plan(s, rank);
    if (status == SLUICE_OK)
        status = sluice_plan_seal(rank->plan, rank->runtime, &s->options->seal);
    return status;
}

/* --- running --- */

/* Lets every runtime do what it can now; the time at which one of them wants to be asked again. */
static uint64_t step_all(struct simulation *s)
{
    uint64_t now = sl_sim_now(s->sim);
    uint64_t next = UINT64_MAX;
    for (uint32_t r = 0; r < s->world; r++) {
        struct rank *rank = &s->ranks[r];
        if (rank->runtime == NULL || rank->closed)
            continue;
        uint64_t wanted = sl_runtime_step(rank->runtime, now);
        SL_IGNORE(sluice_dispatch(rank->runtime) > 0);
        next = wanted < next ? wanted : next;
    }
    return next;
}

typedef _Bool (*done_fn)(const struct rank *rank);

static _Bool is_sealed(const struct rank *rank)
{
    return rank->sealed || rank->error.status != SLUICE_OK;
}

static _Bool is_released(const struct rank *rank)
{
    return rank->released;
}

static _Bool is_closed(const struct rank *rank)
{
    return rank->closed || rank->runtime == NULL;
}

static _Bool all_are(const struct simulation *s, done_fn done)
{
    for (uint32_t r = 0; r < s->world; r++)
        if (!done(&s->ranks[r]))
            return 0;
    return 1;
}

static sluice_status stuck(const struct simulation *s, done_fn done)
{
    char text[SLUICE_ERROR_TEXT_MAX / 2] = "it waits for the others";
    for (uint32_t r = 0; r < s->world; r++) {
        if (done(&s->ranks[r]))
            continue;
        if (s->ranks[r].transfer != NULL)
            (void)sluice_transfer_explain(s->ranks[r].transfer, text, sizeof text);
        return sl_fail(SLUICE_STATE, "simulation", "nothing can happen any more and rank %u has not ended: %s", r,
                       text);
    }
    return SLUICE_OK;
}

static sluice_status run_until(struct simulation *s, done_fn done)
{
    for (;;) {
        uint64_t next = step_all(s);
        if (s->broken != SLUICE_OK || all_are(s, done))
            return s->broken;
        uint64_t timer = s->arbiter == NULL ? UINT64_MAX : sl_arbiter_timer(s->arbiter);
        next = timer < next ? timer : next;
        if (next <= sl_sim_now(s->sim))
            next = sl_sim_now(s->sim);
        _Bool moved = sl_sim_next(s->sim, next);
        if (!moved && next == UINT64_MAX)
            return stuck(s, done);
        if (s->arbiter != NULL && sl_arbiter_timer(s->arbiter) <= sl_sim_now(s->sim)) {
            sl_arbiter_tick(s->arbiter, sl_sim_now(s->sim));
            answer(s);
        }
    }
}

static sluice_status transfer_once(struct simulation *s, struct sl_simulation *ret)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    uint64_t begin = sl_sim_now(s->sim), end = begin;
    sluice_status status = SLUICE_OK;
    for (uint32_t r = 0; status == SLUICE_OK && r < s->world; r++) {
        options.on_event = on_event;
        options.user = &s->ranks[r];
        status = sluice_submit(s->ranks[r].plan, &options, &s->ranks[r].transfer);
    }
    if (status == SLUICE_OK)
        status = run_until(s, is_released);
    for (uint32_t r = 0; status == SLUICE_OK && r < s->world; r++) {
        const struct rank *rank = &s->ranks[r];
        end = rank->ended_ns > end ? rank->ended_ns : end;
        if (rank->error.status != SLUICE_OK && ret->status == SLUICE_OK) {
            ret->status = rank->error.status;
            ret->error = rank->error;
        }
    }
    ret->makespan = (double)(end - begin) / 1e9;
    return status;
}

static void end_ranks(struct simulation *s)
{
    for (uint32_t r = 0; s->ranks != NULL && r < s->world; r++) {
        sluice_transfer_destroy(s->ranks[r].transfer);
        sluice_plan_destroy(s->ranks[r].plan);
        if (s->ranks[r].runtime != NULL)
            sluice_runtime_close(s->ranks[r].runtime);
    }
    if (s->ranks != NULL)
        SL_IGNORE(run_until(s, is_closed));
    while (s->sim != NULL && sl_sim_next(s->sim, UINT64_MAX)) /* notes that are still on their way */
        ;
    for (uint32_t r = 0; s->ranks != NULL && r < s->world; r++)
        if (s->ranks[r].runtime != NULL)
            sluice_runtime_destroy(s->ranks[r].runtime);
}

static void drop(struct simulation *s)
{
    end_ranks(s);
    sl_arbiter_destroy(s->arbiter);
    sl_sim_destroy(s->sim);
    sl_free(s->mem, s->ranks);
}

/* Twice what all tasks of the plan take one after the other. */
static uint64_t stall_of(const struct simulation *s)
{
    double bytes = 0;
    for (size_t t = 0; t < s->plan->task_count; t++)
        bytes += (double)sl_task_bytes(&s->plan->tasks[t]);
    double seconds = 2 * bytes / s->options->world.link;
    return STALL_LEAST + (seconds < 1e9 ? (uint64_t)(seconds * 1e9) : UINT64_C(1) << 60);
}

static sluice_status open_world(struct simulation *s)
{
    s->stall_ns = stall_of(s);
    const struct sl_arbiter_config arbiter = {.world = s->world, .runs_max = 16, .mem = s->mem};
    s->sim = sl_sim_create(&s->options->world, s->world, s->mem);
    s->ranks = sl_new_array(s->mem, s->world, sizeof *s->ranks, "simulated ranks");
    if (s->world > 1)
        s->arbiter = sl_arbiter_create(&arbiter);
    if (s->sim == NULL || s->ranks == NULL || (s->world > 1 && s->arbiter == NULL))
        return SLUICE_NOMEM;
    sluice_status status = SLUICE_OK;
    for (uint32_t r = 0; status == SLUICE_OK && r < s->world; r++)
        status = start_rank(s, r);
    return status;
}

sluice_status sl_simulate(const struct sl_plan *plan, const struct sl_simulation_options *options, struct sl_mem *mem,
                          struct sl_simulation *ret)
{
    if (plan->world > SL_SIMULATION_RANKS_MAX)
        return sl_fail(SLUICE_LIMIT, "simulation", "%u ranks: the engine is simulated with at most %d", plan->world,
                       SL_SIMULATION_RANKS_MAX);
    struct simulation s = {.plan = plan, .options = options, .mem = mem, .world = plan->world};
    struct sl_simulation result = {.status = SLUICE_OK};
    sluice_status status = open_world(&s);
    if (status == SLUICE_OK)
        status = run_until(&s, is_sealed);
    for (uint32_t r = 0; status == SLUICE_OK && r < s.world; r++)
        if (s.ranks[r].error.status != SLUICE_OK)
            status = sl_fail_copy(&s.ranks[r].error);
    if (status == SLUICE_OK)
        result.windows = sluice_plan_windows(s.ranks[0].plan);
    if (status == SLUICE_OK)
        status = transfer_once(&s, &result);
    if (s.sim != NULL)
        result.trace = sl_sim_trace(s.sim);
    drop(&s);
    if (status == SLUICE_OK)
        *ret = result;
    return status;
}
