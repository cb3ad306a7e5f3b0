/*
 * One rank of `sluice run`: opens a runtime, seals, and refits as often as asked.
 *
 * Invariants: sources are filled and destinations poisoned before each submit, and every destination byte
 * is verified after it, but for the refits that --verify ends leaves out; waiting is done in short slices, so that a
 * stop is seen within one; whatever happens, the seat says how this rank ended.
 */
#include <time.h>
#include <unistd.h>

#include "run_device.h"
#include "run_rank.h"
#include "runtime/base/clock.h"
#include "runtime/control/control_state.h"
#include "runtime/core/plan_object.h"
#include "runtime/core/runtime_object.h"

extern char **environ;

#define SLICE      (20 * SLUICE_MILLISECOND)
#define SEAL_SLICE (100 * SLUICE_MILLISECOND)

static void on_event(const struct sluice_event *event, void *user)
{
    struct rank *rank = user;
    if (event->kind == SLUICE_EVENT_PEER_LOST && rank->job->options->recover != RUN_RECOVER_NOT &&
        !atomic_load(&rank->leaving)) {
        uint32_t lost = sluice_runtime_origin(event->runtime, event->rank);
        atomic_store(&rank->job->board->seats[lost].lost, rank->place.epoch + 1);
    }
    if (event->transfer != NULL || event->plan == NULL)
        return;
    if (event->kind == SLUICE_EVENT_FAILED)
        rank->seal_error = *event->error;
    if (event->kind != SLUICE_EVENT_SEALED && event->kind != SLUICE_EVENT_FAILED)
        return;
    atomic_store(&rank->sealed, event->kind == SLUICE_EVENT_SEALED ? SEAL_DONE : SEAL_FAILED);
    sl_bell_ring(&rank->seal_bell);
}

/* What goes wrong is said once, in the report; the library's own lines only where SLUICE_LOG asks for them. */
static void on_log(enum sluice_log_level level, const char *topic, const char *text, void *user)
{
    const struct rank *rank = user;
    if (rank->job->log)
        fprintf(stderr, "sluice: rank %u: %s: %s: %s\n", rank->number, sl_log_level_name(level), topic, text);
}

sluice_status run_rank_stopped(const struct rank *rank)
{
    switch (run_board_stopped(rank->job->board)) {
    case RUN_INTERRUPTED:
        return sl_fail(SLUICE_CANCELLED, "run", "interrupted");
    case RUN_PEER_FAILED:
        return sl_fail(SLUICE_PEER_FAILED, "run", "another rank has failed");
    case RUN_GO:
        break;
    }
    return SLUICE_OK;
}

/* --- opening --- */

/*
 * Hundreds of ranks that start on a few processors may leave one without time for seconds. The process that started
 * them sees their end itself, so their heartbeats may be slow.
 */
static void take_settings(struct rank *rank, struct sluice_runtime_options *options)
{
    struct sl_config settings;
    uint64_t slow = options->world * (20 * SLUICE_MILLISECOND);
    if (sl_config_read((const char *const *)environ, &settings) != SLUICE_OK)
        return; /* the runtime says what is wrong */
    const struct sl_setting_value *beat = &settings.values[SL_SET_HEARTBEAT];
    options->heartbeat_ns = beat->source == SL_FROM_DEFAULT && slow > beat->number ? slow : 0;
    rank->place.timeout_ns = settings.values[SL_SET_BOOTSTRAP_TIMEOUT].number;
}

static sluice_status bind_all(struct rank *rank)
{
    struct run_buffers *buffers = &rank->buffers;
    sluice_status status = SLUICE_OK;
    for (uint32_t p = 0; p < rank->whole->store.param_count; p++)
        for (int role = 0; role < 2 && status == SLUICE_OK; role++)
            if (buffers->offsets[role][p] != RUN_NO_BUFFER)
                status = sluice_plan_bind(rank->whole, p, (enum sluice_role)role,
                                          run_device_buffer(&rank->device, buffers, p, (enum sluice_role)role),
                                          buffers->bytes[role][p]);
    return status;
}

/* Once: what the buffers are, and the plan of all ranks with them, is the same in every epoch. */
static sluice_status open_device(struct rank *rank, struct sluice_runtime_options *options)
{
    const struct run_options *opt = rank->job->options;
    uint32_t local = rank->job->launched ? rank->number : rank->job->local_rank;
    sluice_status status =
        run_device_open(&rank->buffers, opt->memory, options, opt->ranks_per_gpu, local, &rank->device);
    if (status != SLUICE_OK)
        return status;
    rank->device_opened = 1;
    rank->device_shared = options->device_shared;
    return bind_all(rank);
}

static _Bool is_missing(const void *place, uint32_t rank)
{
    return run_board_misses(place, rank);
}

/* Not all came in time. Who did not is ended and started again where lost ranks are. */
static sluice_status say_late(const struct rank *rank)
{
    struct run_board *board = rank->job->board;
    char list[128];
    uint32_t missing = 0;
    for (uint32_t r = 0; r < board->world; r++) {
        if (!is_missing(&rank->place, r))
            continue;
        missing++;
        if (rank->job->options->recover == RUN_RECOVER_ALL)
            atomic_store(&board->seats[r].lost, rank->place.epoch + 1);
    }
    sl_rank_list(board->world, is_missing, &rank->place, list, sizeof list);
    return sl_fail(SLUICE_TIMEOUT, "run",
                   "%u of %u ranks joined the run in time (SLUICE_BOOTSTRAP_TIMEOUT); missing: %s",
                   board->world - missing, board->world, list);
}

sluice_status run_rank_open(struct rank *rank)
{
    const struct run_options *opt = rank->job->options;
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    options.backend = opt->backend;
    options.on_event = on_event;
    options.on_log = on_log;
    options.user = rank;
    options.trace = opt->trace != NULL || opt->timeline != NULL;
    uint32_t local = rank->job->launched ? rank->number : rank->job->local_rank;
    options.device = opt->ranks_per_gpu != 0 ? local / opt->ranks_per_gpu + 1 : 0;
    if (rank->job->launched) {
        options.world = options.local_world = rank->job->board->world;
        options.rank = options.local_rank = rank->number;
        options.allgather = run_board_gather;
        options.allgather_user = &rank->place;
        take_settings(rank, &options);
    }
    options.device_shared = rank->device_shared;
    sluice_status status = rank->device_opened ? SLUICE_OK : open_device(rank, &options);
    if (status != SLUICE_OK)
        return status;
    const struct sl_runtime_hooks hooks = {.interrupt = &rank->job->board->stop};
    status = sl_runtime_open_with(&options, &hooks, &rank->runtime);
    /* An interrupt ends all ranks: that of another may be seen first, as a loss. */
    if (status != SLUICE_OK && run_board_stopped(rank->job->board) == RUN_INTERRUPTED)
        return run_rank_stopped(rank);
    return status != SLUICE_OK && rank->place.late ? say_late(rank) : status;
}

/* The plan's handle takes over the job's plan. */
static sluice_status open_plan(struct rank *rank)
{
    struct run_job *job = rank->job;
    sluice_status status = sl_plan_object_new(job->plan->world, &rank->whole);
    if (status != SLUICE_OK)
        return status;
    sl_plan_drop(&rank->whole->store);
    rank->whole->store = *job->plan;
    rank->plan = rank->whole;
    *job->plan = (struct sl_plan){0};
    job->content.plan = &rank->whole->store;
    return SLUICE_OK;
}

/* What the rank's open device says of itself; zeros where it says nothing. */
static struct sluice_backend_info describe(const struct rank *rank)
{
    const struct sl_driver *driver = &rank->runtime->driver;
    struct sluice_backend_info info = {.size = sizeof info};
    if (driver->config.ops->describe != NULL)
        driver->config.ops->describe(driver->device, &info);
    return info;
}

sluice_status run_rank_seal(struct rank *rank)
{
    atomic_store(&rank->sealed, SEAL_PENDING);
    sluice_status status = sluice_plan_seal(rank->plan, rank->runtime, &rank->job->options->seal);
    while (status == SLUICE_OK) {
        uint32_t seen = sl_bell_look(&rank->seal_bell);
        if (atomic_load(&rank->sealed) != SEAL_PENDING)
            break;
        sl_bell_wait(&rank->seal_bell, seen, SEAL_SLICE);
        status = run_rank_stopped(rank);
    }
    if (status == SLUICE_OK && atomic_load(&rank->sealed) == SEAL_FAILED)
        status = sl_fail_copy(&rank->seal_error);
    if (status != SLUICE_OK)
        return status;
    rank->seat->windows = sluice_plan_windows(rank->plan);
    rank->seat->host_staging_bytes = describe(rank).host_staging_bytes;
    return SLUICE_OK;
}

/* --- content --- */

static sluice_status prepare(const struct rank *rank, uint64_t version)
{
    const struct run_content *content = &rank->job->content;
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; i < content->plan->task_count && status == SLUICE_OK; i++) {
        const struct sluice_task *task = &content->plan->tasks[i];
        if (task->source == rank->number)
            run_content_fill(content, task, version, run_buffer(&rank->buffers, task->param, SLUICE_ROLE_SOURCE));
        if (task->destination == rank->number)
            run_content_poison(content, task, version,
                               run_buffer(&rank->buffers, task->param, SLUICE_ROLE_DESTINATION));
        status = i % 64 == 0 ? run_rank_stopped(rank) : SLUICE_OK;
    }
    return status;
}

static sluice_status verify(const struct rank *rank, uint64_t version)
{
    const struct run_content *content = &rank->job->content;
    struct run_difference difference;
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; i < content->plan->task_count && status == SLUICE_OK; i++) {
        const struct sluice_task *task = &content->plan->tasks[i];
        if (task->destination != rank->number || run_left_out(rank->job, task->source))
            continue;
        if (!run_content_verify(content, task, version,
                                run_buffer(&rank->buffers, task->param, SLUICE_ROLE_DESTINATION), &difference))
            return sl_fail(SLUICE_CORRUPT, "run",
                           "rank %u: refit %llu: task %llu from rank %u: parameter %u '%.200s': byte %llu of the "
                           "destination is 0x%02x, it should be 0x%02x",
                           rank->number, (unsigned long long)version, (unsigned long long)task->id, task->source,
                           task->param, sl_param_name(content->plan, task->param),
                           (unsigned long long)difference.offset, difference.have, difference.want);
        rank->seat->verified_bytes += sl_task_bytes(task);
        status = i % 64 == 0 ? run_rank_stopped(rank) : SLUICE_OK;
    }
    return status;
}

/* --- one refit --- */

static void publish(const struct rank *rank, const sluice_transfer *transfer, _Bool last)
{
    struct sluice_progress progress = {.size = sizeof progress};
    struct sluice_stage_times *sum = &rank->seat->stages;
    if (sluice_transfer_progress(transfer, &progress) != SLUICE_OK)
        return;
    atomic_store(&rank->seat->bytes_total, progress.bytes_total);
    atomic_store(&rank->seat->bytes_done, progress.bytes_done);
    if (!last)
        return;
    sum->gate_ns += progress.stages.gate_ns;
    sum->grant_ns += progress.stages.grant_ns;
    sum->pack_ns += progress.stages.pack_ns;
    sum->group_ns += progress.stages.group_ns;
    sum->unpack_ns += progress.stages.unpack_ns;
    sum->local_ns += progress.stages.local_ns;
    sum->commit_ns += progress.stages.commit_ns;
}

static void on_transfer(const struct sluice_event *event, void *user)
{
    if (event->kind == SLUICE_EVENT_RELEASED)
        atomic_store((atomic_bool *)user, 1);
}

/*
 * Until the transfer has released its buffers; its end is in *ret_end_ns. TIMEOUT can be the end of a slice or of
 * the transfer; `released` tells.
 */
static sluice_status wait_for(const struct rank *rank, sluice_transfer *transfer, const atomic_bool *released,
                              uint64_t *ret_end_ns)
{
    struct sluice_error error;
    _Bool cancelled = 0, over = 0;
    sluice_status status;
    while ((status = sluice_transfer_wait(transfer, SLICE)) == SLUICE_TIMEOUT && !over) {
        over = atomic_load(released); /* known before a wait, its TIMEOUT is the transfer's */
        publish(rank, transfer, 0);
        if (!cancelled && run_board_stopped(rank->job->board) != RUN_GO) {
            sluice_transfer_cancel(transfer);
            cancelled = 1;
        }
    }
    *ret_end_ns = sl_now(sl_clock_system());
    publish(rank, transfer, 1);
    if (status == SLUICE_OK)
        return run_rank_stopped(rank);
    if (run_board_stopped(rank->job->board) == RUN_INTERRUPTED)
        return run_rank_stopped(rank);
    sluice_transfer_error(transfer, &error);
    return error.status != SLUICE_OK ? sl_fail_copy(&error) : status;
}

/* CPU time in nanoseconds. */
static uint64_t spent_by(clockid_t clock)
{
    struct timespec spent = {0};
    SL_IGNORE(clock_gettime(clock, &spent));
    return (uint64_t)spent.tv_sec * SLUICE_SECOND + (uint64_t)spent.tv_nsec;
}

static struct sluice_transfer_options transfer_options(const struct rank *rank, atomic_bool *released)
{
    const struct run_options *opt = rank->job->options;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    options.on_event = on_transfer;
    options.user = released;
    options.landing = opt->landing;
    options.version = rank->next + UINT64_C(1);
    options.gate_timeout_ns = opt->gate_timeout_ns;
    options.timeout_ns = opt->timeout_ns;
    options.pace_bytes_per_second = opt->pace;
    options.allow_torn = opt->allow_torn;
    options.resume = rank->resume && opt->landing == SLUICE_LANDING_IN_PLACE;
    options.resume_windows = options.resume ? rank->kept_windows : 0;
    return options;
}

/* The transfer of a refit, from submit to its end. */
static sluice_status move(struct rank *rank, struct run_time *time)
{
    struct sluice_progress progress = {.size = sizeof progress};
    sluice_transfer *transfer = NULL;
    atomic_bool released = 0;
    struct sluice_transfer_options options = transfer_options(rank, &released);
    clockid_t scheduler = CLOCK_THREAD_CPUTIME_ID;
    SL_IGNORE(pthread_getcpuclockid(rank->runtime->thread, &scheduler));
    uint64_t transport = describe(rank).transport_cpu_ns;
    uint64_t before = spent_by(scheduler), process = spent_by(CLOCK_PROCESS_CPUTIME_ID);
    time->begin_ns = sl_now(sl_clock_system());
    sluice_status status = sluice_submit(rank->plan, &options, &transfer);
    if (status != SLUICE_OK)
        return status;
    status = wait_for(rank, transfer, &released, &time->end_ns);
    rank->seat->scheduler_ns += spent_by(scheduler) - before;
    rank->seat->transport_ns += describe(rank).transport_cpu_ns - transport;
    rank->seat->process_ns = spent_by(CLOCK_PROCESS_CPUTIME_ID) - process;
    if (sluice_transfer_progress(transfer, &progress) == SLUICE_OK)
        rank->kept_windows = progress.windows_done;
    rank->seat->again_bytes += progress.bytes_again;
    sluice_transfer_destroy(transfer);
    return status;
}

/* Makes the buffers those of the refit, unless they are since a transfer that failed. */
static sluice_status begin_refit(struct rank *rank, _Bool verified)
{
    _Bool in_place = rank->job->options->landing == SLUICE_LANDING_IN_PLACE;
    if (rank->resume && in_place && rank->kept == rank->next)
        return SLUICE_OK;
    rank->kept = RUN_NO_REFIT;
    rank->kept_windows = 0;
    sluice_status status = verified ? prepare(rank, rank->next + UINT64_C(1)) : SLUICE_OK;
    if (status == SLUICE_OK && verified)
        status = run_device_upload(&rank->device, &rank->buffers);
    if (status == SLUICE_OK)
        rank->kept = rank->next;
    return status;
}

static sluice_status refit(struct rank *rank)
{
    const struct run_options *opt = rank->job->options;
    struct run_time *time = &rank->job->board->times[(size_t)rank->number * opt->repeat + rank->next];
    _Bool verified = run_verifies(opt, rank->next);
    sluice_status status = begin_refit(rank, verified);
    if (status != SLUICE_OK)
        return status;
    atomic_store(&rank->seat->bytes_done, 0);
    atomic_store(&rank->seat->refit, rank->next + 1);
    status = move(rank, time);
    if (status == SLUICE_OK && verified)
        status = run_device_download(&rank->device, &rank->buffers);
    if (status == SLUICE_OK && verified)
        status = verify(rank, rank->next + UINT64_C(1));
    if (status != SLUICE_OK)
        return status;
    rank->resume = 0;
    atomic_store(&rank->seat->done, ++rank->next);
    return SLUICE_OK;
}

static sluice_status refits(struct rank *rank)
{
    sluice_status status = SLUICE_OK;
    while (status == SLUICE_OK && rank->next < rank->job->options->repeat)
        status = refit(rank);
    return status;
}

/* --- the whole --- */

static sluice_status keep_trace(const struct rank *rank)
{
    size_t count = 0;
    if (rank->runtime == NULL || !rank->runtime->options.trace)
        return SLUICE_OK;
    const struct sl_trace_record *records = sl_runtime_trace(rank->runtime, &count);
    rank->seat->trace_dropped = atomic_load(&rank->runtime->trace.dropped);
    if (!rank->job->launched)
        return run_trace_alone(rank->job, rank->number, records, count);
    const uint8_t *bytes = (const uint8_t *)records;
    for (size_t left = count * sizeof *records; left > 0;) {
        ssize_t put = write(rank->job->trace_fds[rank->number], bytes, left);
        if (put <= 0)
            return sl_fail(SLUICE_IO, "run", "rank %u: no memory for its trace", rank->number);
        bytes += put;
        left -= (size_t)put;
    }
    rank->seat->trace_count = count;
    return SLUICE_OK;
}

/* Everything up to the first refit. */
static sluice_status begin(struct rank *rank)
{
    sluice_status status = run_rank_open(rank);
    if (status == SLUICE_OK && sluice_runtime_world(rank->runtime) != rank->plan->store.world)
        status = sl_fail(SLUICE_CONFIG, "run", "the launcher started %u ranks but the plan is for %u",
                         sluice_runtime_world(rank->runtime), rank->plan->store.world);
    if (status == SLUICE_OK)
        status = run_rank_seal(rank);
    if (status == SLUICE_OK && rank->place.epoch > 0)
        run_recover_begin(rank);
    return status;
}

static sluice_status work(struct rank *rank)
{
    sluice_status status = open_plan(rank);
    if (status == SLUICE_OK)
        status = run_buffers_open(&rank->plan->store, rank->number, &rank->buffers);
    if (status != SLUICE_OK)
        return status;
    status = begin(rank);
    if (status == SLUICE_OK)
        status = refits(rank);
    while (status != SLUICE_OK && run_recover_wanted(rank, status)) {
        status = run_recover(rank);
        if (status == SLUICE_OK)
            status = refits(rank);
    }
    return status == SLUICE_OK ? keep_trace(rank) : status;
}

int run_rank(struct run_job *job, uint32_t number)
{
    struct rank rank = {.job = job,
                        .number = number,
                        .seat = &job->board->seats[number],
                        .kept = RUN_NO_REFIT,
                        .place = {.board = job->board, .rank = number, .epoch = atomic_load(&job->board->epoch)}};
    sluice_status status = work(&rank);
    if (status != SLUICE_OK) {
        sl_error_take(&rank.seat->error);
        rank.seat->failed_ns = sl_now(sl_clock_system());
    }
    if (rank.plan != rank.whole)
        sluice_plan_destroy(rank.plan);
    sluice_plan_destroy(rank.whole);
    sluice_runtime_close_wait(rank.runtime);
    run_device_close(&rank.device);
    run_buffers_close(&rank.buffers);
    atomic_store(&rank.seat->ended, 1);
    return status == SLUICE_OK ? TOOL_OK : tool_exit_of(status);
}
