/*
 * resume.c: a transfer that goes on with a version that failed.
 *
 * Invariants: windows are skipped on all ranks alike, those that every rank has; a skipped window has no work but
 * its check; what this rank has counts only where the plan is cut as it was then.
 */
#include "runtime/core/agree.h"
#include "runtime/core/transfer_object.h"

uint32_t sl_resume_windows(const struct sl_sealed *sealed, uint32_t given)
{
    const struct sl_rule *then = &sealed->plan->resumes;
    const struct sl_rule *now = &sealed->schedule.rule;
    _Bool same = then->windows == now->windows && then->blocks == now->blocks && then->policy == now->policy;
    /* As many windows of whole tasks may hold other tasks; shares of streams follow from their number alone. */
    same = same && (now->policy == SLUICE_POLICY_BALANCED || then->window_bytes == now->window_bytes);
    return same ? given : 0;
}

void sl_resume_skip(struct sluice_transfer *transfer)
{
    const uint64_t *bytes = transfer->view->window_bytes;
    for (uint32_t w = 0; w < transfer->skipped; w++) {
        transfer->flags[w] &= SL_WINDOW_VERIFY;
        transfer->bytes_total -= bytes[w];
    }
    for (uint32_t w = transfer->skipped; w < transfer->resume_windows; w++)
        transfer->bytes_again += bytes[w];
}

void sl_resume_progress(const struct sluice_transfer *transfer, struct sluice_progress *progress)
{
    progress->windows_skipped = transfer->skipped;
    if (transfer->resume_windows > transfer->skipped && transfer->agree.changed == SL_CHANGED_KNOWN)
        progress->windows_again = transfer->resume_windows - transfer->skipped;
    progress->bytes_again = transfer->bytes_again;
}
