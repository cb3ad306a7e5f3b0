/*
 * pairs.c: two ranks on one GPU or on two, each a process, through the public interface: what keeps a copy from being
 * stale, taken away bit by bit; gates that stay closed; slots that are used again; odd shapes; a communicator of the
 * caller's.
 *
 * A bent table stands for a library without one of its orders: each must bring the old bytes, or the scene proves
 * nothing. Exit status 77: no device.
 */
#include <nccl.h>

#include "gpu/pair.h"
#include "gpu/work.h"
#include "runtime/core/runtime_object.h"
#include "sluice/cuda.h"
#include "support/ranks.h"

enum { BYTES = 4 << 20, DELAY_MS = 50, PARAMS_MAX = 8, JUNK_BYTES = 64 << 20, JUNK_PIECES = 1024, SETS_MAX = 64 };

/* What a bent table leaves out. */
enum bend { STRAIGHT, NO_GATE_QUERY, PACK_ASIDE, UNPACK_ASIDE, NO_POINT_WAIT };

struct rank;
struct scene {
    const char *name;
    void (*run)(struct rank *rank);
    enum bend bend;
    _Bool slow_pack, slow_unpack; /* much is copied ahead of the first piece */
    int expected;
};

struct rank {
    struct team *team;
    uint32_t number, port;
    const struct scene *scene;
    sluice_runtime *runtime;
    sluice_plan *plan;
    uint8_t *memory; /* of its role */
    uint32_t params;
};

/* --- a table that is bent --- */

static const struct sluice_backend_ops *real;
static const struct scene *bent_by;
static struct sluice_queue *aside;
static void *junk;
static struct {
    struct sluice_set *set;
    enum sluice_copy_kind kind;
} sets[SETS_MAX];
static uint32_t set_count;

static sluice_status bent_queue_open(struct sluice_device *device, struct sluice_queue **ret)
{
    if (aside == NULL)
        must(real->queue_open(device, &aside), "queue_open");
    return real->queue_open(device, ret);
}

static void bent_close(struct sluice_device *device)
{
    if (aside != NULL)
        real->queue_close(aside);
    real->close(device);
}

static _Bool is_slow(enum sluice_copy_kind kind, const struct sluice_copy *pieces, size_t count)
{
    if (count == 0 || pieces[0].param != 0)
        return 0; /* only what begins with parameter 0 */
    return (kind == SLUICE_COPY_PACK && bent_by->slow_pack) || (kind == SLUICE_COPY_UNPACK && bent_by->slow_unpack);
}

static sluice_status bent_set_open(struct sluice_device *device, enum sluice_copy_kind kind,
                                   const struct sluice_copy *pieces, size_t count, struct sluice_set **ret)
{
    static struct sluice_copy slow[JUNK_PIECES + SETS_MAX];
    sluice_status status;
    if (is_slow(kind, pieces, count) && count <= SETS_MAX) {
        uint64_t from = (uint64_t)(uintptr_t)junk, to = from + JUNK_BYTES / 2;
        for (int i = 0; i < JUNK_PIECES; i++)
            slow[i] = (struct sluice_copy){.from = {.address = from, .row_bytes = UINT64_MAX},
                                           .to = {.address = to, .row_bytes = UINT64_MAX},
                                           .bytes = JUNK_BYTES / 2,
                                           .message = SLUICE_MESSAGE_NONE};
        memcpy(slow + JUNK_PIECES, pieces, count * sizeof *pieces);
        status = real->set_open(device, kind, slow, JUNK_PIECES + count, ret);
    } else {
        status = real->set_open(device, kind, pieces, count, ret);
    }
    if (status == SLUICE_OK && set_count < SETS_MAX) {
        sets[set_count].kind = kind;
        sets[set_count++].set = *ret;
    }
    return status;
}

static _Bool goes_aside(const struct sluice_op *op)
{
    enum sluice_copy_kind kind = bent_by->bend == PACK_ASIDE ? SLUICE_COPY_PACK : SLUICE_COPY_UNPACK;
    if (op->kind != SLUICE_OP_COPY || (bent_by->bend != PACK_ASIDE && bent_by->bend != UNPACK_ASIDE))
        return 0;
    for (uint32_t i = 0; i < set_count; i++)
        if (sets[i].set == op->set)
            return sets[i].kind == kind;
    return 0;
}

static sluice_status bent_submit(struct sluice_queue *queue, const struct sluice_op *op)
{
    return real->submit(goes_aside(op) ? aside : queue, op);
}

static sluice_status bent_query(struct sluice_point *point, struct sluice_error *error)
{
    return bent_by->bend == NO_GATE_QUERY ? SLUICE_OK : real->point_query(point, error);
}

static sluice_status bent_wait(struct sluice_point *point, void *stream)
{
    return bent_by->bend == NO_POINT_WAIT ? SLUICE_OK : real->point_wait(point, stream);
}

static const struct sluice_backend_ops *bend_table(const struct scene *scene)
{
    static struct sluice_backend_ops bent;
    must(sl_backend_find("cuda", &real), "backend");
    bent = *real;
    bent.queue_open = bent_queue_open;
    bent.close = bent_close;
    bent.set_open = bent_set_open;
    bent.submit = bent_submit;
    bent.point_query = bent_query;
    bent.point_wait = bent_wait;
    bent_by = scene;
    if (scene->slow_pack || scene->slow_unpack)
        cuda(cudaMalloc(&junk, JUNK_BYTES), "malloc");
    return &bent;
}

/* --- ranks and plans --- */

static void open_rank(struct rank *rank, uint64_t bytes)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    cuda(cudaMalloc((void **)&rank->memory, bytes), "malloc");
    cuda(cudaMemset(rank->memory, rank->number == 0 ? 1 : 9, bytes), "memset");
    cuda(cudaDeviceSynchronize(), "synchronize");
    work_delay(NULL, 0); /* loads the test's kernel: a first launch may wait for others */
    options.world = options.local_world = 2;
    options.rank = options.local_rank = rank->number;
    options.address = "127.0.0.1";
    options.port = rank->port;
    options.device = pair_apart ? rank->number + 1 : 1;
    options.device_shared = !pair_apart;
    options.backend = "cuda";
    options.stall_timeout_ns = 10 * SLUICE_SECOND;
    const struct sl_runtime_hooks hooks = {.backend = bend_table(rank->scene)};
    must(sl_runtime_open_with(&options, &hooks, &rank->runtime), "open");
    must(sluice_plan_create(2, &rank->plan), "plan");
}

/* From rank `from` to rank `to`, from and to `at` of the ranks' memory. */
static void add(struct rank *rank, uint32_t from, uint32_t to, uint64_t source, uint64_t destination, uint64_t bytes)
{
    const struct sluice_region region = {.row_bytes = bytes, .rows = 1, .pitch = bytes};
    uint32_t param = rank->params++;
    if (rank->number == from) {
        must(sluice_plan_add_send(rank->plan, param, param, SLUICE_DTYPE_U8, to, &region), "add_send");
        must(sluice_plan_bind(rank->plan, param, SLUICE_ROLE_SOURCE, rank->memory + source, bytes), "bind");
    }
    if (rank->number == to) {
        must(sluice_plan_add_recv(rank->plan, param, param, SLUICE_DTYPE_U8, from, &region), "add_recv");
        must(sluice_plan_bind(rank->plan, param, SLUICE_ROLE_DESTINATION, rank->memory + destination, bytes), "bind");
    }
}

static void seal(struct rank *rank, const struct sluice_seal_options *options)
{
    must(sluice_plan_seal_wait(rank->plan, rank->runtime, options, 0), "seal");
}

static void transfer(struct rank *rank, const struct sluice_transfer_options *options)
{
    sluice_transfer *transfer = NULL;
    must(sluice_submit(rank->plan, options, &transfer), "submit");
    must(sluice_transfer_wait(transfer, 30 * SLUICE_SECOND), "wait");
    sluice_transfer_destroy(transfer);
}

static int byte_at(const struct rank *rank, uint64_t at)
{
    uint8_t byte = 0;
    cuda(cudaMemcpy(&byte, rank->memory + at, 1, cudaMemcpyDeviceToHost), "read");
    return byte;
}

static void report(const struct rank *rank, int byte)
{
    _Bool right = byte == rank->scene->expected;
    printf("pairs: %-58s %s (%d)\n", rank->scene->name, right ? "right" : "WRONG", byte);
    expect(right, rank->scene->name);
}

/* --- scenes --- */

/* The first refit leaves 1 in all staging; the second one's source becomes 7, by a producer that is late. */
static void refit_twice(struct rank *rank)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    cudaStream_t stream;
    open_rank(rank, BYTES);
    add(rank, 0, 1, 0, 0, BYTES);
    seal(rank, NULL);
    transfer(rank, NULL);
    cuda(cudaDeviceSynchronize(), "synchronize");
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    team_barrier(rank->team);
    if (rank->number == 0) {
        work_delay(stream, rank->scene->bend == NO_GATE_QUERY ? 20 * DELAY_MS : DELAY_MS);
        cuda(cudaMemsetAsync(rank->memory, 7, BYTES, stream), "produce");
        must(sluice_cuda_gate_stream(rank->runtime, stream, &options.source_gate), "gate");
    }
    transfer(rank, &options);
    cuda(cudaDeviceSynchronize(), "synchronize");
    if (rank->number == 1)
        report(rank, byte_at(rank, BYTES - 1));
    sluice_gate_destroy(options.source_gate);
}

/* What a stream reads that does not wait for the transfer. */
static void read_without_waiting(struct rank *rank)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    sluice_transfer *transfer = NULL;
    cudaStream_t stream;
    open_rank(rank, BYTES);
    add(rank, 0, 1, 0, 0, BYTES);
    seal(rank, NULL);
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    if (rank->number == 0)
        must(sluice_gate_host(rank->runtime, &options.source_gate), "gate");
    must(sluice_submit(rank->plan, &options, &transfer), "submit");
    if (rank->number == 1) {
        expect(sluice_cuda_wait(transfer, stream) == SLUICE_AGAIN, "there is nothing to wait for yet");
        uint8_t byte = 0;
        cuda(cudaMemcpyAsync(&byte, rank->memory, 1, cudaMemcpyDeviceToHost, stream), "read");
        cuda(cudaStreamSynchronize(stream), "read");
        report(rank, byte);
    }
    team_barrier(rank->team);
    if (rank->number == 0)
        must(sluice_gate_open(options.source_gate), "gate_open");
    must(sluice_transfer_wait(transfer, 30 * SLUICE_SECOND), "wait");
    sluice_transfer_destroy(transfer);
    sluice_gate_destroy(options.source_gate);
}

/* What a stream reads that waits on the device for a transfer whose source is packed slowly. */
static void read_behind_the_transfer(struct rank *rank)
{
    sluice_transfer *transfer = NULL;
    cudaStream_t stream;
    sluice_status status = SLUICE_AGAIN;
    uint8_t byte = 0;
    open_rank(rank, BYTES);
    add(rank, 0, 1, 0, 0, BYTES);
    seal(rank, NULL);
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    must(sluice_submit(rank->plan, NULL, &transfer), "submit");
    while (rank->number == 1 && (status = sluice_cuda_wait(transfer, stream)) == SLUICE_AGAIN)
        ;
    if (rank->number == 1) {
        must(status, "cuda_wait");
        cuda(cudaMemcpyAsync(&byte, rank->memory + BYTES - 1, 1, cudaMemcpyDeviceToHost, stream), "read");
        cuda(cudaStreamSynchronize(stream), "read");
        report(rank, byte);
    }
    must(sluice_transfer_wait(transfer, 30 * SLUICE_SECOND), "wait");
    sluice_transfer_destroy(transfer);
}

/* Rank 1 never opens its consumer gate: neither rank has a kernel on the device meanwhile, and both are told. */
static void gate_stays_closed(struct rank *rank)
{
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    struct sluice_progress progress = {.size = sizeof progress};
    struct sluice_error error;
    sluice_transfer *transfer = NULL;
    char words[256];
    open_rank(rank, BYTES);
    add(rank, 0, 1, 0, 0, BYTES);
    seal(rank, NULL);
    if (rank->number == 1)
        must(sluice_gate_host(rank->runtime, &options.consumer_gate), "gate");
    options.gate_timeout_ns = 3 * SLUICE_SECOND;
    must(sluice_submit(rank->plan, &options, &transfer), "submit");
    team_barrier(rank->team);
    expect(sluice_transfer_explain(transfer, words, sizeof words) > 0, "it says what it waits for");
    cuda(cudaDeviceSynchronize(), "synchronize"); /* a kernel that waits for its peer would hold this up */
    must(sluice_transfer_progress(transfer, &progress), "progress");
    expect(progress.state < SLUICE_TRANSFER_DONE, "the device is idle while the gate is closed");
    expect(sluice_transfer_wait(transfer, 30 * SLUICE_SECOND) == SLUICE_GATE_TIMEOUT, "a gate timeout");
    sluice_transfer_error(transfer, &error);
    printf("pairs: rank %u: %s\n", rank->number, error.text);
    expect(strstr(error.text, "consumer gate") != NULL && strstr(error.text, "rank 1") != NULL,
           "the gate and its rank are named");
    if (rank->number == 1) {
        must(sluice_gate_open(options.consumer_gate), "a gate that opens too late");
        cuda(cudaDeviceSynchronize(), "synchronize");
        report(rank, byte_at(rank, BYTES - 1));
    }
    sluice_transfer_destroy(transfer);
    sluice_gate_destroy(options.consumer_gate);
}

/* Five windows through two slots; the first is unpacked so slowly that the third could overtake it. */
static void reuse_slots(struct rank *rank)
{
    enum { WINDOWS = 5 };
    struct sluice_seal_options options = SLUICE_SEAL_OPTIONS_INIT;
    open_rank(rank, WINDOWS * (uint64_t)BYTES);
    for (uint32_t w = 0; w < WINDOWS; w++)
        add(rank, 0, 1, w * (uint64_t)BYTES, w * (uint64_t)BYTES, BYTES);
    options.slots = 2;
    options.window_bytes = BYTES;
    seal(rank, &options);
    expect(sluice_plan_windows(rank->plan) == WINDOWS, "a window a parameter");
    for (int round = 0; round < 2; round++) {
        for (uint32_t w = 0; rank->number == 0 && w < WINDOWS; w++)
            cuda(cudaMemset(rank->memory + w * (uint64_t)BYTES, (int)(20 + 10 * round + (int)w), BYTES), "memset");
        cuda(cudaDeviceSynchronize(), "synchronize");
        transfer(rank, NULL);
        for (uint32_t w = 0; rank->number == 1 && w < WINDOWS; w++)
            expect(byte_at(rank, w * (uint64_t)BYTES) == 20 + 10 * round + (int)w &&
                       byte_at(rank, (w + 1) * (uint64_t)BYTES - 1) == 20 + 10 * round + (int)w,
                   "each destination holds its own window");
    }
    if (rank->number == 1)
        report(rank, byte_at(rank, 0));
}

/* Two tasks to oneself and two to the peer in one window, and one back. */
static void oneself_and_peer(struct rank *rank)
{
    uint8_t content[40000], got[40000];
    open_rank(rank, sizeof content);
    for (uint32_t i = 0; i < sizeof content; i++)
        content[i] = (uint8_t)(i * 7 + i / 251 + rank->number);
    cuda(cudaMemcpy(rank->memory, content, sizeof content, cudaMemcpyHostToDevice), "write");
    add(rank, 0, 0, 0, 20000, 4096);
    add(rank, 0, 0, 5000, 26000, 12288);
    add(rank, 0, 1, 1, 20003, 999);
    add(rank, 0, 1, 2000, 30000, 8192);
    add(rank, 1, 0, 0, 39000, 1000);
    seal(rank, NULL);
    expect(sluice_plan_windows(rank->plan) == 1, "one window");
    transfer(rank, NULL);
    cuda(cudaMemcpy(got, rank->memory, sizeof got, cudaMemcpyDeviceToHost), "read");
    for (uint32_t i = 0; i < 1000; i++)
        if (rank->number == 0)
            expect(got[20000 + i] == content[i] && got[26000 + i] == content[5000 + i] &&
                       got[39000 + i] == (uint8_t)(i * 7 + i / 251 + 1),
                   "rank 0 has its copies and what came");
    for (uint32_t i = 0; i < 999; i++)
        if (rank->number == 1)
            expect(got[20003 + i] == (uint8_t)((1 + i) * 7 + (1 + i) / 251) &&
                       got[30000 + i] == (uint8_t)((2000 + i) * 7 + (2000 + i) / 251),
                   "rank 1 has what came");
    if (rank->number == 1)
        report(rank, got[20000] == content[20000] ? 1 : 0); /* beside a destination nothing moved */
}

/* Elements of 2, 4, 1 and 8 bytes back to back from an odd address, in one message. */
static void odd_widths(struct rank *rank)
{
    static const uint64_t widths[] = {2, 2, 2, 4, 1, 8, 8};
    uint8_t content[64], got[64];
    uint64_t at = 1;
    open_rank(rank, sizeof content);
    for (uint32_t i = 0; i < sizeof content; i++)
        content[i] = rank->number == 0 ? (uint8_t)(i + 100) : 9;
    cuda(cudaMemcpy(rank->memory, content, sizeof content, cudaMemcpyHostToDevice), "write");
    for (uint32_t i = 0; i < 7; at += widths[i++])
        add(rank, 0, 1, at, at + 6, widths[i]);
    seal(rank, NULL);
    transfer(rank, NULL);
    if (rank->number == 0)
        return;
    cuda(cudaMemcpy(got, rank->memory, sizeof got, cudaMemcpyDeviceToHost), "read");
    for (uint32_t i = 0; i < sizeof got; i++)
        expect(got[i] == (i >= 7 && i < 34 ? i - 6 + 100 : 9), "each byte is in its place and no other changed");
    report(rank, got[0]);
}

static void nccl(ncclResult_t result, const char *what)
{
    if (result != ncclSuccess) {
        fprintf(stderr, "%s: %s\n", what, ncclGetErrorString(result));
        _exit(1);
    }
}

/* The caller's communicator carries the groups and is whole afterwards. */
static void lend(struct rank *rank)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    _Static_assert(sizeof id <= TEAM_BYTES, "an id must fit");
    open_rank(rank, BYTES);
    if (rank->number == 0) {
        nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
        memcpy(rank->team->shared, &id, sizeof id);
        cuda(cudaMemset(rank->memory, 7, BYTES), "memset");
        cuda(cudaDeviceSynchronize(), "synchronize");
    }
    team_barrier(rank->team);
    memcpy(&id, rank->team->shared, sizeof id);
    nccl(ncclCommInitRank(&comm, 2, id, (int)rank->number), "ncclCommInitRank");
    expect(sluice_cuda_lend(rank->runtime, NULL) == SLUICE_INVALID, "no communicator is refused");
    must(sluice_cuda_lend(rank->runtime, comm), "lend");
    expect(sluice_cuda_lend(rank->runtime, comm) == SLUICE_STATE, "a second one is refused");
    add(rank, 0, 1, 0, 0, BYTES);
    seal(rank, NULL);
    transfer(rank, NULL);
    int byte = byte_at(rank, BYTES - 1);
    sluice_plan_destroy(rank->plan);
    sluice_runtime_close_wait(rank->runtime);
    rank->plan = NULL;
    rank->runtime = NULL;
    cuda(cudaMemset(rank->memory, rank->number == 0 ? 8 : 0, BYTES), "memset");
    nccl(rank->number == 0 ? ncclSend(rank->memory, BYTES, ncclInt8, 1, comm, NULL)
                           : ncclRecv(rank->memory, BYTES, ncclInt8, 0, comm, NULL),
         "a message of the caller's");
    cuda(cudaDeviceSynchronize(), "synchronize");
    expect(byte_at(rank, 0) == 8, "the communicator still works");
    nccl(ncclCommDestroy(comm), "ncclCommDestroy");
    if (rank->number == 1)
        report(rank, byte);
}

static const struct scene scenes[] = {
    {.name = "a source that is produced late, packed slowly", .run = refit_twice, .slow_pack = 1, .expected = 7},
    {.name = "without the gate's query", .run = refit_twice, .bend = NO_GATE_QUERY, .expected = 1},
    {.name = "with packing beside the group", .run = refit_twice, .bend = PACK_ASIDE, .slow_pack = 1, .expected = 1},
    {.name = "with unpacking beside the group",
     .run = refit_twice,
     .bend = UNPACK_ASIDE,
     .slow_pack = 1,
     .expected = 1},
    {.name = "a reader that does not wait", .run = read_without_waiting, .expected = 9},
    {.name = "a reader that waits on the device", .run = read_behind_the_transfer, .slow_pack = 1, .expected = 1},
    {.name = "without that wait",
     .run = read_behind_the_transfer,
     .bend = NO_POINT_WAIT,
     .slow_pack = 1,
     .expected = 9},
    {.name = "a consumer gate that stays closed", .run = gate_stays_closed, .expected = 9},
    {.name = "two slots, five windows, the first unpacked slowly",
     .run = reuse_slots,
     .slow_unpack = 1,
     .expected = 30},
    {.name = "tasks to oneself and to the peer", .run = oneself_and_peer, .expected = 1},
    {.name = "widths of 1 to 8 bytes from an odd address", .run = odd_widths, .expected = 9},
    {.name = "a communicator of the caller's", .run = lend, .expected = 7},
};

struct request {
    const struct scene *scene;
    uint32_t port;
};

static int be_rank(struct team *team, uint32_t number, void *user)
{
    const struct request *request = user;
    struct rank rank = {.team = team, .number = number, .port = request->port, .scene = request->scene};
    pair_place(number);
    rank.scene->run(&rank);
    sluice_plan_destroy(rank.plan);
    sluice_runtime_close_wait(rank.runtime);
    return 0;
}

int main(int argc, char **argv)
{
    int wrong = 0, nothing = pair_begin(argc, argv);
    if (nothing != 0)
        return nothing;
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        struct request request = {&scenes[i], test_free_port()};
        int status = team_run(2, 0, PAIR_SECONDS, be_rank, &request);
        if (status != 0)
            fprintf(stderr, "pairs: failed: %s (%d)\n", scenes[i].name, status);
        wrong |= status != 0;
    }
    return wrong;
}
