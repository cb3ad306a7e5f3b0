/*
 * The report of a run on stdout, as one line or as JSON (keys in docs/run.md).
 *
 * Invariant: made from the board after all ranks of interest have ended well.
 */
#include <stdlib.h>

#include "run_job.h"
#include "runtime/base/json.h"
#include "runtime/base/parse.h"

/* Ranks [first, end) are reported. */
struct range {
    uint32_t first, end;
};

static double seconds_of(const struct run_board *board, uint32_t refit, struct range range)
{
    uint64_t begin = 0, end = 0;
    for (uint32_t r = range.first; r < range.end; r++) {
        const struct run_time *time = &board->times[(size_t)r * board->refits + refit];
        begin = time->begin_ns > begin ? time->begin_ns : begin;
        end = time->end_ns > end ? time->end_ns : end;
    }
    return end > begin ? (double)(end - begin) / 1e9 : 0;
}

double run_seconds(const struct run_board *board, uint32_t refit)
{
    return seconds_of(board, refit, (struct range){0, board->world});
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

struct summary {
    double median, least, most;
    uint64_t verified;
    uint64_t again; /* bytes that moved twice */
    uint32_t windows;
    struct sluice_stage_times stages;
};

static void add_stages(struct sluice_stage_times *sum, const struct sluice_stage_times *add)
{
    sum->gate_ns += add->gate_ns;
    sum->grant_ns += add->grant_ns;
    sum->pack_ns += add->pack_ns;
    sum->group_ns += add->group_ns;
    sum->unpack_ns += add->unpack_ns;
    sum->local_ns += add->local_ns;
    sum->commit_ns += add->commit_ns;
}

static struct summary summarize(const struct run_board *board, struct range range, double *sorted)
{
    struct summary sum = {0};
    uint32_t count = board->refits;
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = seconds_of(board, i, range);
    qsort(sorted, count, sizeof *sorted, by_value);
    sum.least = sorted[0];
    sum.most = sorted[count - 1];
    sum.median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
    for (uint32_t r = range.first; r < range.end; r++) {
        sum.verified += board->seats[r].verified_bytes;
        sum.again += board->seats[r].again_bytes;
        sum.windows = board->seats[r].windows;
        add_stages(&sum.stages, &board->seats[r].stages);
    }
    return sum;
}

/* --- text --- */

static void print_text(const struct run_job *job, uint32_t rank, const struct summary *sum)
{
    char bytes[32], verified[32], who[64];
    uint32_t refits = job->board->refits;
    if (rank == UINT32_MAX)
        SL_IGNORE(snprintf(who, sizeof who, "%u to %u ranks", job->sources, job->destinations) < 0);
    else
        SL_IGNORE(snprintf(who, sizeof who, "rank %u of %u", rank, job->board->world) < 0);
    printf("moved %s in %u parameters, %s, %u window%s, %u refit%s: %s verified, 0 wrong; ",
           sl_format_bytes(job->bytes, bytes, sizeof bytes), job->params, who, sum->windows,
           sum->windows == 1 ? "" : "s", refits, refits == 1 ? "" : "s",
           sl_format_bytes(sum->verified, verified, sizeof verified));
    if (refits > 1)
        printf("%.4f s each (median; %.4f to %.4f), ", sum->median, sum->least, sum->most);
    else
        printf("%.4f s, ", sum->median);
    printf("%.2f GB/s", sum->median > 0 ? (double)job->bytes / sum->median / 1e9 : 0.0);
    uint32_t losses = atomic_load(&job->board->epoch);
    if (losses > 0)
        printf("; %u rank%s lost, %s moved twice", losses, losses == 1 ? "" : "s",
               sl_format_bytes(sum->again, bytes, sizeof bytes));
    printf("\n");
}

/* --- JSON --- */

static void put(struct sl_json_writer *w, const char *key, uint64_t value)
{
    sl_json_key(w, key);
    sl_json_put_u64(w, value);
}

static void put_double(struct sl_json_writer *w, const char *key, double value)
{
    sl_json_key(w, key);
    sl_json_put_double(w, value);
}

static void put_stages(struct sl_json_writer *w, const struct sluice_stage_times *stages)
{
    sl_json_key(w, "stages");
    sl_json_object(w);
    put_double(w, "gate", (double)stages->gate_ns / 1e9);
    put_double(w, "grant", (double)stages->grant_ns / 1e9);
    put_double(w, "pack", (double)stages->pack_ns / 1e9);
    put_double(w, "group", (double)stages->group_ns / 1e9);
    put_double(w, "unpack", (double)stages->unpack_ns / 1e9);
    put_double(w, "local", (double)stages->local_ns / 1e9);
    put_double(w, "commit", (double)stages->commit_ns / 1e9);
    sl_json_object_end(w);
}

/* What was lost, and what that cost. */
static void put_losses(struct sl_json_writer *w, const struct run_job *job, const struct summary *sum)
{
    put(w, "losses", atomic_load(&job->board->epoch));
    sl_json_key(w, "left_out");
    sl_json_list(w);
    for (uint32_t r = 0; r < job->board->world; r++)
        if (run_left_out(job, r))
            sl_json_put_u64(w, r);
    sl_json_list_end(w);
    put(w, "moved_twice_bytes", sum->again);
}

static void put_rank(struct sl_json_writer *w, const struct run_job *job, uint32_t rank)
{
    const struct run_seat *seat = &job->board->seats[rank];
    sl_json_object(w);
    put(w, "rank", rank);
    put(w, "verified_bytes", seat->verified_bytes);
    put(w, "host_staging_bytes", seat->host_staging_bytes);
    put_double(w, "scheduler_cpu_seconds", (double)seat->scheduler_ns / 1e9);
    if (job->options->trace != NULL)
        put_double(w, "transport_cpu_seconds", (double)seat->transport_ns / 1e9);
    put_stages(w, &seat->stages);
    sl_json_object_end(w);
}

static void print_json(const struct run_job *job, struct range range, const struct summary *sum)
{
    const struct run_board *board = job->board;
    struct sl_json_writer w;
    sl_json_begin(&w, stdout, 0);
    sl_json_object(&w);
    sl_json_key(&w, "ok");
    sl_json_put_bool(&w, 1);
    put(&w, "world", board->world);
    put(&w, "sources", job->sources);
    put(&w, "destinations", job->destinations);
    put(&w, "refits", board->refits);
    put(&w, "windows", sum->windows);
    put(&w, "bytes", job->bytes);
    put(&w, "params", job->params);
    put(&w, "verified_bytes", sum->verified);
    put(&w, "wrong_bytes", 0);
    put_losses(&w, job, sum);
    sl_json_key(&w, "seconds");
    sl_json_list(&w);
    for (uint32_t i = 0; i < board->refits; i++)
        sl_json_put_double(&w, seconds_of(board, i, range));
    sl_json_list_end(&w);
    put_double(&w, "seconds_median", sum->median);
    put_double(&w, "seconds_min", sum->least);
    put_double(&w, "seconds_max", sum->most);
    put_double(&w, "gigabytes_per_second", sum->median > 0 ? (double)job->bytes / sum->median / 1e9 : 0);
    put_stages(&w, &sum->stages);
    sl_json_key(&w, "ranks");
    sl_json_list(&w);
    for (uint32_t r = range.first; r < range.end; r++)
        put_rank(&w, job, r);
    sl_json_list_end(&w);
    sl_json_object_end(&w);
    SL_IGNORE(sl_json_end(&w)); /* tool_finish reports a failed stdout */
}

void run_report(const struct run_job *job, uint32_t rank)
{
    struct range range = {rank == UINT32_MAX ? 0 : rank, rank == UINT32_MAX ? job->board->world : rank + 1};
    double *sorted = sl_new_array(sl_mem_default(), job->board->refits, sizeof *sorted, "seconds of refits");
    if (sorted == NULL)
        return;
    struct summary sum = summarize(job->board, range, sorted);
    if (job->options->json)
        print_json(job, range, &sum);
    else
        print_text(job, rank, &sum);
    sl_free(sl_mem_default(), sorted);
}
