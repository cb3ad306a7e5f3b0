/*
 * job.c: the loop of a made-up job: who can go on now does, then time moves to the next event.
 *
 * - A rank is stepped when something woke it or when the time came that it asked for, as a scheduler thread is: so a
 *   lost wake-up is one.
 * - Everything random comes from the seed, and everything that happens in virtual time: equal seeds run alike.
 */
#include "tools/faults/job.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/hash.h"
#include "tools/faults/job_state.h"

uint64_t job_below(struct job *job, uint64_t bound)
{
    return sl_random_below(&job->random, bound);
}

_Bool job_chance(struct job *job, uint32_t percent)
{
    return job_below(job, 100) < percent;
}

void job_violated(struct job *job, const char *format, ...)
{
    char *text = job->result->text;
    size_t used = strlen(text);
    va_list arguments;
    job->failed = 1;
    va_start(arguments, format);
    (void)vsnprintf(text + used, sizeof job->result->text - used, format, arguments);
    va_end(arguments);
    used = strlen(text);
    (void)snprintf(text + used, sizeof job->result->text - used, "\n");
}

void job_later(struct job *job, uint64_t within, sl_sim_act act, void *context, uint64_t argument)
{
    SL_ASSERT(sl_sim_at(job->sim, sl_sim_now(job->sim) + job_below(job, within), act, context, argument) == SLUICE_OK);
}

_Bool job_live(const struct job_rank *rank)
{
    return rank->runtime != NULL && !rank->dead && !rank->closed;
}

/* --- steps --- */

static void step_rank(struct job_rank *rank)
{
    struct job *job = rank->job;
    uint64_t now = sl_sim_now(job->sim);
    rank->woken = 0;
    rank->wanted = sl_runtime_step(rank->runtime, now);
    check_step(rank);
    SL_IGNORE(sluice_dispatch(rank->runtime) > 0);
    if (rank->slow && job_chance(job, 50))
        rank->busy = now + job_below(job, 5 * SLUICE_MILLISECOND);
    job->result->trace = sl_mix64(job->result->trace ^ now ^ rank->number);
    job->result->steps++;
    if (!rank->closed)
        return;
    rank->stranded = rank->op_count > 0;
    if (!rank->dead)
        job_gone(job, rank, SLUICE_CLOSED);
}

static _Bool may_step(const struct job_rank *rank)
{
    return rank->runtime != NULL && !rank->closed && (!rank->dead || rank->closing);
}

/* When the rank is to be stepped; UINT64_MAX: when something wakes it. */
static uint64_t due(const struct job_rank *rank)
{
    if (!may_step(rank))
        return UINT64_MAX;
    uint64_t at = rank->woken ? 0 : rank->wanted;
    return at == UINT64_MAX || at > rank->busy ? at : rank->busy;
}

/* Steps everybody who can go on now; the time of the next thing that is known. */
static uint64_t step_all(struct job *job)
{
    uint64_t next = job_link_timer(job);
    for (uint32_t r = 0; r < job->ranks; r++) {
        struct job_rank *rank = &job->rank[r];
        if (due(rank) <= sl_sim_now(job->sim))
            step_rank(rank);
        next = due(rank) < next ? due(rank) : next;
    }
    return next;
}

static void explain(struct job *job)
{
    char text[512];
    for (uint32_t r = 0; r < job->ranks; r++)
        for (uint32_t p = 0; p < job->plans; p++) {
            const struct job_plan *plan = &job->rank[r].plan[p];
            if (!job_live(&job->rank[r]))
                continue;
            if (plan->asked && !plan->sealed && !plan->failed)
                job_violated(job, "rank %u: plan %u is still being sealed", r, p);
            for (uint32_t i = 0; i < plan->submitted; i++) {
                if (plan->run[i].released)
                    continue;
                SL_IGNORE(sluice_transfer_explain(plan->run[i].transfer, text, sizeof text));
                job_violated(job, "rank %u plan %u run %u: %s", r, p, i, text);
            }
        }
}

static void run_until(struct job *job, _Bool (*done)(const struct job *job), uint64_t deadline, const char *what)
{
    while (!job->failed && !done(job)) {
        uint64_t now = sl_sim_now(job->sim);
        uint64_t next = step_all(job);
        if (next <= now && next != UINT64_MAX)
            next = now;
        _Bool moved = sl_sim_next(job->sim, next < deadline ? next : deadline);
        job_link_due(job);
        if (sl_sim_now(job->sim) >= deadline || job->result->steps > JOB_STEPS || (!moved && next == UINT64_MAX)) {
            if (done(job))
                return;
            job_violated(job, "%s after %llu steps and %.3f s", what, (unsigned long long)job->result->steps,
                         (double)(sl_sim_now(job->sim) - SL_SIM_BEGIN) / 1e9);
            explain(job);
        }
    }
}

/* --- the whole --- */

static void end_faults(void *context, uint64_t argument)
{
    (void)argument;
    job_faults_end(context);
}

static _Bool is_settled(const struct job *job)
{
    return job->faults_over && job_app_idle(job);
}

static _Bool is_closed(const struct job *job)
{
    for (uint32_t r = 0; r < job->ranks; r++)
        if (job->rank[r].runtime != NULL && !job->rank[r].closed)
            return 0;
    return 1;
}

static void close_all(struct job *job)
{
    for (uint32_t r = 0; r < job->ranks; r++) {
        struct job_rank *rank = &job->rank[r];
        if (rank->dead && rank->runtime != NULL && !rank->closing) { /* only to free it: nobody hears it any more */
            rank->closing = rank->woken = 1;
            sluice_runtime_close(rank->runtime);
        }
        if (rank->runtime != NULL)
            job_app_close(rank);
    }
}

static void open_job(struct job *job)
{
    struct sl_sim_options sim = {.link = 1e9, .pack_rate = 1e10, .group_overhead = 0.0002, .move_bytes = 1};
    sl_mem_install(&ledger_ops, &job->ours);
    job->mem = sl_mem_open();
    sl_mem_install(&ledger_ops, &job->theirs);
    SL_ASSERT(job->mem != NULL);
    job_draw(job);
    const struct sl_arbiter_config arbiter = {.world = job->ranks, .runs_max = 16, .mem = job->mem};
    job->sim = sl_sim_create(&sim, job->ranks, job->mem);
    job->arbiter = job->ranks > 1 ? sl_arbiter_create(&arbiter) : NULL;
    SL_ASSERT(job->sim != NULL && (job->ranks == 1 || job->arbiter != NULL));
    job->theirs.fail_in = job->options.fail_allocation;
    job->fail_call = job->options.fail_call;
    job_app_open(job);
    job_faults_arm(job);
    SL_ASSERT(sl_sim_at(job->sim, JOB_FAULTS_END, end_faults, job, 0) == SLUICE_OK);
}

static void close_job(struct job *job)
{
    _Bool stranded = job->failed;
    if (!job->failed) {
        for (uint32_t r = 0; r < job->ranks; r++) {
            stranded |= job->rank[r].stranded;
            job_app_drop(&job->rank[r]);
        }
        if (job->theirs.live > 0 && !stranded)
            job_violated(job, "%llu blocks of memory are left", (unsigned long long)job->theirs.live);
    }
    job_link_drop(job);
    sl_sim_destroy(job->sim);
    sl_mem_install(NULL, NULL);
    SL_IGNORE(ledger_drop(&job->theirs));
    SL_IGNORE(ledger_drop(&job->ours));
}

_Bool job_run(const struct job_options *options, struct job_result *ret)
{
    static struct job job; /* large, and one at a time */
    memset(ret, 0, sizeof *ret);
    memset(&job, 0, sizeof job);
    job.options = *options;
    job.result = ret;
    job.random.state = sl_mix64(options->seed + 1);
    open_job(&job);
    run_until(&job, is_settled, JOB_OVER, "not settled");
    close_all(&job);
    run_until(&job, is_closed, 2 * JOB_OVER, "not closed");
    ret->struck |= job.theirs.failed > 0;
    if (!job.failed)
        check_job(&job);
    _Bool good = !job.failed;
    close_job(&job);
    good = good && !job.failed;
    if (!good)
        job_violated(&job, "seed %llu faults %#x", (unsigned long long)options->seed, options->faults);
    return good;
}
