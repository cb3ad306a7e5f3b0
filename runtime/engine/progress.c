/* progress.c: a snapshot of one run for the application: states in its words, and where time went. */
#include "runtime/engine/run.h"

static enum sluice_transfer_state state_of(const struct run *run)
{
    switch (run->state) {
    case RUN_WINDOWS:
    case RUN_STAGED_VOTE:
        if (run->paused)
            return SLUICE_TRANSFER_PAUSED;
        return run->launched > 0 ? SLUICE_TRANSFER_RUNNING : SLUICE_TRANSFER_QUEUED;
    case RUN_GATES:
    case RUN_DECIDE_VOTE:
        return run->paused ? SLUICE_TRANSFER_PAUSED : SLUICE_TRANSFER_STAGED;
    case RUN_REST:
    case RUN_COMMIT:
        return SLUICE_TRANSFER_COMMITTING;
    case RUN_FINAL_VOTE:
        return run->config.shadow ? SLUICE_TRANSFER_COMMITTING : SLUICE_TRANSFER_RUNNING;
    case RUN_FREE:
    case RUN_ENDED:
    case RUN_STATES:
        break;
    }
    if (run->end == SLUICE_EVENT_FAILED)
        return SLUICE_TRANSFER_FAILED;
    return run->end == SLUICE_EVENT_CANCELLED ? SLUICE_TRANSFER_CANCELLED : SLUICE_TRANSFER_DONE;
}

static uint64_t span(uint64_t begin, uint64_t end, uint64_t until)
{
    if (begin == 0)
        return 0;
    return (end ? end : until) - begin;
}

void sl_engine_progress(const struct sl_engine *engine, uint32_t index, uint64_t now, struct sluice_progress *ret)
{
    SL_ASSERT(index < engine->used && engine->runs[index].state != RUN_FREE);
    struct run run = engine->runs[index];
    if (now < run.mark_ns)
        now = run.mark_ns;
    sl_run_account(&run, now);
    uint64_t until = run.state == RUN_ENDED ? run.end_ns : now;
    ret->state = state_of(&run);
    ret->version = run.config.version;
    ret->windows_done = run.done;
    ret->windows_total = run.config.windows;
    ret->elapsed_ns = until - run.submit_ns;
    ret->left_ns = UINT64_MAX;
    if (run.state == RUN_ENDED && ret->state == SLUICE_TRANSFER_DONE)
        ret->left_ns = 0;
    else if (sl_run_live(&run) && run.done > 0)
        ret->left_ns = (uint64_t)((double)(now - run.start_ns) * (run.config.windows - run.done) / (double)run.done);
    ret->stages = run.stages;
    ret->gate_wait_ns = span(run.staged_ns, run.decided_ns, until);
    ret->commit_ns = span(run.decided_ns, run.committed_ns, until);
}
