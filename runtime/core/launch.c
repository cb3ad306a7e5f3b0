/*
 * launch.c: from LAUNCH and COMMIT of the engine to operations of the backend, and back from completions.
 *
 * Invariants: window k uses queue k mod S in the order pack, wait, group, record, unpack; local copies
 * and commits have a queue of their own. Groups are handed over in launch order: the head of the ring
 * waits when the backend says AGAIN, and nothing overtakes it. Every operation that was accepted with
 * `notify` completes once; every one that touches memory of the application has it, so that a transfer knows when
 * nothing of it is left on the device; it does not leave before the ring is through with it; nothing is allocated here.
 */
#include "runtime/core/runtime_object.h"
#include "runtime/core/transfer_object.h"

enum step {
    STEP_CHECK_SOURCE = 0,
    STEP_PACK,
    STEP_WAIT,
    STEP_GROUP,
    STEP_RECORD,
    STEP_UNPACK,
    STEP_CHECK_LANDED,
    STEP_AFTER,
    STEP_LOCAL,
    STEP_CHECK_LOCAL,
    STEP_TAIL,
    STEP_END,
    STEP_COMMIT,
    STEP_SOURCES
};

enum { MARKERS_MAX = 64 };

sluice_status sl_launch_lanes(struct sl_driver *driver, uint32_t slots)
{
    const struct sluice_backend_ops *ops = driver->config.ops;
    if (driver->info.queues_max != 0 && slots + 1 > driver->info.queues_max)
        return sl_fail(SLUICE_LIMIT, "seal", "%u slots need %u queues, the backend has %u: lower slots", slots,
                       slots + 1, driver->info.queues_max);
    for (uint32_t i = 0; i < SL_LANES; i++) {
        if (driver->lanes[i] != NULL || (i >= slots && i != SL_LANE_LOCAL))
            continue;
        sluice_status status = ops->queue_open(driver->device, &driver->lanes[i]);
        if (status != SLUICE_OK)
            return status;
    }
    driver->markers = driver->info.markers_max < MARKERS_MAX ? driver->info.markers_max : MARKERS_MAX;
    if (driver->markers < 2)
        return sl_fail(SLUICE_LIMIT, "seal", "the backend has %u markers, 2 are needed", driver->info.markers_max);
    return SLUICE_OK;
}

static struct sl_launch *ring_at(const struct sl_driver *driver, uint32_t index)
{
    return &driver->launches[(driver->launch_head + index) % driver->launch_capacity];
}

static void ring_push(struct sl_driver *driver, struct sl_launch launch)
{
    SL_ASSERT(driver->launch_count < driver->launch_capacity); /* the engine keeps to its slots */
    driver->launch_count++;
    *ring_at(driver, driver->launch_count - 1) = launch;
    launch.transfer->launches++;
}

/* The head is handed over, or not wanted any more: a transfer that has ended may have waited for that alone. */
static void ring_pop(struct sl_driver *driver)
{
    struct sluice_transfer *transfer = ring_at(driver, 0)->transfer;
    driver->launch_head = (driver->launch_head + 1) % driver->launch_capacity;
    driver->launch_count--;
    if (--transfer->launches == 0 && transfer->leaving)
        sl_transfer_leave(driver, transfer);
}

void sl_launch_window(struct sl_driver *driver, struct sluice_transfer *transfer, uint32_t window)
{
    _Bool last = !transfer->config.commit && window + 1 == transfer->config.windows;
    /* The plan's tables know nothing of windows that a transfer skips. */
    enum step first = window < transfer->skipped ? STEP_TAIL : STEP_CHECK_SOURCE;
    ring_push(driver, (struct sl_launch){.transfer = transfer, .window = window, .step = first, .last = last});
}

void sl_launch_commit(struct sl_driver *driver, struct sluice_transfer *transfer)
{
    ring_push(driver, (struct sl_launch){.transfer = transfer, .step = STEP_COMMIT, .last = 1});
}

void sl_launch_sources(struct sl_driver *driver, struct sluice_transfer *transfer)
{
    driver->digesting = transfer;
    driver->digests_flying = 0;
    ring_push(driver, (struct sl_launch){.transfer = transfer, .step = STEP_SOURCES});
}

/* The digests of the sources were not handed over and are not wanted any more. */
static void forget_sources(struct sl_driver *driver)
{
    struct sluice_transfer *transfer = driver->digesting;
    driver->digesting = NULL;
    driver->chores = 1; /* another transfer may read its sources now */
    if (transfer->leaving)
        sl_transfer_leave(driver, transfer);
}

void sl_launch_forget(struct sl_driver *driver)
{
    while (driver->launch_count > 0)
        ring_pop(driver);
    if (driver->digesting != NULL && !driver->digests_flying)
        forget_sources(driver);
}

/* Bits of a cookie: 40.. the run, 32.. the node, 0.. the window. */
static uint64_t cookie_of(const struct sl_launch *launch, uint32_t node)
{
    return ((uint64_t)launch->transfer->run << 40) | ((uint64_t)node << 32) | launch->window;
}

static const struct sl_window_ops *ops_of(const struct sl_launch *launch)
{
    const struct sl_view *view = launch->transfer->view;
    _Bool landed = launch->window < launch->transfer->config.staged;
    return landed ? &view->landed[launch->window] : &view->in_place[launch->window];
}

static const struct sl_window_check *check_of(const struct sl_launch *launch)
{
    static const struct sl_window_check none;
    const struct sl_checks *checks = launch->transfer->checks;
    return checks != NULL ? &checks->windows[launch->window] : &none;
}

/* A copy that completes `node`, or leaves that to the digests behind it (`check`). */
static _Bool copy_step(struct sluice_set *set, const struct sluice_set *check, uint32_t node, struct sluice_op *ret,
                       uint32_t *ret_node)
{
    *ret = (struct sluice_op){.kind = SLUICE_OP_COPY, .set = set};
    *ret_node = check == NULL ? node : 0;
    return set != NULL;
}

/* Digests that complete `node`; 0: nobody waits for them, what comes behind them does. */
static _Bool digest_step(struct sluice_set *set, uint64_t *digests, uint32_t node, struct sluice_op *ret,
                         uint32_t *ret_node)
{
    *ret = (struct sluice_op){.kind = SLUICE_OP_DIGEST, .set = set, .digests = digests};
    *ret_node = node;
    return set != NULL;
}

static uint64_t *digests_at(const struct sl_launch *launch, size_t first)
{
    const struct sl_checks *checks = launch->transfer->checks;
    return checks != NULL ? checks->digests + first : NULL;
}

static _Bool group_step(const struct sl_driver *driver, const struct sl_window_ops *ops, struct sluice_op *ret)
{
    *ret = (struct sluice_op){
        .kind = SLUICE_OP_GROUP,
        .group = driver->group,
        .messages = ops->messages,
        .message_count = ops->message_count,
    };
    return ops->message_count > 0;
}

/* Copies in a stream of the caller were enqueued by submit: here they are only awaited. */
static _Bool local_step(const struct sluice_transfer *transfer, struct sluice_set *set, const struct sluice_set *check,
                        struct sluice_op *ret, uint32_t *ret_node)
{
    _Bool any = copy_step(set, check, SL_NODE_LOCAL, ret, ret_node);
    if (transfer->after != NULL)
        *ret = (struct sluice_op){.kind = SLUICE_OP_FENCE};
    return any;
}

/* The last operations of a run: a point in every queue. */
static _Bool tail_step(const struct sl_launch *launch, struct sluice_op *ret)
{
    *ret = (struct sluice_op){.kind = SLUICE_OP_POINT, .point = launch->transfer->sealed->tail[launch->lane]};
    return launch->last && ret->point != NULL;
}

/* Steps that are not of a window. */
static _Bool whole_op_of(const struct sl_launch *launch, struct sluice_op *ret, uint32_t *ret_node)
{
    const struct sl_agree *agree = &launch->transfer->agree;
    if (launch->step == STEP_TAIL)
        return tail_step(launch, ret);
    if (launch->step == STEP_SOURCES)
        return digest_step(agree->sources, agree->source_digests, SL_NODE_SOURCES, ret, ret_node);
    return launch->step == STEP_COMMIT &&
           copy_step(launch->transfer->view->commit, NULL, SL_NODE_COMMIT, ret, ret_node);
}

/* The operation of a step and the node that it completes (0: none); false when there is nothing to do. */
static _Bool op_of(const struct sl_driver *driver, const struct sl_launch *launch, struct sluice_op *ret,
                   uint32_t *ret_node)
{
    *ret_node = 0;
    if (launch->step >= STEP_TAIL)
        return whole_op_of(launch, ret, ret_node);
    const struct sl_window_ops *ops = ops_of(launch);
    const struct sl_window_check *check = check_of(launch);
    uint32_t lane = launch->window % launch->transfer->config.slots;
    switch ((enum step)launch->step) {
    case STEP_CHECK_SOURCE:
        return digest_step(check->source, digests_at(launch, check->first_source), 0, ret, ret_node);
    case STEP_PACK:
        return copy_step(ops->pack, NULL, SL_NODE_PACK, ret, ret_node);
    case STEP_WAIT: /* a group on the same queue is ordered by the queue */
        *ret = (struct sluice_op){.kind = SLUICE_OP_WAIT, .marker = driver->marker};
        return ops->message_count > 0 && driver->marker_lane != SL_LANES && driver->marker_lane != lane;
    case STEP_GROUP:
        *ret_node = SL_NODE_GROUP;
        return group_step(driver, ops, ret);
    case STEP_RECORD:
        *ret = (struct sluice_op){.kind = SLUICE_OP_RECORD, .marker = (driver->marker + 1) % driver->markers};
        return ops->message_count > 0;
    case STEP_UNPACK:
        return copy_step(ops->unpack, check->landed, SL_NODE_UNPACK, ret, ret_node);
    case STEP_CHECK_LANDED:
        return digest_step(check->landed, digests_at(launch, check->first_landed), SL_NODE_UNPACK, ret, ret_node);
    case STEP_AFTER:
        *ret = (struct sluice_op){.kind = SLUICE_OP_AFTER, .point = launch->transfer->after};
        return ret->point != NULL && ops->local != NULL;
    case STEP_LOCAL:
        return local_step(launch->transfer, ops->local, check->local, ret, ret_node);
    case STEP_CHECK_LOCAL:
        return digest_step(check->local, digests_at(launch, check->first_local), SL_NODE_LOCAL, ret, ret_node);
    case STEP_TAIL:
    case STEP_END:
    case STEP_COMMIT:
    case STEP_SOURCES:
        break;
    }
    return 0;
}

static uint32_t lane_of(const struct sl_launch *launch)
{
    if (launch->step == STEP_TAIL)
        return launch->lane;
    _Bool local = launch->step >= STEP_AFTER;
    return local ? SL_LANE_LOCAL : launch->window % launch->transfer->config.slots;
}

/* The operation was accepted. */
static void taken(struct sl_driver *driver, const struct sl_launch *launch, const struct sluice_op *op, uint32_t node)
{
    if (op->kind == SLUICE_OP_RECORD) {
        driver->marker = op->marker;
        driver->marker_lane = lane_of(launch);
    }
    if (!op->notify)
        return;
    driver->in_flight++;
    if (node == 0) {
        launch->transfer->parts++;
        return;
    }
    driver->digests_flying |= node == SL_NODE_SOURCES;
    launch->transfer->node_begin[launch->window % launch->transfer->config.slots][node] = driver->now;
}

/* A node ends without the backend: `error` NULL: there was nothing to do. */
static void tell_done(struct sl_driver *driver, const struct sl_launch *launch, uint32_t node,
                      const struct sluice_error *error)
{
    sl_driver_engine_event(driver, (struct sl_engine_event){
                                       .kind = SL_EVENT_DONE,
                                       .run = launch->transfer->run,
                                       .index = launch->window,
                                       .node = node,
                                       .begin_ns = driver->now,
                                       .end_ns = driver->now,
                                       .error = error,
                                   });
}

/* Nodes of the steps behind this one, as bits. */
static uint32_t nodes_behind(const struct sl_driver *driver, struct sl_launch launch)
{
    struct sluice_op op;
    uint32_t bits = 0, node = 0;
    if (launch.step >= STEP_TAIL)
        return 0;
    while (++launch.step < STEP_TAIL)
        if (op_of(driver, &launch, &op, &node))
            bits |= 1u << node;
    return bits & ~1u;
}

/*
 * The backend refused an operation for good: the window cannot run, and what would have come behind ends as well. While
 * the engine counts one of these nodes the transfer lives.
 */
static void refused(struct sl_driver *driver, const struct sl_launch *launch, uint32_t node)
{
    struct sluice_error error;
    sl_error_take(&error);
    uint32_t behind = nodes_behind(driver, *launch);
    if (node == SL_NODE_SOURCES)
        sl_agree_digested(driver, &(struct sluice_completion){.status = error.status, .error = error});
    else if (node == 0)
        sl_driver_broken(driver, &error);
    else
        tell_done(driver, launch, node, &error);
    for (uint32_t next = 1; behind >> next != 0; next++)
        if (behind >> next & 1u)
            tell_done(driver, launch, next, &error);
}

enum outcome { TOOK, WAITS, ENDS };

static void next_step(struct sl_launch *launch)
{
    if (launch->step == STEP_TAIL && launch->last && ++launch->lane < SL_LANES)
        return;
    if (launch->step == STEP_TAIL && launch->last)
        atomic_store(&launch->transfer->sealed->tail_run, launch->transfer->number + 1);
    if (launch->step == STEP_SOURCES)
        launch->step = STEP_END;
    else
        launch->step = launch->step == STEP_COMMIT ? (uint32_t)STEP_TAIL : launch->step + 1;
}

/* A commit of which nothing is here is over once its points are set: from then on the transfer may be gone. */
static enum outcome end_head(struct sl_driver *driver, struct sl_launch *launch)
{
    struct sl_launch copy = *launch;
    launch->absent = 0;
    if (!copy.absent)
        return ENDS;
    copy.window = 0;
    tell_done(driver, &copy, SL_NODE_COMMIT, NULL);
    return TOOK;
}

/* One step of the ring's head. */
static enum outcome advance_head(struct sl_driver *driver)
{
    struct sl_launch *launch = ring_at(driver, 0);
    struct sluice_op op = {0};
    uint32_t node = 0;
    if (launch->step == STEP_END)
        return end_head(driver, launch);
    if (launch->step == STEP_SOURCES &&
        launch->transfer->run == SL_NO_RUN) { /* it ended while the backend took nothing */
        launch->step = STEP_END;
        forget_sources(driver);
        return TOOK;
    }
    if (op_of(driver, launch, &op, &node)) {
        _Bool part = node == 0 && op.set != NULL;
        op.notify = node != 0 || part;
        op.cookie = part ? SL_COOKIE_PART | (uintptr_t)launch->transfer : cookie_of(launch, node);
        sluice_status status = driver->config.ops->submit(driver->lanes[lane_of(launch)], &op);
        if (status == SLUICE_AGAIN)
            return WAITS;
        if (status != SLUICE_OK) {
            struct sl_launch copy = *launch;
            launch->step = STEP_END;
            refused(driver, &copy, node);
            return TOOK;
        }
        taken(driver, launch, &op, node);
    } else {
        launch->absent |= launch->step == STEP_COMMIT;
    }
    next_step(launch);
    return TOOK;
}

_Bool sl_launch_advance(struct sl_driver *driver)
{
    _Bool any = 0;
    while (driver->launch_count > 0 && !driver->aborting) {
        enum outcome outcome = advance_head(driver);
        if (outcome == WAITS)
            break;
        any = 1;
        if (outcome == ENDS)
            ring_pop(driver);
    }
    return any;
}

static const uint16_t trace_nodes[SL_NODES] = {
    [SL_NODE_PACK] = SL_TRACE_PACK,   [SL_NODE_GROUP] = SL_TRACE_GROUP,   [SL_NODE_UNPACK] = SL_TRACE_UNPACK,
    [SL_NODE_LOCAL] = SL_TRACE_LOCAL, [SL_NODE_COMMIT] = SL_TRACE_COMMIT,
};

static void trace_node(struct sl_driver *driver, const struct sluice_transfer *transfer,
                       const struct sl_engine_event *event)
{
    _Bool local = event->node == SL_NODE_LOCAL || event->node == SL_NODE_COMMIT;
    struct sl_trace_record record = {
        .begin_ns = event->begin_ns,
        .end_ns = event->end_ns,
        .run = transfer->number,
        .window = event->index,
        .node = trace_nodes[event->node],
        .queue = (uint16_t)(local ? SL_LANE_LOCAL : event->index % transfer->config.slots),
    };
    sl_trace_add(driver->config.trace, &record);
}

/* An operation that completes no node is known by its transfer, which waits for it before it leaves. */
static void part_completed(struct sl_driver *driver, const struct sluice_completion *completion)
{
    struct sluice_transfer *transfer = (struct sluice_transfer *)(uintptr_t)(completion->cookie & ~SL_COOKIE_PART);
    SL_ASSERT(driver->in_flight > 0 && transfer->parts > 0);
    driver->in_flight--;
    transfer->parts--;
    if (completion->status != SLUICE_OK && transfer->part_error.status == SLUICE_OK)
        transfer->part_error = completion->error;
    if (transfer->leaving)
        sl_transfer_leave(driver, transfer);
}

static void completed(struct sl_driver *driver, const struct sluice_completion *completion)
{
    uint32_t run = (uint32_t)(completion->cookie >> 40);
    uint32_t node = (uint32_t)(completion->cookie >> 32) & 0xffu;
    uint32_t window = (uint32_t)completion->cookie;
    SL_ASSERT(driver->in_flight > 0 && run < driver->config.transfers_max && node < SL_NODES);
    driver->in_flight--;
    if (node == SL_NODE_SOURCES) {
        sl_agree_digested(driver, completion);
        return;
    }
    struct sluice_transfer *transfer = driver->runs[run];
    if (transfer == NULL)
        return;
    struct sl_engine_event event = {
        .kind = SL_EVENT_DONE,
        .run = run,
        .index = window,
        .node = node,
        .begin_ns = completion->begin_ns,
        .end_ns = completion->end_ns,
        .error = completion->status != SLUICE_OK ? &completion->error : NULL,
    };
    if (event.error == NULL && transfer->part_error.status != SLUICE_OK)
        event.error = &transfer->part_error;
    if (event.end_ns == 0) {
        event.begin_ns = transfer->node_begin[window % transfer->config.slots][node];
        event.end_ns = driver->now;
    }
    trace_node(driver, transfer, &event);
    driver->touched = 1;
    if (event.error == NULL && node != SL_NODE_COMMIT)
        sl_agree_done(driver, transfer, window);
    sl_driver_engine_event(driver, event);
}

_Bool sl_launch_collect(struct sl_driver *driver)
{
    struct sluice_completion completions[16];
    uint32_t count = 0;
    if (driver->device == NULL || (driver->in_flight == 0 && driver->group_state != SL_GROUP_OPENING))
        return 0;
    sluice_status status = driver->config.ops->poll(driver->device, completions, SL_COUNT(completions), &count);
    if (status != SLUICE_OK) {
        struct sluice_error error;
        sl_error_take(&error);
        sl_driver_broken(driver, &error);
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (completions[i].cookie == SL_COOKIE_GROUP_OPEN)
            sl_seal_group_opened(driver, &completions[i]);
        else if (completions[i].cookie & SL_COOKIE_PART)
            part_completed(driver, &completions[i]);
        else
            completed(driver, &completions[i]);
    }
    return count > 0;
}
