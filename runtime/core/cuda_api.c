/*
 * cuda_api.c: the public functions of cuda.h, over the optional slots of a backend's table.
 *
 * Invariants: no CUDA type or call is here; handles are passed through; a gate owns its point and drops it
 * with the last reference.
 */
#include "sluice/cuda.h"

#include "runtime/core/runtime_object.h"
#include "runtime/core/transfer_object.h"

struct gate_point {
    const struct sluice_backend_ops *ops;
    struct sluice_point *point;
};

static sluice_status check_points(const struct sluice_runtime *runtime)
{
    sluice_status status = sl_runtime_check_live(runtime, "cuda");
    if (status != SLUICE_OK)
        return status;
    const struct sluice_backend_ops *ops = runtime->driver_config.ops;
    if (ops->point_open == NULL)
        return sl_fail(SLUICE_UNSUPPORTED, "cuda", "the runtime uses backend %s, which has no CUDA streams", ops->name);
    return SLUICE_OK;
}

static sluice_status query_gate(void *context, struct sluice_error *error)
{
    const struct gate_point *gate = context;
    return gate->ops->point_query(gate->point, error);
}

static void drop_gate(void *context)
{
    struct gate_point *gate = context;
    gate->ops->point_close(gate->point);
    sl_free(sl_mem_default(), gate);
}

static sluice_status gate_of(struct sluice_runtime *runtime, enum sluice_point_kind kind, void *handle,
                             sluice_gate **ret)
{
    sluice_status status = check_points(runtime);
    if (status == SLUICE_OK && ret == NULL)
        status = sl_fail(SLUICE_INVALID, "gate", "no place for the gate given");
    if (status != SLUICE_OK)
        return status;
    struct gate_point *gate = sl_new(sl_mem_default(), sizeof *gate, "gate of a stream");
    if (gate == NULL)
        return SLUICE_NOMEM;
    gate->ops = runtime->driver_config.ops;
    status = gate->ops->point_open(&runtime->driver_config.backend, kind, handle, &gate->point);
    if (status != SLUICE_OK) {
        sl_free(sl_mem_default(), gate);
        return status;
    }
    status = sluice_gate_query(runtime, query_gate, drop_gate, gate, ret);
    if (status != SLUICE_OK)
        drop_gate(gate);
    return status;
}

sluice_status sluice_cuda_gate_stream(sluice_runtime *runtime, struct CUstream_st *stream, sluice_gate **ret_gate)
{
    return gate_of(runtime, SLUICE_POINT_STREAM, stream, ret_gate);
}

sluice_status sluice_cuda_gate_event(sluice_runtime *runtime, struct CUevent_st *event, sluice_gate **ret_gate)
{
    return gate_of(runtime, SLUICE_POINT_EVENT, event, ret_gate);
}

/* With the plan's lock held, so that the points are not closed meanwhile. */
static sluice_status wait_for_tail(const struct sluice_transfer *transfer, void *stream)
{
    const struct sl_sealed *sealed = transfer->sealed;
    const struct sluice_backend_ops *ops = transfer->runtime->driver_config.ops;
    sluice_status status = SLUICE_OK;
    if (sealed->tail[SL_LANE_LOCAL] == NULL)
        return sl_fail(SLUICE_CLOSED, "cuda", "the runtime is closed");
    if (atomic_load(&sealed->tail_run) != transfer->number + 1)
        return SLUICE_AGAIN;
    for (uint32_t i = 0; i < SL_LANES && status == SLUICE_OK; i++)
        if (sealed->tail[i] != NULL)
            status = ops->point_wait(sealed->tail[i], stream);
    return status;
}

sluice_status sluice_cuda_wait(sluice_transfer *transfer, struct CUstream_st *stream)
{
    if (transfer == NULL)
        return sl_fail(SLUICE_INVALID, "cuda", "no transfer given");
    switch (atomic_load_explicit(&transfer->ended, memory_order_acquire)) {
    case SLUICE_EVENT_COMPLETED:
    case SLUICE_EVENT_COMMITTED:
        return SLUICE_OK;
    case SLUICE_EVENT_FAILED:
    case SLUICE_EVENT_CANCELLED:
        return sl_fail_copy(&transfer->error);
    default:
        break;
    }
    sluice_status status = check_points(transfer->runtime);
    if (status != SLUICE_OK)
        return status;
    if (transfer->after != NULL)
        return transfer->runtime->driver_config.ops->point_wait(transfer->after, stream);
    pthread_mutex_lock(&transfer->plan->lock);
    status = wait_for_tail(transfer, stream);
    pthread_mutex_unlock(&transfer->plan->lock);
    return status;
}

sluice_status sluice_cuda_submit(sluice_plan *plan, const struct sluice_transfer_options *options,
                                 struct CUstream_st *stream, sluice_transfer **ret_transfer)
{
    void *handle = stream;
    return sl_submit(plan, options, &handle, ret_transfer);
}

sluice_status sluice_cuda_lend(sluice_runtime *runtime, struct ncclComm *communicator)
{
    void *none = NULL;
    sluice_status status = check_points(runtime);
    if (status != SLUICE_OK)
        return status;
    if (communicator == NULL)
        return sl_fail(SLUICE_INVALID, "cuda", "no communicator given");
    if (!atomic_compare_exchange_strong(&runtime->driver.lent, &none, communicator))
        return sl_fail(SLUICE_STATE, "cuda", "a communicator was lent already");
    return SLUICE_OK;
}
