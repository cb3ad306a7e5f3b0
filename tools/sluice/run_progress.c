/*
 * How far a run is, on stderr: one line that is drawn again and again on a terminal, a line per refit
 * elsewhere.
 *
 * Invariant: what is shown comes from the board's atomics alone.
 */
#include <string.h>
#include <unistd.h>

#include "run_job.h"
#include "runtime/base/parse.h"

enum { BAR = 30 };

struct sums {
    uint64_t done, total;
    uint32_t refit;    /* the least that a rank has begun */
    uint32_t verified; /* refits that all ranks have verified */
};

static struct sums sums_of(const struct run_job *job)
{
    const struct run_board *board = job->board;
    struct sums sums = {.refit = UINT32_MAX, .verified = UINT32_MAX};
    for (uint32_t r = 0; r < board->world; r++) {
        if (run_left_out(job, r))
            continue;
        struct run_seat *seat = &board->seats[r];
        uint32_t refit = atomic_load(&seat->refit), verified = atomic_load(&seat->done);
        sums.done += atomic_load(&seat->bytes_done);
        sums.total += atomic_load(&seat->bytes_total);
        sums.refit = refit < sums.refit ? refit : sums.refit;
        sums.verified = verified < sums.verified ? verified : sums.verified;
    }
    return sums;
}

void run_progress_begin(struct run_progress *progress)
{
    *progress = (struct run_progress){.terminal = isatty(STDERR_FILENO) == 1};
}

static void draw(struct run_progress *progress, const struct run_job *job, const struct sums *sums, uint64_t now_ns)
{
    char bar[BAR + 1], left[32] = "?";
    if (sums->refit == 0 || sums->total == 0) {
        fprintf(stderr, "\r\033[Kstarting %u ranks", job->board->world);
        return;
    }
    if (progress->begin_ns == 0)
        progress->begin_ns = now_ns;
    double part = (double)sums->done / (double)sums->total;
    double whole = ((double)sums->verified + (sums->verified < sums->refit ? part : 0)) / job->board->refits;
    double seconds = (double)(now_ns - progress->begin_ns) / 1e9;
    whole = whole > 1 ? 1 : whole;
    size_t filled = (size_t)(whole * BAR);
    memset(bar, '-', BAR);
    memset(bar, '#', filled);
    bar[BAR] = '\0';
    if (whole > 0)
        SL_IGNORE(snprintf(left, sizeof left, "%.0f s", seconds / whole - seconds) < 0);
    fprintf(stderr, "\r\033[K[%s] %3.0f %%  refit %u of %u  %.2f GB/s  %s left", bar, whole * 100, sums->refit,
            job->board->refits, seconds > 0 ? whole * job->board->refits * (double)job->bytes / seconds / 1e9 : 0.0,
            left);
}

void run_progress_show(struct run_progress *progress, const struct run_job *job, uint64_t now_ns)
{
    struct sums sums = sums_of(job);
    for (; !progress->terminal && progress->shown < sums.verified; progress->shown++) {
        double seconds = run_seconds(job->board, progress->shown);
        char bytes[32];
        fprintf(stderr, "refit %u of %u: %s in %.4f s, %.2f GB/s%s\n", progress->shown + 1, job->board->refits,
                sl_format_bytes(job->bytes, bytes, sizeof bytes), seconds,
                seconds > 0 ? (double)job->bytes / seconds / 1e9 : 0.0,
                run_verifies(job->options, progress->shown) ? ", verified" : "");
    }
    if (progress->terminal)
        draw(progress, job, &sums, now_ns);
}

void run_progress_end(const struct run_progress *progress)
{
    if (progress->terminal)
        fputs("\r\033[K", stderr);
}
