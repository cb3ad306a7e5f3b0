/*
 * The bare copy loop that the host backend is measured against.
 *
 * Invariants: two copies a byte, like a packed message of the host backend; a lane joins one source and one
 * destination; `filled` is written by its source alone, `emptied` by its destination; who has nothing to do
 * sleeps at its bell. The first pass touches all memory, the second one is timed.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "runtime/backend/host/bell.h"
#include "runtime/base/clock.h"

enum { SIDES = 2, WORLD = 2 * SIDES, PASSES = 2 };

struct lane {
    _Alignas(64) atomic_uint_fast64_t filled; /* parts */
    _Alignas(64) atomic_uint_fast64_t emptied;
};

struct shared {
    uint64_t bytes, part; /* of a pair; of a window of it */
    uint32_t slots;
    atomic_uint ready; /* processes, over all passes */
    struct sl_bell bells[WORLD];
    uint64_t begin_ns[WORLD], end_ns[WORLD], cpu_ns[WORLD];
    struct lane lanes[SIDES][SIDES];
    uint8_t pool[];
};

static uint8_t *slot(struct shared *s, uint32_t source, uint32_t destination, uint64_t number)
{
    return s->pool + (((uint64_t)source * SIDES + destination) * s->slots + number % s->slots) * s->part;
}

/* One part of a lane, `number` counted over all passes, if its other end is far enough. */
static _Bool step(struct shared *s, uint32_t source, uint32_t destination, _Bool sending, uint8_t *memory,
                  uint64_t part, uint64_t number)
{
    struct lane *lane = &s->lanes[source][destination];
    uint64_t at = part * s->part;
    size_t bytes = s->bytes - at < s->part ? s->bytes - at : s->part;
    if (sending ? number - atomic_load(&lane->emptied) >= s->slots : number >= atomic_load(&lane->filled))
        return 0;
    if (sending)
        memcpy(slot(s, source, destination, number), memory + at, bytes);
    else
        memcpy(memory + at, slot(s, source, destination, number), bytes);
    atomic_store(sending ? &lane->filled : &lane->emptied, number + 1);
    sl_bell_ring(&s->bells[sending ? SIDES + destination : source]);
    return 1;
}

/* Counters run on from pass to pass, so that slots need no reset. */
static void move(struct shared *s, uint32_t rank, uint32_t pass, uint8_t *const *memory)
{
    uint64_t next[SIDES] = {0}, parts = (s->bytes + s->part - 1) / s->part;
    _Bool sending = rank < SIDES;
    for (uint32_t done = 0; done < SIDES;) {
        uint32_t seen = sl_bell_look(&s->bells[rank]);
        _Bool moved = 0;
        done = 0;
        for (uint32_t i = 0; i < SIDES; i++) {
            if (next[i] < parts && step(s, sending ? rank : i, sending ? i : rank - SIDES, sending, memory[i], next[i],
                                        pass * parts + next[i])) {
                next[i]++;
                moved = 1;
            }
            done += next[i] == parts;
        }
        if (!moved && done < SIDES)
            sl_bell_wait(&s->bells[rank], seen, SLUICE_SECOND);
    }
}

/* CPU time of this process. */
static uint64_t spent(void)
{
    struct timespec time = {0};
    SL_IGNORE(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time));
    return (uint64_t)time.tv_sec * SLUICE_SECOND + (uint64_t)time.tv_nsec;
}

static _Noreturn void be_process(struct shared *s, uint32_t rank, pid_t parent)
{
    uint8_t *memory[SIDES];
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(1);
    for (uint32_t i = 0; i < SIDES; i++) {
        memory[i] = sl_new_aligned(sl_mem_default(), s->bytes, 4096, "memory of the bare loop");
        if (memory[i] == NULL)
            _exit(1);
        memset(memory[i], (int)(rank + 1), s->bytes);
    }
    for (uint32_t pass = 0; pass < PASSES; pass++) {
        atomic_fetch_add(&s->ready, 1);
        while (atomic_load(&s->ready) < (pass + 1) * WORLD)
            SL_IGNORE(sched_yield());
        uint64_t cpu = spent();
        s->begin_ns[rank] = sl_now(sl_clock_system());
        move(s, rank, pass, memory);
        s->end_ns[rank] = sl_now(sl_clock_system());
        s->cpu_ns[rank] = spent() - cpu;
    }
    for (uint32_t i = 0; i < SIDES && rank >= SIDES; i++)
        if (memory[i][0] != i + 1 || memory[i][s->bytes - 1] != i + 1)
            _exit(1);
    _exit(0);
}

static double seconds_of(const struct shared *s)
{
    uint64_t begin = 0, end = 0;
    for (uint32_t r = 0; r < WORLD; r++) {
        begin = s->begin_ns[r] > begin ? s->begin_ns[r] : begin;
        end = s->end_ns[r] > end ? s->end_ns[r] : end;
    }
    return (double)(end - begin) / 1e9;
}

/* Starts the processes and waits for them; one that fails takes the others along, they would wait for it. */
static _Bool run_all(struct shared *s)
{
    pid_t children[WORLD], parent = getpid();
    _Bool good = 1;
    uint32_t started = 0;
    fflush(stdout);
    for (; started < WORLD && good; started++) {
        children[started] = fork();
        if (children[started] == 0)
            be_process(s, started, parent);
        good = children[started] > 0;
    }
    started -= !good;
    for (uint32_t r = 0; r < started && !good; r++)
        SL_IGNORE(kill(children[r], SIGKILL)); /* they wait for one that could not be started */
    for (uint32_t left = started; left > 0; left--) {
        int state = 0;
        _Bool ended_well = wait(&state) > 0 && WIFEXITED(state) && WEXITSTATUS(state) == 0;
        for (uint32_t r = 0; r < started && good && !ended_well; r++)
            SL_IGNORE(kill(children[r], SIGKILL));
        good = good && ended_well;
    }
    return good;
}

sluice_status bench_bare_copy(uint64_t bytes, uint64_t part, uint32_t slots, double *ret_seconds, double *ret_cpu)
{
    size_t size = sizeof(struct shared) + (size_t)SIDES * SIDES * slots * (size_t)part;
    struct shared *s = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED)
        return sl_fail(SLUICE_NOMEM, "bench", "no memory for the bare loop");
    s->bytes = bytes;
    s->part = part;
    s->slots = slots;
    _Bool good = run_all(s);
    if (good) {
        *ret_seconds = seconds_of(s);
        *ret_cpu = 0;
    }
    for (uint32_t r = 0; r < WORLD && good; r++)
        *ret_cpu += (double)s->cpu_ns[r] / 1e9;
    SL_IGNORE(munmap(s, size));
    return good ? SLUICE_OK : sl_fail(SLUICE_SYSTEM, "bench", "a process of the bare loop failed");
}
