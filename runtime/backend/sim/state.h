/* state.h: what the files of the simulated backend share. */
#ifndef SL_SIM_STATE_H
#define SL_SIM_STATE_H

#include "runtime/backend/sim/sim.h"
#include "runtime/base/error.h"

enum { SL_SIM_QUEUES_MAX = 16, SL_SIM_MARKERS_MAX = 64, SL_SIM_OPS_MAX = 64, SL_SIM_GROUPS_MAX = 8 };

struct sl_sim_op {
    struct sluice_op op;
    uint64_t record; /* RECORD, WAIT: the number of the record; GROUP: of the group in its communicator */
    uint64_t begin_ns;
    _Bool running;
};

/* Operations [head, tail) of the ring; only the head runs. */
struct sluice_queue {
    struct sluice_device *device;
    uint64_t head, tail;
    struct sl_sim_op ops[SL_SIM_OPS_MAX];
    struct sluice_error error; /* of an operation without `notify` */
};

struct sluice_set {
    struct sluice_device *device;
    enum sluice_copy_kind kind;
    uint64_t bytes;
    size_t count;
    struct sluice_copy pieces[];
};

struct sluice_group {
    struct sluice_device *device;
    uint32_t number; /* the n-th communicator of each rank belong together */
    uint64_t cookie; /* of its opening */
    _Bool open;      /* all its peers have opened theirs */
    _Bool opening;   /* that completion is still owed */
    _Bool aborted;
    uint8_t *peers;
    struct sluice_queue *posted; /* whose head is a group at work; NULL: none */
    _Bool moving;                /* some of its messages are on the wire */
    uint8_t *state;              /* per message of the posted group: enum in wire.c */
    size_t state_capacity;
    uint32_t left;             /* messages of the posted group that are not done */
    uint64_t accepted, ended;  /* groups; they run in this order */
    uint64_t *sent, *received; /* messages of groups that ended, per peer */
};

struct sl_sim_marker {
    uint64_t submitted, passed;
};

struct sluice_device {
    struct sl_sim *sim;
    struct sluice_backend_config config;
    struct sluice_queue *queues[SL_SIM_QUEUES_MAX];
    uint32_t queue_count;
    struct sluice_group *groups[SL_SIM_GROUPS_MAX];
    uint32_t group_count, groups_made;
    struct sl_sim_marker markers[SL_SIM_MARKERS_MAX];
    struct sluice_completion *done; /* waiting for poll */
    uint32_t done_count, done_capacity;
};

struct sl_sim_event {
    uint64_t time, number;
    sl_sim_act act;
    void *context;
    uint64_t argument;
};

struct sl_sim {
    struct sl_sim_options options;
    struct sl_mem *mem;
    struct sl_clock clock;
    uint64_t now, events_made, trace;
    struct sl_sim_event *heap; /* by (time, number) */
    size_t count, capacity;
    uint32_t world;
    struct sluice_device **devices; /* per rank; NULL: not open */
    uint32_t *stack, *seen;         /* room for a walk over ranks */
    uint32_t walk;
};

/* Starts the head of a queue if it may run, and everything behind it that takes no time. */
void sl_sim_advance(struct sluice_queue *queue);
/* The head is done (or failed): completion, next operation. */
void sl_sim_finish(struct sluice_queue *queue, const struct sluice_error *error);
void sl_sim_complete(struct sluice_device *device, uint64_t cookie, uint64_t begin_ns,
                     const struct sluice_error *error);
/* Takes the bite out of events that would call with this context. */
void sl_sim_forget(struct sl_sim *sim, const void *context);
/* Adds what happened to the trace. */
void sl_sim_note(struct sl_sim *sim, uint32_t rank, uint32_t what, uint64_t detail);

/* Room in the device's list of completions for what was accepted and `extra` more. */
sluice_status sl_sim_make_room(struct sluice_device *device, size_t extra);

/* group.c: the head of `queue` is the next group of its communicator. */
void sl_sim_post(struct sluice_queue *queue);
sluice_status sl_sim_group_check(const struct sluice_group *group, const struct sluice_op *op);
/* The same communicator at another rank; NULL while it is not open there. */
struct sluice_group *sl_sim_partner(const struct sluice_group *group, uint32_t rank);
/* The posted group ends; the next one of its communicator may begin. */
void sl_sim_group_end(struct sluice_group *group, const struct sluice_error *error);
/* wire.c: moves what can move, beginning at this rank's posted group. */
void sl_sim_match(struct sluice_group *group);
struct sl_sim_op *sl_sim_posted(const struct sluice_group *group);
sluice_status sl_sim_group_address(struct sluice_device *device, struct sluice_blob *ret);
sluice_status sl_sim_group_open(struct sluice_device *device, const struct sluice_group_config *config, uint64_t cookie,
                                struct sluice_group **ret);
void sl_sim_group_close(struct sluice_group *group);
sluice_status sl_sim_abort(struct sluice_group *group);

#endif
