/* Staged messages of the host backend: read where they were packed, and not overwritten before. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "support/rig.h"

enum { BYTES = 10000 };

static struct {
    struct rig rig;
    uint8_t *source, *send; /* rank 0 */
    uint8_t *recv, *target; /* rank 1 */
    struct sluice_message out, in;
    struct sluice_set *pack, *unpack;
} pair;

static struct sluice_message message_of(const void *memory, uint64_t bytes, uint32_t peer, _Bool receive, _Bool staged)
{
    return (struct sluice_message){
        .address = (uint64_t)(uintptr_t)memory, .bytes = bytes, .peer = peer, .receive = receive, .staged = staged};
}

static void open_pair(void)
{
    rig_open(&pair.rig, "host", 2, 3, 0);
    rig_connect_all(&pair.rig);
    struct rig_rank *sender = &pair.rig.rank[0], *receiver = &pair.rig.rank[1];
    pair.source = rig_memory(sender, SLUICE_MEMORY_DEVICE, BYTES);
    pair.send = rig_memory(sender, SLUICE_MEMORY_SEND, BYTES);
    pair.recv = rig_memory(receiver, SLUICE_MEMORY_RECV, BYTES);
    pair.target = rig_memory(receiver, SLUICE_MEMORY_DEVICE, BYTES);
    pair.out = message_of(pair.send, BYTES, 1, 0, 1);
    pair.in = message_of(pair.recv, BYTES, 0, 1, 1);
    struct sluice_copy packed = rig_piece(pair.source, pair.send, BYTES, 0);
    struct sluice_copy unpacked = rig_piece(pair.recv, pair.target, BYTES, 0);
    pair.pack = rig_set(sender, SLUICE_COPY_PACK, &packed, 1);
    pair.unpack = rig_set(receiver, SLUICE_COPY_UNPACK, &unpacked, 1);
    rig_pattern(pair.source, BYTES, 1);
}

static void close_pair(void)
{
    pair.rig.ops->set_close(pair.pack);
    pair.rig.ops->set_close(pair.unpack);
    rig_close(&pair.rig);
}

TestSuite(host_handover, .init = open_pair, .fini = close_pair);

/* One group on each rank: what was packed goes over. */
static void exchange(uint64_t cookie)
{
    rig_group(&pair.rig.rank[0], 0, &pair.out, 1, cookie);
    rig_group(&pair.rig.rank[1], 0, &pair.in, 1, cookie);
}

/* An exchange that ended on both ranks, but what arrived is not unpacked; then the sender packs again. */
static void exchange_and_pack_again(uint64_t cookie)
{
    exchange(cookie);
    rig_wait(&pair.rig.rank[0], cookie);
    rig_wait(&pair.rig.rank[1], cookie);
    rig_copy(&pair.rig.rank[0], 0, pair.pack, cookie + 1);
    cr_assert_not(rig_ended(&pair.rig.rank[0], cookie + 1));
}

Test(host_handover, packed_data_is_copied_twice_in_all)
{
    memset(pair.recv, 0xcc, BYTES);
    rig_copy(&pair.rig.rank[0], 0, pair.pack, 1);
    exchange(2);
    rig_copy(&pair.rig.rank[1], 0, pair.unpack, 3);
    rig_wait(&pair.rig.rank[1], 3);
    cr_assert_eq(rig_compare(pair.target, BYTES, 1), BYTES);
    for (uint32_t i = 0; i < BYTES; i++)
        cr_assert_eq(pair.recv[i], 0xcc, "the receive staging was written at byte %u", i);
}

Test(host_handover, pack_waits_until_the_receiver_unpacked_what_the_queue_sent)
{
    rig_copy(&pair.rig.rank[0], 0, pair.pack, 1);
    exchange(2);
    rig_wait(&pair.rig.rank[0], 2);
    rig_wait(&pair.rig.rank[1], 2);
    rig_pattern(pair.source, BYTES, 2);
    rig_copy(&pair.rig.rank[0], 0, pair.pack, 3);
    rig_fence(&pair.rig.rank[0], 1, 4);
    rig_wait(&pair.rig.rank[0], 4);
    cr_assert_not(rig_ended(&pair.rig.rank[0], 3), "packed over what the peer had not read");
    cr_assert_eq(rig_compare(pair.send, BYTES, 1), BYTES);
    rig_copy(&pair.rig.rank[1], 0, pair.unpack, 3);
    rig_wait(&pair.rig.rank[0], 3);
    rig_wait(&pair.rig.rank[1], 3);
    cr_assert_eq(rig_compare(pair.target, BYTES, 1), BYTES);
    cr_assert_eq(rig_compare(pair.send, BYTES, 2), BYTES);
}

Test(host_handover, next_group_of_the_queue_releases_what_was_never_unpacked)
{
    exchange_and_pack_again(1);
    rig_group(&pair.rig.rank[1], 0, NULL, 0, 2);
    rig_wait(&pair.rig.rank[0], 2);
}

Test(host_handover, closing_the_queue_releases_what_was_never_unpacked)
{
    exchange_and_pack_again(1);
    pair.rig.ops->queue_close(pair.rig.rank[1].queues[0]);
    rig_wait(&pair.rig.rank[0], 2);
    cr_assert_eq(pair.rig.ops->queue_open(pair.rig.rank[1].device, &pair.rig.rank[1].queues[0]), SLUICE_OK);
}

Test(host_handover, closing_the_communicator_lets_the_sender_go)
{
    exchange_and_pack_again(1);
    pair.rig.ops->group_close(pair.rig.rank[1].group);
    pair.rig.rank[1].group = NULL;
    rig_wait(&pair.rig.rank[0], 2);
}

Test(host_handover, pack_waits_for_the_receiver_even_when_the_sender_closed_the_communicator)
{
    rig_pattern(pair.send, BYTES, 1);
    exchange(1);
    rig_wait(&pair.rig.rank[0], 1);
    rig_wait(&pair.rig.rank[1], 1);
    pair.rig.ops->group_close(pair.rig.rank[0].group);
    pair.rig.rank[0].group = NULL;
    rig_pattern(pair.source, BYTES, 2);
    rig_copy(&pair.rig.rank[0], 0, pair.pack, 2);
    rig_fence(&pair.rig.rank[0], 1, 3);
    rig_wait(&pair.rig.rank[0], 3);
    cr_assert_not(rig_ended(&pair.rig.rank[0], 2), "packed over what the peer had not read");
    rig_copy(&pair.rig.rank[1], 0, pair.unpack, 2);
    rig_wait(&pair.rig.rank[1], 2);
    rig_wait(&pair.rig.rank[0], 2);
    cr_assert_eq(rig_compare(pair.target, BYTES, 1), BYTES);
}

Test(host_handover, two_ranks_that_never_unpacked_do_not_wait_for_each_other_in_their_next_pack)
{
    struct rig_rank *ranks = pair.rig.rank;
    uint8_t *send = rig_memory(&ranks[1], SLUICE_MEMORY_SEND, BYTES);
    uint8_t *recv = rig_memory(&ranks[0], SLUICE_MEMORY_RECV, BYTES);
    const struct sluice_message at_0[] = {pair.out, message_of(recv, BYTES, 1, 1, 1)};
    const struct sluice_message at_1[] = {message_of(send, BYTES, 0, 0, 1), pair.in};
    struct sluice_copy piece = rig_piece(pair.target, send, BYTES, 0);
    struct sluice_set *pack = rig_set(&ranks[1], SLUICE_COPY_PACK, &piece, 1);
    rig_group(&ranks[0], 0, at_0, 2, 1);
    rig_group(&ranks[1], 0, at_1, 2, 1);
    rig_wait(&ranks[0], 1);
    rig_wait(&ranks[1], 1);
    rig_copy(&ranks[0], 0, pair.pack, 2);
    rig_copy(&ranks[1], 0, pack, 2);
    rig_wait(&ranks[0], 2);
    rig_wait(&ranks[1], 2);
    pair.rig.ops->set_close(pack);
}

Test(host_handover, abort_ends_a_pack_that_waits_for_its_receiver)
{
    exchange(1);
    rig_wait(&pair.rig.rank[0], 1);
    rig_wait(&pair.rig.rank[1], 1);
    rig_pattern(pair.send, BYTES, 8);
    rig_copy(&pair.rig.rank[0], 0, pair.pack, 2);
    pair.rig.ops->abort(pair.rig.rank[0].group);
    cr_assert_eq(rig_wait_any(&pair.rig.rank[0], 2)->status, SLUICE_ABORTED);
    cr_assert_eq(rig_compare(pair.send, BYTES, 8), BYTES);
}

Test(host_handover, unpack_without_its_group_is_an_error)
{
    rig_copy(&pair.rig.rank[1], 0, pair.unpack, 1);
    cr_assert_eq(rig_wait_any(&pair.rig.rank[1], 1)->status, SLUICE_INVALID);
}

Test(host_handover, unpack_behind_a_failed_group_writes_nothing)
{
    memset(pair.target, 7, BYTES);
    rig_group(&pair.rig.rank[1], 0, &pair.in, 1, 1);
    rig_copy(&pair.rig.rank[1], 0, pair.unpack, 2);
    pair.rig.ops->abort(pair.rig.rank[1].group);
    cr_assert_eq(rig_wait_any(&pair.rig.rank[1], 1)->status, SLUICE_ABORTED);
    cr_assert_eq(rig_wait_any(&pair.rig.rank[1], 2)->status, SLUICE_ABORTED);
    for (uint32_t i = 0; i < BYTES; i++)
        cr_assert_eq(pair.target[i], 7);
}

Test(host_handover, silent_failure_is_carried_by_the_next_completion_of_the_queue)
{
    const struct sluice_op silent = {.kind = SLUICE_OP_COPY, .set = pair.unpack};
    rig_submit(&pair.rig.rank[1], 0, &silent);
    rig_fence(&pair.rig.rank[1], 0, 1);
    rig_fence(&pair.rig.rank[1], 0, 2);
    cr_assert_eq(rig_wait_any(&pair.rig.rank[1], 1)->status, SLUICE_INVALID);
    rig_wait(&pair.rig.rank[1], 2);
}

Test(host_handover, more_staged_messages_in_a_group_than_can_be_left_in_place)
{
    enum { COUNT = 1000, EACH = 10 };
    static struct sluice_message out[COUNT], in[COUNT];
    static struct sluice_copy pieces[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        out[i] = message_of(pair.send + i * EACH, EACH, 1, 0, 1);
        in[i] = message_of(pair.recv + i * EACH, EACH, 0, 1, 1);
        pieces[i] = rig_piece(pair.recv + i * EACH, pair.target + i * EACH, EACH, i);
    }
    struct sluice_set *unpack = rig_set(&pair.rig.rank[1], SLUICE_COPY_UNPACK, pieces, COUNT);
    for (uint32_t round = 0; round < 5; round++) {
        rig_pattern(pair.source, BYTES, 20 + round);
        rig_copy(&pair.rig.rank[0], 0, pair.pack, 10 * round + 1);
        rig_group(&pair.rig.rank[0], 0, out, COUNT, 10 * round + 2);
        rig_group(&pair.rig.rank[1], 0, in, COUNT, 10 * round + 2);
        rig_copy(&pair.rig.rank[1], 0, unpack, 10 * round + 3);
        rig_wait(&pair.rig.rank[1], 10 * round + 3);
        cr_assert_eq(rig_compare(pair.target, BYTES, 20 + round), BYTES, "round %u", round);
    }
    pair.rig.ops->set_close(unpack);
}

Test(host_handover, receiver_that_runs_ahead_does_not_make_the_sender_forget_what_it_posted)
{
    /* The receiver finishes all that can be posted at once before the sender looks again; then comes the other kind. */
    enum { COUNT = 1000, EACH = 10, POSTS = 256 };
    static struct sluice_message out[COUNT], in[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        _Bool staged = i / POSTS % 2 == 0;
        out[i] = message_of((staged ? pair.send : pair.source) + i * EACH, EACH, 1, 0, staged);
        in[i] = message_of(pair.target + i * EACH, EACH, 0, 1, 0);
    }
    for (uint32_t round = 0; round < 20; round++) {
        rig_pattern(pair.source, BYTES, round);
        memcpy(pair.send, pair.source, BYTES);
        rig_group(&pair.rig.rank[0], 0, out, COUNT, 2 * round + 1);
        rig_group(&pair.rig.rank[1], 0, in, COUNT, 2 * round + 2);
        rig_wait(&pair.rig.rank[0], 2 * round + 1);
        rig_wait(&pair.rig.rank[1], 2 * round + 2);
        cr_assert_eq(rig_compare(pair.target, BYTES, round), BYTES, "round %u", round);
    }
}

Test(host_handover, closing_a_queue_ends_the_group_that_it_runs)
{
    rig_group(&pair.rig.rank[1], 0, &pair.in, 1, 1);
    rig_group(&pair.rig.rank[1], 1, &pair.in, 1, 2);
    cr_assert_not(rig_ended(&pair.rig.rank[1], 1));
}

Test(host_handover, sizes_that_differ_are_an_error_at_both_ends_that_names_sizes_and_ranks)
{
    for (uint32_t staged = 0; staged < 4; staged++) {
        pair.out.bytes = 5000;
        pair.in.bytes = 5001;
        pair.out.staged = staged & 1;
        pair.in.staged = staged >> 1;
        rig_group(&pair.rig.rank[0], 0, &pair.out, 1, 1);
        rig_group(&pair.rig.rank[1], 0, &pair.in, 1, 1);
        for (uint32_t r = 0; r < 2; r++) {
            const struct rig_end *end = rig_wait_any(&pair.rig.rank[r], 1);
            cr_assert_eq(end->status, SLUICE_MISMATCH, "rank %u", r);
            cr_assert_not_null(strstr(end->error.text, "rank 0 sends 5000 bytes to rank 1, which expects 5001"), "%s",
                               end->error.text);
        }
        close_pair(); /* a communicator that failed serves nobody any more */
        open_pair();
    }
}

Test(host_handover_of_three, third_rank_learns_that_a_peer_left_the_group)
{
    struct rig rig;
    rig_open(&rig, "host", 3, 1, 0);
    rig_connect_all(&rig);
    static uint8_t a[64], b[64], c[64];
    /* 0 and 1 disagree about a size; 2 waits for 0. */
    const struct sluice_message from_0[] = {message_of(a, 8, 1, 0, 0), message_of(a, 8, 2, 0, 0)};
    const struct sluice_message at_1 = message_of(b, 9, 0, 1, 0),
                                at_2[] = {message_of(c, 8, 0, 1, 0), message_of(c + 8, 8, 1, 1, 0)};
    rig_group(&rig.rank[2], 0, at_2, 2, 1);
    rig_group(&rig.rank[1], 0, &at_1, 1, 1);
    rig_group(&rig.rank[0], 0, from_0, 2, 1);
    cr_assert_eq(rig_wait_any(&rig.rank[0], 1)->status, SLUICE_MISMATCH);
    cr_assert_eq(rig_wait_any(&rig.rank[1], 1)->status, SLUICE_MISMATCH);
    const struct rig_end *end = rig_wait_any(&rig.rank[2], 1);
    cr_assert_eq(end->status, SLUICE_PEER_FAILED);
    cr_assert_not_null(strstr(end->error.text, "rank"), "%s", end->error.text);
    rig_close(&rig);
}

Test(host_handover, freed_send_memory_is_unmapped_by_the_peer)
{
    for (uint32_t round = 0; round < 600; round++) { /* more than there are segments */
        uint8_t *memory = rig_memory(&pair.rig.rank[0], SLUICE_MEMORY_SEND, BYTES);
        rig_pattern(memory, BYTES, round);
        const struct sluice_message out = message_of(memory, BYTES, 1, 0, 1);
        rig_group(&pair.rig.rank[0], 0, &out, 1, round + 10);
        rig_group(&pair.rig.rank[1], 0, &pair.in, 1, 2 * round + 1000);
        rig_copy(&pair.rig.rank[1], 0, pair.unpack, 2 * round + 1001);
        rig_wait(&pair.rig.rank[0], round + 10);
        rig_wait(&pair.rig.rank[1], 2 * round + 1001);
        cr_assert_eq(rig_compare(pair.target, BYTES, round), BYTES, "round %u", round);
        rig_free(&pair.rig.rank[0], SLUICE_MEMORY_SEND, memory, BYTES);
    }
    uint32_t maps = 0;
    char line[512];
    FILE *file = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof(line), file) != NULL)
        maps += strstr(line, "memfd:sluice-send") != NULL;
    fclose(file);
    cr_assert_leq(maps, 4, "%u maps of send memory are left", maps);
}
