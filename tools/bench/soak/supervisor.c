/*
 * supervisor.c: a job of four processes on the host backend that moves versions without a break, for as long as wanted,
 * while faults are switched on and off.
 *
 *   bench_soak [SECONDS] [SEED] [PHASE]     PHASE: seconds with faults off, then as many with faults on (default 20)
 *
 * Faults on: a rank is stopped below the heartbeat's limit; killed, or stopped beyond the limit, whereupon by turns the
 * others go on and take it in again later, or all open anew; killed while a world begins, a recovered one too. In
 * between transfers are cancelled and gates stay closed. Faults off: every version comes whole. The last phase has faults off.
 *
 * Invariants: this process has one thread and touches only its own children, by their ids. In the first quarter any rank
 * is killed, afterwards only ranks 0 and 3, so that the memory of two processes that live on can be compared.
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
#include <unistd.h>

#include "life.h"
#include "runtime/base/error.h"
#include "runtime/base/parse.h"
#include "runtime/base/random.h"
#include "soak.h"
#include "tools/bench/scratch.h"

enum { SECONDS_DEFAULT = 1800, PHASE_DEFAULT = 20, SECONDS_MAX = 1000000, MINUTE = 60 };

#define HEARTBEAT (500 * SLUICE_MILLISECOND)
#define LIMIT     (5 * HEARTBEAT)
/* A rank that says nothing for so long hangs; its own bounds are shorter, and say more. */
#define BEAT_LIMIT (120 * SLUICE_SECOND)
#define LOOK       (10 * SLUICE_MILLISECOND)

enum action { SHORT_STOP, KILL_RECOVER, STOP_OPEN, KILL_OPEN, STOP_RECOVER, KILL_BEGIN, KILL_AGAIN, ACTIONS };

struct soak {
    struct soak_board *board;
    pid_t children[SOAK_RANKS];
    struct life lives[SOAK_RANKS];
    struct sl_random random;
    uint64_t begin_ns, end_ns, phase_ns, minute;
    uint32_t epoch, next, done[ACTIONS], opened, recovered;
    _Bool ending;
    char directory[32]; /* for rank 0's tokens */
};

/* --- the end --- */

static void print_counts(const struct soak *soak)
{
    uint64_t outcomes[SOAK_OUTCOMES] = {0}, bytes = 0;
    uint32_t at_begin = soak->done[KILL_BEGIN] + soak->done[KILL_AGAIN]; /* and one before, in the second case */
    for (uint32_t r = 0; r < SOAK_RANKS; r++) {
        for (uint32_t i = 0; i < SOAK_OUTCOMES; i++)
            outcomes[i] += atomic_load(&soak->board->seats[r].outcomes[i]);
        bytes += atomic_load(&soak->board->seats[r].verified_bytes);
    }
    printf(
        "%5.1f min: ends on a rank: %llu came, %llu cancelled, %llu gate deadline, %llu rank lost; %.1f GB verified; "
        "faults: %u short stops, %u long stops, %u kills, %u of them at a beginning; worlds: %u opened, %u "
        "recovered; MB:",
        (double)(soak_now() - soak->begin_ns) / 60e9, (unsigned long long)outcomes[SOAK_OK],
        (unsigned long long)outcomes[SOAK_CANCEL], (unsigned long long)outcomes[SOAK_GATE],
        (unsigned long long)outcomes[SOAK_LOSS], (double)bytes / 1e9, soak->done[SHORT_STOP],
        soak->done[STOP_OPEN] + soak->done[STOP_RECOVER],
        soak->done[KILL_OPEN] + soak->done[KILL_RECOVER] + at_begin + soak->done[KILL_AGAIN], at_begin, soak->opened,
        soak->recovered);
    for (uint32_t r = 0; r < SOAK_RANKS; r++)
        printf(" %.2f", (double)life_last(&soak->lives[r]) / 1e3);
    printf("\n");
    fflush(stdout);
}

static _Noreturn void fail(struct soak *soak, const char *what)
{
    const struct soak_board *board = soak->board;
    for (uint32_t r = 0; r < SOAK_RANKS; r++) {
        const char *doing = atomic_load(&board->seats[r].doing);
        uint64_t beat_ns = atomic_load(&board->seats[r].beat_ns);
        printf("rank %u: %s for %.1f s, epoch %u over, %u running\n", r, doing == NULL ? "nothing" : doing,
               (double)(soak_now() - beat_ns) / 1e9, atomic_load(&board->seats[r].waiting),
               atomic_load(&board->seats[r].running));
    }
    for (uint32_t r = 0; r < SOAK_RANKS; r++)
        if (soak->children[r] > 0) {
            SL_IGNORE(kill(soak->children[r], SIGKILL));
            SL_IGNORE(waitpid(soak->children[r], NULL, 0));
        }
    print_counts(soak);
    scratch_remove(soak->directory);
    printf("FAILED in epoch %u: %s; %s\n", soak->epoch, what, board->violation);
    exit(1);
}

/* --- processes --- */

static void start(struct soak *soak, uint32_t rank)
{
    struct soak_seat *seat = &soak->board->seats[rank];
    pid_t parent = getpid();
    atomic_store(&seat->beat_ns, soak_now());
    atomic_store(&seat->waiting, soak->epoch);
    fflush(stdout);
    soak->children[rank] = fork();
    if (soak->children[rank] == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
            _exit(1);
        exit(soak_rank(soak->board, rank, soak->epoch));
    }
    SL_ASSERT(soak->children[rank] > 0);
}

static void look(struct soak *soak)
{
    char text[128];
    uint64_t minute = (soak_now() - soak->begin_ns) / (MINUTE * SLUICE_SECOND);
    if (minute > soak->minute) {
        soak->minute = minute;
        print_counts(soak);
    }
    for (uint32_t r = 0; r < SOAK_RANKS; r++) {
        int state = 0;
        if (soak->children[r] > 0 && waitpid(soak->children[r], &state, WNOHANG) == soak->children[r]) {
            soak->children[r] = 0;
            SL_IGNORE(snprintf(text, sizeof text, "rank %u ended by itself, status %#x", r, (unsigned)state));
            if (!soak->ending || state != 0)
                fail(soak, text);
        }
        if (soak->children[r] > 0 && soak_now() > atomic_load(&soak->board->seats[r].beat_ns) + BEAT_LIMIT) {
            SL_IGNORE(snprintf(text, sizeof text, "rank %u hangs", r));
            fail(soak, text);
        }
    }
}

static void watch(struct soak *soak, uint64_t ns)
{
    uint64_t until = soak_now() + ns;
    for (uint64_t now = soak_now(); now < until; now = soak_now()) {
        soak_nap(until - now < LOOK ? until - now : LOOK);
        look(soak);
    }
}

/* Until the seats of `mask` are as far; a rank that never is hangs. */
static void await(struct soak *soak, uint32_t mask, _Bool running)
{
    uint64_t until = soak_now() + BEAT_LIMIT;
    for (uint32_t r = 0; r < SOAK_RANKS; r++) {
        const struct soak_seat *seat = &soak->board->seats[r];
        while ((mask >> r & 1) != 0 && atomic_load(running ? &seat->running : &seat->waiting) < soak->epoch) {
            watch(soak, SLUICE_MILLISECOND);
            if (soak_now() > until)
                fail(soak, running ? "a world does not begin" : "a world does not end");
        }
    }
}

/* --- worlds --- */

/* A port that nobody uses now, and that the system gives to nobody by itself. */
static uint32_t free_port(struct soak *soak)
{
    for (;;) {
        uint32_t port = 15000 + (uint32_t)sl_random_below(&soak->random, 15000);
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        address.sin_port = htons((uint16_t)port);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        SL_ASSERT(fd >= 0);
        _Bool free = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
        SL_IGNORE(close(fd));
        if (free)
            return port;
    }
}

static void leave(struct soak *soak)
{
    atomic_store(&soak->board->leave, soak->epoch);
    await(soak, SOAK_ALL, 0);
}

static void publish(struct soak *soak, uint32_t kind, uint32_t mask)
{
    struct soak_board *board = soak->board;
    board->kind = kind;
    board->mask = mask;
    board->port = free_port(soak);
    atomic_store(&board->goal_epoch, ++soak->epoch);
    soak->opened += kind == SOAK_OPEN;
    soak->recovered += kind == SOAK_RECOVER;
}

static void begin(struct soak *soak, uint32_t kind, uint32_t mask)
{
    publish(soak, kind, mask);
    await(soak, mask, 1);
}

/* --- faults --- */

static uint32_t any_rank(struct soak *soak)
{
    return (uint32_t)sl_random_below(&soak->random, SOAK_RANKS);
}

static uint32_t mortal(struct soak *soak)
{
    uint32_t rank = any_rank(soak);
    _Bool early = soak_now() - soak->begin_ns < (soak->end_ns - soak->begin_ns) / 4;
    return early ? rank : rank % 2 == 0 ? 0 : SOAK_RANKS - 1;
}

static void stop(struct soak *soak, uint32_t victim, uint64_t ns)
{
    SL_ASSERT(kill(soak->children[victim], SIGSTOP) == 0);
    watch(soak, ns);
    SL_ASSERT(kill(soak->children[victim], SIGCONT) == 0);
}

static void kill_one(struct soak *soak, uint32_t victim)
{
    SL_ASSERT(kill(soak->children[victim], SIGKILL) == 0);
    SL_ASSERT(waitpid(soak->children[victim], NULL, 0) == soak->children[victim]);
    if (!life_end(&soak->lives[victim], victim))
        fail(soak, "memory, descriptors or threads of a rank grew");
    start(soak, victim);
}

/* Its world breaks; all that live are out of it in the end. */
static void lose(struct soak *soak, uint32_t victim, _Bool dies)
{
    atomic_store(&soak->board->victims, 1u << victim);
    atomic_store(&soak->board->hit, soak->epoch);
    if (dies)
        kill_one(soak, victim);
    else
        stop(soak, victim, 2 * LIMIT);
    leave(soak);
}

static void go_on_without(struct soak *soak, uint32_t victim)
{
    begin(soak, SOAK_RECOVER, SOAK_ALL & ~(1u << victim));
    watch(soak, SLUICE_SECOND);
    leave(soak);
}

/* A rank dies while a world begins; then all open anew. */
static void lose_at_begin(struct soak *soak, enum soak_kind kind, uint32_t mask, uint32_t victim)
{
    publish(soak, kind, mask);
    watch(soak, sl_random_below(&soak->random, 30 * SLUICE_MILLISECOND));
    lose(soak, victim, 1);
    begin(soak, SOAK_OPEN, SOAK_ALL);
}

static void act(struct soak *soak, enum action action)
{
    uint32_t victim = action == STOP_OPEN || action == STOP_RECOVER ? any_rank(soak) : mortal(soak);
    if (action == SHORT_STOP) {
        stop(soak, any_rank(soak), SLUICE_MILLISECOND + sl_random_below(&soak->random, LIMIT * 2 / 5));
    } else if (action == KILL_BEGIN) {
        leave(soak);
        lose_at_begin(soak, SOAK_OPEN, SOAK_ALL, victim);
    } else if (action == KILL_AGAIN) {
        lose(soak, victim, 1);
        lose_at_begin(soak, SOAK_RECOVER, SOAK_ALL & ~(1u << victim), victim == 0 ? SOAK_RANKS - 1 : 0);
    } else {
        lose(soak, victim, action == KILL_OPEN || action == KILL_RECOVER);
        if (action == KILL_RECOVER || action == STOP_RECOVER)
            go_on_without(soak, victim);
        begin(soak, SOAK_OPEN, SOAK_ALL);
    }
    soak->done[action]++;
}

/* --- phases --- */

static void with_faults(struct soak *soak)
{
    static const enum action turns[] = {SHORT_STOP, KILL_RECOVER, SHORT_STOP, KILL_OPEN, SHORT_STOP,
                                        STOP_OPEN,  STOP_RECOVER, KILL_BEGIN, KILL_AGAIN};
    uint64_t until = soak_now() + soak->phase_ns;
    atomic_store(&soak->board->faults, 1);
    while (soak_now() < until) {
        act(soak, turns[soak->next++ % SL_COUNT(turns)]);
        watch(soak, SLUICE_MILLISECOND + sl_random_below(&soak->random, SLUICE_SECOND));
    }
    atomic_store(&soak->board->faults, 0);
}

static void without(struct soak *soak)
{
    watch(soak, soak->phase_ns);
    for (uint32_t r = 0; r < SOAK_RANKS; r++)
        life_sample(&soak->lives[r], soak->children[r]);
}

static void finish(struct soak *soak)
{
    leave(soak);
    soak->ending = 1;
    publish(soak, SOAK_END, 0);
    for (uint32_t r = 0; r < SOAK_RANKS; r++)
        while (soak->children[r] > 0)
            watch(soak, LOOK);
    for (uint32_t r = 0; r < SOAK_RANKS; r++)
        if (!life_end(&soak->lives[r], r))
            fail(soak, "memory, descriptors or threads of a rank grew");
    print_counts(soak);
    scratch_remove(soak->directory);
    printf("passed: none lost, none hung, every version verified, memory flat\n");
}

/* --- the command line --- */

static uint64_t argument(int argc, char **argv, int index, uint64_t otherwise, uint64_t most)
{
    uint64_t value = otherwise;
    if (argc > index && (!sl_parse_u64(argv[index], &value) || value > most)) {
        fprintf(stderr, "usage: bench_soak [SECONDS] [SEED] [PHASE]\n");
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    static struct soak soak;
    uint64_t seconds = argument(argc, argv, 1, SECONDS_DEFAULT, SECONDS_MAX);
    uint64_t seed = argument(argc, argv, 2, 1, UINT64_MAX);
    soak.random.state = seed;
    soak.phase_ns = argument(argc, argv, 3, PHASE_DEFAULT, SECONDS_MAX) * SLUICE_SECOND;
    soak.begin_ns = soak_now();
    soak.end_ns = soak.begin_ns + seconds * SLUICE_SECOND;
    SL_IGNORE(snprintf(soak.directory, sizeof soak.directory, "/tmp/sluice-soak-XXXXXX"));
    SL_ASSERT(mkdtemp(soak.directory) != NULL && setenv("XDG_RUNTIME_DIR", soak.directory, 1) == 0);
    soak.board = mmap(NULL, sizeof *soak.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SL_ASSERT(soak.board != MAP_FAILED);
    soak.board->seed = seed;
    soak.board->heartbeat_ns = HEARTBEAT;
    for (uint32_t r = 0; r < SOAK_RANKS; r++)
        start(&soak, r);
    begin(&soak, SOAK_OPEN, SOAK_ALL);
    without(&soak);
    while (soak_now() + soak.phase_ns < soak.end_ns) {
        with_faults(&soak);
        without(&soak);
    }
    finish(&soak);
    return 0;
}
