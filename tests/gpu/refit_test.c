/*
 * One rank on one device: digests and what changed, gates that stay closed, regions and alignments, two runtimes.
 *
 * What a check finds is injected: a copy that loses a byte comes from a table whose set_open cuts one off.
 */
#include <pthread.h>
#include <string.h>

#include "gpu/local.h"
#include "runtime/core/runtime_object.h"

static struct sluice_progress run(struct fixture *f, const struct sluice_transfer_options *options,
                                  sluice_status expected)
{
    struct sluice_progress progress = {.size = sizeof progress};
    sluice_transfer *transfer = NULL;
    must(sluice_submit(f->plan, options, &transfer), "submit");
    sluice_status status = sluice_transfer_wait(transfer, 20 * SLUICE_SECOND);
    cr_assert_eq(status, expected, "%s: %s", sluice_status_name(status), sluice_last_error()->text);
    must(sluice_transfer_progress(transfer, &progress), "progress");
    sluice_transfer_destroy(transfer);
    return progress;
}

static void fill(uint8_t *memory, int value, uint64_t bytes)
{
    cuda(cudaMemset(memory, value, bytes), "memset");
    cuda(cudaDeviceSynchronize(), "synchronize");
}

/* --- digests --- */

/* A fixture whose seal has shadow memory for the whole version, through a table of the test's own; NULL: the real one. */
static void open_shadowed(struct fixture *f, const struct sluice_backend_ops *backend)
{
    struct sluice_runtime_options runtime_options = SLUICE_RUNTIME_OPTIONS_INIT;
    struct sluice_seal_options seal_options = SLUICE_SEAL_OPTIONS_INIT;
    const struct sl_runtime_hooks hooks = {.backend = backend};
    need_device();
    *f = (struct fixture){.bytes = BYTES};
    runtime_options.world = 1;
    runtime_options.backend = "cuda";
    must(sl_runtime_open_with(&runtime_options, &hooks, &f->runtime), "open");
    cuda(cudaMalloc((void **)&f->source, BYTES), "malloc");
    cuda(cudaMalloc((void **)&f->destination, BYTES), "malloc");
    fill(f->source, 1, BYTES);
    fill(f->destination, 9, BYTES);
    cuda(cudaStreamCreateWithFlags(&f->stream, cudaStreamNonBlocking), "stream");
    must(sluice_plan_create(1, &f->plan), "plan");
    add_task(f, 0, BYTES, f->source, f->destination);
    seal_options.shadow_bytes = 2 * BYTES;
    seal_options.local_window_bytes = BYTES / 4;
    must(sluice_plan_seal_wait(f->plan, f->runtime, &seal_options, 0), "seal");
}

static void refit_verified(enum sluice_landing landing)
{
    struct fixture f;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    open_shadowed(&f, NULL);
    cr_expect_eq(sluice_plan_windows(f.plan), 4u);
    options.landing = landing;
    options.verify = 1;
    for (int value = 2; value < 5; value++) {
        fill(f.source, value, BYTES);
        run(&f, &options, SLUICE_OK);
        cr_expect_eq(byte_of(f.destination, BYTES - 1), value);
    }
    cr_expect_eq(sluice_version(f.plan), 3u);
    close_fixture(&f);
}

Test(refit, what_arrived_whole_passes_its_digests_in_place)
{
    refit_verified(SLUICE_LANDING_IN_PLACE);
}

Test(refit, what_arrived_whole_passes_its_digests_in_shadow)
{
    refit_verified(SLUICE_LANDING_SHADOW);
}

static const struct sluice_backend_ops *real;

static sluice_status lose_a_byte(struct sluice_device *device, enum sluice_copy_kind kind,
                                 const struct sluice_copy *pieces, size_t count, struct sluice_set **ret)
{
    struct sluice_copy shorter[64];
    if (kind != SLUICE_COPY_LOCAL || count > 64)
        return real->set_open(device, kind, pieces, count, ret);
    memcpy(shorter, pieces, count * sizeof *pieces);
    shorter[count - 1].bytes--;
    return real->set_open(device, kind, shorter, count, ret);
}

Test(refit, a_byte_that_did_not_arrive_is_found_and_the_version_stays_the_old_one)
{
    struct fixture f;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    need_device();
    must(sl_backend_find("cuda", &real), "backend");
    struct sluice_backend_ops lossy = *real;
    lossy.set_open = lose_a_byte;
    open_shadowed(&f, &lossy);
    options.landing = SLUICE_LANDING_SHADOW;
    options.verify = 1;
    run(&f, &options, SLUICE_CORRUPT);
    cr_expect_not_null(strstr(sluice_last_error()->text, "parameter 0 (w)"), "%s", sluice_last_error()->text);
    cr_expect_eq(byte_of(f.destination, 0), 9);
    cr_expect_eq(byte_of(f.destination, BYTES - 1), 9);
    cr_expect_eq(sluice_version(f.plan), 0u);
    close_fixture(&f);
}

Test(refit, only_the_parameter_that_changed_moves)
{
    struct fixture f;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    need_device();
    f = (struct fixture){.bytes = BYTES};
    open_runtime(&f);
    cuda(cudaMalloc((void **)&f.source, 2 * BYTES), "malloc");
    cuda(cudaMalloc((void **)&f.destination, 2 * BYTES), "malloc");
    fill(f.source, 1, 2 * BYTES);
    fill(f.destination, 9, 2 * BYTES);
    cuda(cudaStreamCreate(&f.stream), "stream");
    must(sluice_plan_create(1, &f.plan), "plan");
    add_task(&f, 0, BYTES, f.source, f.destination);
    add_task(&f, 1, BYTES, f.source + BYTES, f.destination + BYTES);
    must(sluice_plan_seal_wait(f.plan, f.runtime, NULL, 0), "seal");
    options.changed_only = 1;
    cr_expect_eq(run(&f, &options, SLUICE_OK).bytes_total, 2u * BYTES);
    fill(f.source + 2 * BYTES - 1, 2, 1);
    cr_expect_eq(run(&f, &options, SLUICE_OK).bytes_total, (uint64_t)BYTES);
    cr_expect_eq(byte_of(f.destination, 2 * BYTES - 1), 2);
    cr_expect_eq(run(&f, &options, SLUICE_OK).bytes_total, 0u);
    cr_expect_eq(byte_of(f.destination, 0), 1);
    close_fixture(&f);
}

/* --- a gate that stays closed --- */

static void expect_idle_device_until_the_gate_times_out(_Bool consumer)
{
    struct fixture f;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    struct sluice_progress progress = {.size = sizeof progress};
    struct sluice_error error;
    sluice_gate *gate = NULL;
    char words[256];
    open_fixture(&f, BYTES);
    must(sluice_gate_host(f.runtime, &gate), "gate");
    options.source_gate = consumer ? NULL : gate;
    options.consumer_gate = consumer ? gate : NULL;
    options.gate_timeout_ns = 2 * SLUICE_SECOND;
    must(sluice_submit(f.plan, &options, &f.transfer), "submit");
    cr_expect_gt(sluice_transfer_explain(f.transfer, words, sizeof words), 0u); /* the scheduler has seen it */
    /* A kernel of ours that waited for anything would hold this up until the deadline. */
    cuda(cudaDeviceSynchronize(), "synchronize");
    must(sluice_transfer_progress(f.transfer, &progress), "progress");
    cr_expect_lt(progress.state, (uint32_t)SLUICE_TRANSFER_DONE, "the device was idle only after the deadline");
    cr_assert_eq(sluice_transfer_wait(f.transfer, 20 * SLUICE_SECOND), SLUICE_GATE_TIMEOUT);
    sluice_transfer_error(f.transfer, &error);
    cr_expect_not_null(strstr(error.text, consumer ? "consumer gate" : "source gate"), "%s", error.text);
    must(sluice_gate_open(gate), "a gate that opens after the end launches nothing");
    cuda(cudaDeviceSynchronize(), "synchronize");
    cr_expect_eq(byte_of(f.destination, 0), 9);
    cr_expect_eq(byte_of(f.destination, BYTES - 1), 9);
    sluice_gate_destroy(gate);
    close_fixture(&f);
}

Test(refit, a_source_gate_that_stays_closed_times_out_with_no_kernel_on_the_device)
{
    expect_idle_device_until_the_gate_times_out(0);
}

Test(refit, a_consumer_gate_that_stays_closed_times_out_with_no_kernel_on_the_device)
{
    expect_idle_device_until_the_gate_times_out(1);
}

/* --- regions and alignments --- */

/* A plan of one rank from single regions; canaries are 0xa5. */
static void open_regions(struct fixture *f, uint64_t bytes)
{
    need_device();
    *f = (struct fixture){.bytes = bytes};
    open_runtime(f);
    cuda(cudaMalloc((void **)&f->source, bytes), "malloc");
    cuda(cudaMalloc((void **)&f->destination, bytes), "malloc");
    fill(f->source, 0xa5, bytes);
    fill(f->destination, 0xa5, bytes);
    cuda(cudaStreamCreate(&f->stream), "stream");
    must(sluice_plan_create(1, &f->plan), "plan");
}

static void add_region(struct fixture *f, uint32_t param, const struct sluice_region *from,
                       const struct sluice_region *to, uint64_t source, uint64_t destination, uint64_t bytes)
{
    must(sluice_plan_add_send(f->plan, param, param, SLUICE_DTYPE_U8, 0, from), "add_send");
    must(sluice_plan_add_recv(f->plan, param, param, SLUICE_DTYPE_U8, 0, to), "add_recv");
    must(sluice_plan_bind(f->plan, param, SLUICE_ROLE_SOURCE, f->source + source, bytes), "bind");
    must(sluice_plan_bind(f->plan, param, SLUICE_ROLE_DESTINATION, f->destination + destination, bytes), "bind");
}

static void read_back(const struct fixture *f, uint8_t *ret)
{
    cuda(cudaDeviceSynchronize(), "synchronize");
    cuda(cudaMemcpy(ret, f->destination, f->bytes, cudaMemcpyDeviceToHost), "read");
}

Test(refit, three_rows_of_eight_bytes_move_and_every_gap_keeps_its_canary)
{
    struct fixture f;
    uint8_t content[96], got[96];
    const struct sluice_region from = {.row_bytes = 8, .rows = 3, .pitch = 32};
    const struct sluice_region to = {.row_bytes = 8, .rows = 3, .pitch = 16};
    open_regions(&f, sizeof content);
    memset(content, 0xa5, sizeof content);
    for (int i = 0; i < 24; i++)
        content[i / 8 * 32 + i % 8] = (uint8_t)(i + 1);
    cuda(cudaMemcpy(f.source, content, sizeof content, cudaMemcpyHostToDevice), "write");
    add_region(&f, 0, &from, &to, 0, 0, sizeof content);
    must(sluice_plan_seal_wait(f.plan, f.runtime, NULL, 0), "seal");
    submit(&f, NULL);
    wait_end(&f);
    read_back(&f, got);
    for (int i = 0; i < 96; i++)
        cr_expect_eq(got[i], i < 48 && i % 16 < 8 ? i / 16 * 8 + i % 16 + 1 : 0xa5, "byte %d", i);
    cuda(cudaMemcpy(got, f.source, sizeof got, cudaMemcpyDeviceToHost), "read");
    cr_expect_eq(memcmp(got, content, sizeof content), 0, "the source was written to");
    close_fixture(&f);
}

Test(refit, small_pieces_of_several_widths_move_between_odd_addresses)
{
    static const uint64_t widths[] = {2, 2, 2, 4, 1, 8, 8};
    struct fixture f;
    uint8_t content[64], got[64];
    uint64_t at = 1; /* back to back from an odd address on; the destination begins at another one */
    open_regions(&f, sizeof content);
    for (int i = 0; i < 64; i++)
        content[i] = (uint8_t)(i + 100);
    cuda(cudaMemcpy(f.source, content, sizeof content, cudaMemcpyHostToDevice), "write");
    for (uint32_t i = 0; i < 7; at += widths[i++]) {
        const struct sluice_region whole = {.row_bytes = widths[i], .rows = 1, .pitch = widths[i]};
        add_region(&f, i, &whole, &whole, at, at + 6, widths[i]);
    }
    must(sluice_plan_seal_wait(f.plan, f.runtime, NULL, 0), "seal");
    submit(&f, NULL);
    wait_end(&f);
    read_back(&f, got);
    for (int i = 0; i < 64; i++)
        cr_expect_eq(got[i], i >= 7 && i < 34 ? content[i - 6] : 0xa5, "byte %d", i);
    close_fixture(&f);
}

Test(refit, tasks_to_oneself_are_copies_and_one_without_its_other_half_is_refused)
{
    struct fixture f;
    const struct sluice_region small = {.row_bytes = 4096, .rows = 1, .pitch = 4096};
    const struct sluice_region large = {.row_bytes = 12288, .rows = 1, .pitch = 12288};
    sluice_plan *half = NULL;
    open_regions(&f, 16384);
    fill(f.source, 7, 4096);
    fill(f.source + 4096, 8, 12288);
    add_region(&f, 0, &small, &small, 0, 12288, 4096);
    add_region(&f, 1, &large, &large, 4096, 0, 12288);
    must(sluice_plan_seal_wait(f.plan, f.runtime, NULL, 0), "seal");
    submit(&f, NULL);
    wait_end(&f);
    cr_expect_eq(byte_of(f.destination, 12288), 7);
    cr_expect_eq(byte_of(f.destination, 16383), 7);
    cr_expect_eq(byte_of(f.destination, 0), 8);
    cr_expect_eq(byte_of(f.destination, 12287), 8);
    must(sluice_plan_create(1, &half), "plan");
    must(sluice_plan_add_send(half, 5, 0, SLUICE_DTYPE_U8, 0, &small), "add_send");
    must(sluice_plan_bind(half, 0, SLUICE_ROLE_SOURCE, f.source, 4096), "bind");
    cr_expect_eq(sluice_plan_seal_wait(half, f.runtime, NULL, 0), SLUICE_PLAN);
    cr_expect_not_null(strstr(sluice_last_error()->text, "task 5"), "%s", sluice_last_error()->text);
    sluice_plan_destroy(half);
    close_fixture(&f);
}

/* --- two runtimes on one device --- */

enum { ROUNDS = 50 };

struct driver {
    struct fixture f;
    pthread_t thread;
    sluice_status status;
};

static void *refit_often(void *context)
{
    struct driver *driver = context;
    for (int i = 0; i < ROUNDS && driver->status == SLUICE_OK; i++) {
        sluice_transfer *transfer = NULL;
        driver->status = sluice_submit(driver->f.plan, NULL, &transfer);
        if (driver->status == SLUICE_OK)
            driver->status = sluice_transfer_wait(transfer, 20 * SLUICE_SECOND);
        sluice_transfer_destroy(transfer);
    }
    return NULL;
}

Test(refit, two_runtimes_on_one_device_refit_fifty_times_each_from_threads_of_their_own)
{
    struct driver drivers[2] = {{.status = SLUICE_OK}, {.status = SLUICE_OK}};
    for (int i = 0; i < 2; i++)
        open_fixture(&drivers[i].f, BYTES);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&drivers[i].thread, NULL, refit_often, &drivers[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(drivers[i].thread, NULL);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(drivers[i].status, SLUICE_OK, "runtime %d: %s", i, sluice_status_name(drivers[i].status));
        cr_expect_eq(sluice_version(drivers[i].f.plan), (uint64_t)ROUNDS);
        cr_expect_eq(byte_of(drivers[i].f.destination, BYTES - 1), 1);
        close_fixture(&drivers[i].f);
    }
}
