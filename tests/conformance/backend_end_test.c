/* Ends: abort in every state, errors that name ranks, what is refused. */
#include <string.h>

#include "conformance/names.h"

static struct sluice_message message_of(void *memory, uint64_t bytes, uint32_t peer, _Bool receive)
{
    return (struct sluice_message){
        .address = (uint64_t)(uintptr_t)memory, .bytes = bytes, .peer = peer, .receive = receive};
}

CONFORMANCE(backend_end, abort_ends_the_running_group_and_those_behind_it)
{
    struct rig rig;
    rig_open(&rig, backend->text, 2, 2, 0);
    rig_connect_all(&rig);
    struct rig_rank *rank = &rig.rank[0];
    uint8_t *memory = rig_memory(rank, SLUICE_MEMORY_DEVICE, 4096);
    const struct sluice_message receive = message_of(memory, 4096, 1, 1);
    rig_group(rank, 0, &receive, 1, 1);
    rig_group(rank, 1, &receive, 1, 2);
    rig_group(rank, 0, &receive, 1, 3);
    cr_assert_not(rig_ended(rank, 1));
    cr_assert_eq(rig.ops->abort(rank->group), SLUICE_OK);
    cr_assert_eq(rig.ops->abort(rank->group), SLUICE_OK);
    for (uint64_t i = 1; i <= 3; i++)
        cr_assert_eq(rig_wait_any(rank, i)->status, SLUICE_ABORTED, "group %lu", (unsigned long)i);
    rig_close(&rig);
}

CONFORMANCE(backend_end, group_after_an_abort_is_aborted)
{
    struct rig rig;
    rig_open(&rig, backend->text, 2, 1, 0);
    rig_connect_all(&rig);
    uint8_t *memory = rig_memory(&rig.rank[0], SLUICE_MEMORY_DEVICE, 64);
    const struct sluice_message receive = message_of(memory, 64, 1, 1);
    cr_assert_eq(rig.ops->abort(rig.rank[0].group), SLUICE_OK);
    rig_group(&rig.rank[0], 0, &receive, 1, 1);
    cr_assert_eq(rig_wait_any(&rig.rank[0], 1)->status, SLUICE_ABORTED);
    rig_fence(&rig.rank[0], 0, 2); /* the queue itself lives on */
    rig_wait(&rig.rank[0], 2);
    rig_close(&rig);
}

CONFORMANCE(backend_end, abort_while_peers_are_missing_ends_the_opening)
{
    struct rig rig;
    rig_open(&rig, backend->text, 2, 1, 0);
    struct sluice_blob blobs[2];
    const uint8_t peers[2] = {0, 3};
    for (uint32_t r = 0; r < 2; r++)
        cr_assert_eq(rig.ops->group_address(rig.rank[r].device, &blobs[r]), SLUICE_OK);
    const struct sluice_group_config config = {
        .size = sizeof(config), .rank = 0, .world = 2, .blobs = blobs, .peers = peers};
    cr_assert_eq(rig.ops->group_open(rig.rank[0].device, &config, 1, &rig.rank[0].group), SLUICE_OK);
    cr_assert_not(rig_ended(&rig.rank[0], 1));
    cr_assert_eq(rig.ops->abort(rig.rank[0].group), SLUICE_OK);
    cr_assert_eq(rig_wait_any(&rig.rank[0], 1)->status, SLUICE_ABORTED);
    rig_close(&rig);
}

CONFORMANCE(backend_end, closing_while_peers_are_missing_returns)
{
    struct rig rig;
    rig_open(&rig, backend->text, 2, 1, 0);
    struct sluice_blob blobs[2];
    const uint8_t peers[2] = {0, 3};
    for (uint32_t r = 0; r < 2; r++)
        cr_assert_eq(rig.ops->group_address(rig.rank[r].device, &blobs[r]), SLUICE_OK);
    const struct sluice_group_config config = {
        .size = sizeof(config), .rank = 0, .world = 2, .blobs = blobs, .peers = peers};
    cr_assert_eq(rig.ops->group_open(rig.rank[0].device, &config, 1, &rig.rank[0].group), SLUICE_OK);
    rig_close(&rig);
}

CONFORMANCE(backend_end, world_opens_and_closes_again_and_again)
{
    struct rig rig;
    rig_open(&rig, backend->text, 3, 1, 0);
    uint8_t *memory[2];
    for (uint32_t r = 0; r < 2; r++)
        memory[r] = rig_memory(&rig.rank[r], SLUICE_MEMORY_DEVICE, 64);
    const struct sluice_message send = message_of(memory[0], 64, 1, 0), receive = message_of(memory[1], 64, 0, 1);
    for (uint32_t i = 0; i < 20; i++) {
        rig_connect_all(&rig);
        rig_group(&rig.rank[0], 0, &send, 1, i);
        rig_group(&rig.rank[1], 0, &receive, 1, i);
        rig_wait(&rig.rank[0], i);
        rig_wait(&rig.rank[1], i);
        for (uint32_t r = 0; r < 3; r++) {
            rig.ops->group_close(rig.rank[r].group);
            rig.rank[r].group = NULL;
        }
    }
    rig_close(&rig);
}

CONFORMANCE(backend_end, message_of_another_direction_or_rank_is_refused)
{
    struct rig rig;
    rig_open(&rig, backend->text, 2, 1, 0);
    rig_connect_all(&rig);
    uint8_t *memory = rig_memory(&rig.rank[0], SLUICE_MEMORY_DEVICE, 64);
    const struct sluice_message wrong[] = {message_of(memory, 64, 0, 1), message_of(memory, 64, 2, 1),
                                           message_of(memory, 0, 1, 1), message_of(NULL, 64, 1, 1)};
    for (uint32_t i = 0; i < 4; i++) {
        const struct sluice_op op = {
            .kind = SLUICE_OP_GROUP, .group = rig.rank[0].group, .messages = &wrong[i], .message_count = 1};
        cr_assert_eq(rig.ops->submit(rig.rank[0].queues[0], &op), SLUICE_INVALID, "message %u", i);
    }
    rig_close(&rig);
}

CONFORMANCE(backend_end, close_of_nothing_is_harmless)
{
    struct rig rig;
    rig_open(&rig, backend->text, 1, 1, 0);
    rig.ops->set_close(NULL);
    rig.ops->group_close(NULL);
    rig.ops->queue_close(NULL);
    rig.ops->close(NULL);
    rig.ops->mem_free(rig.rank[0].device, SLUICE_MEMORY_DEVICE, NULL, 0);
    rig_close(&rig);
}
