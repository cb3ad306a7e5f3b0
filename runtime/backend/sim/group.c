/*
 * Simulated communicators: opening, the order of groups, and their end.
 *
 * Invariants: an opening ends when all flagged peers have opened theirs; groups of a communicator run one at a
 * time in the order in which they were accepted; after an abort or a failure every group ends with ABORTED.
 */
#include "runtime/backend/op_check.h"
#include "runtime/backend/sim/state.h"

#include <string.h>

sluice_status sl_sim_group_address(struct sluice_device *device, struct sluice_blob *ret)
{
    *ret = (struct sluice_blob){.bytes = sizeof device->config.rank};
    memcpy(ret->data, &device->config.rank, sizeof device->config.rank);
    return SLUICE_OK;
}

struct sluice_group *sl_sim_partner(const struct sluice_group *group, uint32_t rank)
{
    const struct sluice_device *device = group->device->sim->devices[rank];
    for (uint32_t i = 0; device != NULL && i < device->group_count; i++)
        if (device->groups[i]->number == group->number)
            return device->groups[i];
    return NULL;
}

static void end_opening(struct sluice_group *group, const struct sluice_error *error)
{
    group->opening = 0;
    group->open = error == NULL;
    sl_sim_complete(group->device, group->cookie, group->device->sim->now, error);
}

static _Bool peers_are_there(const struct sluice_group *group)
{
    for (uint32_t r = 0; r < group->device->config.world; r++)
        if (group->peers[r] != 0 && r != group->device->config.rank && sl_sim_partner(group, r) == NULL)
            return 0;
    return 1;
}

/* Runs when somebody has opened a communicator. */
static void check_openings(void *context, uint64_t number)
{
    struct sl_sim *sim = context;
    for (uint32_t r = 0; r < sim->world; r++) {
        const struct sluice_device *device = sim->devices[r];
        for (uint32_t i = 0; device != NULL && i < device->group_count; i++) {
            struct sluice_group *group = device->groups[i];
            if (group->number == number && group->opening && peers_are_there(group))
                end_opening(group, NULL);
        }
    }
}

static sluice_status prepare(struct sluice_group *group, const struct sluice_group_config *config)
{
    struct sluice_device *device = group->device;
    struct sl_mem *mem = device->sim->mem;
    group->peers = sl_new_array(mem, config->world, 1, "simulated communicator");
    group->sent = sl_new_array(mem, config->world, sizeof *group->sent, "simulated communicator");
    group->received = sl_new_array(mem, config->world, sizeof *group->received, "simulated communicator");
    if (!group->peers || !group->sent || !group->received)
        return SLUICE_NOMEM;
    memcpy(group->peers, config->peers, config->world);
    sluice_status status = sl_sim_make_room(device, 1);
    if (status == SLUICE_OK)
        status = sl_sim_at(device->sim, device->sim->now, check_openings, device->sim, group->number);
    return status;
}

sluice_status sl_sim_group_open(struct sluice_device *device, const struct sluice_group_config *config, uint64_t cookie,
                                struct sluice_group **ret)
{
    if (device->group_count == SL_SIM_GROUPS_MAX)
        return sl_fail(SLUICE_LIMIT, "sim", "more than %d communicators", SL_SIM_GROUPS_MAX);
    struct sluice_group *group = sl_new(device->sim->mem, sizeof *group, "simulated communicator");
    if (group == NULL)
        return SLUICE_NOMEM;
    *group = (struct sluice_group){.device = device, .number = device->groups_made, .cookie = cookie, .opening = 1};
    sluice_status status = prepare(group, config);
    if (status != SLUICE_OK) {
        sl_sim_group_close(group);
        return status;
    }
    device->groups_made++;
    device->groups[device->group_count++] = group;
    *ret = group;
    return SLUICE_OK;
}

void sl_sim_group_close(struct sluice_group *group)
{
    if (group == NULL)
        return;
    struct sluice_device *device = group->device;
    struct sl_mem *mem = device->sim->mem;
    sl_sim_forget(device->sim, group);
    for (uint32_t i = 0; i < device->group_count; i++)
        if (device->groups[i] == group) {
            device->groups[i] = device->groups[--device->group_count];
            break;
        }
    sl_free(mem, group->peers);
    sl_free(mem, group->sent);
    sl_free(mem, group->received);
    sl_free(mem, group->state);
    sl_free(mem, group);
}

/* --- groups --- */

sluice_status sl_sim_group_check(const struct sluice_group *group, const struct sluice_op *op)
{
    if (!group->open && !group->aborted)
        return sl_fail(SLUICE_STATE, "sim", "a group on a communicator that is not open");
    const struct sluice_backend_config *config = &group->device->config;
    return sl_op_check_messages("sim", op, config->rank, config->world, group->peers);
}

static void advance_all(struct sluice_device *device)
{
    for (uint32_t q = 0; q < device->queue_count; q++)
        sl_sim_advance(device->queues[q]);
}

void sl_sim_group_end(struct sluice_group *group, const struct sluice_error *error)
{
    struct sluice_queue *queue = group->posted;
    group->posted = NULL;
    group->moving = 0;
    group->ended++;
    if (error != NULL)
        group->aborted = 1;
    sl_sim_finish(queue, error);
    advance_all(group->device);
}

static void end_aborted(void *context, uint64_t argument)
{
    struct sluice_group *group = context;
    struct sluice_error error;
    (void)argument;
    sl_error_set(&error, SLUICE_ABORTED, "sim", "the communicator was aborted");
    if (group->opening)
        end_opening(group, &error);
    if (group->posted != NULL)
        sl_sim_group_end(group, &error);
}

static void end_empty(void *context, uint64_t argument)
{
    struct sluice_group *group = context;
    (void)argument;
    if (group->posted != NULL)
        sl_sim_group_end(group, NULL);
}

void sl_sim_post(struct sluice_queue *queue)
{
    struct sl_sim *sim = queue->device->sim;
    struct sl_sim_op *slot = &queue->ops[queue->head % SL_SIM_OPS_MAX];
    struct sluice_group *group = slot->op.group;
    SL_ASSERT(group->posted == NULL);
    group->posted = queue;
    group->left = slot->op.message_count;
    sl_sim_note(sim, queue->device->config.rank, SLUICE_OP_GROUP, queue->head);
    if (group->aborted) {
        SL_ASSERT(sl_sim_at(sim, sim->now, end_aborted, group, 0) == SLUICE_OK);
        return;
    }
    if (group->left == 0) {
        SL_ASSERT(sl_sim_at(sim, sim->now, end_empty, group, 0) == SLUICE_OK);
        return;
    }
    SL_ASSERT(sl_grow(sim->mem, &group->state, &group->state_capacity, group->left, 1, "simulated group") == SLUICE_OK);
    memset(group->state, 0, group->left);
    sl_sim_match(group);
}

sluice_status sl_sim_abort(struct sluice_group *group)
{
    if (group->aborted)
        return SLUICE_OK;
    group->aborted = 1;
    return sl_sim_at(group->device->sim, group->device->sim->now, end_aborted, group, 0);
}
