/*
 * team.c: see team.h.
 *
 * Invariants: members die with the parent; every member is reaped before team_run returns; a barrier's number follows
 * from how many have arrived, so it needs no reset.
 */
#include "support/team.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "sluice/base.h"

enum { DEADLINE_PASSED = 124 };

static _Noreturn void be_member(struct team *team, uint32_t rank, pid_t parent, team_member *member, void *user)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(1);
    int status = member(team, rank, user);
    fflush(stdout);
    fflush(stderr);
    _exit(status);
}

static int status_of(int state)
{
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

/*
 * The next child that ended, 0 after the deadline, -1 when there is none. SIGCHLD is blocked, so none is missed between
 * the two calls.
 */
static pid_t next_ended(uint64_t deadline, int *ret_state)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;;) {
        pid_t pid = waitpid(-1, ret_state, WNOHANG);
        uint64_t now = sl_now(sl_clock_system());
        if (pid != 0 || now >= deadline)
            return pid;
        struct timespec left = {.tv_sec = (time_t)((deadline - now) / SLUICE_SECOND),
                                .tv_nsec = (long)((deadline - now) % SLUICE_SECOND)};
        (void)sigtimedwait(&child, NULL, &left);
    }
}

static int reap(struct team *team, pid_t *pids, uint32_t count, uint64_t deadline)
{
    int first = 0;
    for (uint32_t left = count; left > 0;) {
        int state = 0;
        pid_t pid = next_ended(first == 0 ? deadline : UINT64_MAX, &state);
        if (pid < 0)
            return 1;
        int status = pid == 0 ? DEADLINE_PASSED : status_of(state);
        for (uint32_t r = 0; r < count; r++)
            if (pids[r] == pid)
                pids[r] = 0;
        left -= pid != 0;
        if (status == 0 || first != 0)
            continue;
        first = status;
        atomic_store(&team->failed, 1);
        for (uint32_t r = 0; r < count; r++)
            if (pids[r] > 0)
                (void)kill(pids[r], SIGKILL);
    }
    return first;
}

int team_run(uint32_t world, size_t bytes, uint32_t seconds, team_member *member, void *user)
{
    sigset_t child, old;
    pid_t *pids = calloc(world, sizeof *pids), parent = getpid();
    struct team *team = mmap(NULL, sizeof *team + bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pids == NULL || team == MAP_FAILED) {
        free(pids);
        return 1;
    }
    team->world = world;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &child, &old);
    fflush(stdout);
    fflush(stderr);
    uint32_t started = 0;
    for (; started < world; started++) {
        pids[started] = fork();
        if (pids[started] == 0) {
            (void)sigprocmask(SIG_SETMASK, &old, NULL);
            be_member(team, started, parent, member, user);
        }
        if (pids[started] < 0)
            break;
    }
    uint64_t deadline = started < world ? 0 : sl_now(sl_clock_system()) + seconds * SLUICE_SECOND;
    int status = reap(team, pids, started, deadline);
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
    (void)munmap(team, sizeof *team + bytes);
    free(pids);
    return status;
}

void team_barrier(struct team *team)
{
    uint32_t number = atomic_fetch_add(&team->arrived, 1) / team->world;
    while (atomic_load(&team->arrived) < (number + 1) * team->world) {
        if (atomic_load(&team->failed))
            _exit(1);
        (void)sched_yield();
    }
}
