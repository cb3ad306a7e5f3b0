/*
 * job_check.c: what must hold after every step of a made-up job, and at its end.
 *
 * - Operations of a run reach each queue in the order of its windows, at most `slots` windows at once; each that
 *   wants a completion gets one. After the staged prefix, and the commit, only with the votes of all ranks.
 * - One terminal event, then RELEASED, then nothing; from RELEASED on no queue refers to the application's memory.
 * - A transfer that succeeded has every byte; one that failed in shadow memory, and does not say otherwise, none.
 * - Success on one rank is success on all that live and know the outcome.
 */
#include <stdio.h>
#include <string.h>

#include "tools/faults/job_state.h"

#define GARBAGE 0x5a

static uint32_t window_of(uint64_t cookie)
{
    return (uint32_t)cookie;
}

static uint32_t node_of(uint64_t cookie)
{
    return (uint32_t)(cookie >> 32) & 0xffu;
}

static const struct sluice_transfer *transfer_of(const struct job_rank *rank, uint64_t cookie)
{
    if (cookie & SL_COOKIE_PART)
        return (const struct sluice_transfer *)(uintptr_t)(cookie & ~SL_COOKIE_PART);
    return rank->runtime->driver.runs[cookie >> 40];
}

/* --- operations --- */

static void check_decided(struct job_rank *rank, uint64_t key, const char *what)
{
    struct job *job = rank->job;
    for (uint32_t r = 0; job->ranks > 1 && r < job->ranks; r++) {
        const struct job_run *run = job_find_run(&job->rank[r], key);
        if (run == NULL || !run->decided)
            job_violated(job, "rank %u: %s without the vote of rank %u", rank->number, what, r);
    }
}

/* Where an operation stands among those of its run on one queue. */
static uint64_t place_of(const struct sluice_op *op)
{
    enum { DIGEST_SOURCE, PACK, WAIT, GROUP, RECORD, UNPACK, DIGEST_LANDED, LOCAL, DIGEST_LOCAL, STEPS };
    uint64_t step = LOCAL;
    if (op->kind == SLUICE_OP_DIGEST && node_of(op->cookie) == SL_NODE_LOCAL)
        step = DIGEST_LOCAL;
    else if (op->kind == SLUICE_OP_DIGEST)
        step = node_of(op->cookie) == SL_NODE_UNPACK ? DIGEST_LANDED : DIGEST_SOURCE;
    if (op->kind == SLUICE_OP_COPY && op->set->kind == SLUICE_COPY_COMMIT)
        return UINT64_MAX;
    if (op->kind == SLUICE_OP_COPY && op->set->kind != SLUICE_COPY_LOCAL)
        step = op->set->kind == SLUICE_COPY_PACK ? PACK : UNPACK;
    if (op->kind == SLUICE_OP_WAIT)
        step = WAIT;
    if (op->kind == SLUICE_OP_GROUP)
        step = GROUP;
    if (op->kind == SLUICE_OP_RECORD)
        step = RECORD;
    return 1 + (uint64_t)window_of(op->cookie) * STEPS + step;
}

static void check_order(struct job_rank *rank, const struct sluice_queue *queue, const struct sluice_op *op,
                        uint64_t key)
{
    uint32_t lane = 0;
    while (lane < SL_LANES && rank->runtime->driver.lanes[lane] != queue)
        lane++;
    SL_ASSERT(lane < SL_LANES);
    struct queue_place *place = rank->places[lane];
    while (place->place != 0 && place->key != key)
        place++;
    SL_ASSERT(place < rank->places[lane] + SL_COUNT(rank->places[lane]));
    uint64_t now = place_of(op);
    if (now <= place->place)
        job_violated(rank->job, "rank %u queue %u: operation %llu after %llu of one run", rank->number, lane,
                     (unsigned long long)now, (unsigned long long)place->place);
    *place = (struct queue_place){key, now};
}

static void check_slots(struct job_rank *rank, const struct sluice_transfer *transfer)
{
    uint32_t windows[JOB_OPS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < rank->op_count; i++) {
        uint32_t known = 0;
        uint64_t cookie = rank->ops[i].cookie;
        if (rank->ops[i].key != transfer->config.key || (cookie & SL_COOKIE_PART) || node_of(cookie) == SL_NODE_COMMIT)
            continue;
        while (known < count && windows[known] != window_of(cookie))
            known++;
        if (known == count)
            windows[count++] = window_of(cookie);
    }
    if (count > transfer->config.slots)
        job_violated(rank->job, "rank %u: %u windows in flight in %u slots", rank->number, count,
                     transfer->config.slots);
}

void check_accepted(struct job_rank *rank, const struct sluice_queue *queue, const struct sluice_op *op)
{
    const struct sluice_transfer *transfer = transfer_of(rank, op->cookie);
    if (transfer == NULL) {
        job_violated(rank->job, "rank %u: an operation of no transfer", rank->number);
        return;
    }
    uint64_t key = transfer->config.key;
    _Bool commit = op->kind == SLUICE_OP_COPY && op->set->kind == SLUICE_COPY_COMMIT;
    _Bool part = (op->cookie & SL_COOKIE_PART) != 0; /* of which window is not known */
    _Bool moves = node_of(op->cookie) != SL_NODE_SOURCES;
    if (commit || (moves && !part && transfer->config.shadow && window_of(op->cookie) >= transfer->config.staged))
        check_decided(rank, key, commit ? "a commit" : "a window after the staged prefix");
    if (!part)
        check_order(rank, queue, op, key);
    if (!op->notify)
        return;
    SL_ASSERT(rank->op_count < JOB_OPS);
    rank->ops[rank->op_count++] = (struct job_op){op->cookie, key};
    check_slots(rank, transfer);
}

void check_completed(struct job_rank *rank, const struct sluice_completion *completion)
{
    if (completion->cookie == SL_COOKIE_GROUP_OPEN)
        return;
    for (uint32_t i = 0; i < rank->op_count; i++)
        if (rank->ops[i].cookie == completion->cookie) {
            rank->ops[i] = rank->ops[--rank->op_count];
            return;
        }
    job_violated(rank->job, "rank %u: a completion that nobody waits for", rank->number);
}

void check_step(struct job_rank *rank)
{
    const struct sl_driver *driver = &rank->runtime->driver;
    /* Completions of the batch that is being worked on are taken one by one: at the end of a step both agree. */
    if (rank->device != NULL && driver->in_flight != rank->op_count)
        job_violated(rank->job, "rank %u: %u operations in flight, the driver counts %u", rank->number, rank->op_count,
                     driver->in_flight);
}

/* --- memory of the application --- */

static _Bool within(uint64_t address, const uint8_t *memory, uint64_t bytes)
{
    return address >= (uintptr_t)memory && address < (uintptr_t)memory + bytes;
}

static _Bool op_uses(const struct sluice_op *op, const uint8_t *memory, uint64_t bytes)
{
    for (uint32_t i = 0; op->kind == SLUICE_OP_GROUP && i < op->message_count; i++)
        if (within(op->messages[i].address, memory, bytes))
            return 1;
    _Bool set = op->kind == SLUICE_OP_COPY || op->kind == SLUICE_OP_DIGEST;
    for (size_t i = 0; set && i < op->set->count; i++)
        if (within(op->set->pieces[i].from.address, memory, bytes) ||
            within(op->set->pieces[i].to.address, memory, bytes))
            return 1;
    return 0;
}

static _Bool in_use(const struct job_rank *rank, const uint8_t *memory, uint64_t bytes)
{
    const struct sluice_device *device = rank->device;
    for (uint32_t q = 0; device != NULL && q < device->queue_count; q++)
        for (uint64_t i = device->queues[q]->head; i < device->queues[q]->tail; i++)
            if (op_uses(&device->queues[q]->ops[i % SL_SIM_OPS_MAX].op, memory, bytes))
                return 1;
    return 0;
}

static struct job_plan *plan_of(const struct job_run *run)
{
    return &run->rank->plan[run->plan];
}

static const struct sl_plan *spec_of(const struct job_run *run)
{
    return &run->rank->job->spec[run->plan].plan;
}

/* No other run of the plan was there beside this one. */
static _Bool was_alone(const struct job_run *run)
{
    return run->alone && plan_of(run)->submitted == run->number + 1;
}

static void check_content(struct job_run *run)
{
    struct job *job = run->rank->job;
    const struct sl_plan *spec = spec_of(run);
    for (uint32_t t = 0; t < spec->task_count; t++) {
        const uint8_t *buffer = plan_of(run)->buffer[t][SLUICE_ROLE_DESTINATION];
        uint64_t from = job->rank[spec->tasks[t].source].plan[run->plan].run[run->number].fill[t];
        uint64_t moved = job->spec[run->plan].run[run->number].params;
        if (moved != 0 && (moved >> t & 1) == 0)
            continue;
        for (uint64_t i = 0; buffer != NULL && i < spec->tasks[t].from.row_bytes; i++) {
            if (buffer[i] == job_byte(from, i))
                continue;
            job_violated(job, "rank %u: success, but byte %llu of task %u is wrong", run->rank->number,
                         (unsigned long long)i, t);
            return;
        }
    }
}

static void check_untouched(struct job_run *run)
{
    const struct sl_plan *spec = spec_of(run);
    struct job_plan *plan = plan_of(run);
    for (uint32_t t = 0; t < spec->task_count; t++) {
        const uint8_t *before = plan->before[t], *after = plan->buffer[t][SLUICE_ROLE_DESTINATION];
        if (before != NULL && after != NULL && memcmp(before, after, spec->tasks[t].from.row_bytes) != 0) {
            job_violated(run->rank->job, "rank %u: the version did not come (%s), but task %u was written",
                         run->rank->number, run->error.text, t);
            return;
        }
    }
}

/* --- events --- */

static _Bool success(const struct job_run *run)
{
    return run->ends > 0 && (run->end == SLUICE_EVENT_COMPLETED || run->end == SLUICE_EVENT_COMMITTED);
}

static void check_terminal(struct job_run *run, const struct sluice_event *event)
{
    struct job *job = run->rank->job;
    const struct run_spec *spec = &job->spec[run->plan].run[run->number];
    if (++run->ends > 1)
        job_violated(job, "rank %u: terminal event %u after %u", run->rank->number, event->kind, run->end);
    run->end = event->kind;
    if (event->error != NULL)
        run->error = *event->error;
    if (run->end == SLUICE_EVENT_FAILED && (event->error == NULL || event->error->text[0] == '\0'))
        job_violated(job, "rank %u: a failure without words", run->rank->number);
    if (!success(run))
        return;
    if ((run->end == SLUICE_EVENT_COMMITTED) != spec->shadow)
        job_violated(job, "rank %u: the wrong kind of success", run->rank->number);
    if (was_alone(run))
        check_content(run);
}

static void check_released(struct job_run *run)
{
    struct job_rank *rank = run->rank;
    struct job *job = rank->job;
    const struct sl_plan *spec = spec_of(run);
    const struct job_plan *plan = plan_of(run);
    if (run->released || run->ends != 1)
        job_violated(job, "rank %u: released out of place", rank->number);
    run->released = 1;
    for (uint32_t i = 0; i < rank->op_count; i++)
        if (rank->ops[i].key == run->key)
            job_violated(job, "rank %u: released with an operation in flight", rank->number);
    if (!was_alone(run))
        return;
    for (uint32_t t = 0; t < spec->task_count; t++)
        for (uint32_t role = 0; role < 2; role++) {
            uint64_t bytes = spec->tasks[t].from.row_bytes;
            if (plan->buffer[t][role] != NULL && in_use(rank, plan->buffer[t][role], bytes))
                job_violated(job, "rank %u: released, but a queue uses task %u", rank->number, t);
            if (role == SLUICE_ROLE_SOURCE && plan->buffer[t][role] != NULL)
                memset(plan->buffer[t][role], GARBAGE, bytes); /* a late read shows where it arrives */
        }
    _Bool open = run->error.status == SLUICE_TORN || run->error.status == SLUICE_UNDECIDED ||
                 sluice_version(run->transfer->plan) == run->transfer->config.version;
    if (!success(run) && !open && job->spec[run->plan].run[run->number].shadow)
        check_untouched(run);
}

void check_event(struct job_run *run, const struct sluice_event *event)
{
    if (run->released || (run->ends > 0 && event->kind != SLUICE_EVENT_RELEASED &&
                          (event->kind < SLUICE_EVENT_COMPLETED || event->kind > SLUICE_EVENT_CANCELLED)))
        job_violated(run->rank->job, "rank %u: event %u after the end", run->rank->number, event->kind);
    if (event->kind >= SLUICE_EVENT_COMPLETED && event->kind <= SLUICE_EVENT_CANCELLED)
        check_terminal(run, event);
    if (event->kind == SLUICE_EVENT_RELEASED)
        check_released(run);
}

/* --- the end --- */

static void count_run(struct job *job, const struct job_run *run)
{
    job->result->succeeded += success(run);
    job->result->cancelled += run->ends > 0 && run->end == SLUICE_EVENT_CANCELLED;
    job->result->failed += run->ends > 0 && run->end == SLUICE_EVENT_FAILED;
}

static void check_reason(struct job *job, const struct job_run *run)
{
    uint32_t faults = job->options.faults & ~(uint32_t)JOB_HARMLESS;
    if (job->result->struck)
        return;
    if (faults == 0 && !success(run))
        job_violated(job, "rank %u failed without a fault: %s", run->rank->number, run->error.text);
    if (faults == JOB_CANCEL && run->end == SLUICE_EVENT_FAILED)
        job_violated(job, "rank %u failed by a cancel: %s", run->rank->number, run->error.text);
}

static void check_run(struct job *job, uint32_t p, uint32_t number)
{
    const struct job_run *won = NULL;
    for (uint32_t r = 0; r < job->ranks; r++)
        if (success(&job->rank[r].plan[p].run[number]))
            won = &job->rank[r].plan[p].run[number];
    for (uint32_t r = 0; r < job->ranks; r++) {
        const struct job_run *run = &job->rank[r].plan[p].run[number];
        if (run->transfer == NULL || job->rank[r].dead)
            continue;
        count_run(job, run);
        check_reason(job, run);
        if (won != NULL && !success(run) && run->error.status != SLUICE_UNDECIDED)
            job_violated(job, "plan %u run %u: success on rank %u, but rank %u says: %s", p, number, won->rank->number,
                         r, run->error.text);
    }
}

void check_job(struct job *job)
{
    for (uint32_t p = 0; p < job->plans; p++)
        for (uint32_t i = 0; i < job->spec[p].runs; i++)
            check_run(job, p, i);
    uint32_t faults = job->options.faults & ~(uint32_t)(JOB_HARMLESS | JOB_CANCEL);
    if (faults == 0 && !job->result->struck && job->result->seals_failed > 0)
        job_violated(job, "a seal failed without a fault");
}
