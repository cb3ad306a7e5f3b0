/*
 * sluice bench refit: what a refit costs beside its bytes.
 *
 * Invariants: every rank is a process that nothing of a GPU was touched in before; ranks meet in memory that they share;
 * a rank that fails is seen by the parent, which ends the others, and ranks die with the parent; each version lands in
 * shadow memory whole.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "bench_device.h"
#include "run_device.h"
#include "runtime/backend/registry.h"
#include "runtime/base/error.h"
#include "runtime/base/memory.h"
#include "runtime/core/trace.h"
#include "sluice/transfer.h"

enum { OPT_BYTES = TOOL_LONG + 1, OPT_REFITS, OPT_BACKEND, OPT_CTAS, OPT_JSON };
enum {
    RANKS = 2,
    PARAMS = 64,
    REFITS_MAX = 1000,
    WARM = 5,
    GATHER_MAX = 4096,
    BYTES_MIN = 64 << 10,
    SETTLE_NS = 2000000
};

static const struct tool_option options[] = {
    {"bytes", "B", "bytes of a refit (default 4Gi)", OPT_BYTES},
    {"refits", "N", "refits that count; a fifth of them between two ranks (default 100)", OPT_REFITS},
    {"backend", "NAME", "host or cuda (default: cuda where a GPU is usable)", OPT_BACKEND},
    {"ctas", "N", "multiprocessors that kernels may take (default 16)", OPT_CTAS},
    {"json", NULL, "machine-readable output", OPT_JSON},
    {NULL, NULL, NULL, 0},
};

static const struct tool_syntax syntax = {
    .command = "bench refit",
    .synopsis = "[OPTIONS]",
    .about =
        "Refits by one rank that is source and destination, and between two ranks on one GPU: the commit of a whole\n"
        "version from shadow memory beside a copy of the same bytes, the time from an opened gate to the first\n"
        "launch, and from the end of the commit on the device to the callback.",
    .options = options,
};

struct refit_options {
    uint64_t bytes;
    uint32_t refits, ctas;
    const char *backend;
    _Bool json;
};

/* One line of the table. */
struct scene {
    uint32_t ranks, refits;
    uint64_t bytes;
};

/* What the ranks of a scene share. A rank writes its own figures; the source the launches, the destination the rest. */
struct meeting {
    pthread_barrier_t barrier;
    uint8_t gathered[RANKS][GATHER_MAX];
    struct sluice_error errors[RANKS];
    double launch_us[REFITS_MAX], callback_us[REFITS_MAX], told_us[REFITS_MAX];
    double commit_ms[REFITS_MAX], copy_ms[REFITS_MAX];
};

struct rank {
    const struct refit_options *opt;
    const struct scene *scene;
    struct meeting *meeting;
    uint32_t number;
    struct bench_device bench;
    uint8_t *memory[2]; /* by role */
    uint8_t *copy;      /* a destination's, for the copy beside the commit */
    struct sluice_set *set;
    sluice_runtime *runtime;
    sluice_plan *plan;
    atomic_uint_least64_t started_ns, committed_ns, told_ns;
};

static _Bool is_source(const struct rank *rank)
{
    return rank->number == 0;
}

static _Bool is_destination(const struct rank *rank)
{
    return rank->number == rank->scene->ranks - 1;
}

static int gather(const void *send, void *recv, size_t bytes, void *user)
{
    const struct rank *rank = user;
    struct meeting *meeting = rank->meeting;
    if (bytes > GATHER_MAX)
        return -1;
    memcpy(meeting->gathered[rank->number], send, bytes);
    pthread_barrier_wait(&meeting->barrier);
    for (uint32_t r = 0; r < rank->scene->ranks; r++)
        memcpy((uint8_t *)recv + r * bytes, meeting->gathered[r], bytes);
    pthread_barrier_wait(&meeting->barrier);
    return 0;
}

static void on_event(const struct sluice_event *event, void *user)
{
    struct rank *rank = user;
    uint64_t now = bench_now();
    if (event->kind == SLUICE_EVENT_STARTED)
        atomic_store(&rank->started_ns, event->time_ns);
    if (event->kind != SLUICE_EVENT_COMMITTED)
        return;
    atomic_store(&rank->committed_ns, event->time_ns);
    atomic_store(&rank->told_ns, now);
}

/* --- opening --- */

static sluice_status take_memory(struct rank *rank)
{
    uint64_t bytes = rank->scene->bytes;
    void *memory[3] = {NULL, NULL, NULL};
    const _Bool wanted[3] = {is_source(rank), is_destination(rank), is_destination(rank)};
    const char *backend = rank->opt->backend;
    sluice_status status = bench_device_open_on(&rank->bench, backend, rank->opt->ctas);
    for (int i = 0; i < 3 && status == SLUICE_OK; i++)
        if (wanted[i])
            status = rank->bench.ops->mem_alloc(rank->bench.device, SLUICE_MEMORY_DEVICE, bytes, &memory[i]);
    rank->memory[SLUICE_ROLE_SOURCE] = memory[0];
    rank->memory[SLUICE_ROLE_DESTINATION] = memory[1];
    rank->copy = memory[2];
    if (status == SLUICE_OK && is_source(rank))
        status = bench_fill(&rank->bench, memory[0], bytes, 1);
    if (status != SLUICE_OK || !is_destination(rank))
        return status;
    struct sluice_copy piece = bench_piece(memory[2], memory[1], bytes);
    status = bench_fill(&rank->bench, memory[2], bytes, 2);
    return status == SLUICE_OK ? rank->bench.ops->set_open(rank->bench.device, SLUICE_COPY_LOCAL, &piece, 1, &rank->set)
                               : status;
}

static sluice_status open_runtime(struct rank *rank)
{
    struct sluice_runtime_options runtime_options = SLUICE_RUNTIME_OPTIONS_INIT;
    runtime_options.world = runtime_options.local_world = rank->scene->ranks;
    runtime_options.rank = runtime_options.local_rank = rank->number;
    runtime_options.backend = rank->opt->backend;
    runtime_options.device = 1;
    runtime_options.device_shared = 1;
    runtime_options.max_ctas = rank->opt->ctas;
    runtime_options.trace = 1;
    runtime_options.staging_bytes_max = rank->scene->bytes + (UINT64_C(4) << 30);
    runtime_options.allgather = gather;
    runtime_options.allgather_user = rank;
    return sluice_runtime_open(&runtime_options, &rank->runtime);
}

static sluice_status add_param(const struct rank *rank, uint32_t param, uint64_t bytes)
{
    struct sluice_region whole = {.row_bytes = bytes, .rows = 1, .pitch = bytes};
    uint32_t last = rank->scene->ranks - 1;
    sluice_status status = SLUICE_OK;
    if (is_source(rank))
        status = sluice_plan_add_send(rank->plan, param, param, SLUICE_DTYPE_U8, last, &whole);
    if (status == SLUICE_OK && is_destination(rank))
        status = sluice_plan_add_recv(rank->plan, param, param, SLUICE_DTYPE_U8, 0, &whole);
    for (int role = 0; role < 2 && status == SLUICE_OK; role++)
        if (rank->memory[role] != NULL)
            status =
                sluice_plan_bind(rank->plan, param, (enum sluice_role)role, rank->memory[role] + param * bytes, bytes);
    return status;
}

static sluice_status open_plan(struct rank *rank)
{
    struct sluice_seal_options seal_options = SLUICE_SEAL_OPTIONS_INIT;
    uint64_t bytes = rank->scene->bytes;
    sluice_status status = sluice_plan_create(rank->scene->ranks, &rank->plan);
    for (uint32_t p = 0; p < PARAMS && status == SLUICE_OK; p++)
        status = add_param(rank, p, bytes / PARAMS);
    seal_options.shadow_bytes = is_destination(rank) ? bytes + 65536 : 0;
    return status == SLUICE_OK ? sluice_plan_seal_wait(rank->plan, rank->runtime, &seal_options, 0) : status;
}

/* --- a refit --- */

/* When the last commit ended by the device's clock; 0: unknown. */
static uint64_t commit_end(const struct rank *rank)
{
    size_t count = 0;
    const struct sl_trace_record *records = sl_runtime_trace(rank->runtime, &count);
    while (count > 0 && records[count - 1].node != SL_TRACE_COMMIT)
        count--;
    return count > 0 ? records[count - 1].end_ns : 0;
}

static double microseconds(uint64_t from, uint64_t to)
{
    return (double)(int64_t)(to - from) / 1e3;
}

static void note(const struct rank *rank, const sluice_transfer *transfer, uint64_t opened, uint32_t i)
{
    struct meeting *meeting = rank->meeting;
    struct sluice_progress progress = {.size = sizeof progress};
    if (is_source(rank))
        meeting->launch_us[i] = microseconds(opened, atomic_load(&rank->started_ns));
    if (!is_destination(rank) || sluice_transfer_progress(transfer, &progress) != SLUICE_OK)
        return;
    meeting->callback_us[i] = microseconds(commit_end(rank), atomic_load(&rank->told_ns));
    meeting->told_us[i] = microseconds(atomic_load(&rank->committed_ns), atomic_load(&rank->told_ns));
    meeting->commit_ms[i] = (double)progress.commit_ns / 1e6;
}

/* Figures of the refits that warm up go where later ones overwrite them. */
static sluice_status refit(struct rank *rank, uint32_t i)
{
    const struct timespec settle = {.tv_nsec = SETTLE_NS};
    struct sluice_transfer_options transfer_options = SLUICE_TRANSFER_OPTIONS_INIT;
    sluice_transfer *transfer = NULL;
    sluice_gate *gate = NULL;
    sluice_status status = sluice_gate_host(rank->runtime, &gate);
    if (status != SLUICE_OK)
        return status;
    transfer_options.landing = SLUICE_LANDING_SHADOW;
    transfer_options.source_gate = is_source(rank) ? gate : NULL;
    transfer_options.on_event = on_event;
    transfer_options.user = rank;
    status = sluice_submit(rank->plan, &transfer_options, &transfer);
    if (status == SLUICE_OK) {
        pthread_barrier_wait(&rank->meeting->barrier);
        SL_IGNORE(nanosleep(&settle, NULL)); /* so that the gate is what all wait for */
        uint64_t opened = bench_now();
        status = sluice_gate_open(gate);
        if (status == SLUICE_OK)
            status = sluice_transfer_wait(transfer, 120 * SLUICE_SECOND);
        if (status == SLUICE_OK)
            note(rank, transfer, opened, i);
    }
    if (status == SLUICE_OK && is_destination(rank))
        status = bench_run_set(&rank->bench, rank->set, &rank->meeting->copy_ms[i]);
    sluice_transfer_destroy(transfer);
    sluice_gate_destroy(gate);
    return status;
}

static sluice_status work(struct rank *rank)
{
    sluice_status status = take_memory(rank);
    if (status == SLUICE_OK)
        status = open_runtime(rank);
    if (status == SLUICE_OK)
        status = open_plan(rank);
    for (uint32_t i = 0; i < WARM + rank->scene->refits && status == SLUICE_OK; i++)
        status = refit(rank, i < WARM ? 0 : i - WARM);
    return status;
}

static void close_rank(struct rank *rank)
{
    sluice_plan_destroy(rank->plan);
    sluice_runtime_close_wait(rank->runtime);
    if (rank->bench.device != NULL) {
        uint8_t *const memory[3] = {rank->memory[0], rank->memory[1], rank->copy};
        rank->bench.ops->set_close(rank->set);
        for (int i = 0; i < 3; i++)
            if (memory[i] != NULL)
                rank->bench.ops->mem_free(rank->bench.device, SLUICE_MEMORY_DEVICE, memory[i], rank->scene->bytes);
    }
    bench_device_close(&rank->bench);
}

/* --- processes --- */

static void share(const struct rank *rank)
{
    const struct sluice_backend_ops *ops = NULL;
    struct sluice_backend_info info = {.size = sizeof info};
    if (rank->scene->ranks > 1 && strcmp(rank->opt->backend, "cuda") == 0 &&
        sl_backend_find("cuda", &ops) == SLUICE_OK && ops->query(&info) == SLUICE_OK)
        run_share_gpu(info.version, rank->scene->ranks, rank->number);
}

static _Noreturn void be_rank(struct rank *rank, pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(TOOL_FAILED);
    share(rank);
    sluice_status status = work(rank);
    if (status != SLUICE_OK)
        sl_error_take(&rank->meeting->errors[rank->number]);
    else
        close_rank(rank);
    _exit(status == SLUICE_OK ? TOOL_OK : TOOL_FAILED);
}

static sluice_status new_meeting(uint32_t ranks, struct meeting **ret)
{
    pthread_barrierattr_t shared;
    struct meeting *meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (meeting == MAP_FAILED)
        return sl_fail(SLUICE_NOMEM, "bench", "out of memory that ranks share");
    SL_ASSERT(pthread_barrierattr_init(&shared) == 0);
    SL_ASSERT(pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) == 0);
    SL_ASSERT(pthread_barrier_init(&meeting->barrier, &shared, ranks) == 0);
    *ret = meeting;
    return SLUICE_OK;
}

/* Ends the ranks that still run: only ids of children that nobody has waited for are left in the list. */
static void end_ranks(const pid_t *children)
{
    for (uint32_t r = 0; r < RANKS; r++)
        if (children[r] > 0)
            SL_IGNORE(kill(children[r], SIGKILL));
}

static void say_failed(const struct meeting *meeting, uint32_t rank)
{
    if (meeting->errors[rank].status != SLUICE_OK)
        SL_IGNORE(sl_fail_copy(&meeting->errors[rank]));
    else
        SL_IGNORE(sl_fail(SLUICE_PEER_FAILED, "bench", "rank %u ended early", rank));
}

/* The first rank that fails takes the others, which wait for it, along. */
static sluice_status await_ranks(pid_t *children, uint32_t started, const struct meeting *meeting)
{
    sluice_status status = SLUICE_OK;
    for (uint32_t ended = 0; ended < started; ended++) {
        int state = 0;
        uint32_t rank = 0;
        pid_t child = wait(&state);
        while (rank < RANKS && children[rank] != child)
            rank++;
        if (child < 0 || rank == RANKS)
            return sl_fail(SLUICE_SYSTEM, "bench", "a rank's end was not seen");
        children[rank] = 0;
        if (status != SLUICE_OK || (WIFEXITED(state) && WEXITSTATUS(state) == TOOL_OK))
            continue;
        say_failed(meeting, rank);
        status = SLUICE_PEER_FAILED;
        end_ranks(children);
    }
    return status;
}

static sluice_status run_scene(const struct refit_options *opt, const struct scene *scene, struct meeting *meeting)
{
    pid_t children[RANKS] = {0}, parent = getpid();
    uint32_t started = 0;
    fflush(stdout);
    for (; started < scene->ranks; started++) {
        struct rank rank = {.opt = opt, .scene = scene, .meeting = meeting, .number = started};
        pid_t child = fork();
        if (child == 0)
            be_rank(&rank, parent);
        if (child < 0)
            break;
        children[started] = child;
    }
    if (started == scene->ranks)
        return await_ranks(children, started, meeting);
    int why = errno;
    end_ranks(children);
    SL_IGNORE(await_ranks(children, started, meeting));
    return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, why, "bench", "cannot start rank %u", started);
}

static void print_figures(const struct refit_options *opt, const struct scene *scene, struct meeting *m)
{
    uint32_t n = scene->refits;
    double commit = bench_median(m->commit_ms, n), copy = bench_median(m->copy_ms, n);
    double launch = bench_median(m->launch_us, n), launch99 = bench_p99(m->launch_us, n);
    double callback = bench_median(m->callback_us, n), callback99 = bench_p99(m->callback_us, n);
    double told = bench_median(m->told_us, n);
    if (opt->json)
        printf("{\"ranks\": %u, \"bytes\": %llu, \"refits\": %u, \"commit_ms\": %.4f, \"copy_ms\": %.4f, "
               "\"gate_to_launch_us\": %.1f, \"gate_to_launch_p99_us\": %.1f, \"end_to_callback_us\": %.1f, "
               "\"end_to_callback_p99_us\": %.1f, \"event_to_callback_us\": %.1f}\n",
               scene->ranks, (unsigned long long)scene->bytes, n, commit, copy, launch, launch99, callback, callback99,
               told);
    else
        printf("%5u %8.3f %6u %9.3f %9.3f %6.3f %9.1f %9.1f %9.1f %9.1f %9.1f\n", scene->ranks,
               (double)scene->bytes / 1e9, n, commit, copy, commit / copy, launch, launch99, callback, callback99,
               told);
    fflush(stdout);
}

static sluice_status run_scenes(const struct refit_options *opt)
{
    uint32_t few = opt->refits / 5 > 0 ? opt->refits / 5 : 1;
    uint64_t bytes = opt->bytes / PARAMS / SLUICE_UNIT * PARAMS * SLUICE_UNIT, small = bytes / 64;
    small = small / PARAMS / SLUICE_UNIT * PARAMS * SLUICE_UNIT;
    const struct scene scenes[] = {{1, opt->refits, bytes}, {2, few, bytes}, {2, opt->refits, small}};
    sluice_status status = SLUICE_OK;
    if (!opt->json)
        puts("                                               gate to launch, us  end to callback, us      event\n"
             "ranks       GB refits commit ms   copy ms  ratio    median       p99    median       p99  to it, us");
    for (size_t i = 0; i < SL_COUNT(scenes) && status == SLUICE_OK; i++) {
        struct meeting *meeting = NULL;
        status = new_meeting(scenes[i].ranks, &meeting);
        if (status == SLUICE_OK)
            status = run_scene(opt, &scenes[i], meeting);
        if (status == SLUICE_OK)
            print_figures(opt, &scenes[i], meeting);
        if (meeting != NULL)
            SL_IGNORE(munmap(meeting, sizeof *meeting));
    }
    return status;
}

/* --- the command --- */

/* In a child: nothing of a GPU may be touched here before the ranks are forked. */
static const char *usable_backend(void)
{
    int state = 0;
    pid_t child = fork();
    if (child == 0) {
        const struct sluice_backend_ops *ops = NULL;
        struct sluice_backend_info info = {.size = sizeof info};
        _exit(sl_backend_find("cuda", &ops) == SLUICE_OK && ops->query(&info) == SLUICE_OK && info.usable ? 0 : 1);
    }
    _Bool usable = child > 0 && waitpid(child, &state, 0) == child && WIFEXITED(state) && WEXITSTATUS(state) == 0;
    return usable ? "cuda" : "host";
}

static _Bool take_option(struct tool_args *args, int option, struct refit_options *opt)
{
    static const char *const backends[] = {"host", "cuda", NULL};
    int choice;
    switch (option) {
    case OPT_BYTES:
        if (!tool_size(args, &opt->bytes))
            return 0;
        if (opt->bytes >= BYTES_MIN)
            return 1;
        SL_IGNORE(tool_usage(args, "--bytes %s is below 64Ki", args->value));
        return 0;
    case OPT_REFITS:
        return tool_u32(args, 1, REFITS_MAX, &opt->refits);
    case OPT_BACKEND:
        choice = tool_choice(args, backends);
        opt->backend = choice >= 0 ? backends[choice] : NULL;
        return choice >= 0;
    case OPT_CTAS:
        return tool_u32(args, 1, 4096, &opt->ctas);
    default:
        opt->json = 1;
        return 1;
    }
}

int cmd_bench_refit(int argc, char **argv)
{
    struct tool_args args;
    struct refit_options opt = {.bytes = UINT64_C(4) << 30, .refits = 100, .ctas = 16};
    int option;
    tool_begin(&args, &syntax, argc, argv);
    while ((option = tool_next(&args)) >= 0)
        if (!take_option(&args, option, &opt))
            return args.status;
    if (option == TOOL_STOP)
        return args.status;
    if (opt.backend == NULL)
        opt.backend = usable_backend();
    return tool_finish(run_scenes(&opt) == SLUICE_OK ? TOOL_OK : tool_fail());
}
