/*
 * run_job.h: what `sluice run` does, between its parts: the command line (cmd_run.c), one rank
 * (run_rank.c), local processes (run_launch.c), and what is shown (run_progress.c, run_report.c, run_trace.c).
 */
#ifndef SL_TOOL_RUN_JOB_H
#define SL_TOOL_RUN_JOB_H

#include "run_board.h"
#include "run_content.h"
#include "run_device.h"
#include "sluice/transfer.h"
#include "tool.h"

enum { RUN_LOCAL_RANKS_MAX = 512, RUN_REFITS_MAX = 100000 };

/* What is done when a rank is lost. */
enum run_recover { RUN_RECOVER_NOT = 0, RUN_RECOVER_SURVIVORS = 1, RUN_RECOVER_ALL = 2 };

struct run_options {
    const char *messages, *checkpoint, *from, *to, *rules; /* inputs beside a plan */
    const char *backend, *trace, *timeline;
    struct sluice_seal_options seal;
    uint64_t gate_timeout_ns, timeout_ns, pace;
    uint32_t landing; /* enum sluice_landing */
    uint32_t repeat, ranks_per_gpu;
    enum run_memory memory[2]; /* by role */
    enum run_recover recover;
    _Bool json;
    _Bool verify_ends; /* only the first and the last refit have content of their own and are verified */
    _Bool allow_torn;  /* less shadow memory than the version needs was asked for */
};

struct run_job {
    const struct run_options *options;
    struct sl_plan *plan; /* validated; a rank takes it over */
    struct run_content content;
    struct run_board *board;
    uint64_t bytes;                 /* of all tasks */
    uint32_t params;                /* with a task */
    uint32_t sources, destinations; /* ranks that send, that receive; local tasks count */
    int *trace_fds;                 /* launched ranks: where each puts its records; NULL: not traced */
    _Bool launched;                 /* the ranks are our children; else this process is one of a launcher's */
    uint32_t local_rank;            /* of a launcher's process: its number on this machine */
    _Bool quiet;                    /* no progress and no report: the caller reads the board */
    _Bool log;                      /* SLUICE_LOG was set: show the library's lines */
};

/* Whether a refit, counted from 0, is verified. */
static inline _Bool run_verifies(const struct run_options *options, uint32_t refit)
{
    return !options->verify_ends || refit == 0 || refit + 1 == options->repeat;
}

/* The rank is gone for good: the others go on without it. */
static inline _Bool run_left_out(const struct run_job *job, uint32_t rank)
{
    return job->options->recover == RUN_RECOVER_SURVIVORS && atomic_load(&job->board->seats[rank].lost) != 0;
}

/* Does everything that one rank does; the outcome is in its seat. Returns the exit status. */
int run_rank(struct run_job *job, uint32_t number);
/* Starts the plan's world as local processes and waits for them. Returns the exit status. */
int run_launch(struct run_job *job);

/* --- what is shown --- */
struct run_progress {
    _Bool terminal;
    uint32_t shown; /* refits of which a line was printed */
    uint64_t begin_ns;
};
void run_progress_begin(struct run_progress *progress);
/* Called some ten times a second while ranks run, and once at their end. */
void run_progress_show(struct run_progress *progress, const struct run_job *job, uint64_t now_ns);
void run_progress_end(const struct run_progress *progress);

/* Seconds from when the last rank began a refit until the last one had it; only of refits that all ranks did. */
double run_seconds(const struct run_board *board, uint32_t refit);
/* The report on stdout; `rank` UINT32_MAX: of all ranks. */
void run_report(const struct run_job *job, uint32_t rank);
/* Writes the files of --trace and --timeline from the records in trace_fds. IO, NOMEM. */
sluice_status run_trace_merge(const struct run_job *job);
/* One rank of a launcher: its own records, into the files' names with ".RANK" behind them. */
sluice_status run_trace_alone(const struct run_job *job, uint32_t rank, const void *records, size_t count);

#endif
