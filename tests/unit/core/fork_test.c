/*
 * An application that forks between refits of a world: the child is told so, ends as any process does, and neither its
 * end nor what it inherited disturbs the ranks.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/many.h"

enum { FORKS = 8, PARAMS = 3, BYTES = 12 * 1024 };

static struct many many;

static atomic_uint drops;
static pid_t parent;

static sluice_status always_open(void *context, struct sluice_error *error)
{
    (void)context;
    (void)error;
    return SLUICE_OK;
}

/* What a gate stands for is the parent's: the child must not let go of it. */
static void count_drop(void *context)
{
    (void)context;
    if (getpid() != parent)
        _exit(2);
    atomic_fetch_add(&drops, 1);
}

/* Everything that a careless child might do; then exit, with the handlers of all libraries. */
static void be_a_child(struct many_rank *rank, sluice_transfer *live, sluice_gate *gate)
{
    sluice_transfer *transfer = NULL;
    sluice_gate *other = NULL;
    _Bool told = sluice_runtime_status(rank->runtime) == SLUICE_FORKED &&
                 sluice_submit(rank->plan, NULL, &transfer) == SLUICE_FORKED &&
                 sluice_gate_host(rank->runtime, &other) == SLUICE_FORKED && sluice_gate_open(gate) == SLUICE_FORKED;
    sluice_transfer_cancel(live);
    sluice_transfer_destroy(live);
    sluice_gate_destroy(gate);
    sluice_plan_destroy(rank->plan);
    sluice_runtime_close(rank->runtime);
    sluice_runtime_close_wait(rank->runtime);
#ifdef SLUICE_LIBC_ALLOCATOR
    _exit(told ? 0 : 1); /* a sanitizer would miss what only threads of the parent refer to */
#else
    exit(told ? 0 : 1);
#endif
}

static void refit(struct many_rank *rank, uint64_t seed)
{
    sluice_transfer *transfer = NULL;
    sluice_gate *gate = NULL;
    struct sluice_transfer_options options = many_options(rank);
    many_fill(rank, seed);
    cr_assert_eq(sluice_gate_query(rank->runtime, always_open, count_drop, NULL, &gate), SLUICE_OK);
    options.source_gate = gate;
    many_meet(rank);
    cr_assert_eq(sluice_submit(rank->plan, &options, &transfer), SLUICE_OK);
    if (rank->rank == 0) { /* in the middle of it */
        int state = 0;
        pid_t pid = fork();
        if (pid == 0)
            be_a_child(rank, transfer, gate);
        cr_assert_eq(waitpid(pid, &state, 0), pid);
        cr_expect(WIFEXITED(state) && WEXITSTATUS(state) == 0, "state %#x", (unsigned)state);
    }
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_expect(many_holds(rank, seed));
    sluice_transfer_destroy(transfer);
    sluice_gate_destroy(gate);
}

static void refits_with_forks(struct many_rank *rank)
{
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    seal.window_bytes = 4096;
    many_plan(rank, 1, PARAMS, BYTES);
    many_seal(rank, &seal);
    for (uint64_t seed = 1; seed <= FORKS; seed++)
        refit(rank, seed);
    many_drop(rank);
}

Test(forked, children_of_a_rank_disturb_no_refit)
{
    parent = getpid();
    many_run(&many, 3, refits_with_forks);
    cr_expect_eq(atomic_load(&drops), 3u * FORKS);
}
