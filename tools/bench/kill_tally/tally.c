/*
 * tally.c: a job of four processes on the host backend, of which one is killed or stopped at a random moment,
 * again and again. Counts the survivors that name it in time, and the jobs that go on without it.
 *
 *   bench_kill_tally [KILLS] [SEED] [SECONDS]      SECONDS: beyond the deadline that a survivor may take (default 1);
 *                                                  with more, heartbeats are slower too, for machines that are busy
 *
 * Invariants: the children are ended by their ids; the first kill of every phase hits rank 0, the others any rank;
 * a kill is the same again for the same seed, but for the machine's timing. rank.c is one rank.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/parse.h"
#include "runtime/base/random.h"
#include "tally.h"
#include "tools/bench/scratch.h"

enum { KILLS_DEFAULT = 200, KILLS_MAX = 100000, STOP_ONE_IN = 4 };

/* A job that has not ended by then has hung. */
#define JOB_LIMIT (60 * SLUICE_SECOND)
/* How much later than its phase a rank is hit, at most; a decision takes no longer. */
static const uint64_t delay_max[TALLY_PHASES] = {20 * SLUICE_MILLISECOND, 20 * SLUICE_MILLISECOND,
                                                 20 * SLUICE_MILLISECOND, 20 * SLUICE_MILLISECOND,
                                                 SLUICE_MILLISECOND,      5 * SLUICE_MILLISECOND};

static const char *const phase_names[TALLY_PHASES] = {"bootstrap", "seal",     "first window",
                                                      "middle",    "decision", "shutdown"};

struct sums {
    uint32_t kills, stops, named, survivors, recovered;
    uint32_t worst_ms; /* from the kill to the last survivor's word */
    uint64_t again_bytes;
};

struct tally {
    struct tally_board *board;
    pid_t children[TALLY_RANKS];
    uint32_t slack_ms;
    struct sums sums[TALLY_PHASES];
};

static uint64_t now_ns(void)
{
    return sl_now(sl_clock_system());
}

static void nap(uint64_t ns)
{
    struct timespec span = {.tv_sec = (time_t)(ns / SLUICE_SECOND), .tv_nsec = (long)(ns % SLUICE_SECOND)};
    SL_IGNORE(nanosleep(&span, NULL));
}

/* A port that nobody uses now. */
static uint32_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SL_ASSERT(fd >= 0 && bind(fd, (struct sockaddr *)&address, bytes) == 0);
    SL_ASSERT(getsockname(fd, (struct sockaddr *)&address, &bytes) == 0);
    SL_IGNORE(close(fd));
    return ntohs(address.sin_port);
}

static void start(struct tally *tally)
{
    pid_t parent = getpid();
    for (uint32_t rank = 0; rank < TALLY_RANKS; rank++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
                _exit(1);
            _exit(tally_rank(tally->board, rank));
        }
        SL_ASSERT(pid > 0);
        tally->children[rank] = pid;
    }
}

static void hit(struct tally *tally, uint64_t delay_ns)
{
    struct tally_board *board = tally->board;
    uint64_t limit = now_ns() + JOB_LIMIT;
    struct tally_seat *seat = &board->seats[board->victim];
    while (atomic_load(&seat->phase) <= board->phase && now_ns() < limit)
        nap(50 * SLUICE_MICROSECOND);
    nap(delay_ns);
    atomic_store(&board->killed_ns, now_ns());
    SL_ASSERT(kill(tally->children[board->victim], board->stop ? SIGSTOP : SIGKILL) == 0);
}

/* Waits for the survivors, then ends what is left by its id. */
static void finish(struct tally *tally)
{
    const struct tally_board *board = tally->board;
    uint64_t limit = now_ns() + JOB_LIMIT;
    for (uint32_t rank = 0; rank < TALLY_RANKS; rank++) {
        _Bool ended = 0;
        while (rank != board->victim && !ended && now_ns() < limit) {
            ended = waitpid(tally->children[rank], NULL, WNOHANG) == tally->children[rank];
            if (!ended)
                nap(SLUICE_MILLISECOND);
        }
        if (ended)
            continue;
        SL_ASSERT(kill(tally->children[rank], SIGKILL) == 0);
        SL_ASSERT(waitpid(tally->children[rank], NULL, 0) == tally->children[rank]);
    }
}

static void say(const struct tally_board *board, uint32_t rank, const char *what)
{
    const struct tally_seat *seat = &board->seats[rank];
    printf("  rank %u %s; it said after %.3f s: %s; then: %s\n", rank, what,
           seat->said_ns == 0 ? -1.0 : (double)(seat->said_ns - atomic_load(&board->killed_ns)) / 1e9,
           seat->said[0] == '\0' ? "nothing" : seat->said, seat->after[0] == '\0' ? "nothing" : seat->after);
}

/* Adds the job to the sums; false: a survivor failed it. */
static _Bool count(struct tally *tally)
{
    const struct tally_board *board = tally->board;
    struct sums *sums = &tally->sums[board->phase];
    uint64_t deadline = tally_deadline(board) + tally->slack_ms * SLUICE_MILLISECOND;
    uint64_t killed = atomic_load(&board->killed_ns);
    uint32_t recovered = 0, named = 0;
    for (uint32_t rank = 0; rank < TALLY_RANKS; rank++) {
        const struct tally_seat *seat = &board->seats[rank];
        if (rank == board->victim)
            continue;
        uint64_t took = seat->said_ns > killed ? seat->said_ns - killed : 0;
        _Bool in_time = seat->named && took <= deadline;
        named += in_time;
        recovered += seat->recovered;
        sums->again_bytes += seat->again_bytes;
        sums->worst_ms =
            took / SLUICE_MILLISECOND > sums->worst_ms ? (uint32_t)(took / SLUICE_MILLISECOND) : sums->worst_ms;
        if (!in_time || !seat->recovered)
            say(board, rank, in_time ? "did not go on" : "did not name it in time");
    }
    sums->kills++;
    sums->stops += board->stop;
    sums->survivors += TALLY_RANKS - 1;
    sums->named += named;
    sums->recovered += recovered == TALLY_RANKS - 1;
    return named == TALLY_RANKS - 1 && recovered == TALLY_RANKS - 1;
}

static _Bool one_kill(struct tally *tally, uint32_t number, struct sl_random *random)
{
    struct tally_board *board = tally->board;
    memset(board, 0, sizeof *board);
    board->phase = number % TALLY_PHASES;
    board->heartbeat_ns = (tally->slack_ms > 1000 ? 500 : 100) * SLUICE_MILLISECOND;
    uint32_t any = (uint32_t)sl_random_below(random, TALLY_RANKS);
    board->victim = number < TALLY_PHASES ? 0 : any;
    board->stop = sl_random_below(random, STOP_ONE_IN) == 0;
    uint64_t delay = sl_random_below(random, delay_max[board->phase]);
    for (uint32_t i = 0; i < SL_COUNT(board->ports); i++)
        board->ports[i] = free_port();
    fflush(stdout);
    start(tally);
    hit(tally, delay);
    finish(tally);
    if (count(tally))
        return 1;
    printf("  kill %u: %s of rank %u at %s, %.3f ms late\n", number, board->stop ? "SIGSTOP" : "SIGKILL", board->victim,
           phase_names[board->phase], (double)delay / 1e6);
    return 0;
}

static void print(const struct tally *tally)
{
    struct sums all = {0};
    printf("%-14s %6s %10s %16s %10s %12s %14s\n", "phase", "kills", "of SIGSTOP", "survivors named", "worst (s)",
           "jobs went on", "moved twice (B)");
    for (uint32_t phase = 0; phase < TALLY_PHASES; phase++) {
        const struct sums *sums = &tally->sums[phase];
        printf("%-14s %6u %10u %9u of %3u %10.3f %12u %14llu\n", phase_names[phase], sums->kills, sums->stops,
               sums->named, sums->survivors, sums->worst_ms / 1e3, sums->recovered,
               (unsigned long long)sums->again_bytes);
        all.kills += sums->kills;
        all.named += sums->named;
        all.survivors += sums->survivors;
        all.recovered += sums->recovered;
    }
    printf("%u kills: %u of %u survivors named the lost rank within its deadline and %.1f s; %u of %u jobs went on "
           "without it, verified\n",
           all.kills, all.named, all.survivors, tally->slack_ms / 1e3, all.recovered, all.kills);
}

static uint64_t argument(int argc, char **argv, int index, uint64_t otherwise, uint64_t most)
{
    uint64_t value = otherwise;
    if (argc > index && (!sl_parse_u64(argv[index], &value) || value > most)) {
        fprintf(stderr, "usage: bench_kill_tally [KILLS] [SEED] [SECONDS]\n");
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    char directory[] = "/tmp/sluice-kill-tally-XXXXXX";
    struct tally tally = {.slack_ms = (uint32_t)argument(argc, argv, 3, 1, 600) * 1000};
    uint32_t kills = (uint32_t)argument(argc, argv, 1, KILLS_DEFAULT, KILLS_MAX), failed = 0;
    struct sl_random random = {argument(argc, argv, 2, 1, UINT64_MAX)};
    SL_ASSERT(mkdtemp(directory) != NULL && setenv("XDG_RUNTIME_DIR", directory, 1) == 0);
    tally.board = mmap(NULL, sizeof *tally.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SL_ASSERT(tally.board != MAP_FAILED);
    for (uint32_t i = 0; i < kills; i++)
        failed += !one_kill(&tally, i, &random);
    print(&tally);
    scratch_remove(directory);
    return failed == 0 ? 0 : 1;
}
