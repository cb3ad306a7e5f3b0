/*
 * job_app.c: what the application of a made-up job does on each rank.
 *
 * - It seals its plans and submits their runs in one order on all ranks, each at its own time; what is refused for
 *   want of room or memory it tries again, and anything else makes it close its runtime.
 * - It opens each gate at some time, and gates that a fault keeps closed once faults have ended.
 * - Sources are filled with new bytes when no run of the plan is live, so that a late read shows.
 */
#include <stdio.h>
#include <string.h>

#include "sluice/transfer.h"
#include "tools/faults/job_state.h"

#define SOON        (5 * SLUICE_MILLISECOND)
#define TRY_AGAIN   SLUICE_MILLISECOND
#define GATES_OPEN  (20 * SLUICE_MILLISECOND)
#define BUFFER_ZERO 0xa5

static void seal_next(void *context, uint64_t argument);
static void submit_next(void *context, uint64_t plan);

struct job_run *job_find_run(struct job_rank *rank, uint64_t key)
{
    for (uint32_t p = 0; p < rank->job->plans; p++)
        for (uint32_t i = 0; i < rank->plan[p].submitted; i++)
            if (rank->plan[p].run[i].key == key)
                return &rank->plan[p].run[i];
    return NULL;
}

static void close_now(void *context, uint64_t argument)
{
    (void)argument;
    job_app_close(context);
}

void job_app_close(struct job_rank *rank)
{
    if (rank->dead || rank->closing)
        return;
    rank->closing = 1;
    rank->woken = 1;
    sluice_runtime_close(rank->runtime);
}

void job_app_destroy(struct job_rank *rank, uint32_t p)
{
    struct job_plan *plan = &rank->plan[p];
    sluice_plan_destroy(plan->plan);
    plan->plan = NULL;
    plan->failed = 1;
    rank->woken = 1;
    job_later(rank->job, SOON, close_now, rank, 0);
}

/* --- events --- */

static void on_runtime_event(const struct sluice_event *event, void *user)
{
    struct job_rank *rank = user;
    struct job *job = rank->job;
    if (event->kind == SLUICE_EVENT_CLOSED)
        rank->closed = 1;
    if (event->kind != SLUICE_EVENT_SEALED && event->kind != SLUICE_EVENT_FAILED)
        return;
    for (uint32_t p = 0; p < job->plans; p++) {
        struct job_plan *plan = &rank->plan[p];
        if (plan->plan == NULL || event->plan != plan->plan)
            continue;
        if (plan->sealed || plan->failed)
            job_violated(job, "rank %u: plan %u has a second end of its seal", rank->number, p);
        plan->sealed = event->kind == SLUICE_EVENT_SEALED;
        plan->failed = !plan->sealed;
        job->result->seals_failed += plan->failed;
        job_later(job, SOON, plan->sealed ? submit_next : close_now, rank, p);
    }
}

static void on_run_event(const struct sluice_event *event, void *user)
{
    check_event(user, event);
}

static void be_silent(enum sluice_log_level level, const char *topic, const char *text, void *user)
{
    (void)level;
    (void)topic;
    (void)text;
    (void)user;
}

/* --- gates --- */

static void open_gate(void *context, uint64_t role)
{
    struct job_run *run = context;
    struct job_rank *rank = run->rank;
    if (!job_live(rank) || run->gate[role] == NULL)
        return;
    SL_IGNORE(sluice_gate_open(run->gate[role]));
    rank->woken = 1;
}

static void open_later(struct job *job, struct job_run *run, uint32_t role)
{
    _Bool held = (job->options.faults & JOB_GATE) && !job->faults_over && job_chance(job, 20);
    if (!held)
        job_later(job, GATES_OPEN, open_gate, run, role);
}

static struct job_run *run_at(struct job *job, uint32_t index)
{
    struct job_rank *rank = &job->rank[index / (JOB_PLANS * JOB_RUNS)];
    return &rank->plan[index / JOB_RUNS % JOB_PLANS].run[index % JOB_RUNS];
}

void job_open_gates(struct job *job)
{
    for (uint32_t i = 0; i < job->ranks * JOB_PLANS * JOB_RUNS; i++)
        for (uint32_t role = 0; role < 2; role++)
            if (run_at(job, i)->gate[role] != NULL)
                open_gate(run_at(job, i), role);
}

void job_resume_all(struct job *job)
{
    for (uint32_t i = 0; i < job->ranks * JOB_PLANS * JOB_RUNS; i++) {
        struct job_run *run = run_at(job, i);
        if (!run->paused || run->transfer == NULL || !job_live(run->rank))
            continue;
        run->paused = 0;
        run->rank->woken = 1;
        sluice_transfer_resume(run->transfer);
    }
}

/* --- buffers --- */

static void fill(struct job *job, struct job_plan *plan, uint32_t tasks, const struct sluice_task *task)
{
    for (uint32_t t = 0; t < tasks; t++) {
        if (plan->fill[t] == 0 || job_chance(job, 70)) /* some stay as they were: changed_only leaves them out */
            plan->fill[t] = ++job->fill;
        for (uint64_t i = 0; plan->buffer[t][SLUICE_ROLE_SOURCE] != NULL && i < task[t].from.row_bytes; i++)
            plan->buffer[t][SLUICE_ROLE_SOURCE][i] = job_byte(plan->fill[t], i);
    }
}

static void remember(struct job_plan *plan, uint32_t tasks, const struct sluice_task *task)
{
    for (uint32_t t = 0; t < tasks; t++)
        if (plan->before[t] != NULL)
            memcpy(plan->before[t], plan->buffer[t][SLUICE_ROLE_DESTINATION], task[t].from.row_bytes);
}

static sluice_status make_buffer(struct job_rank *rank, struct job_plan *plan, uint32_t t, enum sluice_role role,
                                 uint64_t bytes)
{
    struct job *job = rank->job;
    plan->buffer[t][role] = sl_new(job->mem, bytes, "buffer");
    SL_ASSERT(plan->buffer[t][role] != NULL);
    memset(plan->buffer[t][role], BUFFER_ZERO, bytes);
    if (role == SLUICE_ROLE_DESTINATION) {
        plan->before[t] = sl_new(job->mem, bytes, "buffer");
        SL_ASSERT(plan->before[t] != NULL);
    }
    return sluice_plan_bind(plan->plan, t, role, plan->buffer[t][role], bytes);
}

static sluice_status make_plan(struct job_rank *rank, uint32_t p)
{
    const struct sl_plan *spec = &rank->job->spec[p].plan;
    struct job_plan *plan = &rank->plan[p];
    sluice_status status = sluice_plan_create(rank->job->ranks, &plan->plan);
    for (uint32_t t = 0; status == SLUICE_OK && t < spec->param_count; t++) {
        const struct sluice_param param = {
            .id = t, .dtype = SLUICE_DTYPE_U8, .bytes = spec->params[t].bytes, .name = "weight"};
        status = sluice_plan_add_param(plan->plan, &param);
    }
    for (size_t b = 0; status == SLUICE_OK && b < spec->buffer_count; b++)
        status = sluice_plan_add_buffer(plan->plan, spec->buffers[b].param, spec->buffers[b].rank,
                                        (enum sluice_role)spec->buffers[b].role, spec->buffers[b].bytes);
    for (size_t t = 0; status == SLUICE_OK && t < spec->task_count; t++)
        status = sluice_plan_add_task(plan->plan, &spec->tasks[t]);
    for (size_t b = 0; status == SLUICE_OK && b < spec->buffer_count; b++)
        if (spec->buffers[b].rank == rank->number)
            status = make_buffer(rank, plan, spec->buffers[b].param, (enum sluice_role)spec->buffers[b].role,
                                 spec->buffers[b].bytes);
    return status;
}

/* --- sealing and submitting --- */

static void seal_next(void *context, uint64_t argument)
{
    struct job_rank *rank = context;
    struct job *job = rank->job;
    uint32_t p = rank->seals;
    (void)argument;
    if (!job_live(rank) || rank->closing || p == job->plans)
        return;
    struct job_plan *plan = &rank->plan[p];
    if (plan->plan == NULL) { /* destroyed: the rank is about to close */
        rank->seals++;
        return;
    }
    sluice_status status = sluice_plan_seal(plan->plan, rank->runtime, &job->spec[p].seal);
    rank->seals++;
    plan->asked = 1;
    plan->failed = status != SLUICE_OK; /* the others learn it from the seal itself */
    rank->woken = 1;
    job_later(job, SOON, status == SLUICE_OK ? seal_next : close_now, rank, 0);
}

static _Bool plan_is_quiet(const struct job_plan *plan)
{
    for (uint32_t i = 0; i < plan->submitted; i++)
        if (!plan->run[i].released)
            return 0;
    return 1;
}

static sluice_status make_gates(struct job_run *run)
{
    struct job *job = run->rank->job;
    sluice_status status = SLUICE_OK;
    for (uint32_t role = 0; status == SLUICE_OK && role < 2; role++)
        if (run->gate[role] == NULL && job_chance(job, 40))
            status = sluice_gate_host(run->rank->runtime, &run->gate[role]);
    return status;
}

static sluice_status submit(struct job_rank *rank, uint32_t p, struct job_run *run)
{
    struct job *job = rank->job;
    const struct plan_spec *spec = &job->spec[p];
    const struct run_spec *given = &spec->run[run->number];
    struct job_plan *plan = &rank->plan[p];
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    sluice_status status = make_gates(run);
    if (status != SLUICE_OK)
        return status;
    run->alone = plan_is_quiet(plan);
    if (run->alone) {
        fill(job, plan, (uint32_t)spec->plan.task_count, spec->plan.tasks);
        remember(plan, (uint32_t)spec->plan.task_count, spec->plan.tasks);
    }
    memcpy(run->fill, plan->fill, sizeof run->fill);
    options.landing = given->shadow ? SLUICE_LANDING_SHADOW : SLUICE_LANDING_IN_PLACE;
    options.allow_torn = 1;
    options.verify = given->verify;
    options.changed_only = given->changed_only;
    options.window_events = given->window_events;
    options.pace_bytes_per_second = given->pace;
    options.gate_timeout_ns = given->gate_timeout;
    options.source_gate = run->gate[SLUICE_ROLE_SOURCE];
    options.consumer_gate = run->gate[SLUICE_ROLE_DESTINATION];
    options.params = given->params != 0 ? &given->params : NULL;
    options.params_words = given->params != 0;
    options.on_event = on_run_event;
    options.user = run;
    return sluice_submit(plan->plan, &options, &run->transfer);
}

static void submit_next(void *context, uint64_t p)
{
    struct job_rank *rank = context;
    struct job *job = rank->job;
    struct job_plan *plan = &rank->plan[p];
    if (!job_live(rank) || rank->closing || plan->plan == NULL || plan->submitted == job->spec[p].runs)
        return;
    struct job_run *run = &plan->run[plan->submitted];
    *run = (struct job_run){
        .rank = rank, .plan = (uint32_t)p, .number = plan->submitted, .gate = {run->gate[0], run->gate[1]}};
    sluice_status status = submit(rank, (uint32_t)p, run);
    if (status == SLUICE_NOMEM || status == SLUICE_AGAIN) {
        job_later(job, TRY_AGAIN, submit_next, rank, p);
        return;
    }
    if (status != SLUICE_OK) {
        job_later(job, SOON, close_now, rank, 0);
        return;
    }
    run->key = run->transfer->config.key;
    plan->submitted++;
    rank->woken = 1;
    for (uint32_t role = 0; role < 2; role++)
        if (run->gate[role] != NULL)
            open_later(job, run, role);
    job_later(job, job_chance(job, 50) ? SOON : 10 * SOON, submit_next, rank, p);
}

/* --- beginning and end --- */

static void open_rank(struct job *job, struct job_rank *rank)
{
    struct sl_runtime_hooks hooks = {
        .clock = sl_sim_clock(job->sim), .backend = job_backend(), .backend_extra = rank, .threadless = 1};
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    if (job->ranks > 1)
        hooks.link = (struct sl_link){rank, job_tell, job_give};
    options.delivery = SLUICE_DELIVER_FD;
    options.on_event = on_runtime_event;
    options.on_log = be_silent;
    options.user = rank;
    options.world = job->ranks;
    options.rank = rank->number;
    options.address = "127.0.0.1"; /* never used: the link is ours */
    options.port = 1;
    options.seal_timeout_ns = JOB_SEAL_TIMEOUT;
    options.stall_timeout_ns = JOB_STALL_TIMEOUT;
    options.abort_timeout_ns = JOB_ABORT_TIMEOUT;
    sluice_status status = sl_runtime_open_with(&options, &hooks, &rank->runtime);
    for (uint32_t p = 0; status == SLUICE_OK && p < job->plans; p++)
        status = make_plan(rank, p);
    rank->woken = 1;
    if (status == SLUICE_OK)
        job_later(job, SOON, seal_next, rank, 0);
    else if (rank->runtime != NULL)
        job_later(job, SOON, close_now, rank, 0);
    else
        job_gone(job, rank, SLUICE_CLOSED); /* a real bootstrap would fail on all ranks */
    if (status != SLUICE_OK && job->theirs.failed == 0 && !job->result->struck)
        job_violated(job, "rank %u does not open: %s", rank->number, sluice_last_error()->text);
}

void job_app_open(struct job *job)
{
    for (uint32_t r = 0; r < job->ranks; r++)
        job->rank[r] = (struct job_rank){.job = job, .number = r, .wanted = UINT64_MAX};
    for (uint32_t r = 0; r < job->ranks && !job->failed; r++)
        open_rank(job, &job->rank[r]);
}

/* After an abort that failed a transfer is over without RELEASED: its buffers are never free. */
static _Bool is_over(const struct job_run *run)
{
    return run->released || (run->ends > 0 && atomic_load(&run->transfer->over));
}

static _Bool plan_is_over(const struct job_rank *rank, uint32_t p)
{
    const struct job_plan *plan = &rank->plan[p];
    for (uint32_t i = 0; i < plan->submitted; i++)
        if (!is_over(&plan->run[i]))
            return 0;
    return plan->failed || (plan->sealed && plan->submitted == rank->job->spec[p].runs);
}

_Bool job_app_idle(const struct job *job)
{
    for (uint32_t r = 0; r < job->ranks; r++)
        for (uint32_t p = 0; p < job->plans; p++)
            if (job_live(&job->rank[r]) && !job->rank[r].closing && !plan_is_over(&job->rank[r], p))
                return 0;
    return 1;
}

void job_app_drop(struct job_rank *rank)
{
    for (uint32_t p = 0; p < rank->job->plans; p++) {
        struct job_plan *plan = &rank->plan[p];
        for (uint32_t i = 0; i < JOB_RUNS; i++) {
            sluice_transfer_destroy(plan->run[i].transfer);
            sluice_gate_destroy(plan->run[i].gate[0]);
            sluice_gate_destroy(plan->run[i].gate[1]);
        }
        sluice_plan_destroy(plan->plan);
    }
    if (rank->runtime != NULL)
        sluice_runtime_destroy(rank->runtime);
}
