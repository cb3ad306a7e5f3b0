/*
 * recover.c: sluice_runtime_recover.
 *
 * Invariants: one recovery of a runtime at a time, on the caller's thread, which waits for one round at a time;
 * a round of survivors always ends, by its deadline at the latest; a loss in between makes the same attempt fail
 * on all ranks, and the next one begins with asking anew who is left.
 */
#include "runtime/core/recover.h"

#include <string.h>

#include "runtime/control/token.h"
#include "runtime/control/wire_bytes.h"
#include "runtime/core/runtime_object.h"

enum { STEPS = 4 }; /* ids of one attempt: an all-gather each */

/* --- the hub --- */

static sluice_status put_members(const struct sl_bytes *parts, uint32_t world, struct sl_writer *w)
{
    uint64_t attempt = 0;
    uint32_t count = 0;
    sluice_status status = sl_token_random(&attempt, sizeof attempt);
    for (uint32_t i = 0; i < world; i++)
        count += parts[i].data != NULL;
    sl_put_u64(w, attempt / STEPS * STEPS);
    sl_put_u32(w, count);
    for (uint32_t i = 0; i < world; i++)
        if (parts[i].data != NULL)
            sl_put_u32(w, i);
    return status;
}

sluice_status sl_recover_reduce(uint32_t kind, const struct sl_bytes *parts, uint32_t world, struct sl_mem *mem,
                                uint8_t **ret_data, size_t *ret_bytes, struct sluice_error *error)
{
    struct sl_writer w;
    sluice_status status = SLUICE_OK;
    sl_writer_init(&w, mem);
    if (kind == SL_ROUND_MEMBERS)
        status = put_members(parts, world, &w);
    for (uint32_t i = 0; kind == SL_ROUND_GATHER && i < world; i++)
        sl_put_bytes(&w, parts[i].data, parts[i].bytes);
    if (status == SLUICE_OK)
        status = sl_writer_take(&w, ret_data, ret_bytes);
    else
        sl_writer_drop(&w);
    if (status != SLUICE_OK)
        sl_error_take(error);
    return status;
}

/* --- rounds --- */

void sl_recover_round_ended(struct sluice_runtime *runtime, sluice_status status, const struct sluice_error *error,
                            const uint8_t *data, size_t bytes)
{
    struct sl_round_end *end = &runtime->recover_round;
    pthread_mutex_lock(&runtime->lock);
    end->error = error != NULL ? *error : (struct sluice_error){0};
    end->error.status = status;
    if (status == SLUICE_OK) {
        end->data = sl_new(runtime->mem, bytes + 1, "result of a round");
        end->bytes = bytes;
        if (end->data != NULL && bytes > 0)
            memcpy(end->data, data, bytes);
        else if (end->data == NULL)
            sl_error_take(&end->error);
    }
    end->ended = 1;
    pthread_cond_broadcast(&runtime->opened_changed);
    pthread_mutex_unlock(&runtime->lock);
}

static uint64_t left_until(uint64_t deadline)
{
    uint64_t now = sl_now(sl_clock_system());
    return deadline > now ? deadline - now : 1;
}

/* Gives a part and waits; `*ret` is freed by the caller. */
static sluice_status give(struct sluice_runtime *runtime, uint32_t kind, uint64_t id, const struct sl_bytes *part,
                          uint64_t deadline, struct sl_round_end *ret)
{
    runtime->recover_round = (struct sl_round_end){0};
    if (atomic_load(&runtime->closing))
        return sl_fail(SLUICE_CLOSED, "recover", "the runtime is closed");
    sluice_status status = sl_control_round(runtime->control, kind, id, part->data, part->bytes, left_until(deadline));
    if (status != SLUICE_OK)
        return status;
    pthread_mutex_lock(&runtime->lock);
    while (!runtime->recover_round.ended)
        pthread_cond_wait(&runtime->opened_changed, &runtime->lock);
    *ret = runtime->recover_round;
    pthread_mutex_unlock(&runtime->lock);
    return ret->error.status == SLUICE_OK ? SLUICE_OK : sl_fail_copy(&ret->error);
}

/* --- the new epoch --- */

struct epoch {
    struct sluice_runtime *old;
    uint64_t deadline;
    uint64_t attempt; /* first id of its rounds */
    uint32_t step;
    uint32_t count, rank; /* members, and which of them this rank is */
    uint32_t *members;    /* by their numbers in the old runtime */
    struct sluice_error error;
};

static sluice_status read_members(struct epoch *epoch, const struct sl_round_end *end)
{
    struct sl_reader r = sl_reader_of(end->data, end->bytes);
    uint32_t own = epoch->old->identity.rank;
    epoch->attempt = sl_get_u64(&r);
    epoch->count = sl_get_u32(&r);
    epoch->rank = UINT32_MAX;
    if (r.failed || r.left != (size_t)epoch->count * sizeof(uint32_t))
        return sl_fail(SLUICE_PROTOCOL, "recover", "the list of the ranks that are left is malformed");
    epoch->members = sl_new_array(epoch->old->mem, epoch->count, sizeof *epoch->members, "ranks that are left");
    if (epoch->members == NULL)
        return SLUICE_NOMEM;
    for (uint32_t i = 0; i < epoch->count; i++) {
        epoch->members[i] = sl_get_u32(&r);
        if (epoch->members[i] == own)
            epoch->rank = i;
    }
    if (epoch->rank == UINT32_MAX)
        return sl_fail(SLUICE_PEER_LOST, "recover", "the other ranks go on without this one");
    return SLUICE_OK;
}

static sluice_status find_members(struct epoch *epoch)
{
    struct sl_round_end end = {0};
    const struct sl_bytes nothing = {0};
    sluice_status status = give(epoch->old, SL_ROUND_MEMBERS, 0, &nothing, epoch->deadline, &end);
    if (status == SLUICE_OK)
        status = read_members(epoch, &end);
    sl_free(epoch->old->mem, end.data);
    return status;
}

/* The all-gather that joins the new runtime's ranks. */
static int gather(const void *send, void *recv, size_t bytes, void *user)
{
    struct epoch *epoch = user;
    struct sl_round_end end = {0};
    const struct sl_bytes part = {send, bytes};
    sluice_status status =
        give(epoch->old, SL_ROUND_GATHER, epoch->attempt + epoch->step++, &part, epoch->deadline, &end);
    if (status == SLUICE_OK && end.bytes != epoch->count * bytes)
        status = sl_fail(SLUICE_PEER_LOST, "recover", "another rank was lost during the recovery");
    if (status == SLUICE_OK)
        memcpy(recv, end.data, end.bytes);
    else
        sl_error_take(&epoch->error);
    sl_free(epoch->old->mem, end.data);
    return status == SLUICE_OK ? 0 : -1;
}

/* Where the new rank 0 listens: on the address that it had, on a free port. */
static void fill_address(const struct sluice_runtime *old, struct sl_identity *identity)
{
    char *address = identity->address;
    sl_control_address(old->control, old->identity.rank, address, sizeof identity->address);
    char *colon = strrchr(address, ':');
    if (colon != NULL)
        *colon = '\0';
    size_t length = strlen(address);
    if (address[0] != '[' || length < 2)
        return;
    memmove(address, address + 1, length);
    address[length - 2] = '\0'; /* the bracket at the end */
}

/* Numbers of the members in the world that was opened first. */
static uint32_t *trace_members(const struct epoch *epoch)
{
    uint32_t *origin = sl_new_array(epoch->old->mem, epoch->count, sizeof *origin, "ranks of an epoch");
    for (uint32_t i = 0; origin != NULL && i < epoch->count; i++)
        origin[i] = sluice_runtime_origin(epoch->old, epoch->members[i]);
    return origin;
}

static sluice_status open_epoch(struct epoch *epoch, struct sluice_runtime **ret)
{
    struct sluice_runtime *old = epoch->old;
    struct sl_identity identity = old->identity;
    struct sl_runtime_hooks hooks = old->hooks;
    struct sluice_runtime_options options = old->options;
    uint32_t *origin = trace_members(epoch);
    if (origin == NULL)
        return SLUICE_NOMEM;
    identity.rank = epoch->rank;
    identity.world = epoch->count;
    identity.port = 0;
    fill_address(old, &identity);
    hooks.identity = &identity;
    hooks.origin = origin;
    hooks.origin_world = old->origin_world;
    options.backend = old->driver_config.ops->name;
    options.device = old->driver_config.backend.device + 1;
    options.address = options.token_file = NULL;
    options.allgather = gather;
    options.allgather_user = epoch;
    options.bootstrap_timeout_ns = left_until(epoch->deadline);
    sluice_status status = sl_runtime_open_with(&options, &hooks, ret);
    sl_free(old->mem, origin);
    if (status != SLUICE_OK)
        return epoch->error.status != SLUICE_OK ? sl_fail_copy(&epoch->error) : status;
    (*ret)->options.bootstrap_timeout_ns = old->options.bootstrap_timeout_ns;
    return SLUICE_OK;
}

static sluice_status attempt(struct sluice_runtime *old, uint64_t deadline, struct sluice_runtime **ret)
{
    struct epoch epoch = {.old = old, .deadline = deadline};
    sluice_status status = find_members(&epoch);
    if (status == SLUICE_OK)
        status = open_epoch(&epoch, ret);
    sl_free(old->mem, epoch.members);
    return status;
}

static sluice_status check(struct sluice_runtime *runtime)
{
    sluice_status status = sl_runtime_check(runtime, "recover");
    if (status != SLUICE_OK)
        return status;
    if (sl_delivery_inside(&runtime->delivery))
        return sl_fail(SLUICE_STATE, "recover", "a callback must not wait: recover on another thread");
    if (runtime->control == NULL)
        return sl_fail(SLUICE_STATE, "recover",
                       "a world of one has no other ranks: close the runtime and open it again");
    if (atomic_load(&runtime->live) > 0)
        return sl_fail(SLUICE_BUSY, "recover", "%u transfers are not released: wait for their RELEASED events",
                       (unsigned)atomic_load(&runtime->live));
    return SLUICE_OK;
}

sluice_status sluice_runtime_recover(sluice_runtime *runtime, uint64_t timeout_ns, sluice_runtime **ret_runtime)
{
    sluice_status status = check(runtime);
    if (status == SLUICE_OK && ret_runtime == NULL)
        status = sl_fail(SLUICE_INVALID, "recover", "no place for the runtime given");
    if (status != SLUICE_OK)
        return status;
    if (atomic_exchange(&runtime->recovering, 1))
        return sl_fail(SLUICE_BUSY, "recover", "another thread recovers this runtime");
    uint64_t span = timeout_ns != 0 ? timeout_ns : runtime->options.bootstrap_timeout_ns;
    uint64_t deadline = sl_deadline(sl_now(sl_clock_system()), span);
    do
        status = attempt(runtime, deadline, ret_runtime);
    while (status == SLUICE_PEER_LOST && sl_now(sl_clock_system()) < deadline);
    atomic_store(&runtime->recovering, 0);
    if (status == SLUICE_OK)
        sluice_runtime_close(runtime);
    return status;
}

uint32_t sluice_runtime_origin(const sluice_runtime *runtime, uint32_t rank)
{
    if (runtime == NULL || rank >= runtime->identity.world)
        return UINT32_MAX;
    return runtime->origin != NULL ? runtime->origin[rank] : rank;
}
