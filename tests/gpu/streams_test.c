/*
 * One rank on one device, through the public interface: order after and before a program's streams, gates of
 * streams and events, errors of the producer, tied weights, canaries, large tasks.
 *
 * A producer is 50 ms of work, then a fill with 7. Each check has a twin without the wait that must see the
 * old value: a test that cannot fail proves nothing.
 */
#include <pthread.h>
#include <string.h>

#include "gpu/local.h"

/* --- gates --- */

Test(streams, a_local_copy_behind_a_stream_gate_reads_what_the_producer_wrote)
{
    struct fixture f;
    sluice_gate *gate = NULL;
    open_fixture(&f, BYTES);
    produce(&f, f.stream);
    must(sluice_cuda_gate_stream(f.runtime, f.stream, &gate), "gate");
    submit(&f, gate);
    wait_end(&f);
    cr_assert_eq(byte_of(f.destination, BYTES - 1), 7);
    close_fixture(&f);
}

Test(streams, without_its_gate_the_same_copy_reads_the_old_value)
{
    struct fixture f;
    open_fixture(&f, BYTES);
    produce(&f, f.stream);
    submit(&f, NULL);
    wait_end(&f);
    cr_assert_eq(byte_of(f.destination, BYTES - 1), 1);
    cuda(cudaStreamSynchronize(f.stream), "synchronize");
    close_fixture(&f);
}

static void gate_on_event(unsigned flags)
{
    struct fixture f;
    sluice_gate *gate = NULL;
    cudaEvent_t event;
    open_fixture(&f, BYTES);
    cuda(cudaEventCreateWithFlags(&event, flags), "event");
    cr_assert_eq(sluice_cuda_gate_event(f.runtime, event, &gate), SLUICE_INVALID);
    cr_assert_not_null(strstr(sluice_last_error()->text, "never recorded"));
    produce(&f, f.stream);
    cuda(cudaEventRecord(event, f.stream), "record");
    must(sluice_cuda_gate_event(f.runtime, event, &gate), "gate");
    submit(&f, gate);
    wait_end(&f);
    cr_assert_eq(byte_of(f.destination, 0), 7);
    cuda(cudaEventDestroy(event), "event");
    close_fixture(&f);
}

Test(streams, an_event_opens_its_gate_once_it_was_recorded_and_is_refused_before)
{
    gate_on_event(cudaEventDisableTiming);
}

Test(streams, an_event_with_timing_does_the_same)
{
    gate_on_event(cudaEventDefault);
}

static void gate_on_default_stream(cudaStream_t stream)
{
    struct fixture f;
    sluice_gate *gate = NULL;
    open_fixture(&f, BYTES);
    produce(&f, stream);
    must(sluice_cuda_gate_stream(f.runtime, stream, &gate), "gate");
    submit(&f, gate);
    wait_end(&f);
    cr_assert_eq(byte_of(f.destination, 0), 7);
    close_fixture(&f);
}

Test(streams, the_legacy_default_stream_is_a_stream_like_any_other)
{
    gate_on_default_stream(NULL);
}

Test(streams, the_legacy_default_stream_by_its_handle)
{
    gate_on_default_stream(cudaStreamLegacy);
}

Test(streams, the_default_stream_of_the_calling_thread)
{
    gate_on_default_stream(cudaStreamPerThread);
}

Test(streams, a_stream_that_is_being_captured_is_refused)
{
    struct fixture f;
    sluice_gate *gate = NULL;
    cudaGraph_t graph = NULL;
    open_fixture(&f, BYTES);
    cuda(cudaStreamBeginCapture(f.stream, cudaStreamCaptureModeGlobal), "capture");
    cr_assert_eq(sluice_cuda_gate_stream(f.runtime, f.stream, &gate), SLUICE_STATE);
    cr_assert_not_null(strstr(sluice_last_error()->text, "captured"));
    cr_assert_eq(sluice_cuda_submit(f.plan, NULL, f.stream, &f.transfer), SLUICE_STATE);
    submit(&f, NULL); /* our own work goes on meanwhile */
    wait_end(&f);
    cuda(cudaStreamEndCapture(f.stream, &graph), "the capture is still valid");
    cuda(cudaGraphDestroy(graph), "graph");
    cr_assert_eq(byte_of(f.destination, 0), 1);
    close_fixture(&f);
}

Test(streams, work_that_fails_before_a_gate_fails_the_transfer_with_its_code)
{
    struct fixture f;
    struct sluice_error error;
    sluice_gate *gate = NULL;
    open_fixture(&f, BYTES);
    work_delay(f.stream, DELAY_MS);
    work_fault(f.stream);
    must(sluice_cuda_gate_stream(f.runtime, f.stream, &gate), "gate");
    submit(&f, gate);
    cr_assert_eq(sluice_transfer_wait(f.transfer, 10 * SLUICE_SECOND), SLUICE_DEVICE);
    sluice_transfer_error(f.transfer, &error);
    cr_assert_eq(error.domain, SLUICE_DOMAIN_CUDA, "%d: %s", error.domain, error.text);
    cr_assert_eq(error.native, cudaErrorIllegalAddress);
    sluice_transfer_destroy(f.transfer);
    sluice_plan_destroy(f.plan);
    sluice_runtime_close_wait(f.runtime); /* bounded although the context is lost */
}

/* --- the order of a caller's stream --- */

Test(streams, a_stream_that_waits_for_a_transfer_reads_what_it_brought)
{
    struct fixture f;
    sluice_gate *gate = NULL;
    uint8_t *copy = NULL;
    cudaStream_t consumer;
    open_fixture(&f, (uint64_t)BYTES << 9);
    cuda(cudaMalloc((void **)&copy, 1), "malloc");
    cuda(cudaStreamCreateWithFlags(&consumer, cudaStreamNonBlocking), "stream");
    produce(&f, f.stream);
    must(sluice_cuda_gate_stream(f.runtime, f.stream, &gate), "gate");
    submit(&f, gate);
    cr_assert_eq(sluice_cuda_wait(f.transfer, consumer), SLUICE_AGAIN); /* the gate is closed */
    while (sluice_cuda_wait(f.transfer, consumer) == SLUICE_AGAIN)
        ;
    cuda(cudaMemcpyAsync(copy, f.destination + f.bytes - 1, 1, cudaMemcpyDeviceToDevice, consumer), "consume");
    cuda(cudaStreamSynchronize(consumer), "synchronize");
    cr_assert_eq(byte_of(copy, 0), 7);
    wait_end(&f);
    must(sluice_cuda_wait(f.transfer, consumer), "wait after the end");
    cuda(cudaStreamDestroy(consumer), "stream");
    cuda(cudaFree(copy), "free");
    close_fixture(&f);
}

Test(streams, a_transfer_in_a_stream_is_ordered_behind_its_work_and_before_later_work)
{
    struct fixture f;
    open_fixture(&f, BYTES);
    produce(&f, f.stream);
    must(sluice_cuda_submit(f.plan, NULL, f.stream, &f.transfer), "submit");
    cuda(cudaMemsetAsync(f.source, 3, BYTES, f.stream), "overwrite"); /* comes after the copy */
    cuda(cudaStreamSynchronize(f.stream), "synchronize");
    cr_assert_eq(byte_of(f.destination, BYTES - 1), 7);
    wait_end(&f);
    close_fixture(&f);
}

Test(streams, in_another_stream_the_same_transfer_reads_the_old_value)
{
    struct fixture f;
    cudaStream_t other;
    open_fixture(&f, BYTES);
    cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "stream");
    produce(&f, f.stream);
    must(sluice_cuda_submit(f.plan, NULL, other, &f.transfer), "submit");
    cuda(cudaStreamSynchronize(other), "synchronize");
    cr_assert_eq(byte_of(f.destination, BYTES - 1), 1);
    wait_end(&f);
    cuda(cudaStreamSynchronize(f.stream), "synchronize");
    cuda(cudaStreamDestroy(other), "stream");
    close_fixture(&f);
}

Test(streams, ten_transfers_in_a_stream_follow_each_other)
{
    struct fixture f;
    sluice_transfer *transfers[10];
    open_fixture(&f, BYTES);
    for (int i = 0; i < 10; i++) {
        cuda(cudaMemsetAsync(f.source, 20 + i, BYTES, f.stream), "produce");
        must(sluice_cuda_submit(f.plan, NULL, f.stream, &transfers[i]), "submit");
    }
    for (int i = 0; i < 10; i++) {
        must(sluice_transfer_wait(transfers[i], 20 * SLUICE_SECOND), "wait");
        sluice_transfer_destroy(transfers[i]);
    }
    cr_assert_eq(byte_of(f.destination, 0), 29);
    close_fixture(&f);
}

Test(streams, a_transfer_in_a_stream_takes_no_gates)
{
    struct fixture f;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    open_fixture(&f, BYTES);
    must(sluice_gate_host(f.runtime, &options.source_gate), "gate");
    cr_assert_eq(sluice_cuda_submit(f.plan, &options, f.stream, &f.transfer), SLUICE_INVALID);
    sluice_gate_destroy(options.source_gate);
    close_fixture(&f);
}

/* --- what completion means --- */

Test(streams, at_completion_the_destination_is_whole_and_the_source_is_free)
{
    struct fixture f;
    open_fixture(&f, (uint64_t)BYTES << 9);
    submit(&f, NULL);
    wait_end(&f);
    cuda(cudaMemsetAsync(f.source, 5, f.bytes, f.stream), "overwrite");
    cr_assert_eq(byte_of(f.destination, f.bytes - 1), 1);
    cr_assert_eq(byte_of(f.destination, f.bytes / 2), 1);
    cuda(cudaStreamSynchronize(f.stream), "synchronize");
    close_fixture(&f);
}

Test(streams, memory_of_a_stream_ordered_allocator_is_free_at_the_end)
{
    struct fixture f;
    uint8_t *pooled = NULL, *again = NULL;
    open_fixture(&f, BYTES);
    cuda(cudaMallocAsync((void **)&pooled, BYTES, f.stream), "malloc");
    cuda(cudaMemsetAsync(pooled, 7, BYTES, f.stream), "fill");
    cuda(cudaStreamSynchronize(f.stream), "synchronize");
    must(sluice_plan_rebind(f.plan, 0, SLUICE_ROLE_SOURCE, pooled, BYTES), "rebind");
    submit(&f, NULL);
    wait_end(&f);
    cuda(cudaFreeAsync(pooled, f.stream), "free");
    cuda(cudaMallocAsync((void **)&again, BYTES, f.stream), "malloc");
    cuda(cudaMemsetAsync(again, 2, BYTES, f.stream), "fill");
    cuda(cudaStreamSynchronize(f.stream), "synchronize");
    cr_assert_eq(byte_of(f.destination, BYTES - 1), 7);
    cuda(cudaFreeAsync(again, f.stream), "free");
    close_fixture(&f);
}

Test(streams, the_callers_current_device_and_capture_mode_stay)
{
    struct fixture f;
    int device = -1;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    open_fixture(&f, BYTES);
    cuda(cudaThreadExchangeStreamCaptureMode(&mode), "mode");
    must(sluice_cuda_submit(f.plan, NULL, f.stream, &f.transfer), "submit");
    wait_end(&f);
    mode = cudaStreamCaptureModeGlobal;
    cuda(cudaThreadExchangeStreamCaptureMode(&mode), "mode");
    cr_assert_eq(mode, cudaStreamCaptureModeThreadLocal);
    cuda(cudaGetDevice(&device), "device");
    cr_assert_eq(device, 0);
    close_fixture(&f);
}

Test(streams, five_gigabytes_in_one_task_arrive_to_the_last_byte)
{
    struct fixture f;
    uint64_t bytes = (UINT64_C(5) << 30) + 12345;
    open_fixture(&f, bytes);
    cuda(cudaMemset(f.source + bytes - 4096, 6, 4096), "mark");
    cuda(cudaDeviceSynchronize(), "synchronize");
    submit(&f, NULL);
    wait_end(&f);
    cr_assert_eq(byte_of(f.destination, bytes - 4097), 1);
    cr_assert_eq(byte_of(f.destination, bytes - 4096), 6);
    cr_assert_eq(byte_of(f.destination, bytes - 1), 6);
    close_fixture(&f);
}

Test(streams, tied_weights_reach_both_destinations)
{
    struct fixture f;
    need_device();
    f = (struct fixture){.bytes = BYTES};
    open_runtime(&f);
    cuda(cudaMalloc((void **)&f.source, BYTES), "malloc");
    cuda(cudaMalloc((void **)&f.destination, 2 * BYTES), "malloc");
    cuda(cudaMemset(f.source, 8, BYTES), "memset");
    cuda(cudaMemset(f.destination, 0, 2 * BYTES), "memset");
    cuda(cudaDeviceSynchronize(), "synchronize");
    cuda(cudaStreamCreate(&f.stream), "stream");
    must(sluice_plan_create(1, &f.plan), "plan");
    add_task(&f, 0, BYTES, f.source, f.destination);
    add_task(&f, 1, BYTES, f.source, f.destination + BYTES);
    must(sluice_plan_seal_wait(f.plan, f.runtime, NULL, 0), "seal");
    submit(&f, NULL);
    wait_end(&f);
    cr_assert_eq(byte_of(f.destination, 0), 8);
    cr_assert_eq(byte_of(f.destination, 2 * BYTES - 1), 8);
    close_fixture(&f);
}

/* --- callbacks --- */

struct seen {
    sluice_plan *plan;
    sluice_transfer *next;
    pthread_t thread;
    _Bool done;
};

static void on_event(const struct sluice_event *event, void *user)
{
    struct seen *seen = user;
    void *memory = NULL;
    if (event->kind != SLUICE_EVENT_COMPLETED)
        return;
    seen->thread = pthread_self();
    cuda(cudaDeviceSynchronize(), "synchronize in a callback");
    cuda(cudaMalloc(&memory, 1 << 20), "allocate in a callback");
    cuda(cudaFree(memory), "free in a callback");
    must(sluice_submit(seen->plan, NULL, &seen->next), "submit in a callback");
    seen->done = 1;
}

Test(streams, a_callback_may_call_cuda_and_submit_again)
{
    struct fixture f;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    open_fixture(&f, BYTES);
    struct seen seen = {.plan = f.plan};
    options.on_event = on_event;
    options.user = &seen;
    must(sluice_submit(f.plan, &options, &f.transfer), "submit");
    wait_end(&f);
    cr_assert(seen.done);
    cr_assert(!pthread_equal(seen.thread, pthread_self()));
    must(sluice_transfer_wait(seen.next, 20 * SLUICE_SECOND), "wait");
    sluice_transfer_destroy(seen.next);
    close_fixture(&f);
}

Test(streams, without_a_cuda_backend_the_functions_say_so)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    sluice_runtime *runtime = NULL;
    sluice_gate *gate = NULL;
    options.world = 1;
    options.backend = "host";
    must(sluice_runtime_open(&options, &runtime), "open");
    cr_assert_eq(sluice_cuda_gate_stream(runtime, NULL, &gate), SLUICE_UNSUPPORTED);
    cr_assert_not_null(strstr(sluice_last_error()->text, "host"));
    sluice_runtime_close_wait(runtime);
}
