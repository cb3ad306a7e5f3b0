/*
 * rank.c: one rank of a job that loses a rank: moves version after version until something is wrong, says what, and
 * goes on with those that are left.
 *
 * Invariants: ranks 0 and 1 hold a half of every parameter, ranks 2 and 3 get both; a survivor is one that gets to
 * `go_on`, whatever went wrong before; bytes are verified by what they should be, not by their source.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "sluice/runtime.h"
#include "sluice/transfer.h"
#include "tally.h"

enum { PARAMS = 8, SOURCES = 2, PART_WORDS = 64 * 1024, WINDOW_BYTES = 256 * 1024, PACE = 100000000, LATER = 10 };

#define BOOTSTRAP (3 * SLUICE_SECOND)
#define RECOVERY  (20 * SLUICE_SECOND)

struct rank {
    struct tally_board *board;
    struct tally_seat *seat;
    uint32_t number; /* in the first world */
    sluice_runtime *runtime;
    sluice_plan *plan;
    uint64_t *buffers[PARAMS]; /* a half of the words, or all */
    uint32_t version, windows; /* the last one submitted, and what of it is here */
};

uint64_t tally_deadline(const struct tally_board *board)
{
    return board->phase == TALLY_BOOTSTRAP ? BOOTSTRAP : 5 * board->heartbeat_ns;
}

static void reach(struct rank *rank, enum tally_phase phase)
{
    if (atomic_load(&rank->seat->phase) <= (unsigned)phase)
        atomic_store(&rank->seat->phase, (unsigned)phase + 1);
}

/* --- what it says --- */

static _Bool names(const char *text, const char *before, uint32_t rank)
{
    char word[32];
    size_t length = (size_t)snprintf(word, sizeof word, "%s%u", before, rank);
    const char *at = strstr(text, word);
    return at != NULL && (at[length] < '0' || at[length] > '9');
}

/* The first thing that went wrong. */
static void say(struct rank *rank, const struct sluice_error *error)
{
    struct tally_seat *seat = rank->seat;
    if (seat->said_ns != 0)
        return;
    uint32_t victim = rank->board->victim;
    seat->said_ns = sl_now(sl_clock_system());
    SL_IGNORE(snprintf(seat->said, sizeof seat->said, "%s: %.480s", sluice_status_name(error->status), error->text));
    seat->named = names(error->text, "rank ", victim) || names(error->text, "missing: ", victim);
}

static sluice_status wrong(struct rank *rank, sluice_status status)
{
    if (status != SLUICE_OK)
        say(rank, sluice_last_error());
    return status;
}

static void on_event(const struct sluice_event *event, void *user)
{
    struct rank *rank = user;
    if (event->kind == SLUICE_EVENT_WINDOW && event->window > sluice_plan_windows(event->plan) / 2)
        reach(rank, TALLY_MIDDLE);
    if (event->kind == SLUICE_EVENT_STAGED || event->kind == SLUICE_EVENT_COMPLETED)
        reach(rank, TALLY_DECISION);
}

static void on_log(enum sluice_log_level level, const char *topic, const char *text, void *user)
{
    (void)level, (void)topic, (void)text, (void)user;
}

/* --- runtime and plan --- */

static struct sluice_runtime_options runtime_options(struct rank *rank)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    options.backend = "host";
    options.on_event = on_event;
    options.on_log = on_log;
    options.user = rank;
    options.address = "127.0.0.1";
    options.world = TALLY_RANKS;
    options.rank = rank->number;
    options.port = rank->board->ports[0];
    options.heartbeat_ns = rank->board->heartbeat_ns;
    options.bootstrap_timeout_ns = BOOTSTRAP;
    return options;
}

static sluice_status add_tasks(sluice_plan *plan, uint32_t param, const uint32_t *members, uint32_t count)
{
    const uint64_t part = PART_WORDS * sizeof(uint64_t);
    sluice_status status = SLUICE_OK;
    for (uint32_t s = 0; s < count; s++)
        for (uint32_t d = 0; d < count && status == SLUICE_OK; d++) {
            struct sluice_task task = {
                .id = (uint64_t)(param * TALLY_RANKS + members[s]) * TALLY_RANKS + members[d],
                .source = s,
                .destination = d,
                .param = param,
                .from = {.row_bytes = part, .rows = 1, .pitch = part},
                .to = {.offset = members[s] * part, .row_bytes = part, .rows = 1, .pitch = part},
                .origin = members[s] * part,
                .source_dtype = SLUICE_DTYPE_U8,
                .destination_dtype = SLUICE_DTYPE_U8,
            };
            if (members[s] < SOURCES && members[d] >= SOURCES)
                status = sluice_plan_add_task(plan, &task);
        }
    return status;
}

static sluice_status make_plan(struct rank *rank, const uint32_t *members, uint32_t count)
{
    const uint64_t part = PART_WORDS * sizeof(uint64_t);
    _Bool source = rank->number < SOURCES;
    sluice_status status = sluice_plan_create(count, &rank->plan);
    for (uint32_t p = 0; p < PARAMS && status == SLUICE_OK; p++) {
        struct sluice_param param = {.id = p, .dtype = SLUICE_DTYPE_U8, .bytes = SOURCES * part, .name = "weight"};
        status = sluice_plan_add_param(rank->plan, &param);
        if (status == SLUICE_OK)
            status = add_tasks(rank->plan, p, members, count);
        if (status == SLUICE_OK)
            status = sluice_plan_bind(rank->plan, p, source ? SLUICE_ROLE_SOURCE : SLUICE_ROLE_DESTINATION,
                                      rank->buffers[p], source ? part : SOURCES * part);
    }
    return status;
}

static sluice_status seal(struct rank *rank)
{
    struct sluice_seal_options options = SLUICE_SEAL_OPTIONS_INIT;
    options.window_bytes = WINDOW_BYTES;
    options.shadow_bytes = SLUICE_BYTES_MAX;
    return sluice_plan_seal_wait(rank->plan, rank->runtime, &options, 0);
}

/* --- content --- */

static uint64_t word_of(uint64_t version, uint32_t param, uint64_t word)
{
    return sl_mix64(version << 48 | (uint64_t)param << 32 | word);
}

static void fill(const struct rank *rank, uint64_t version)
{
    for (uint32_t p = 0; rank->number < SOURCES && p < PARAMS; p++)
        for (uint64_t w = 0; w < PART_WORDS; w++)
            rank->buffers[p][w] = word_of(version, p, (uint64_t)rank->number * PART_WORDS + w);
}

/* What came from sources that live. */
static _Bool holds(const struct rank *rank, uint64_t version)
{
    for (uint32_t p = 0; rank->number >= SOURCES && p < PARAMS; p++)
        for (uint64_t w = 0; w < (uint64_t)SOURCES * PART_WORDS; w++)
            if (w / PART_WORDS != rank->board->victim && rank->buffers[p][w] != word_of(version, p, w))
                return 0;
    return 1;
}

/* --- transfers --- */

static sluice_status move(struct rank *rank, uint32_t version, _Bool resume)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    struct sluice_progress progress = {.size = sizeof progress};
    sluice_transfer *transfer = NULL;
    options.on_event = on_event;
    options.user = rank;
    options.version = version;
    options.window_events = 1;
    options.pace_bytes_per_second = PACE;
    options.landing = rank->board->phase == TALLY_DECISION ? SLUICE_LANDING_SHADOW : SLUICE_LANDING_IN_PLACE;
    options.resume = resume;
    options.resume_windows = resume ? rank->windows : 0;
    rank->version = version;
    rank->windows = 0;
    fill(rank, version);
    reach(rank, TALLY_FIRST);
    sluice_status status = sluice_submit(rank->plan, &options, &transfer);
    if (status != SLUICE_OK)
        return status;
    status = sluice_transfer_wait(transfer, UINT64_MAX);
    if (sluice_transfer_progress(transfer, &progress) == SLUICE_OK)
        rank->windows = progress.windows_done;
    rank->seat->again_bytes += progress.bytes_again;
    sluice_transfer_destroy(transfer);
    if (status == SLUICE_OK && !holds(rank, version))
        return sl_fail(SLUICE_CORRUPT, "tally", "rank %u: version %u is not what was sent", rank->number, version);
    return status;
}

/* Up to the first thing that goes wrong. The rank that is to be lost does not come back from here. */
static void work(struct rank *rank)
{
    static const uint32_t all[TALLY_RANKS] = {0, 1, 2, 3};
    struct sluice_runtime_options options = runtime_options(rank);
    rank->version = 1;
    sluice_status status = make_plan(rank, all, TALLY_RANKS);
    reach(rank, TALLY_BOOTSTRAP);
    if (status == SLUICE_OK)
        status = wrong(rank, sluice_runtime_open(&options, &rank->runtime));
    reach(rank, TALLY_SEAL);
    if (status == SLUICE_OK)
        status = wrong(rank, seal(rank));
    if (status == SLUICE_OK)
        status = wrong(rank, move(rank, 1, 0));
    if (rank->number == rank->board->victim) {
        reach(rank, TALLY_SHUTDOWN);
        if (status == SLUICE_OK && rank->board->phase == TALLY_SHUTDOWN)
            sluice_runtime_close_wait(rank->runtime);
        for (;;)
            SL_IGNORE(pause());
    }
    if (status == SLUICE_OK)
        SL_IGNORE(wrong(rank, move(rank, 2, 0)));
}

/* --- afterwards --- */

/* Nobody could take the lead, or there was no runtime yet: those who are left open one. */
static sluice_status open_again(struct rank *rank)
{
    struct sluice_runtime_options options = runtime_options(rank);
    uint32_t members[TALLY_RANKS], count = 0, victim = rank->board->victim;
    for (uint32_t i = 0; i < TALLY_RANKS; i++)
        if (i != victim)
            members[count++] = i;
    sluice_plan_destroy(rank->plan);
    sluice_runtime_close_wait(rank->runtime);
    rank->plan = NULL;
    rank->runtime = NULL;
    options.world = count;
    options.rank = rank->number - (rank->number > victim);
    options.port = rank->board->ports[1];
    options.bootstrap_timeout_ns = RECOVERY;
    sluice_status status = sluice_runtime_open(&options, &rank->runtime);
    return status == SLUICE_OK ? make_plan(rank, members, count) : status;
}

static sluice_status recover(struct rank *rank)
{
    sluice_runtime *runtime = NULL;
    sluice_plan *plan = NULL;
    sluice_status status = sluice_runtime_recover(rank->runtime, RECOVERY, &runtime);
    if (status == SLUICE_STATE)
        return open_again(rank);
    if (status == SLUICE_OK)
        status = sluice_plan_recover(rank->plan, runtime, &plan);
    if (status != SLUICE_OK)
        return status;
    sluice_plan_destroy(rank->plan);
    sluice_runtime_close_wait(rank->runtime);
    rank->plan = plan;
    rank->runtime = runtime;
    return SLUICE_OK;
}

static sluice_status go_on(struct rank *rank)
{
    sluice_status status = rank->runtime == NULL ? open_again(rank) : recover(rank);
    if (status == SLUICE_OK)
        status = seal(rank);
    if (status == SLUICE_OK && rank->board->phase != TALLY_DECISION)
        status = move(rank, rank->version, 1);
    return status == SLUICE_OK ? move(rank, LATER, 0) : status;
}

int tally_rank(struct tally_board *board, uint32_t number)
{
    struct rank rank = {.board = board, .number = number, .seat = &board->seats[number]};
    size_t words = number < SOURCES ? PART_WORDS : SOURCES * PART_WORDS;
    for (uint32_t p = 0; p < PARAMS; p++) {
        rank.buffers[p] = calloc(words, sizeof(uint64_t));
        SL_ASSERT(rank.buffers[p] != NULL);
    }
    work(&rank);
    sluice_status status = go_on(&rank);
    rank.seat->recovered = status == SLUICE_OK;
    SL_IGNORE(snprintf(rank.seat->after, TALLY_TEXT, "%s: %.480s", sluice_status_name(status),
                       status == SLUICE_OK ? "moved and verified" : sluice_last_error()->text));
    sluice_plan_destroy(rank.plan);
    sluice_runtime_close_wait(rank.runtime);
    for (uint32_t p = 0; p < PARAMS; p++)
        free(rank.buffers[p]);
    return status == SLUICE_OK ? 0 : 1;
}
