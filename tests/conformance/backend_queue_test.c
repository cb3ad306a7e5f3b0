/* Queues: order, markers, completions, back-pressure, wake-ups. */
#include <string.h>

#include "conformance/names.h"

CONFORMANCE(backend_queue, operations_of_one_queue_run_in_order)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 2, 0);
    struct rig_rank *rank = &rig.rank[0];
    /* A byte is handed along a chain of buffers: any other order would move the wrong one. */
    enum { LINKS = 200 };
    uint8_t start[LINKS + 1] = {77}, got = 0;
    uint8_t *chain = rig_memory(rank, SLUICE_MEMORY_DEVICE, LINKS + 1);
    rig_write(rank, chain, start, sizeof(start));
    struct sluice_set *sets[LINKS];
    for (uint32_t i = 0; i < LINKS; i++) {
        struct sluice_copy piece = rig_piece(chain + i, chain + i + 1, 1, SLUICE_MESSAGE_NONE);
        sets[i] = rig_set(rank, SLUICE_COPY_LOCAL, &piece, 1);
    }
    for (uint32_t i = 0; i < LINKS; i++)
        rig_copy(rank, 0, sets[i], i);
    rig_wait(rank, LINKS - 1);
    rig_read(rank, &got, chain + LINKS, 1);
    cr_assert_eq(got, 77);
    for (uint32_t i = 0; i < LINKS; i++) {
        cr_assert_eq(rank->ends[i].times, 1, "operation %u", i);
        rig.ops->set_close(sets[i]);
    }
    rig_close(&rig);
}

CONFORMANCE(backend_queue, wait_orders_a_queue_behind_a_record_of_another)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 3, 0);
    struct rig_rank *rank = &rig.rank[0];
    enum { BYTES = 1 << 22, ROUNDS = 20 };
    static uint8_t content[BYTES], got[BYTES];
    uint8_t *a = rig_memory(rank, SLUICE_MEMORY_DEVICE, BYTES);
    uint8_t *b = rig_memory(rank, SLUICE_MEMORY_DEVICE, BYTES);
    uint8_t *c = rig_memory(rank, SLUICE_MEMORY_DEVICE, BYTES);
    struct sluice_copy first = rig_piece(a, b, BYTES, SLUICE_MESSAGE_NONE);
    struct sluice_copy second = rig_piece(b, c, BYTES, SLUICE_MESSAGE_NONE);
    struct sluice_set *fill = rig_set(rank, SLUICE_COPY_LOCAL, &first, 1);
    struct sluice_set *read = rig_set(rank, SLUICE_COPY_LOCAL, &second, 1);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        memset(content, (int)round + 1, BYTES);
        rig_write(rank, a, content, BYTES);
        rig_copy(rank, 0, fill, 2 * round);
        rig_mark(rank, 0, SLUICE_OP_RECORD, 3);
        rig_mark(rank, 1, SLUICE_OP_WAIT, 3);
        rig_copy(rank, 1, read, 2 * round + 1);
        rig_wait(rank, 2 * round + 1);
        cr_assert(rig_ended(rank, 2 * round), "the wait let go before the record");
        rig_read(rank, got, c, BYTES);
        cr_assert_eq(memcmp(got, content, BYTES), 0, "round %u", round);
    }
    rig.ops->set_close(fill);
    rig.ops->set_close(read);
    rig_close(&rig);
}

CONFORMANCE(backend_queue, wait_means_the_record_before_it_even_when_the_marker_is_used_again)
{
    struct rig rig;
    rig_open(&rig, backend->text, 2, 3, 0);
    rig_connect_all(&rig);
    struct rig_rank *rank = &rig.rank[0];
    uint8_t *mine = rig_memory(rank, SLUICE_MEMORY_DEVICE, 64);
    uint8_t *theirs = rig_memory(&rig.rank[1], SLUICE_MEMORY_DEVICE, 64);
    const struct sluice_message receive = {.address = (uint64_t)(uintptr_t)mine, .bytes = 64, .peer = 1, .receive = 1};
    const struct sluice_message send = {.address = (uint64_t)(uintptr_t)theirs, .bytes = 64, .peer = 0};
    /* Marker 0: first behind nothing, then behind a group that the peer holds open. */
    rig_mark(rank, 1, SLUICE_OP_RECORD, 0);
    rig_mark(rank, 2, SLUICE_OP_WAIT, 0);
    rig_fence(rank, 2, 1);
    rig_group(rank, 0, &receive, 1, 2);
    rig_mark(rank, 0, SLUICE_OP_RECORD, 0);
    rig_mark(rank, 2, SLUICE_OP_WAIT, 0);
    rig_fence(rank, 2, 3);
    rig_wait(rank, 1);
    cr_assert_not(rig_ended(rank, 2));
    cr_assert_not(rig_ended(rank, 3));
    rig_group(&rig.rank[1], 0, &send, 1, 4);
    rig_wait(rank, 3);
    cr_assert(rig_ended(rank, 2));
    rig_close(&rig);
}

CONFORMANCE(backend_queue, completions_in_any_order_match_their_windows)
{
    /* Two markers for six windows whose groups end in the order 5 0 4 1 3 2. */
    struct rig rig;
    rig_open(&rig, backend->text, 1, 6, 0);
    struct rig_rank *rank = &rig.rank[0];
    static const uint32_t order[] = {5, 0, 4, 1, 3, 2};
    for (uint32_t i = 0; i < 6; i++) {
        if (i > 0)
            rig_mark(rank, order[i], SLUICE_OP_WAIT, (i - 1) % 2);
        rig_fence(rank, order[i], order[i]);
        rig_mark(rank, order[i], SLUICE_OP_RECORD, i % 2);
    }
    rig_wait(rank, 2);
    rig_poll(&rig);
    for (uint32_t i = 0; i < 6; i++)
        cr_assert_eq(rank->ends[i].times, 1, "window %u", i);
    cr_assert_eq(rank->completions, 6);
    rig_close(&rig);
}

CONFORMANCE(backend_queue, only_operations_that_ask_complete_and_each_once)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 2, 0);
    struct rig_rank *rank = &rig.rank[0];
    enum { ROUNDS = 1000 };
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const struct sluice_op silent = {.kind = SLUICE_OP_FENCE, .cookie = ROUNDS + i};
        rig_submit(rank, i % 2, &silent);
        rig_fence(rank, i % 2, i);
        rig_poll(&rig); /* beside the workers: a silent operation may end between two looks */
    }
    rig_wait(rank, ROUNDS - 1);
    rig_wait(rank, ROUNDS - 2);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        cr_assert_eq(rank->ends[i].times, 1, "operation %u", i);
        cr_assert_eq(rank->ends[ROUNDS + i].times, 0, "silent operation %u", i);
    }
    rig_close(&rig);
}

CONFORMANCE(backend_queue, full_queue_says_again_and_takes_more_after_poll)
{
    struct rig rig;
    rig_open(&rig, backend->text, 2, 2, 0);
    rig_connect_all(&rig);
    struct rig_rank *rank = &rig.rank[0];
    uint8_t *mine = rig_memory(rank, SLUICE_MEMORY_DEVICE, 64);
    uint8_t *theirs = rig_memory(&rig.rank[1], SLUICE_MEMORY_DEVICE, 64);
    const struct sluice_message receive = {.address = (uint64_t)(uintptr_t)mine, .bytes = 64, .peer = 1, .receive = 1};
    const struct sluice_message send = {.address = (uint64_t)(uintptr_t)theirs, .bytes = 64, .peer = 0};
    /* The peer holds the queue, so it fills up. */
    rig_group(rank, 0, &receive, 1, 0);
    const struct sluice_op silent = {.kind = SLUICE_OP_FENCE};
    sluice_status status = SLUICE_OK;
    uint32_t taken = 0;
    while (taken < 1000000 && (status = rig.ops->submit(rank->queues[0], &silent)) == SLUICE_OK)
        taken++;
    cr_assert_eq(status, SLUICE_AGAIN);
    cr_assert_gt(taken, 0);
    cr_assert_not(rig_ended(rank, 0));
    rig_group(&rig.rank[1], 0, &send, 1, 0);
    rig_fence(rank, 0, 1); /* retries until there is room */
    rig_wait(rank, 1);
    rig_close(&rig);
}

CONFORMANCE(backend_queue, arm_is_busy_while_a_completion_waits_and_wakes_for_the_next)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 1, 0);
    struct rig_rank *rank = &rig.rank[0];
    cr_assert_eq(rig.ops->arm(rank->device), SLUICE_OK);
    uint32_t wakes = atomic_load(&rank->wakes);
    rig_fence(rank, 0, 1);
    /* The wake-up must come; how long it takes is not our business. */
    while (atomic_load(&rank->wakes) == wakes)
        rig_pass(&rig);
    cr_assert_eq(rig.ops->arm(rank->device), SLUICE_BUSY);
    cr_assert(rig_ended(rank, 1));
    cr_assert_eq(rig.ops->arm(rank->device), SLUICE_OK);
    rig_close(&rig);
}

CONFORMANCE(backend_queue, traced_completions_have_times_in_order)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 2, 1);
    struct rig_rank *rank = &rig.rank[0];
    enum { BYTES = 1 << 20 };
    uint8_t *memory = rig_memory(rank, SLUICE_MEMORY_DEVICE, 2 * BYTES);
    struct sluice_copy piece = rig_piece(memory, memory + BYTES, BYTES, SLUICE_MESSAGE_NONE);
    struct sluice_set *set = rig_set(rank, SLUICE_COPY_LOCAL, &piece, 1);
    rig_copy(rank, 0, set, 1);
    rig_copy(rank, 0, set, 2);
    const struct rig_end *second = rig_wait(rank, 2);
    const struct rig_end *first = &rank->ends[1];
    cr_assert_gt(first->begin_ns, 0);
    cr_assert_lt(first->begin_ns, first->end_ns);
    cr_assert_leq(first->end_ns, second->begin_ns);
    cr_assert_lt(second->begin_ns, second->end_ns);
    rig.ops->set_close(set);
    rig_close(&rig);
}

CONFORMANCE(backend_queue, untraced_completions_have_no_times)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 1, 0);
    rig_fence(&rig.rank[0], 0, 1);
    const struct rig_end *end = rig_wait(&rig.rank[0], 1);
    cr_assert_eq(end->begin_ns, 0);
    cr_assert_eq(end->end_ns, 0);
    rig_close(&rig);
}

CONFORMANCE(backend_queue, wrong_operations_are_refused)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 1, 0);
    struct sluice_queue *queue = rig.rank[0].queues[0];
    struct sluice_backend_info info = {.size = sizeof(info)};
    cr_assert_eq(rig.ops->query(&info), SLUICE_OK);
    const struct sluice_op unknown = {.kind = 99};
    const struct sluice_op far = {.kind = SLUICE_OP_RECORD, .marker = info.markers_max};
    const struct sluice_op never = {.kind = SLUICE_OP_WAIT, .marker = 1};
    const struct sluice_op nothing = {.kind = SLUICE_OP_COPY};
    const struct sluice_op nobody = {.kind = SLUICE_OP_GROUP};
    cr_assert_eq(rig.ops->submit(queue, &unknown), SLUICE_INVALID);
    cr_assert_eq(rig.ops->submit(queue, &far), SLUICE_INVALID);
    cr_assert_eq(rig.ops->submit(queue, &never), SLUICE_INVALID);
    cr_assert_eq(rig.ops->submit(queue, &nothing), SLUICE_INVALID);
    cr_assert_eq(rig.ops->submit(queue, &nobody), SLUICE_INVALID);
    rig_close(&rig);
}

CONFORMANCE(backend_queue, queues_open_and_close_again_and_again)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 1, 0);
    struct rig_rank *rank = &rig.rank[0];
    for (uint32_t i = 0; i < 50; i++) {
        struct sluice_queue *queue = NULL;
        cr_assert_eq(rig.ops->queue_open(rank->device, &queue), SLUICE_OK);
        struct sluice_queue *kept = rank->queues[0];
        rank->queues[0] = queue;
        rig_fence(rank, 0, i);
        rig_mark(rank, 0, SLUICE_OP_RECORD, 0);
        rig_wait(rank, i);
        rank->queues[0] = kept;
        rig.ops->queue_close(queue);
        /* What a closed queue recorded has passed. */
        rig_mark(rank, 0, SLUICE_OP_WAIT, 0);
        rig_fence(rank, 0, 1000 + i);
        rig_wait(rank, 1000 + i);
    }
    rig_close(&rig);
}
