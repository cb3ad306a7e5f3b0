/* Opening and closing: options, live transfers, forks, signals, no work at all. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "support/many.h"
#include "support/solo.h"
#include "support/threads.h"

enum { THREADS = 64 };

static struct solo solo;

Test(runtime, closing_cancels_what_runs_and_confirms)
{
    solo_open(&solo, NULL);
    solo_seal(&solo, 4, 0);
    atomic_store(&hand.allowed, 0);
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = solo_submit(&solo, &options);
    solo_await_kind(&solo, SLUICE_EVENT_STARTED);
    sluice_runtime_close(solo.runtime);
    sluice_runtime_close(solo.runtime);
    hand_allow(HAND_ALL);
    solo_await_kind(&solo, SLUICE_EVENT_CLOSED);
    cr_expect_eq(solo_count_kind(&solo, SLUICE_EVENT_CANCELLED), 1u);
    cr_expect_eq(solo.events[solo.count - 1].kind, (uint32_t)SLUICE_EVENT_CLOSED);
    sluice_transfer *late = NULL;
    cr_expect_neq(sluice_submit(solo.plan, &options, &late), SLUICE_OK);
    cr_expect_eq(sluice_runtime_status(solo.runtime), SLUICE_CLOSED);
    cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_CANCELLED);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

Test(runtime, handles_may_outlive_it)
{
    sluice_gate *gate = NULL;
    solo_open(&solo, NULL);
    solo_seal(&solo, 2, 0);
    cr_assert_eq(sluice_gate_host(solo.runtime, &gate), SLUICE_OK);
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = solo_submit(&solo, &options);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    sluice_runtime_close_wait(solo.runtime);
    cr_expect_eq(sluice_gate_open(gate), SLUICE_OK);
    cr_expect_eq(sluice_transfer_wait(transfer, 0), SLUICE_OK);
    uint32_t window = 0;
    cr_expect_eq(sluice_plan_first_window(solo.plan, 0, SLUICE_ROLE_SOURCE, &window), SLUICE_STATE);
    sluice_gate_destroy(gate);
    sluice_transfer_destroy(transfer);
    sluice_plan_destroy(solo.plan);
    cr_expect_eq(atomic_load(&hand.memory), 0u);
    cr_expect_eq(atomic_load(&hand.sets), 0u);
}

enum { ROUNDS = 10000 };

Test(runtime, opens_and_closes_again_and_again_without_work)
{
    for (int i = 0; i < ROUNDS; i++) {
        solo_open(&solo, NULL);
        sluice_runtime_close_wait(solo.runtime);
    }
    cr_expect_eq(solo.count, 1u, "one CLOSED event");
}

static int child(void)
{
    void *block = malloc(100);
    sluice_transfer *transfer = NULL;
    _Bool told = sluice_runtime_status(solo.runtime) == SLUICE_FORKED &&
                 sluice_submit(solo.plan, NULL, &transfer) == SLUICE_FORKED;
    sluice_runtime_close_wait(solo.runtime);
    free(block);
    return told ? 0 : 1;
}

Test(runtime, tells_the_child_of_a_fork_and_goes_on_in_the_parent)
{
    solo_open(&solo, NULL);
    solo_seal(&solo, 2, 0);
    for (int i = 0; i < 50; i++) {
        int state = 0;
        pid_t pid = fork();
        if (pid == 0)
            _exit(child());
        cr_assert_eq(waitpid(pid, &state, 0), pid);
        cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    }
    struct sluice_transfer_options options = solo_options(&solo);
    sluice_transfer *transfer = solo_submit(&solo, &options);
    cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
    sluice_transfer_destroy(transfer);
    solo_close(&solo);
}

static void on_signal(int number)
{
    (void)number;
}

static pthread_t signalled;
static void remember_thread(int number)
{
    (void)number;
    signalled = pthread_self();
}

Test(runtime, leaves_signals_to_the_application)
{
    struct sigaction mine = {.sa_handler = remember_thread}, other = {.sa_handler = on_signal}, now;
    sigset_t before, after;
    sigaction(SIGTERM, &mine, NULL);
    sigaction(SIGCHLD, &other, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    solo_open(&solo, NULL);
    solo_seal(&solo, 1, 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    cr_expect_eq(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
    sigaction(SIGTERM, NULL, &now);
    cr_expect_eq(now.sa_handler, remember_thread);
    sigaction(SIGCHLD, NULL, &now);
    cr_expect_eq(now.sa_handler, on_signal);
    kill(getpid(), SIGTERM);
    cr_expect(pthread_equal(signalled, pthread_self()), "the application's thread took it");
    solo_close(&solo);
}

/* The test's own threads. */
struct own {
    int ids[THREADS];
    atomic_uint count;
};

static _Bool is_own(const struct own *own, int id)
{
    for (uint32_t i = 0; i < atomic_load(&own->count); i++)
        if (own->ids[i] == id)
            return 1;
    return 0;
}

/* The others block what an application may want to handle; returns how many there are. */
static uint32_t check_threads(const struct own *own)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGCHLD, SIGALRM, SIGUSR1, SIGWINCH};
    struct test_thread threads[THREADS];
    uint32_t others = 0, count = test_threads(threads, THREADS);
    for (uint32_t i = 0; i < count; i++) {
        if (is_own(own, threads[i].id))
            continue;
        others++;
        for (size_t k = 0; k < SL_COUNT(signals); k++)
            cr_expect(test_thread_blocks(&threads[i], signals[k]), "thread %s takes signal %d", threads[i].name,
                      signals[k]);
    }
    return others;
}

static void look_at_threads(struct many_rank *rank)
{
    struct own *own = rank->many->context;
    own->ids[atomic_fetch_add(&own->count, 1)] = gettid();
    many_plan(rank, 1, 1, 4096);
    many_fill(rank, 1);
    many_seal(rank, NULL);
    many_meet(rank);
    if (rank->rank == 0)
        cr_expect_geq(check_threads(own), 2u * 4, "scheduler, callbacks, control and queues of two ranks");
    many_meet(rank);
    many_drop(rank);
}

Test(runtime, has_only_threads_that_block_signals)
{
    static struct many many;
    struct test_thread before[THREADS];
    struct own own = {.count = test_threads(before, THREADS)};
    for (uint32_t i = 0; i < own.count; i++)
        own.ids[i] = before[i].id;
    many.context = &own;
    many_run(&many, 2, look_at_threads);
}

Test(runtime, refuses_options_that_mean_nothing)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    sluice_runtime *runtime = NULL;
    options.world = 1;
    options.delivery = 7;
    cr_expect_eq(sluice_runtime_open(&options, &runtime), SLUICE_INVALID);
    options.delivery = SLUICE_DELIVER_EVENT_BASE;
    cr_expect_eq(sluice_runtime_open(&options, &runtime), SLUICE_INVALID);
    cr_expect_not_null(strstr(sluice_last_error()->text, "event_base"));
    options.delivery = SLUICE_DELIVER_THREAD;
    options.backend = "steam";
    cr_expect_eq(sluice_runtime_open(&options, &runtime), SLUICE_NOT_FOUND);
    options.size = 0;
    cr_expect_eq(sluice_runtime_open(&options, &runtime), SLUICE_INVALID);
    cr_expect_null(runtime);
}

Test(runtime, is_harmless_with_null)
{
    sluice_runtime_close(NULL);
    sluice_runtime_destroy(NULL);
    sluice_runtime_close_wait(NULL);
    sluice_plan_destroy(NULL);
    sluice_gate_destroy(NULL);
    sluice_transfer_destroy(NULL);
    cr_expect_eq(sluice_runtime_fd(NULL), -1);
    cr_expect_eq(sluice_dispatch(NULL), 0u);
    cr_expect_eq(sluice_runtime_status(NULL), SLUICE_INVALID);
}
