/*
 * attack_member_test.c: a member of the job that breaks the rules is given up and named; the others hear of it,
 * and nothing crashes.
 */
#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/random.h"
#include "support/stranger.h"

static void *open_two(void *context)
{
    test_ranks_open(context, 3);
    return NULL;
}

/* Ranks 0 and 1 and, as rank 2, the test itself. */
static int join_as_rank_2(struct test_ranks *ranks)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, open_two, ranks), 0);
    int fd = stranger_greeted(ranks);
    stranger_join(fd, 2, 3);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    stranger_opened(ranks, 2);
    return fd;
}

static void rank_2_is_lost(struct test_ranks *ranks, const char *part)
{
    struct sl_note note;
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert(test_wait_lost(&ranks->rank[i], 2, &note));
        cr_assert_not_null(strstr(note.text, part), "\"%s\" lacks \"%s\"", note.text, part);
    }
}

Test(attack_member, gives_up_a_rank_that_sends_what_only_rank_0_may)
{
    struct test_ranks *ranks = stranger_prepared(3);
    int fd = join_as_rank_2(ranks);
    stranger_frame(fd, SL_FRAME_RESULT, "x", 1);
    rank_2_is_lost(ranks, "does not belong here");
    stranger_is_closed(fd);
    stranger_end(ranks);
}

Test(attack_member, gives_up_a_rank_whose_large_message_has_a_gap)
{
    struct test_ranks *ranks = stranger_prepared(3);
    int fd = join_as_rank_2(ranks);
    uint8_t chunk[10] = {SL_FRAME_PART, 100, 0, 0, 0, 50, 0, 0, 0, 'x'}; /* begins at 50 */
    stranger_frame(fd, SL_FRAME_CHUNK, chunk, sizeof(chunk));
    rank_2_is_lost(ranks, "malformed");
    stranger_is_closed(fd);
    stranger_end(ranks);
}

Test(attack_member, survives_random_frames_of_a_rank)
{
    struct test_ranks *ranks = stranger_prepared(3);
    int fd = join_as_rank_2(ranks);
    struct sl_random random = {.state = 5};
    uint8_t payload[256];
    for (int i = 0; i < 2000; i++) {
        size_t bytes = sl_random_below(&random, sizeof(payload));
        for (size_t k = 0; k < bytes; k++)
            payload[k] = (uint8_t)sl_random_next(&random);
        stranger_frame(fd, i % 2 == 0 ? SL_FRAME_NOTE : SL_FRAME_BEAT, payload, bytes);
    }
    close(fd);
    rank_2_is_lost(ranks, "rank 2");
    stranger_end(ranks);
}

Test(attack_member, gives_up_a_rank_that_does_not_read)
{
    struct test_ranks *ranks = stranger_prepared(3);
    for (uint32_t i = 0; i < 2; i++)
        ranks->rank[i].config.heartbeat_ns = 200 * SLUICE_MILLISECOND;
    int fd = join_as_rank_2(ranks);
    rank_2_is_lost(ranks, "no sign of life");
    close(fd);
    stranger_end(ranks);
}
