/*
 * nccl_recorder.c: see nccl_recorder.h.
 *
 * The declarations follow NCCL's profiler interface 5, as far as it is used here. NCCL begins a group event for every
 * kernel plan and then a point-to-point event for each operation in it, in order, on the thread that ends the group.
 */
#include "support/nccl_recorder.h"

#include <stdlib.h>

enum { EVENT_GROUP = 1, EVENT_P2P = 4, RESULT_SUCCESS = 0, RESULT_SYSTEM_ERROR = 2 };

/* The beginning of NCCL's event description; what follows the operation belongs to other kinds of event. */
struct event {
    uint64_t type;
    void *parent;
    int rank;
    union {
        struct {
            const char *function; /* "Send" or "Recv" */
            void *memory;
            const char *datatype;
            size_t count;
            int peer;
            uint8_t channels;
            void *group; /* what begin_event gave for the plan */
        } p2p;
        uint64_t other[16];
    } of;
};

struct profiler {
    const char *name;
    int (*open)(void **context, uint64_t id, int *events, const char *name, int nodes, int ranks, int rank, void *log);
    int (*begin_event)(void *context, void **ret_handle, const struct event *event);
    int (*end_event)(void *handle);
    int (*record_state)(void *handle, int state, void *arguments);
    int (*close)(void *context);
};

static struct {
    struct recorded_op *ops;
    size_t count, capacity;
    uint32_t plans, nodes;
} recorder;

static int open_recorder(void **context, uint64_t id, int *events, const char *name, int nodes, int ranks, int rank,
                         void *log)
{
    (void)id, (void)name, (void)ranks, (void)rank, (void)log;
    *context = &recorder;
    *events = EVENT_GROUP | EVENT_P2P;
    recorder.nodes = (uint32_t)nodes;
    return RESULT_SUCCESS;
}

static int begin_event(void *context, void **ret_handle, const struct event *event)
{
    *ret_handle = context;
    if (event->type == EVENT_GROUP)
        *ret_handle = (void *)(uintptr_t)++recorder.plans;
    if (event->type != EVENT_P2P)
        return RESULT_SUCCESS;
    if (recorder.count == recorder.capacity) {
        size_t capacity = recorder.capacity == 0 ? 1024 : recorder.capacity * 2;
        struct recorded_op *ops = realloc(recorder.ops, capacity * sizeof *ops);
        if (ops == NULL)
            return RESULT_SYSTEM_ERROR;
        recorder.ops = ops;
        recorder.capacity = capacity;
    }
    recorder.ops[recorder.count++] = (struct recorded_op){.bytes = event->of.p2p.count,
                                                          .plan = (uint32_t)(uintptr_t)event->of.p2p.group - 1,
                                                          .peer = (uint32_t)event->of.p2p.peer,
                                                          .channels = event->of.p2p.channels,
                                                          .receive = event->of.p2p.function[0] == 'R'};
    return RESULT_SUCCESS;
}

static int end_event(void *handle)
{
    (void)handle;
    return RESULT_SUCCESS;
}

static int record_state(void *handle, int state, void *arguments)
{
    (void)handle, (void)state, (void)arguments;
    return RESULT_SUCCESS;
}

static int close_recorder(void *context)
{
    (void)context;
    return RESULT_SUCCESS;
}

/* NCCL looks for this name. */
extern const struct profiler ncclProfiler_v5;
__attribute__((visibility("default")))
const struct profiler ncclProfiler_v5 = {"sluice", open_recorder, begin_event, end_event, record_state, close_recorder};

void recorder_begin(void)
{
    recorder.count = 0;
    recorder.plans = 0;
}

const struct recorded_op *recorder_ops(size_t *ret_count, uint32_t *ret_plans)
{
    *ret_count = recorder.count;
    *ret_plans = recorder.plans;
    return recorder.ops;
}

uint32_t recorder_nodes(void)
{
    return recorder.nodes;
}
