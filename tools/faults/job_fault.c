/* job_fault.c: when what strikes whom, by the seed; and the end of all faults. */
#include "sluice/transfer.h"
#include "tools/faults/job_state.h"

/* Faults begin within this time: opening, sealing and the first runs happen in it. */
#define STRIKE_WITHIN (60 * SLUICE_MILLISECOND)
#define STORM         (15 * SLUICE_MILLISECOND)
#define LATE_SHORT    (20 * SLUICE_MILLISECOND)

static struct job_run *any_run(struct job_rank *rank)
{
    struct job *job = rank->job;
    struct job_plan *plan = &rank->plan[job_below(job, job->plans)];
    return plan->submitted > 0 ? &plan->run[job_below(job, plan->submitted)] : NULL;
}

static void cancel(struct job_rank *rank)
{
    struct job_run *run = any_run(rank);
    if (run != NULL)
        sluice_transfer_cancel(run->transfer);
}

static void resume(void *context, uint64_t argument)
{
    struct job_run *run = context;
    (void)argument;
    if (!run->paused || !job_live(run->rank))
        return;
    run->paused = 0;
    run->rank->woken = 1;
    sluice_transfer_resume(run->transfer);
}

static void pause_run(struct job_rank *rank)
{
    struct job_run *run = any_run(rank);
    if (run == NULL || run->ends > 0)
        return;
    run->paused = 1;
    sluice_transfer_pause(run->transfer);
    job_later(rank->job, STRIKE_WITHIN, resume, run, 0);
}

/* An operation that is running ends with an error: the group on the wire, or the next of some queue. */
static void fail_operation(struct job_rank *rank)
{
    struct sluice_device *device = rank->device;
    struct sluice_error error;
    SL_IGNORE(sl_error_set(&error, SLUICE_DEVICE, "device", "a made-up error of an operation"));
    if (device == NULL)
        return;
    if (device->group_count > 0 && device->groups[0]->posted != NULL) {
        sl_sim_group_end(device->groups[0], &error);
        return;
    }
    for (uint32_t q = 0; q < device->queue_count; q++)
        if (device->queues[q]->head < device->queues[q]->tail) {
            device->queues[q]->error = error;
            return;
        }
}

static void die(struct job_rank *rank)
{
    struct job *job = rank->job;
    rank->dead = 1;
    if (rank->device != NULL)
        for (uint32_t i = 0; i < rank->device->group_count; i++)
            SL_IGNORE(sl_sim_backend()->abort(rank->device->groups[i]));
    job_gone(job, rank, SLUICE_PEER_LOST);
}

static void strike(void *context, uint64_t fault)
{
    struct job_rank *rank = context;
    struct job *job = rank->job;
    uint64_t now = sl_sim_now(job->sim);
    if (job->faults_over || !job_live(rank))
        return;
    rank->woken = 1;
    switch ((enum job_fault)fault) {
    case JOB_AGAIN:
        rank->full = now + job_below(job, STORM);
        break;
    case JOB_REFUSED:
        rank->refuse = 1 + (uint32_t)job_below(job, 8);
        break;
    case JOB_FAILS:
        fail_operation(rank);
        break;
    case JOB_STICKY:
        rank->sticky = 1;
        rank->sticky_poll = job_chance(job, 30);
        break;
    case JOB_DEAF:
        rank->deaf = 1;
        break;
    case JOB_SLOW:
        rank->slow = 1;
        break;
    case JOB_LATE:
        rank->late = job_chance(job, 50) ? LATE_SHORT : 2 * JOB_STALL_TIMEOUT;
        break;
    case JOB_ABORT_LATE:
        rank->abort_late = job_chance(job, 50) ? JOB_ABORT_TIMEOUT / 2 : 4 * JOB_ABORT_TIMEOUT;
        break;
    case JOB_CANCEL:
        cancel(rank);
        break;
    case JOB_PAUSE:
        pause_run(rank);
        break;
    case JOB_CLOSE:
        job_app_close(rank);
        break;
    case JOB_NOMEM:
        job->theirs.fail_in = 1 + job_below(job, 20);
        break;
    case JOB_LOSE:
        die(rank);
        break;
    case JOB_DESTROY:
        job_app_destroy(rank, (uint32_t)job_below(job, job->plans));
        break;
    case JOB_GATE: /* the application keeps them closed */
    case JOB_FAULTS:
    case JOB_HARMLESS:
        break;
    }
}

/* Storms come in numbers, an end of a rank once. */
static uint32_t count_of(struct job *job, uint32_t fault)
{
    const uint32_t many = JOB_AGAIN | JOB_PAUSE | JOB_NOMEM;
    if (fault & (JOB_LOSE | JOB_CLOSE | JOB_STICKY | JOB_DESTROY))
        return 1;
    return 1 + (uint32_t)job_below(job, fault & many ? 8 : 2);
}

void job_faults_arm(struct job *job)
{
    for (uint32_t bit = 0; (1u << bit) < JOB_FAULTS; bit++) {
        uint32_t fault = 1u << bit;
        if (!(job->options.faults & fault))
            continue;
        for (uint32_t n = count_of(job, fault); n > 0; n--)
            job_later(job, STRIKE_WITHIN, strike, &job->rank[job_below(job, job->ranks)], fault);
    }
}

void job_faults_end(struct job *job)
{
    job->faults_over = 1;
    job->theirs.fail_in = 0;
    for (uint32_t r = 0; r < job->ranks; r++) {
        struct job_rank *rank = &job->rank[r];
        rank->deaf = rank->slow = rank->sticky_poll = 0;
        rank->refuse = 0;
        rank->late = rank->abort_late = 0;
        rank->full = 0;
        rank->woken = 1;
    }
    job_open_gates(job);
    job_resume_all(job);
}
