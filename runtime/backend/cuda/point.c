/*
 * Points in streams of work, and work in streams of the caller.
 *
 * Invariants: everything here may run on any thread, so it touches nothing of a device that changes; the
 * event of a point in a caller's stream is recorded by us, so it was recorded; an event of the caller is
 * adopted only when it was recorded before; a stream that is being captured is never touched.
 */
#include "runtime/backend/cuda/device.h"

/* --- what the caller gives --- */

/* NULL is the legacy default stream, whatever a program was compiled with; the handles 1 and 2 name both kinds. */
static sluice_status check_stream(int ordinal, cudaStream_t stream)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    int device = ordinal;
    cudaError_t result = cudaStreamIsCapturing(stream, &capture);
    if (result == cudaErrorStreamCaptureImplicit)
        return sl_fail(SLUICE_STATE, "cuda",
                       "the legacy default stream cannot be used while another stream is being captured");
    if (result == cudaSuccess && capture != cudaStreamCaptureStatusNone)
        return sl_fail(SLUICE_STATE, "cuda",
                       "the stream is being captured into a graph: transfers cannot be captured, submit outside");
    if (result == cudaSuccess && stream != NULL && stream != cudaStreamLegacy && stream != cudaStreamPerThread)
        result = cudaStreamGetDevice(stream, &device);
    if (result != cudaSuccess)
        return sl_cuda_status(result, "looking at the caller's stream");
    if (device != ordinal)
        return sl_fail(SLUICE_INVALID, "cuda", "the stream belongs to device %d, the runtime to device %d", device,
                       ordinal);
    return SLUICE_OK;
}

/*
 * CUDA takes an event that was never recorded for one that has passed. A timing event tells by its elapsed time;
 * another one tells inside a capture, where only a wait for a recorded event would leave the capture.
 */
static _Bool was_recorded(cudaEvent_t event)
{
    float milliseconds = 0;
    cudaError_t result = cudaEventElapsedTime(&milliseconds, event, event);
    (void)cudaGetLastError();
    if (result == cudaSuccess || result == cudaErrorNotReady)
        return 1;
    cudaStream_t stream = NULL;
    cudaGraph_t graph = NULL;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        return 0;
    result = cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
    if (result == cudaSuccess) {
        result = cudaStreamWaitEvent(stream, event, 0);
        (void)cudaStreamEndCapture(stream, &graph);
    }
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
    (void)cudaStreamDestroy(stream);
    (void)cudaGetLastError();
    return result == cudaErrorStreamCaptureIsolation;
}

/* --- points --- */

static sluice_status fill_point(struct sluice_point *point, enum sluice_point_kind kind, void *handle)
{
    if (kind == SLUICE_POINT_EVENT) {
        if (handle == NULL)
            return sl_fail(SLUICE_INVALID, "cuda", "no event given");
        if (!was_recorded(handle))
            return sl_fail(SLUICE_INVALID, "cuda",
                           "the event was never recorded: record it behind the work that the transfer must wait for");
        point->event = handle;
        atomic_store(&point->set, 1);
        return SLUICE_OK;
    }
    sluice_status status = kind == SLUICE_POINT_STREAM ? check_stream(point->ordinal, (cudaStream_t)handle) : SLUICE_OK;
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaEventCreateWithFlags(&point->event, cudaEventDisableTiming), "creating an event");
    point->owned = status == SLUICE_OK;
    if (status != SLUICE_OK || kind == SLUICE_POINT_EMPTY)
        return status;
    status = sl_cuda_status(cudaEventRecord(point->event, (cudaStream_t)handle), "recording the caller's stream");
    if (status == SLUICE_OK)
        atomic_store(&point->set, 1);
    return status;
}

sluice_status sl_cuda_point_open(const struct sluice_backend_config *config, enum sluice_point_kind kind, void *handle,
                                 struct sluice_point **ret)
{
    struct sl_cuda_scope scope;
    struct sluice_point *point = sl_new(sl_mem_default(), sizeof *point, "point");
    if (point == NULL)
        return SLUICE_NOMEM;
    point->config = *config;
    point->ordinal = (int)config->device;
    sluice_status status = sl_cuda_enter_ordinal(point->ordinal, &scope);
    if (status == SLUICE_OK) {
        status = fill_point(point, kind, handle);
        sl_cuda_leave(&scope);
    }
    if (status != SLUICE_OK) {
        sl_cuda_point_close(point);
        return status;
    }
    *ret = point;
    return SLUICE_OK;
}

sluice_status sl_cuda_point_query(struct sluice_point *point, struct sluice_error *error)
{
    struct sl_cuda_scope scope;
    if (!atomic_load(&point->set))
        return SLUICE_AGAIN;
    sluice_status status = sl_cuda_enter_ordinal(point->ordinal, &scope);
    if (status != SLUICE_OK) {
        sl_error_take(error);
        return status;
    }
    cudaError_t result = cudaEventQuery(point->event);
    (void)cudaGetLastError();
    sl_cuda_leave(&scope);
    if (result == cudaSuccess)
        return SLUICE_OK;
    if (result == cudaErrorNotReady)
        return SLUICE_AGAIN;
    SL_IGNORE(
        sl_error_set(error, SLUICE_DEVICE, "cuda", "the work before the gate failed: %s", cudaGetErrorString(result)));
    error->domain = SLUICE_DOMAIN_CUDA;
    error->native = result;
    return SLUICE_DEVICE;
}

sluice_status sl_cuda_point_wait(struct sluice_point *point, void *stream)
{
    struct sl_cuda_scope scope;
    if (!atomic_load(&point->set))
        return SLUICE_AGAIN;
    sluice_status status = sl_cuda_enter_ordinal(point->ordinal, &scope);
    if (status != SLUICE_OK)
        return status;
    status = check_stream(point->ordinal, (cudaStream_t)stream);
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaStreamWaitEvent((cudaStream_t)stream, point->event, 0), "ordering the stream");
    sl_cuda_leave(&scope);
    return status;
}

void sl_cuda_point_close(struct sluice_point *point)
{
    struct sl_cuda_scope scope;
    if (point == NULL)
        return;
    if (point->owned && sl_cuda_enter_ordinal(point->ordinal, &scope) == SLUICE_OK) {
        (void)cudaEventDestroy(point->event);
        sl_cuda_leave(&scope);
    }
    sl_free(sl_mem_default(), point);
}

/* --- work in the caller's stream --- */

sluice_status sl_cuda_copy_on(struct sluice_set *set, void *stream)
{
    struct sl_cuda_scope scope;
    struct sluice_device *device = set->device;
    if (sl_cuda_set_is_staged(set))
        return sl_fail(SLUICE_UNSUPPORTED, "cuda", "pageable memory cannot be copied in a stream of the caller");
    sluice_status status = sl_cuda_enter_ordinal(device->ordinal, &scope);
    if (status != SLUICE_OK)
        return status;
    status = check_stream(device->ordinal, (cudaStream_t)stream);
    if (status == SLUICE_OK)
        status = sl_cuda_status(sl_cuda_launch_tiles(device, set->tiles, set->count, (cudaStream_t)stream),
                                "launching a copy");
    sl_cuda_leave(&scope);
    return status;
}

static sluice_status copy_each(const struct sluice_device *device, const struct sluice_copy *pieces, size_t count)
{
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < count && result == cudaSuccess; i++)
        result = cudaMemcpyAsync((void *)(uintptr_t)(pieces[i].to.address + pieces[i].to.begin),
                                 (const void *)(uintptr_t)(pieces[i].from.address + pieces[i].from.begin),
                                 pieces[i].bytes, cudaMemcpyDefault, device->setup);
    return sl_cuda_status(result, "copying a piece");
}

static sluice_status time_pieces(const struct sluice_device *device, const struct sluice_copy *pieces, size_t count,
                                 cudaEvent_t begin, cudaEvent_t end, uint64_t *ret_ns)
{
    float milliseconds = 0;
    sluice_status status = sl_cuda_status(cudaEventRecord(begin, device->setup), "recording an event");
    if (status == SLUICE_OK)
        status = copy_each(device, pieces, count);
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaEventRecord(end, device->setup), "recording an event");
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaEventSynchronize(end), "waiting for copies");
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaEventElapsedTime(&milliseconds, begin, end), "reading the time of copies");
    if (status == SLUICE_OK)
        *ret_ns = (uint64_t)((double)milliseconds * 1e6);
    return status;
}

sluice_status sl_cuda_copy_time(struct sluice_device *device, const struct sluice_copy *pieces, size_t count,
                                uint64_t *ret_ns)
{
    struct sl_cuda_scope scope;
    cudaEvent_t begin = NULL, end = NULL;
    sluice_status status = sl_cuda_enter(device, &scope);
    if (status != SLUICE_OK)
        return status;
    status = sl_cuda_status(cudaEventCreate(&begin), "creating an event");
    if (status == SLUICE_OK)
        status = sl_cuda_status(cudaEventCreate(&end), "creating an event");
    if (status == SLUICE_OK)
        status = time_pieces(device, pieces, count, begin, end, ret_ns);
    if (begin != NULL)
        (void)cudaEventDestroy(begin);
    if (end != NULL)
        (void)cudaEventDestroy(end);
    sl_cuda_leave(&scope);
    return status;
}
