/* Groups: matching, progress of everything together, order, overlap with packing. */
#include <stdlib.h>
#include <string.h>

#include "conformance/names.h"
#include "runtime/base/random.h"

static struct sluice_message message_of(void *memory, uint64_t bytes, uint32_t peer, _Bool receive, _Bool staged)
{
    return (struct sluice_message){
        .address = (uint64_t)(uintptr_t)memory, .bytes = bytes, .peer = peer, .receive = receive, .staged = staged};
}

static void fill(struct rig_rank *rank, void *memory, uint64_t bytes, uint64_t seed)
{
    uint8_t *content = malloc(bytes);
    rig_pattern(content, bytes, seed);
    rig_write(rank, memory, content, bytes);
    free(content);
}

static void expect(struct rig_rank *rank, const void *memory, uint64_t bytes, uint64_t seed)
{
    uint8_t *content = malloc(bytes);
    rig_read(rank, content, memory, bytes);
    uint64_t wrong = rig_compare(content, bytes, seed);
    cr_assert_eq(wrong, bytes, "rank %u, content %lu: byte %lu of %lu is wrong", rank->rank, (unsigned long)seed,
                 (unsigned long)wrong, (unsigned long)bytes);
    free(content);
}

/* Two ranks swap more than any pool holds, send first on both. */
static void swap(const char *backend, uint64_t bytes)
{
    struct rig rig;
    rig_open(&rig, backend, 2, 2, 0);
    rig_connect_all(&rig);
    uint8_t *out[2], *in[2];
    struct sluice_message messages[2][2];
    for (uint32_t r = 0; r < 2; r++) {
        out[r] = rig_memory(&rig.rank[r], SLUICE_MEMORY_DEVICE, bytes);
        in[r] = rig_memory(&rig.rank[r], SLUICE_MEMORY_DEVICE, bytes);
        fill(&rig.rank[r], out[r], bytes, 10 + r);
        messages[r][0] = message_of(out[r], bytes, 1 - r, 0, 0);
        messages[r][1] = message_of(in[r], bytes, 1 - r, 1, 0);
    }
    for (uint32_t r = 0; r < 2; r++)
        rig_group(&rig.rank[r], 0, messages[r], 2, 1);
    for (uint32_t r = 0; r < 2; r++) {
        rig_wait(&rig.rank[r], 1);
        expect(&rig.rank[r], in[r], bytes, 11 - r);
    }
    rig_close(&rig);
}

CONFORMANCE(backend_group, two_ranks_swap_64_mib_in_one_group)
{
    swap(backend->text, 64u << 20);
}

CONFORMANCE(backend_group, two_ranks_swap_one_byte)
{
    swap(backend->text, 1);
}

CONFORMANCE(backend_group, two_ranks_swap_an_odd_length)
{
    swap(backend->text, (3u << 20) + 12345);
}

CONFORMANCE(backend_group, group_without_messages_completes_alone)
{
    struct rig rig;
    rig_open(&rig, backend->text, 2, 1, 0);
    rig_connect_all(&rig);
    rig_group(&rig.rank[0], 0, NULL, 0, 1);
    rig_wait(&rig.rank[0], 1);
    rig_close(&rig);
}

CONFORMANCE(backend_group, group_ends_only_when_the_peer_takes_part)
{
    struct rig rig;
    rig_open(&rig, backend->text, 2, 2, 0);
    rig_connect_all(&rig);
    uint8_t *out = rig_memory(&rig.rank[0], SLUICE_MEMORY_DEVICE, 4096);
    uint8_t *in = rig_memory(&rig.rank[1], SLUICE_MEMORY_DEVICE, 4096);
    const struct sluice_message receive = message_of(in, 4096, 0, 1, 0), send = message_of(out, 4096, 1, 0, 0);
    fill(&rig.rank[0], out, 4096, 9);
    rig_group(&rig.rank[1], 0, &receive, 1, 1);
    rig_fence(&rig.rank[1], 0, 2);
    rig_fence(&rig.rank[1], 1, 3);
    rig_wait(&rig.rank[1], 3); /* another queue goes on */
    cr_assert_not(rig_ended(&rig.rank[1], 1));
    cr_assert_not(rig_ended(&rig.rank[1], 2));
    rig_group(&rig.rank[0], 0, &send, 1, 1);
    rig_wait(&rig.rank[1], 2);
    expect(&rig.rank[1], in, 4096, 9);
    rig_close(&rig);
}

CONFORMANCE(backend_group, messages_of_a_pair_match_in_order_over_groups)
{
    struct rig rig;
    rig_open(&rig, backend->text, 2, 2, 0);
    rig_connect_all(&rig);
    /* The sender puts into two groups what the receiver expects in three. */
    enum { COUNT = 1000, BYTES = COUNT * 64 };
    uint8_t *out = rig_memory(&rig.rank[0], SLUICE_MEMORY_DEVICE, BYTES);
    uint8_t *in = rig_memory(&rig.rank[1], SLUICE_MEMORY_DEVICE, BYTES);
    fill(&rig.rank[0], out, BYTES, 5);
    static struct sluice_message sends[COUNT], receives[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        sends[i] = message_of(out + 64 * i, 1 + i % 64, 1, 0, 0);
        receives[i] = message_of(in + 64 * i, 1 + i % 64, 0, 1, 0);
    }
    rig_group(&rig.rank[1], 0, receives, 300, 1);
    rig_group(&rig.rank[1], 0, receives + 300, 400, 2);
    rig_group(&rig.rank[1], 0, receives + 700, 300, 3);
    rig_group(&rig.rank[0], 0, sends, 500, 1);
    rig_group(&rig.rank[0], 0, sends + 500, 500, 2);
    rig_wait(&rig.rank[1], 3);
    static uint8_t got[BYTES];
    rig_read(&rig.rank[1], got, in, BYTES);
    for (uint32_t i = 0; i < COUNT; i++)
        for (uint32_t b = 0; b < 1 + i % 64; b++)
            cr_assert_eq(got[64 * i + b], rig_byte(5, 64 * i + b), "message %u byte %u", i, b);
    rig_close(&rig);
}

CONFORMANCE(backend_group, groups_run_in_submission_order_over_queues)
{
    struct rig rig;
    rig_open(&rig, backend->text, 2, 3, 0);
    rig_connect_all(&rig);
    enum { COUNT = 60, BYTES = 1000 };
    uint8_t *out = rig_memory(&rig.rank[0], SLUICE_MEMORY_DEVICE, COUNT * BYTES);
    uint8_t *in = rig_memory(&rig.rank[1], SLUICE_MEMORY_DEVICE, COUNT * BYTES);
    static struct sluice_message sends[COUNT], receives[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        fill(&rig.rank[0], out + BYTES * i, BYTES, i);
        sends[i] = message_of(out + BYTES * i, BYTES, 1, 0, 0);
        receives[i] = message_of(in + BYTES * i, BYTES, 0, 1, 0);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        rig_group(&rig.rank[0], i % 2, &sends[i], 1, i);
        rig_group(&rig.rank[1], (i * 7 + 1) % 3 % 2, &receives[i], 1, i);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        rig_wait(&rig.rank[1], i);
        expect(&rig.rank[1], in + BYTES * i, BYTES, i);
    }
    rig_close(&rig);
}

CONFORMANCE(backend_group, rank_without_messages_in_a_window_does_not_shift_the_next)
{
    struct rig rig;
    rig_open(&rig, backend->text, 3, 2, 0);
    rig_connect_all(&rig);
    enum { BYTES = 512 };
    uint8_t *out = rig_memory(&rig.rank[2], SLUICE_MEMORY_DEVICE, 3 * BYTES);
    uint8_t *in[2];
    fill(&rig.rank[2], out, BYTES, 0);
    fill(&rig.rank[2], out + 2 * BYTES, BYTES, 2);
    for (uint32_t r = 0; r < 2; r++)
        in[r] = rig_memory(&rig.rank[r], SLUICE_MEMORY_DEVICE, 3 * BYTES);
    /* Windows 0 and 2: rank 2 sends to rank 0. Window 1: rank 0 and rank 1 only; rank 2 skips it. */
    const struct sluice_message sends[] = {message_of(out, BYTES, 0, 0, 0),
                                           message_of(out + 2 * BYTES, BYTES, 0, 0, 0)};
    const struct sluice_message from_2[] = {message_of(in[0], BYTES, 2, 1, 0),
                                            message_of(in[0] + 2 * BYTES, BYTES, 2, 1, 0)};
    const struct sluice_message from_1 = message_of(in[0] + BYTES, BYTES, 1, 1, 0);
    const struct sluice_message to_0 = message_of(in[1], BYTES, 0, 0, 0);
    fill(&rig.rank[1], in[1], BYTES, 1);
    rig_group(&rig.rank[2], 0, &sends[0], 1, 0);
    rig_group(&rig.rank[2], 0, &sends[1], 1, 2);
    rig_group(&rig.rank[0], 0, &from_2[0], 1, 0);
    rig_group(&rig.rank[0], 0, &from_1, 1, 1);
    rig_group(&rig.rank[0], 0, &from_2[1], 1, 2);
    rig_group(&rig.rank[1], 0, &to_0, 1, 1);
    rig_wait(&rig.rank[0], 2);
    for (uint32_t window = 0; window < 3; window++)
        expect(&rig.rank[0], in[0] + window * BYTES, BYTES, window);
    rig_close(&rig);
}

/* --- packed windows with rotating slots --- */

enum { SLOTS = 3, WINDOWS = 8, PIECES = 20, PIECE = 3000, SLOT = PIECES * 3008 };

struct sender {
    struct rig_rank *rank;
    uint8_t *source, *slots;
    struct sluice_set *packs[WINDOWS];
    struct sluice_message messages[WINDOWS];
};

struct receiver {
    struct rig_rank *rank;
    uint8_t *destination, *slots;
    struct sluice_set *unpacks[WINDOWS];
    struct sluice_message messages[WINDOWS];
};

static void make_sender(struct sender *sender, struct rig_rank *rank, uint32_t peer)
{
    *sender = (struct sender){.rank = rank};
    sender->source = rig_memory(rank, SLUICE_MEMORY_DEVICE, WINDOWS * PIECES * PIECE);
    sender->slots = rig_memory(rank, SLUICE_MEMORY_SEND, SLOTS * SLOT);
    fill(rank, sender->source, WINDOWS * PIECES * PIECE, 70);
    for (uint32_t w = 0; w < WINDOWS; w++) {
        struct sluice_copy pieces[PIECES];
        uint8_t *slot = sender->slots + w % SLOTS * SLOT;
        for (uint32_t i = 0; i < PIECES; i++)
            pieces[i] = rig_piece(sender->source + (w * PIECES + i) * PIECE, slot + i * 3008, PIECE, 0);
        sender->packs[w] = rig_set(rank, SLUICE_COPY_PACK, pieces, PIECES);
        sender->messages[w] = message_of(slot, SLOT, peer, 0, 1);
    }
}

static void make_receiver(struct receiver *receiver, struct rig_rank *rank, uint32_t peer)
{
    *receiver = (struct receiver){.rank = rank};
    receiver->destination = rig_memory(rank, SLUICE_MEMORY_DEVICE, WINDOWS * PIECES * PIECE);
    receiver->slots = rig_memory(rank, SLUICE_MEMORY_RECV, SLOTS * SLOT);
    for (uint32_t w = 0; w < WINDOWS; w++) {
        struct sluice_copy pieces[PIECES];
        uint8_t *slot = receiver->slots + w % SLOTS * SLOT;
        for (uint32_t i = 0; i < PIECES; i++)
            pieces[i] = rig_piece(slot + i * 3008, receiver->destination + (w * PIECES + i) * PIECE, PIECE, 0);
        receiver->unpacks[w] = rig_set(rank, SLUICE_COPY_UNPACK, pieces, PIECES);
        receiver->messages[w] = message_of(slot, SLOT, peer, 1, 1);
    }
}

static void close_sets(struct sender *sender, struct receiver *receiver)
{
    for (uint32_t w = 0; w < WINDOWS; w++) {
        sender->rank->rig->ops->set_close(sender->packs[w]);
        sender->rank->rig->ops->set_close(receiver->unpacks[w]);
    }
}

static void send_window(struct sender *sender, uint32_t w)
{
    rig_copy(sender->rank, w % SLOTS, sender->packs[w], 100 + w);
    rig_group(sender->rank, w % SLOTS, &sender->messages[w], 1, 200 + w);
}

static void receive_window(struct receiver *receiver, uint32_t w)
{
    rig_group(receiver->rank, w % SLOTS, &receiver->messages[w], 1, 200 + w);
    rig_copy(receiver->rank, w % SLOTS, receiver->unpacks[w], 300 + w);
}

static void check_received(struct receiver *receiver)
{
    for (uint32_t w = 0; w < WINDOWS; w++)
        rig_wait(receiver->rank, 300 + w);
    expect(receiver->rank, receiver->destination, WINDOWS * PIECES * PIECE, 70);
}

CONFORMANCE(backend_group, packed_windows_over_rotating_slots)
{
    struct rig rig;
    rig_open(&rig, backend->text, 2, SLOTS + 1, 0);
    rig_connect_all(&rig);
    struct sender sender;
    struct receiver receiver;
    make_sender(&sender, &rig.rank[0], 1);
    make_receiver(&receiver, &rig.rank[1], 0);
    for (uint32_t w = 0; w < WINDOWS; w++) {
        send_window(&sender, w);
        receive_window(&receiver, w);
    }
    check_received(&receiver);
    rig_fence(&rig.rank[0], (WINDOWS - 1) % SLOTS, 998);
    rig_wait(&rig.rank[0], 998);
    close_sets(&sender, &receiver);
    rig_close(&rig);
}

CONFORMANCE(backend_group, next_window_is_packed_while_a_group_is_held_open)
{
    struct rig rig;
    rig_open(&rig, backend->text, 2, SLOTS + 1, 0);
    rig_connect_all(&rig);
    struct sender sender;
    struct receiver receiver;
    make_sender(&sender, &rig.rank[0], 1);
    make_receiver(&receiver, &rig.rank[1], 0);
    send_window(&sender, 0);
    send_window(&sender, 1);
    rig_wait(&rig.rank[0], 101); /* pack(1) ends */
    cr_assert_not(rig_ended(&rig.rank[0], 200), "group(0) ended without its peer");
    for (uint32_t w = 2; w < WINDOWS; w++)
        send_window(&sender, w);
    for (uint32_t w = 0; w < WINDOWS; w++)
        receive_window(&receiver, w);
    check_received(&receiver);
    rig_fence(&rig.rank[0], (WINDOWS - 1) % SLOTS, 998);
    rig_wait(&rig.rank[0], 998);
    close_sets(&sender, &receiver);
    rig_close(&rig);
}

CONFORMANCE(backend_group, slow_unpack_still_reads_its_own_window)
{
    if (strcmp(backend->text, "cuda") == 0)
        cr_skip_test("the test holds a queue back with a second communicator; cuda has one a device");
    struct rig rig;
    rig_open(&rig, backend->text, 2, SLOTS + 2, 0);
    rig_connect_all(&rig);
    struct sluice_group *holders[RIG_RANKS];
    rig_connect(&rig, holders);
    struct sender sender;
    struct receiver receiver;
    make_sender(&sender, &rig.rank[0], 1);
    make_receiver(&receiver, &rig.rank[1], 0);
    /* unpack(0) waits behind a group of another communicator that rank 0 holds open. */
    uint8_t *byte[2];
    for (uint32_t r = 0; r < 2; r++)
        byte[r] = rig_memory(&rig.rank[r], SLUICE_MEMORY_DEVICE, 64);
    const struct sluice_message held[2] = {message_of(byte[0], 64, 1, 0, 0), message_of(byte[1], 64, 0, 1, 0)};
    const struct sluice_op hold = {
        .kind = SLUICE_OP_GROUP, .group = holders[1], .messages = &held[1], .message_count = 1};
    rig_submit(&rig.rank[1], SLOTS, &hold);
    rig_mark(&rig.rank[1], SLOTS, SLUICE_OP_RECORD, 1);
    rig_group(&rig.rank[1], 0, &receiver.messages[0], 1, 200);
    rig_mark(&rig.rank[1], 0, SLUICE_OP_WAIT, 1);
    rig_copy(&rig.rank[1], 0, receiver.unpacks[0], 300);
    for (uint32_t w = 0; w < WINDOWS; w++)
        send_window(&sender, w);
    for (uint32_t w = 1; w < WINDOWS; w++)
        receive_window(&receiver, w);
    rig_wait(&rig.rank[1], 302); /* windows 1 and 2 need no slot of window 0 */
    cr_assert_not(rig_ended(&rig.rank[1], 300));
    const struct sluice_op let_go = {
        .kind = SLUICE_OP_GROUP, .group = holders[0], .messages = &held[0], .message_count = 1};
    rig_submit(&rig.rank[0], SLOTS, &let_go);
    check_received(&receiver);
    for (uint32_t r = 0; r < 2; r++) {
        rig_fence(&rig.rank[r], SLOTS, 999);
        rig_wait(&rig.rank[r], 999);
        rig.ops->group_close(holders[r]);
    }
    close_sets(&sender, &receiver);
    rig_close(&rig);
}

/* --- everything mixed --- */

enum { WORLD = 4, ROUNDS = 40, MESSAGES = 6, LONGEST = 300000 };

struct mixed {
    struct sluice_message messages[2 * WORLD * MESSAGES];
    void *memory[2 * WORLD * MESSAGES];
    uint64_t seeds[2 * WORLD * MESSAGES];
    uint32_t count;
};

static void add_mixed(struct mixed *mixed, struct rig_rank *rank, uint64_t bytes, uint32_t peer, _Bool receive,
                      _Bool staged, uint64_t seed)
{
    enum sluice_memory kind = !staged ? SLUICE_MEMORY_DEVICE : receive ? SLUICE_MEMORY_RECV : SLUICE_MEMORY_SEND;
    void *memory = rig_memory(rank, kind, bytes);
    if (!receive)
        fill(rank, memory, bytes, seed);
    mixed->memory[mixed->count] = memory;
    mixed->seeds[mixed->count] = seed;
    mixed->messages[mixed->count++] = message_of(memory, bytes, peer, receive, staged);
}

static void make_round(struct rig *rig, struct mixed *mixed, struct sl_random *random)
{
    for (uint32_t from = 0; from < WORLD; from++)
        for (uint32_t to = 0; to < WORLD; to++) {
            uint32_t count = from == to ? 0 : (uint32_t)sl_random_below(random, MESSAGES + 1);
            for (uint32_t i = 0; i < count; i++) {
                uint64_t bytes = 1 + sl_random_below(random, sl_random_below(random, 2) ? LONGEST : 100);
                uint64_t seed = sl_random_next(random);
                add_mixed(&mixed[from], &rig->rank[from], bytes, to, 0, sl_random_below(random, 2), seed);
                add_mixed(&mixed[to], &rig->rank[to], bytes, from, 1, sl_random_below(random, 2), seed);
            }
        }
}

/* What staged receives hold is read by the unpack set behind the group, as the engine does it. */
static void read_staged(struct rig_rank *rank, struct mixed *mixed, uint32_t queue, uint8_t **results)
{
    struct sluice_copy pieces[SLUICE_UNIT * 10];
    uint32_t count = 0;
    for (uint32_t i = 0; i < mixed->count; i++) {
        results[i] = NULL;
        if (!mixed->messages[i].receive || !mixed->messages[i].staged)
            continue;
        results[i] = rig_memory(rank, SLUICE_MEMORY_DEVICE, mixed->messages[i].bytes);
        pieces[count++] = rig_piece(mixed->memory[i], results[i], mixed->messages[i].bytes, i);
    }
    struct sluice_set *set = rig_set(rank, SLUICE_COPY_UNPACK, pieces, count);
    rig_copy(rank, queue, set, 2);
    rig_wait(rank, 2);
    rank->rig->ops->set_close(set);
}

static void check_round(struct rig_rank *rank, struct mixed *mixed, uint8_t **results)
{
    for (uint32_t i = 0; i < mixed->count; i++) {
        const struct sluice_message *message = &mixed->messages[i];
        const void *at = results[i] != NULL ? results[i] : mixed->memory[i];
        if (message->receive)
            expect(rank, at, message->bytes, mixed->seeds[i]);
    }
}

static void free_round(struct rig_rank *rank, struct mixed *mixed, uint8_t **results)
{
    for (uint32_t i = 0; i < mixed->count; i++) {
        const struct sluice_message *message = &mixed->messages[i];
        enum sluice_memory kind = !message->staged   ? SLUICE_MEMORY_DEVICE
                                  : message->receive ? SLUICE_MEMORY_RECV
                                                     : SLUICE_MEMORY_SEND;
        rig_free(rank, kind, mixed->memory[i], message->bytes);
        rig_free(rank, SLUICE_MEMORY_DEVICE, results[i], message->bytes);
    }
}

CONFORMANCE(backend_group, random_groups_of_four_ranks_with_every_kind_of_memory)
{
    struct rig rig;
    rig_open(&rig, backend->text, WORLD, 2, 0);
    rig_connect_all(&rig);
    struct sl_random random = {.state = 11};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        static struct mixed mixed[WORLD];
        uint8_t *results[WORLD][2 * WORLD * MESSAGES];
        memset(mixed, 0, sizeof(mixed));
        make_round(&rig, mixed, &random);
        for (uint32_t r = 0; r < WORLD; r++) {
            rig.rank[r].ends[1] = rig.rank[r].ends[2] = (struct rig_end){0};
            rig_group(&rig.rank[r], 0, mixed[r].messages, mixed[r].count, 1);
        }
        for (uint32_t r = 0; r < WORLD; r++) {
            rig_wait(&rig.rank[r], 1);
            read_staged(&rig.rank[r], &mixed[r], 0, results[r]);
            check_round(&rig.rank[r], &mixed[r], results[r]);
        }
        for (uint32_t r = 0; r < WORLD; r++)
            free_round(&rig.rank[r], &mixed[r], results[r]);
    }
    rig_close(&rig);
}
