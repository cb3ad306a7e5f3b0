/*
 * The plan's world as local processes.
 *
 * Invariants: ranks are forked while this process has one thread; each is a process group of its own, so a
 * terminal's Ctrl-C reaches the parent alone, and dies with the parent; the parent asks ranks to stop through
 * the board and kills, by their ids, those that do not; it returns only when none is left. Nothing that a
 * rank uses has a name in the file system. With --recover a rank that is lost is ended, started again where all are
 * wanted, and the board's epoch counts it, whereupon the others go on.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_job.h"
#include "runtime/base/clock.h"

/* How long ranks have to stop by themselves. */
#define GRACE (10 * SLUICE_SECOND)

struct child {
    pid_t pid;
    int state;           /* of waitpid */
    _Bool ended, killed; /* killed: by us */
    _Bool struck;        /* by us too, because the others lost it */
};

struct launch {
    struct run_job *job;
    struct child *children;
    uint32_t started, alive;
    sigset_t old_mask;
    int signals;      /* descriptor */
    uint64_t kill_at; /* UINT64_MAX: not asked to stop */
    uint32_t interrupts;
    struct run_progress progress;
};

/* --- starting --- */

static _Noreturn void be_rank(struct launch *launch, uint32_t rank, pid_t parent)
{
    SL_IGNORE(setpgid(0, 0));
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(TOOL_FAILED);
    SL_IGNORE(sigprocmask(SIG_SETMASK, &launch->old_mask, NULL));
    SL_IGNORE(close(launch->signals));
    int status = run_rank(launch->job, rank);
    fflush(stderr);
    _exit(status);
}

static sluice_status start_one(struct launch *launch, uint32_t rank)
{
    pid_t parent = getpid();
    fflush(stdout);
    fflush(stderr);
    pid_t pid = fork();
    if (pid == 0)
        be_rank(launch, rank, parent);
    if (pid < 0)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, "run", "cannot start rank %u", rank);
    launch->children[rank] = (struct child){.pid = pid};
    launch->alive++;
    return SLUICE_OK;
}

static sluice_status start(struct launch *launch)
{
    sluice_status status = SLUICE_OK;
    for (uint32_t rank = 0; rank < launch->job->board->world && status == SLUICE_OK; rank++) {
        status = start_one(launch, rank);
        launch->started += status == SLUICE_OK;
    }
    return status;
}

static sluice_status open_traces(struct launch *launch, int *fds)
{
    const struct run_options *opt = launch->job->options;
    if (opt->trace == NULL && opt->timeline == NULL)
        return SLUICE_OK;
    for (uint32_t rank = 0; rank < launch->job->board->world; rank++) {
        fds[rank] = memfd_create("sluice-trace", MFD_CLOEXEC);
        if (fds[rank] < 0)
            return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, "run",
                                  "no memory for the trace of rank %u", rank);
    }
    launch->job->trace_fds = fds;
    return SLUICE_OK;
}

static sluice_status take_signals(struct launch *launch)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGHUP);
    sigaddset(&mask, SIGCHLD);
    SL_IGNORE(sigprocmask(SIG_BLOCK, &mask, &launch->old_mask));
    launch->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (launch->signals < 0)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, "run", "signalfd");
    return SLUICE_OK;
}

/* --- watching --- */

static void ask_to_stop(struct launch *launch, enum run_stop why, uint64_t now)
{
    unsigned go = RUN_GO;
    SL_IGNORE(atomic_compare_exchange_strong(&launch->job->board->stop, &go, why));
    uint64_t kill_at = sl_deadline(now, GRACE);
    launch->kill_at = kill_at < launch->kill_at ? kill_at : launch->kill_at;
}

static void kill_rest(struct launch *launch)
{
    for (uint32_t rank = 0; rank < launch->started; rank++) {
        struct child *child = &launch->children[rank];
        if (child->ended || child->killed)
            continue;
        child->killed = 1;
        SL_IGNORE(kill(child->pid, SIGKILL));
    }
    launch->kill_at = UINT64_MAX;
}

static void read_signals(struct launch *launch, uint64_t now)
{
    struct signalfd_siginfo info;
    while (read(launch->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        ask_to_stop(launch, RUN_INTERRUPTED, now);
        if (++launch->interrupts > 1)
            kill_rest(launch);
    }
}

/* --- lost ranks --- */

/* A rank that the others lost, though it lives (it was stopped, or cut off), must not come back. */
static void strike_lost(struct launch *launch)
{
    const struct run_board *board = launch->job->board;
    for (uint32_t rank = 0; rank < launch->started; rank++) {
        struct child *child = &launch->children[rank];
        uint32_t lost = atomic_load(&board->seats[rank].lost);
        _Bool now = run_left_out(launch->job, rank) || lost == atomic_load(&board->epoch) + 1;
        if (child->ended || child->struck || !now || launch->job->options->recover == RUN_RECOVER_NOT)
            continue;
        child->struck = 1;
        SL_IGNORE(kill(child->pid, SIGKILL));
    }
}

/* The rank was ended by a signal; false: the run cannot go on. */
static _Bool go_on(struct launch *launch, uint32_t rank)
{
    const struct run_job *job = launch->job;
    struct run_board *board = job->board;
    uint32_t epoch = atomic_load(&board->epoch);
    if (job->options->recover == RUN_RECOVER_NOT || run_board_stopped(board) != RUN_GO || epoch + 1 == RUN_EPOCHS)
        return 0;
    const struct child *child = &launch->children[rank];
    tool_say("rank %u (process %d) was %s (%s); %s", rank, (int)child->pid,
             child->struck ? "lost by the others and then ended" : "ended by a signal",
             sigdescr_np(WTERMSIG(child->state)),
             job->options->recover == RUN_RECOVER_ALL ? "it is started again" : "the others go on without it");
    if (job->options->recover == RUN_RECOVER_SURVIVORS)
        atomic_store(&board->seats[rank].lost, epoch + 1);
    atomic_store(&board->epoch, epoch + 1);
    return job->options->recover == RUN_RECOVER_SURVIVORS || start_one(launch, rank) == SLUICE_OK;
}

static void reap(struct launch *launch, uint64_t now)
{
    for (uint32_t rank = 0; rank < launch->started; rank++) {
        struct child *child = &launch->children[rank];
        if (child->ended || waitpid(child->pid, &child->state, WNOHANG) != child->pid)
            continue;
        child->ended = 1;
        launch->alive--;
        if (WIFSIGNALED(child->state) && !child->killed && go_on(launch, rank))
            continue;
        if (!WIFEXITED(child->state) || WEXITSTATUS(child->state) != TOOL_OK)
            ask_to_stop(launch, RUN_PEER_FAILED, now);
    }
}

static void watch(struct launch *launch)
{
    const struct sl_clock *clock = sl_clock_system();
    run_progress_begin(&launch->progress);
    while (launch->alive > 0) {
        struct pollfd wait = {.fd = launch->signals, .events = POLLIN};
        SL_IGNORE(poll(&wait, 1, 100));
        uint64_t now = sl_now(clock);
        read_signals(launch, now);
        reap(launch, now);
        strike_lost(launch);
        if (now >= launch->kill_at)
            kill_rest(launch);
        if (!launch->job->quiet)
            run_progress_show(&launch->progress, launch->job, now);
    }
    if (!launch->job->quiet)
        run_progress_end(&launch->progress);
}

/* --- the outcome --- */

/* An error that follows from another rank's. */
static _Bool follows(sluice_status status)
{
    return status == SLUICE_PEER_LOST || status == SLUICE_PEER_FAILED || status == SLUICE_CANCELLED ||
           status == SLUICE_ABORTED || status == SLUICE_SYSTEM;
}

/* The rank whose failure came first and does not follow from another's; world when none failed. */
static uint32_t first_failure(const struct launch *launch)
{
    uint32_t world = launch->job->board->world, best = world;
    for (uint32_t rank = 0; rank < world; rank++) {
        const struct run_seat *seat = &launch->job->board->seats[rank];
        if (seat->error.status == SLUICE_OK)
            continue;
        if (best == world) {
            best = rank;
            continue;
        }
        const struct run_seat *chosen = &launch->job->board->seats[best];
        _Bool later = seat->failed_ns >= chosen->failed_ns;
        if (follows(seat->error.status) == follows(chosen->error.status) ? !later : follows(chosen->error.status))
            best = rank;
    }
    return best;
}

static int say_killed(const struct launch *launch)
{
    for (uint32_t rank = 0; rank < launch->started; rank++) {
        const struct child *child = &launch->children[rank];
        if (child->killed || WIFEXITED(child->state) || run_left_out(launch->job, rank))
            continue;
        tool_say("rank %u (process %d) was ended by signal %d (%s)", rank, (int)child->pid, WTERMSIG(child->state),
                 sigdescr_np(WTERMSIG(child->state)));
        return TOOL_FAILED;
    }
    return TOOL_OK;
}

static int outcome(const struct launch *launch)
{
    if (launch->interrupts > 0) {
        tool_say("interrupted");
        return TOOL_INTERRUPTED;
    }
    if (say_killed(launch) != TOOL_OK)
        return TOOL_FAILED;
    uint32_t rank = first_failure(launch);
    if (rank < launch->job->board->world) {
        const struct sluice_error *error = &launch->job->board->seats[rank].error;
        tool_say(strncmp(error->text, "rank ", 5) == 0 ? "%s" : "%s (rank %u)", error->text, rank);
        return tool_exit_of(error->status);
    }
    for (rank = 0; rank < launch->started; rank++)
        if (launch->children[rank].killed || WEXITSTATUS(launch->children[rank].state) != TOOL_OK) {
            tool_say("rank %u did not end in time", rank);
            return TOOL_FAILED;
        }
    return TOOL_OK;
}

static int run_all(struct launch *launch)
{
    int status = start(launch) == SLUICE_OK ? TOOL_OK : tool_fail();
    if (status != TOOL_OK)
        ask_to_stop(launch, RUN_PEER_FAILED, sl_now(sl_clock_system()));
    watch(launch);
    if (status == TOOL_OK)
        status = outcome(launch);
    if (status == TOOL_OK && launch->job->trace_fds != NULL && run_trace_merge(launch->job) != SLUICE_OK)
        status = tool_fail();
    if (status == TOOL_OK && !launch->job->quiet)
        run_report(launch->job, UINT32_MAX);
    return status;
}

int run_launch(struct run_job *job)
{
    struct sl_mem *mem = sl_mem_default();
    uint32_t world = job->board->world;
    struct launch launch = {.job = job, .signals = -1, .kill_at = UINT64_MAX};
    int *fds = sl_new_array(mem, world, sizeof *fds, "traces");
    launch.children = sl_new_array(mem, world, sizeof *launch.children, "local processes");
    int status = TOOL_OK;
    if (fds == NULL || launch.children == NULL || take_signals(&launch) != SLUICE_OK ||
        open_traces(&launch, fds) != SLUICE_OK)
        status = tool_fail();
    else
        status = run_all(&launch);
    for (uint32_t rank = 0; fds != NULL && rank < world; rank++)
        if (fds[rank] > 0)
            SL_IGNORE(close(fds[rank]));
    job->trace_fds = NULL;
    if (launch.signals >= 0) {
        SL_IGNORE(close(launch.signals));
        SL_IGNORE(sigprocmask(SIG_SETMASK, &launch.old_mask, NULL));
    }
    sl_free(mem, fds);
    sl_free(mem, launch.children);
    return status;
}
