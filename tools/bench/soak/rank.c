/*
 * rank.c: one process of the soak: it begins each world that the supervisor wants, moves versions in it until it
 * breaks or is to be left, and waits for the next.
 *
 * Invariants: `first` is the plan of the world of all ranks and lives as long as the process; those of later worlds
 * are made from it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "soak.h"

enum { WINDOW_BYTES = 256 * 1024, FD_RANK = 3 };

#define BOOTSTRAP (10 * SLUICE_SECOND)
#define RECOVERY  (20 * SLUICE_SECOND)

uint64_t soak_now(void)
{
    return sl_now(sl_clock_system());
}

void soak_nap(uint64_t ns)
{
    struct timespec span = {.tv_sec = (time_t)(ns / SLUICE_SECOND), .tv_nsec = (long)(ns % SLUICE_SECOND)};
    SL_IGNORE(nanosleep(&span, NULL));
}

void soak_beat(struct soak_rank *rank, const char *doing)
{
    atomic_store(&rank->seat->doing, doing);
    atomic_store(&rank->seat->beat_ns, soak_now());
}

_Bool soak_hit(const struct soak_rank *rank)
{
    return atomic_load(&rank->board->hit) >= rank->epoch;
}

void soak_violation(const struct soak_rank *rank, const char *format, ...)
{
    char text[SOAK_TEXT];
    va_list arguments;
    va_start(arguments, format);
    SL_IGNORE(vsnprintf(text, sizeof text, format, arguments));
    va_end(arguments);
    if (atomic_fetch_add(&rank->board->violations, 1) == 0)
        SL_IGNORE(snprintf(rank->board->violation, SOAK_TEXT, "%.1400s", text));
    fprintf(stderr, "soak: rank %u, epoch %u: %s\n", rank->number, rank->epoch, text);
    _exit(1);
}

/* Losses are what faults are for; other warnings and errors of a clean world are shown. */
static void on_log(enum sluice_log_level level, const char *topic, const char *text, void *user)
{
    const struct soak_rank *rank = user;
    if (!atomic_load(&rank->board->faults) && !soak_hit(rank))
        fprintf(stderr, "soak: rank %u, epoch %u: log %d, %s: %s\n", rank->number, rank->epoch, (int)level, topic,
                text);
}

/* --- the beginning of a world --- */

static sluice_status open_world(struct soak_rank *rank)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    sluice_runtime_close_wait(rank->runtime);
    rank->runtime = NULL;
    options.backend = "host";
    options.delivery = rank->number == FD_RANK ? SLUICE_DELIVER_FD : SLUICE_DELIVER_THREAD;
    options.on_log = on_log;
    options.user = rank;
    options.address = "127.0.0.1";
    options.world = options.local_world = SOAK_RANKS;
    options.rank = options.local_rank = rank->number;
    options.port = rank->board->port;
    options.heartbeat_ns = rank->board->heartbeat_ns;
    options.bootstrap_timeout_ns = BOOTSTRAP;
    return sluice_runtime_open(&options, &rank->runtime);
}

/* The runtime of those that are left takes the place of the broken one. */
static sluice_status recover_world(struct soak_rank *rank)
{
    sluice_runtime *runtime = NULL;
    sluice_status status = sluice_runtime_recover(rank->runtime, RECOVERY, &runtime);
    if (status != SLUICE_OK)
        return status;
    sluice_runtime_close_wait(rank->runtime);
    rank->runtime = runtime;
    return SLUICE_OK;
}

static void drop_plan(struct soak_rank *rank)
{
    if (rank->plan != rank->first)
        sluice_plan_destroy(rank->plan);
    rank->plan = NULL;
}

/* The first world's plan is sealed as it is, the later ones' are made from it. */
static sluice_status make_plan(struct soak_rank *rank)
{
    if (rank->first != NULL)
        return sluice_plan_recover(rank->first, rank->runtime, &rank->plan);
    sluice_status status = soak_plan(rank, &rank->first);
    rank->plan = rank->first;
    return status;
}

static sluice_status seal(const struct soak_rank *rank)
{
    struct sluice_seal_options options = SLUICE_SEAL_OPTIONS_INIT;
    options.window_bytes = WINDOW_BYTES;
    options.shadow_bytes = SLUICE_BYTES_MAX;
    return sluice_plan_seal_wait(rank->plan, rank->runtime, &options, 0);
}

static _Bool begin(struct soak_rank *rank, uint32_t kind)
{
    soak_beat(rank, kind == SOAK_OPEN ? "open" : "recover");
    sluice_gate_destroy(rank->gate);
    rank->gate = NULL;
    drop_plan(rank);
    sluice_status status = kind == SOAK_OPEN ? open_world(rank) : recover_world(rank);
    if (status == SLUICE_OK) {
        soak_beat(rank, "seal");
        status = make_plan(rank);
    }
    if (status == SLUICE_OK)
        status = seal(rank);
    if (status == SLUICE_OK)
        status = sluice_gate_host(rank->runtime, &rank->gate);
    if (status != SLUICE_OK && !soak_hit(rank))
        soak_violation(rank, "a world without a fault did not begin: %s", sluice_last_error()->text);
    rank->step = 0;
    return status == SLUICE_OK;
}

/* --- one after the other --- */

static void await_goal(struct soak_rank *rank)
{
    atomic_store(&rank->seat->waiting, rank->epoch);
    while (atomic_load(&rank->board->goal_epoch) <= rank->epoch) {
        soak_beat(rank, "wait for a world");
        soak_nap(SLUICE_MILLISECOND);
    }
    rank->epoch = atomic_load(&rank->board->goal_epoch);
}

static void drop_world(struct soak_rank *rank)
{
    soak_beat(rank, "close");
    sluice_gate_destroy(rank->gate);
    rank->gate = NULL;
    drop_plan(rank);
    sluice_runtime_close_wait(rank->runtime);
    rank->runtime = NULL;
}

int soak_rank(struct soak_board *board, uint32_t number, uint32_t epoch)
{
    struct soak_rank rank = {.board = board, .number = number, .epoch = epoch, .seat = &board->seats[number]};
    soak_memory_open(&rank);
    for (;;) {
        await_goal(&rank);
        uint32_t kind = board->kind;
        rank.mask = board->mask;
        if (kind == SOAK_END)
            break;
        if ((rank.mask >> number & 1) == 0) {
            drop_world(&rank);
            continue;
        }
        if (!begin(&rank, kind))
            continue;
        atomic_store(&rank.seat->running, rank.epoch);
        while (soak_move(&rank))
            ;
    }
    drop_world(&rank);
    sluice_plan_destroy(rank.first);
    soak_memory_close(&rank);
    return 0;
}
