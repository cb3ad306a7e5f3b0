/*
 * transfer_drive.c: a transfer on the scheduler thread, from its order to its end.
 *
 * Invariants: the driver holds one reference from the order to the engine's RELEASE; a run that cannot
 * begin here ends with FAILED and RELEASED like any other, and the other ranks are told; the runs
 * of one plan follow each other (the plan's turn): they share shadow memory, destinations and slots.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/core/runtime_object.h"
#include "runtime/core/transfer_object.h"

static struct sluice_transfer *by_submit(struct sl_order *order)
{
    return (struct sluice_transfer *)((char *)order - offsetof(struct sluice_transfer, submit));
}

static struct sluice_transfer *by_ask(struct sl_order *order)
{
    return (struct sluice_transfer *)((char *)order - offsetof(struct sluice_transfer, ask));
}

/* Takes a run out of its plan's row: whoever waits for it waits for its leader, or may go on. */
static void pass_turn(struct sl_driver *driver, struct sluice_transfer *transfer)
{
    struct sluice_transfer *leader = transfer->leader;
    struct sluice_transfer *follower = transfer->follower;
    if (transfer->sealed->last == transfer)
        transfer->sealed->last = leader;
    if (leader != NULL)
        leader->follower = follower;
    if (follower == NULL)
        return;
    follower->leader = leader;
    follower->turn_came = leader == NULL;
    driver->turn_came |= follower->turn_came;
}

/* The flags of the view, and what digests add to them. */
static void fill_flags(struct sluice_transfer *transfer)
{
    uint32_t windows = transfer->config.windows;
    for (uint32_t w = 0; w < windows; w++) {
        _Bool ends = w + 1 == transfer->config.staged || w + 1 == windows;
        unsigned flags = transfer->view->flags[w];
        if (transfer->checks != NULL && transfer->checks->windows[w].landed != NULL)
            flags |= SL_WINDOW_UNPACK; /* direct receives have no copy behind them */
        if (transfer->verify && ends)
            flags |= SL_WINDOW_VERIFY;
        transfer->flags[w] = (uint8_t)flags;
    }
}

sluice_status sl_transfer_tables(struct sluice_transfer *transfer)
{
    struct sl_sealed *sealed = transfer->sealed;
    sluice_status status = SLUICE_OK;
    transfer->bytes_total = transfer->view->bytes;
    if (transfer->view != &sealed->full)
        status = sl_view_build(sealed, transfer->view);
    if (status == SLUICE_OK && transfer->verify)
        status = sl_checks_new(sealed, transfer->view, transfer->config.staged, &transfer->checks);
    if (status != SLUICE_OK || transfer->flags == NULL)
        return status;
    fill_flags(transfer);
    if (transfer->resume)
        sl_resume_skip(transfer);
    sl_agree_count(transfer);
    return SLUICE_OK;
}

/* What the transfer has on the device beside the plan's own sets. */
static void close_tables(struct sluice_transfer *transfer)
{
    sl_agree_drop(transfer);
    if (transfer->view != &transfer->sealed->full)
        sl_view_close_sets(transfer->sealed, transfer->view);
}

static void wait_to_leave(struct sl_driver *driver, struct sluice_transfer *transfer)
{
    if (transfer->leaving)
        return;
    transfer->leaving = 1;
    transfer->leave_by = sl_deadline(driver->now, driver->config.stall_timeout_ns);
    transfer->next = driver->leaving;
    driver->leaving = transfer;
}

static void unlink_leaving(struct sl_driver *driver, struct sluice_transfer *transfer)
{
    struct sluice_transfer **link = &driver->leaving;
    if (!transfer->leaving)
        return;
    while (*link != transfer)
        link = &(*link)->next;
    *link = transfer->next;
    transfer->leaving = 0;
}

/*
 * Nothing of it is left in the driver, but for one whose operations the device never gave back: it keeps its tables,
 * and with them its plan. RELEASED comes after its gates and buffers are free, unless they never are.
 */
static void leave(struct sl_driver *driver, struct sluice_transfer *transfer, _Bool released)
{
    struct sl_sealed *sealed = transfer->sealed;
    struct sluice_plan *plan = transfer->plan;
    transfer->leaving_released = released;
    if (released && (driver->digesting == transfer || transfer->parts > 0 || transfer->launches > 0)) {
        wait_to_leave(driver, transfer);
        return;
    }
    unlink_leaving(driver, transfer);
    sl_agree_end(driver, transfer);
    driver->agreeing -= sl_transfer_agrees(transfer);
    if (released)
        close_tables(transfer);
    for (uint32_t i = 0; i < transfer->config.gate_count; i++)
        sl_gate_end(driver, &transfer->waits[i]);
    sl_transfer_drop_gates(transfer);
    pass_turn(driver, transfer);
    pthread_mutex_lock(&plan->lock);
    sealed->live--;
    sealed->direct -= transfer->after != NULL;
    pthread_mutex_unlock(&plan->lock);
    if (released) {
        sl_transfer_push(driver, transfer, SLUICE_EVENT_RELEASED);
    } else {
        atomic_fetch_sub_explicit(&transfer->runtime->live, 1, memory_order_acq_rel);
        atomic_store_explicit(&transfer->delivered, 1, memory_order_release);
    }
    atomic_store_explicit(&transfer->over, 1, memory_order_release);
    sl_delivery_signal(driver->config.delivery);
    if (released) {
        sl_transfer_release(transfer);
        return;
    }
    transfer->next = driver->stuck;
    driver->stuck = transfer;
}

void sl_transfer_free_stuck(struct sl_driver *driver)
{
    while (driver->stuck != NULL) {
        struct sluice_transfer *transfer = driver->stuck;
        driver->stuck = transfer->next;
        close_tables(transfer);
        sl_transfer_release(transfer);
    }
}

void sl_transfer_leave(struct sl_driver *driver, struct sluice_transfer *transfer)
{
    leave(driver, transfer, transfer->leaving_released);
}

uint64_t sl_transfer_leave_timer(const struct sl_driver *driver)
{
    uint64_t next = UINT64_MAX;
    for (const struct sluice_transfer *transfer = driver->leaving; transfer != NULL; transfer = transfer->next)
        next = transfer->leave_by < next ? transfer->leave_by : next;
    return next;
}

_Bool sl_transfer_leave_late(struct sl_driver *driver, uint64_t now)
{
    struct sluice_transfer *late = driver->leaving;
    while (late != NULL && late->leave_by > now)
        late = late->next;
    if (late != NULL)
        leave(driver, late, 0);
    return late != NULL;
}

/* The destinations of this rank hold the transfer's version. */
static void keep_version(struct sluice_transfer *transfer)
{
    atomic_store_explicit(&transfer->plan->version, transfer->config.version, memory_order_release);
}

static void end(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t kind,
                const struct sluice_error *error)
{
    if (kind == SLUICE_EVENT_FAILED)
        transfer->error = *error;
    if (kind == SLUICE_EVENT_CANCELLED)
        SL_IGNORE(sl_error_set(&transfer->error, SLUICE_CANCELLED, "transfer", "the transfer was cancelled"));
    if (kind == SLUICE_EVENT_COMPLETED || kind == SLUICE_EVENT_COMMITTED)
        keep_version(transfer);
    atomic_store_explicit(&transfer->ended, kind, memory_order_release);
    sl_transfer_push(driver, transfer, kind);
}

/* Says to the other ranks that this one will not run it. */
static void tell_failure(struct sl_driver *driver, const struct sluice_transfer *transfer,
                         const struct sluice_error *error)
{
    struct sl_note note = {
        .key = transfer->config.key,
        .kind = SL_NOTE_REQUEST,
        .a = SL_REQUEST_FAIL,
        .rank = driver->config.rank,
        .status = error->status,
    };
    if (driver->config.world == 1)
        return;
    snprintf(note.text, sizeof note.text, "%.255s", error->text);
    SL_IGNORE(driver->config.link.tell(driver->config.link.context, &note));
}

static void fail_to_begin(struct sl_driver *driver, struct sluice_transfer *transfer, const struct sluice_error *error)
{
    tell_failure(driver, transfer, error);
    end(driver, transfer, SLUICE_EVENT_FAILED, error);
    sl_transfer_publish(driver, transfer);
    leave(driver, transfer, 1);
}

/* Whether the run has to wait for the plan's earlier one. */
static void take_turn(struct sluice_transfer *transfer)
{
    struct sl_sealed *sealed = transfer->sealed;
    struct sluice_transfer *earlier = sealed->last;
    sealed->last = transfer;
    if (earlier == NULL)
        return;
    transfer->leader = earlier;
    earlier->follower = transfer;
    transfer->gates[transfer->config.gate_count - 1].open = 0;
}

/* Looks at the gates; the first that failed is told to the engine once the run is there. */
static uint32_t begin_gates(struct sl_driver *driver, struct sluice_transfer *transfer, struct sluice_error *error)
{
    uint32_t failed = UINT32_MAX;
    for (uint32_t i = 0; i + 1 < transfer->config.gate_count; i++) {
        struct sluice_error gate_error;
        if (transfer->waits[i].gate == NULL)
            continue; /* ours */
        sluice_status status = sl_gate_begin(driver, &transfer->waits[i], &gate_error);
        transfer->gates[i].open = status == SLUICE_OK;
        if (status == SLUICE_OK || status == SLUICE_AGAIN || failed != UINT32_MAX)
            continue;
        failed = i;
        *error = gate_error;
    }
    return failed;
}

void sl_transfer_begin(struct sl_driver *driver, struct sl_order *order)
{
    struct sluice_transfer *transfer = by_submit(order);
    struct sluice_error error = {0};
    uint32_t run = SL_NO_RUN;
    transfer->gate_begin_ns = transfer->submitted_ns;
    driver->agreeing += sl_transfer_agrees(transfer);
    driver->chores = 1;
    sluice_status status = SLUICE_OK;
    if (driver->closing)
        status = sl_fail(SLUICE_CLOSED, "transfer", "the runtime was closed before the transfer began");
    if (status == SLUICE_OK)
        status = sl_sealed_refresh(transfer->sealed);
    if (status == SLUICE_OK && !transfer->changed_only && !transfer->resume)
        status = sl_transfer_tables(transfer);
    if (status != SLUICE_OK) {
        sl_error_take(&error);
        fail_to_begin(driver, transfer, &error);
        return;
    }
    take_turn(transfer);
    uint32_t failed = begin_gates(driver, transfer, &error);
    status = sl_engine_add_run(driver->engine, &transfer->config, driver->now, &run);
    if (status != SLUICE_OK) {
        sl_error_take(&error);
        fail_to_begin(driver, transfer, &error);
        return;
    }
    transfer->run = run;
    driver->runs[run] = transfer;
    driver->run_count++;
    sl_driver_engine_drain(driver);
    if (failed != UINT32_MAX && transfer->run == run)
        sl_driver_engine_event(
            driver, (struct sl_engine_event){.kind = SL_EVENT_GATE, .run = run, .index = failed, .error = &error});
}

static void request(struct sl_driver *driver, const struct sluice_transfer *transfer, enum sl_request what,
                    uint64_t value)
{
    if (transfer->run != SL_NO_RUN)
        sl_driver_engine_event(
            driver, (struct sl_engine_event){
                        .kind = SL_EVENT_REQUEST, .run = transfer->run, .index = (uint32_t)what, .value = value});
}

void sl_transfer_asked(struct sl_driver *driver, struct sl_order *order)
{
    struct sluice_transfer *transfer = by_ask(order);
    atomic_exchange_explicit(&transfer->ask_posted, 0, memory_order_acq_rel);
    unsigned asked = atomic_exchange_explicit(&transfer->asked, 0, memory_order_acq_rel);
    if (asked & SL_ASKED_PACE)
        request(driver, transfer, SL_REQUEST_PACE, atomic_load(&transfer->asked_pace));
    if (asked & SL_ASKED_PAUSE)
        request(driver, transfer, SL_REQUEST_PAUSE, 0);
    if (asked & SL_ASKED_RESUME)
        request(driver, transfer, SL_REQUEST_RESUME, 0);
    if (asked & SL_ASKED_CANCEL)
        request(driver, transfer, SL_REQUEST_CANCEL, 0);
    sl_transfer_release(transfer);
}

static void trace_gate(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t window)
{
    struct sl_trace_record record = {
        .begin_ns = transfer->gate_begin_ns,
        .end_ns = driver->now,
        .run = transfer->number,
        .window = window,
        .node = SL_TRACE_GATE,
        .queue = (uint16_t)(window % transfer->config.slots),
    };
    sl_trace_add(driver->config.trace, &record);
    transfer->gate_begin_ns = driver->now;
}

/* Adds the destination's parameters that hold bytes of both versions, and how many are whole and untouched. */
static void add_torn(const struct sluice_transfer *transfer, const struct sl_action *action, struct sluice_error *error)
{
    const struct sl_view *view = transfer->view;
    const uint32_t *first = transfer->sealed->first[SLUICE_ROLE_DESTINATION];
    uint32_t whole = 0, torn = 0, param = 0;
    for (uint32_t i = 0; i < view->arrival_count; i++) {
        const struct sl_arrival *arrival = &view->arrivals[i];
        _Bool all = arrival->window < action->whole;
        _Bool some = !all && first[arrival->param] < action->clean;
        whole += all;
        if (some && torn++ == 0)
            param = arrival->param;
    }
    size_t used = strnlen(error->text, sizeof error->text - 1);
    if (torn > 0)
        SL_IGNORE(snprintf(error->text + used, sizeof error->text - used,
                           "; %u parameters hold bytes of both versions, the first is %u (%.64s), %u are whole, %u "
                           "untouched",
                           torn, param, sl_param_name(&transfer->plan->store, param), whole,
                           view->arrival_count - whole - torn));
}

static void emit(struct sl_driver *driver, struct sluice_transfer *transfer, const struct sl_action *action)
{
    struct sluice_error error;
    switch (action->event) {
    case SLUICE_EVENT_WINDOW:
        sl_transfer_window_done(driver, transfer, action->window);
        break;
    case SLUICE_EVENT_COMPLETED:
    case SLUICE_EVENT_COMMITTED:
    case SLUICE_EVENT_FAILED:
    case SLUICE_EVENT_CANCELLED:
        sl_transfer_publish(driver, transfer);
        if (action->holds_version)
            keep_version(transfer);
        error = action->error;
        if (action->event == SLUICE_EVENT_FAILED)
            add_torn(transfer, action, &error);
        end(driver, transfer, action->event, &error);
        break;
    case SLUICE_EVENT_RELEASED:
        transfer->told_released = 1; /* told to the application with the engine's RELEASE */
        sl_transfer_publish(driver, transfer);
        break;
    default:
        sl_transfer_push(driver, transfer, action->event);
        break;
    }
}

static void over(struct sl_driver *driver, struct sluice_transfer *transfer)
{
    driver->runs[transfer->run] = NULL;
    driver->run_count--;
    transfer->run = SL_NO_RUN;
    leave(driver, transfer, transfer->told_released);
}

void sl_transfer_action(struct sl_driver *driver, const struct sl_action *action)
{
    struct sluice_transfer *transfer = action->owner;
    driver->touched = 1;
    switch (action->kind) {
    case SL_ACTION_LAUNCH:
        if (transfer->first_launch_ns == 0)
            transfer->first_launch_ns = driver->now;
        trace_gate(driver, transfer, action->window);
        sl_launch_window(driver, transfer, action->window);
        sl_agree_launched(driver, transfer, action->window);
        break;
    case SL_ACTION_COMMIT:
        sl_launch_commit(driver, transfer);
        break;
    case SL_ACTION_EMIT:
        emit(driver, transfer, action);
        break;
    case SL_ACTION_RELEASE:
        over(driver, transfer);
        break;
    case SL_ACTION_TELL:
    case SL_ACTION_ABORT:
    case SL_ACTION_POISON:
        break;
    }
}

/* What the engine does not know: bytes, parameters, rate. */
static void complete_progress(struct sl_driver *driver, const struct sluice_transfer *transfer,
                              struct sluice_progress *progress)
{
    progress->size = sizeof *progress;
    progress->version = transfer->config.version;
    progress->windows_total = transfer->config.windows;
    progress->params_done = transfer->arrived;
    progress->params_total = transfer->view->arrival_count;
    progress->bytes_done = transfer->bytes_done;
    progress->bytes_total = transfer->bytes_total;
    progress->elapsed_ns = driver->now > transfer->submitted_ns ? driver->now - transfer->submitted_ns : 0;
    progress->left_ns = UINT64_MAX;
    if (transfer->resume)
        sl_resume_progress(transfer, progress);
    uint64_t running = transfer->first_launch_ns != 0 ? driver->now - transfer->first_launch_ns : 0;
    if (running == 0 || transfer->bytes_done == 0)
        return;
    progress->bytes_per_second = (double)transfer->bytes_done * 1e9 / (double)running;
    uint64_t left = transfer->bytes_total - transfer->bytes_done;
    progress->left_ns = (uint64_t)((double)left / progress->bytes_per_second * 1e9);
}

void sl_transfer_publish(struct sl_driver *driver, struct sluice_transfer *transfer)
{
    struct sl_snapshot *snapshot = &transfer->snapshot;
    union {
        struct sluice_progress progress;
        uint64_t words[SL_PROGRESS_WORDS];
    } copy = {.words = {0}};
    if (transfer->run != SL_NO_RUN)
        sl_engine_progress(driver->engine, transfer->run, driver->now, &copy.progress);
    else
        copy.progress.state = SLUICE_TRANSFER_FAILED;
    complete_progress(driver, transfer, &copy.progress);
    copy.words[SL_PROGRESS_WORDS - 1] = driver->now;
    uint_fast32_t sequence = atomic_load_explicit(&snapshot->sequence, memory_order_relaxed);
    atomic_store_explicit(&snapshot->sequence, sequence + 1, memory_order_relaxed);
    for (size_t i = 0; i < SL_PROGRESS_WORDS; i++)
        atomic_store_explicit(&snapshot->words[i], copy.words[i], memory_order_release);
    atomic_store_explicit(&snapshot->sequence, sequence + 2, memory_order_release);
}
