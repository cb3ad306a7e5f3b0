/*
 * Ranks in processes of their own, one of which is killed before the commit, or leaves without a word: the others
 * name it, no byte of the old version has changed on any rank, and closing is bounded.
 *
 * What the processes share lies in memory that outlives them, so that the test compares the destinations of the dead too.
 */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "sluice/runtime.h"
#include "sluice/transfer.h"

enum { RANKS = 4, SOURCES = 2, PARAMS = 6, BYTES = 24 * 1024, OLD = 0xee, NEW = 7, GATHER = 1024 };

struct board {
    pthread_barrier_t barrier;
    uint8_t gathered[RANKS * GATHER];
    atomic_uint windows[RANKS], staged[RANKS], ended[RANKS];
    sluice_status status[RANKS], next[RANKS]; /* of the transfer, and of one behind it */
    uint64_t version[RANKS];
    char error[RANKS][512];
    uint8_t source[RANKS][PARAMS][BYTES];
    uint8_t destination[RANKS][PARAMS][BYTES];
};

/* What a rank is to do. */
struct story {
    _Bool halfway; /* the last parameter's source stays closed: some windows have landed, not all */
    _Bool
        leaves; /* no gate: one rank leaves behind the end of the transfer, instead of being killed before the commit */
    uint32_t victim;
};

static struct board *board;
static uint32_t self;

static void ok(sluice_status status)
{
    if (status == SLUICE_OK)
        return;
    fprintf(stderr, "rank %u: %s\n", self, sluice_last_error()->text);
    _exit(1);
}

static int gather(const void *send, void *recv, size_t bytes, void *user)
{
    (void)user;
    if (bytes > GATHER)
        return 1;
    memcpy(board->gathered + self * bytes, send, bytes);
    pthread_barrier_wait(&board->barrier);
    memcpy(recv, board->gathered, RANKS * bytes);
    pthread_barrier_wait(&board->barrier);
    return 0;
}

static void on_event(const struct sluice_event *event, void *user)
{
    (void)user;
    if (event->kind == SLUICE_EVENT_STAGED)
        atomic_store(&board->staged[self], 1);
    if (event->kind == SLUICE_EVENT_WINDOW)
        atomic_store(&board->windows[self], event->window + 1);
}

static sluice_runtime *open_runtime(void)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    sluice_runtime *runtime = NULL;
    options.backend = "host";
    options.world = options.local_world = RANKS;
    options.rank = options.local_rank = self;
    options.allgather = gather;
    options.log_level = SLUICE_LOG_ERROR + 1;
    ok(sluice_runtime_open(&options, &runtime));
    return runtime;
}

/* Every source rank sends its part of a parameter to every destination rank. */
static sluice_plan *seal(sluice_runtime *runtime)
{
    struct sluice_seal_options options = SLUICE_SEAL_OPTIONS_INIT;
    const uint64_t part = BYTES / SOURCES;
    sluice_plan *plan = NULL;
    ok(sluice_plan_create(RANKS, &plan));
    for (uint32_t p = 0; p < PARAMS; p++) {
        struct sluice_param param = {.id = p, .dtype = SLUICE_DTYPE_U8, .bytes = BYTES, .name = "weight"};
        ok(sluice_plan_add_param(plan, &param));
        for (uint32_t i = 0; i < SOURCES * (RANKS - SOURCES); i++) {
            struct sluice_task task = {
                .id = p * 16 + i,
                .source = i % SOURCES,
                .destination = SOURCES + i / SOURCES,
                .param = p,
                .from = {.row_bytes = part, .rows = 1, .pitch = part},
                .to = {.offset = i % SOURCES * part, .row_bytes = part, .rows = 1, .pitch = part},
                .source_dtype = SLUICE_DTYPE_U8,
                .destination_dtype = SLUICE_DTYPE_U8};
            ok(sluice_plan_add_task(plan, &task));
        }
        if (self < SOURCES)
            ok(sluice_plan_bind(plan, p, SLUICE_ROLE_SOURCE, board->source[self][p], part));
        else
            ok(sluice_plan_bind(plan, p, SLUICE_ROLE_DESTINATION, board->destination[self][p], BYTES));
    }
    options.window_bytes = BYTES;
    options.shadow_bytes = 2 * PARAMS * BYTES;
    ok(sluice_plan_seal_wait(plan, runtime, &options, 0));
    return plan;
}

static void be_rank(const struct story *story)
{
    sluice_runtime *runtime = open_runtime();
    sluice_plan *plan = seal(runtime);
    sluice_gate *gate = NULL;
    sluice_transfer *transfer = NULL;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    ok(sluice_gate_host(runtime, &gate));
    const struct sluice_param_gate last = {.param = PARAMS - 1, .role = SLUICE_ROLE_SOURCE, .gate = gate};
    options.landing = SLUICE_LANDING_SHADOW;
    options.on_event = on_event;
    options.window_events = 1;
    if (story->halfway) {
        options.param_gates = &last;
        options.param_gate_count = 1;
    } else if (!story->leaves) {
        options.consumer_gate = gate;
    }
    ok(sluice_submit(plan, &options, &transfer));
    board->status[self] = sluice_transfer_wait(transfer, UINT64_MAX);
    struct sluice_error error;
    sluice_transfer_error(transfer, &error);
    (void)snprintf(board->error[self], sizeof board->error[self], "%s", error.text);
    board->version[self] = sluice_version(plan);
    atomic_store(&board->ended[self], 1);
    if (story->leaves && self == story->victim)
        _exit(0);
    sluice_transfer *next = NULL;
    board->next[self] = sluice_submit(plan, &options, &next);
    if (board->next[self] == SLUICE_OK)
        board->next[self] = sluice_transfer_wait(next, UINT64_MAX);
    sluice_transfer_destroy(next);
    sluice_transfer_destroy(transfer);
    sluice_gate_destroy(gate);
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(runtime);
}

static void make_board(void)
{
    pthread_barrierattr_t shared;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq((void *)board, MAP_FAILED);
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&board->barrier, &shared, RANKS);
    memset(board->source, NEW, sizeof board->source);
    memset(board->destination, OLD, sizeof board->destination);
}

static void start(const struct story *story, pid_t *ret_children)
{
    make_board();
    for (self = 0; self < RANKS; self++) {
        ret_children[self] = fork();
        cr_assert_geq(ret_children[self], 0);
        if (ret_children[self] > 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        be_rank(story);
        _exit(0);
    }
}

/* The test's own deadline is the limit. */
static void await(const atomic_uint *flags, uint32_t least)
{
    for (uint32_t r = 0; r < RANKS; r++)
        while (atomic_load(&flags[r]) < least)
            poll(NULL, 0, 1);
}

static void finish(pid_t child, int signal_number)
{
    int state = 0;
    cr_assert_eq(waitpid(child, &state, 0), child);
    cr_assert_eq(WIFSIGNALED(state) ? WTERMSIG(state) : WEXITSTATUS(state), signal_number, "wait status %#x", state);
}

static void all_hold(uint8_t value)
{
    for (uint32_t r = SOURCES; r < RANKS; r++)
        for (uint32_t p = 0; p < PARAMS; p++)
            for (uint32_t i = 0; i < BYTES; i++)
                cr_assert_eq(board->destination[r][p][i], value, "rank %u, parameter %u, byte %u", r, p, i);
}

/* Nobody saw a decision, so all end alike, whoever was lost; and the next submit is refused with the reason. */
static void kill_one(uint32_t victim, _Bool halfway)
{
    const struct story story = {.victim = victim, .halfway = halfway};
    pid_t children[RANKS];
    char name[16];
    start(&story, children);
    if (halfway)
        await(board->windows, 1);
    else
        await(board->staged, 1);
    kill(children[victim], SIGKILL);
    (void)snprintf(name, sizeof name, "rank %u", victim);
    for (uint32_t r = 0; r < RANKS; r++) {
        finish(children[r], r == victim ? SIGKILL : 0);
        if (r == victim)
            continue;
        cr_expect_eq(board->status[r], SLUICE_PEER_LOST, "rank %u: %s", r, board->error[r]);
        cr_expect_not_null(strstr(board->error[r], name), "rank %u: %s", r, board->error[r]);
        cr_expect(board->next[r] == SLUICE_PEER_LOST || board->next[r] == SLUICE_POISONED, "rank %u: %s", r,
                  sluice_status_name(board->next[r]));
        cr_expect_eq(board->version[r], 0u);
    }
    all_hold(OLD);
    munmap(board, sizeof *board);
}

TestSuite(killed, .timeout = 120);

Test(killed, source_before_the_commit_leaves_every_byte_of_the_old_version)
{
    kill_one(1, 0);
    kill_one(1, 1);
}

Test(killed, destination_before_the_commit_leaves_every_byte_of_the_old_version)
{
    kill_one(2, 0);
    kill_one(3, 1);
}

Test(killed, rank_0_before_the_commit_leaves_every_byte_of_the_old_version)
{
    kill_one(0, 0);
    kill_one(0, 1);
}

Test(killed, rank_that_leaves_without_closing_harms_no_transfer_that_ended_and_no_close)
{
    for (uint32_t victim = 0; victim < RANKS; victim++) {
        const struct story story = {.victim = victim, .leaves = 1};
        pid_t children[RANKS];
        start(&story, children);
        for (uint32_t r = 0; r < RANKS; r++) {
            finish(children[r], 0);
            cr_expect_eq(board->status[r], SLUICE_OK, "rank %u left; rank %u: %s", victim, r, board->error[r]);
            cr_expect(r == victim || board->next[r] == SLUICE_PEER_LOST, "rank %u left; rank %u: %s", victim, r,
                      sluice_status_name(board->next[r]));
        }
        all_hold(NEW);
        munmap(board, sizeof *board);
    }
}
