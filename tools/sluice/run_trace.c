/*
 * Traces of all ranks in one file, and as a picture.
 *
 * Invariant: all ranks of a host share CLOCK_MONOTONIC, so records are merged by their times as they are.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run_job.h"
#include "runtime/core/trace.h"
#include "timeline.h"

static const enum timeline_kind kinds[] = {
    [SL_TRACE_GATE] = TIMELINE_GATE,     [SL_TRACE_PACK] = TIMELINE_PACK,   [SL_TRACE_GROUP] = TIMELINE_GROUP,
    [SL_TRACE_UNPACK] = TIMELINE_UNPACK, [SL_TRACE_LOCAL] = TIMELINE_LOCAL, [SL_TRACE_COMMIT] = TIMELINE_COMMIT,
};

static sluice_status write_json(const char *path, const struct sl_trace_record *records, size_t count, size_t dropped)
{
    struct sl_out out;
    sluice_status status = sl_out_open(path, &out);
    if (status != SLUICE_OK)
        return status;
    return sl_out_end(&out, sl_trace_write(records, count, dropped, out.file));
}

static sluice_status write_picture(const struct run_job *job, const char *path, const struct sl_trace_record *records,
                                   size_t count)
{
    struct timeline timeline;
    char title[128];
    SL_IGNORE(snprintf(title, sizeof title, "%u ranks, %u refits", job->board->world, job->board->refits) < 0);
    sluice_status status = timeline_open(path, title, &timeline);
    if (status != SLUICE_OK)
        return status;
    uint64_t begin = UINT64_MAX;
    for (size_t i = 0; i < count; i++)
        begin = records[i].begin_ns < begin ? records[i].begin_ns : begin;
    for (size_t i = 0; i < count; i++)
        timeline_bar(&timeline, records[i].rank, records[i].window, kinds[records[i].node],
                     (double)(records[i].begin_ns - begin) / 1e9, (double)(records[i].end_ns - begin) / 1e9);
    return timeline_close(&timeline);
}

static int by_begin(const void *a, const void *b)
{
    const struct sl_trace_record *left = a, *right = b;
    if (left->begin_ns != right->begin_ns)
        return left->begin_ns < right->begin_ns ? -1 : 1;
    return (left->rank > right->rank) - (left->rank < right->rank);
}

static sluice_status read_records(int fd, uint32_t rank, struct sl_trace_record *records, size_t count)
{
    uint8_t *bytes = (uint8_t *)records;
    size_t all = count * sizeof *records;
    for (size_t done = 0; done < all;) {
        ssize_t got = pread(fd, bytes + done, all - done, (off_t)done);
        if (got <= 0)
            return sl_fail(SLUICE_IO, "run", "cannot read the trace of rank %u", rank);
        done += (size_t)got;
    }
    return SLUICE_OK;
}

sluice_status run_trace_merge(const struct run_job *job)
{
    const struct run_board *board = job->board;
    size_t count = 0, dropped = 0;
    for (uint32_t r = 0; r < board->world; r++) {
        count += board->seats[r].trace_count;
        dropped += board->seats[r].trace_dropped;
    }
    struct sl_trace_record *records = sl_new_array(sl_mem_default(), count, sizeof *records, "traces of all ranks");
    if (records == NULL)
        return SLUICE_NOMEM;
    sluice_status status = SLUICE_OK;
    size_t at = 0;
    for (uint32_t r = 0; r < board->world && status == SLUICE_OK; r++) {
        status = read_records(job->trace_fds[r], r, records + at, board->seats[r].trace_count);
        at += board->seats[r].trace_count;
    }
    if (count > 0)
        qsort(records, count, sizeof *records, by_begin);
    if (status == SLUICE_OK && job->options->trace != NULL)
        status = write_json(job->options->trace, records, count, dropped);
    if (status == SLUICE_OK && job->options->timeline != NULL)
        status = write_picture(job, job->options->timeline, records, count);
    sl_free(sl_mem_default(), records);
    return status;
}

sluice_status run_trace_alone(const struct run_job *job, uint32_t rank, const void *records, size_t count)
{
    char path[4096];
    sluice_status status = SLUICE_OK;
    size_t dropped = (size_t)job->board->seats[rank].trace_dropped;
    if (job->options->trace != NULL) {
        SL_IGNORE(snprintf(path, sizeof path, "%s.%u", job->options->trace, rank) < 0);
        status = write_json(path, records, count, dropped);
    }
    if (status == SLUICE_OK && job->options->timeline != NULL) {
        SL_IGNORE(snprintf(path, sizeof path, "%s.%u", job->options->timeline, rank) < 0);
        status = write_picture(job, path, records, count);
    }
    return status;
}
