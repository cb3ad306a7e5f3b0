/*
 * control_ranks.c: ranks that open, talk from several threads at once, lose one of them and close, again
 * and again, for the thread sanitizer. A round or note that does not come ends in a wait's deadline.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "support/ranks.h"

enum { WORLD = 4, TALKERS = 3, ROUNDS = 40, NOTES = 300, REPEATS = 5 };
#define LONG (60 * SLUICE_SECOND)

struct talker {
    struct test_rank *rank;
    uint32_t number;
    pthread_t thread;
};

static void tell(struct test_rank *rank, uint32_t kind, uint64_t key, uint64_t a)
{
    struct sl_note note = {.kind = kind, .key = key, .a = a, .b = 1};
    SL_ASSERT(sl_control_tell(rank->control, &note) == SLUICE_OK);
}

/* Each talker has a run and rounds of its own, alike on all ranks. */
static void *talk(void *context)
{
    struct talker *talker = context;
    struct test_rank *rank = talker->rank;
    char part[64];
    struct sl_note join = {.kind = SL_NOTE_JOIN, .key = talker->number, .a = NOTES, .b = 1};
    SL_ASSERT(sl_control_tell(rank->control, &join) == SLUICE_OK);
    for (uint64_t i = 1; i <= NOTES; i++) {
        tell(rank, SL_NOTE_READY, talker->number, i);
        if (i % (NOTES / ROUNDS) == 0) {
            int bytes = snprintf(part, sizeof(part), "%u %llu", talker->number, (unsigned long long)i);
            SL_ASSERT(sl_control_round(rank->control, talker->number, i, part, (size_t)bytes, LONG) == SLUICE_OK);
        }
    }
    return NULL;
}

static void talk_all(struct test_ranks *ranks)
{
    static struct talker talkers[WORLD * TALKERS];
    uint32_t before = ranks->rank[0].rounds;
    for (uint32_t i = 0; i < WORLD * TALKERS; i++) {
        talkers[i] = (struct talker){.rank = &ranks->rank[i % WORLD], .number = 1 + i / WORLD};
        SL_ASSERT(pthread_create(&talkers[i].thread, NULL, talk, &talkers[i]) == 0);
    }
    for (uint32_t i = 0; i < WORLD * TALKERS; i++)
        SL_ASSERT(pthread_join(talkers[i].thread, NULL) == 0);
    uint32_t rounds = NOTES / (NOTES / ROUNDS) * TALKERS;
    for (uint32_t i = 0; i < WORLD; i++)
        SL_ASSERT(test_wait_rounds(&ranks->rank[i], before + rounds));
}

/* One rank leaves while the others open a round that needs it. */
static void leave(struct test_ranks *ranks, uint32_t leaver)
{
    uint32_t before[WORLD];
    for (uint32_t i = 0; i < WORLD; i++)
        before[i] = ranks->rank[i].rounds;
    for (uint32_t i = 0; i < WORLD; i++)
        if (i != leaver)
            SL_ASSERT(sl_control_round(ranks->rank[i].control, 9, 9, "x", 1, LONG) == SLUICE_OK);
    test_ranks_close(ranks, 1u << leaver);
    for (uint32_t i = 0; i < WORLD; i++)
        if (i != leaver)
            SL_ASSERT(test_wait_rounds(&ranks->rank[i], before[i] + 1));
    test_ranks_close(ranks, (1u << WORLD) - 1);
}

int main(void)
{
    for (uint32_t repeat = 0; repeat < REPEATS; repeat++) {
        struct test_ranks *ranks = test_ranks_new(WORLD, LONG);
        test_ranks_open(ranks, (1u << WORLD) - 1);
        for (uint32_t i = 0; i < WORLD; i++) {
            if (ranks->rank[i].opened != SLUICE_OK) {
                (void)fprintf(stderr, "rank %u: %s\n", i, ranks->rank[i].error.text);
                return 1;
            }
        }
        talk_all(ranks);
        leave(ranks, repeat % WORLD);
        test_ranks_end(ranks);
    }
    (void)printf("%d jobs of %d ranks, %d talkers each\n", REPEATS, WORLD, TALKERS);
    return 0;
}
