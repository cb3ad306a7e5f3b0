/* job_state.h: what the files of the made-up job share. */
#ifndef SL_FAULTS_JOB_STATE_H
#define SL_FAULTS_JOB_STATE_H

#include "runtime/backend/sim/state.h"
#include "runtime/base/random.h"
#include "runtime/control/arbiter.h"
#include "runtime/core/runtime_object.h"
#include "runtime/core/transfer_object.h"
#include "tools/faults/job.h"
#include "tools/faults/ledger.h"

enum {
    JOB_RANKS = 4,
    JOB_PLANS = 2,
    JOB_RUNS = 3,
    JOB_TASKS = 24,
    JOB_TASK_BYTES = 2048,
    JOB_OPS = 512,
    JOB_ROUNDS = 32, /* of all plans: a seal, and three of each run */
    JOB_STEPS = 200000
};

/* Deadlines of the runtimes, and the time at which faults end and that at which all must be over. */
#define JOB_SEAL_TIMEOUT  (500 * SLUICE_MILLISECOND)
#define JOB_STALL_TIMEOUT (200 * SLUICE_MILLISECOND)
#define JOB_ABORT_TIMEOUT (50 * SLUICE_MILLISECOND)
#define JOB_GATE_TIMEOUT  (60 * SLUICE_MILLISECOND)
#define JOB_FAULTS_END    (SL_SIM_BEGIN + SLUICE_SECOND)
#define JOB_OVER          (SL_SIM_BEGIN + 20 * SLUICE_SECOND)

/* One run of a plan, alike on all ranks. */
struct run_spec {
    _Bool shadow, window_events, verify, changed_only;
    uint64_t gate_timeout, pace;
    uint64_t params; /* bitmap of tasks that move; 0: all */
};

struct plan_spec {
    struct sl_plan plan;
    struct sluice_seal_options seal;
    uint32_t runs;
    struct run_spec run[JOB_RUNS];
};

/* One run on one rank. */
struct job_run {
    struct job_rank *rank;
    uint32_t plan, number;
    sluice_transfer *transfer; /* NULL: not submitted */
    sluice_gate *gate[2];      /* by role; NULL: none */
    uint64_t key;
    uint64_t fill[JOB_TASKS]; /* what the sources held when it was submitted */
    _Bool alone;              /* no other run of the plan was live then */
    uint32_t ends;            /* terminal events */
    uint32_t end;             /* the last one's kind */
    struct sluice_error error;
    _Bool released, paused;
    _Bool decided; /* this rank voted for the decision */
};

/* A plan on one rank. */
struct job_plan {
    sluice_plan *plan;
    _Bool asked, sealed, failed;
    uint32_t submitted;
    uint64_t fill[JOB_TASKS];      /* what the sources hold */
    uint8_t *buffer[JOB_TASKS][2]; /* by role; NULL: the other end is elsewhere */
    uint8_t *before[JOB_TASKS];    /* what the destination held before the run */
    struct job_run run[JOB_RUNS];
};

/* An operation with `notify` that has no completion yet. */
struct job_op {
    uint64_t cookie;
    uint64_t key; /* of its run */
};

struct held_completion {
    struct sluice_completion completion;
    uint64_t until;
};

/* Where the operations of a run on a queue are. */
struct queue_place {
    uint64_t key;
    uint64_t place; /* 0: none yet */
};

struct job_rank {
    struct job *job;
    uint32_t number;
    uint32_t host; /* where it thinks that the arbiter is */
    sluice_runtime *runtime;
    struct job_plan plan[JOB_PLANS];
    uint32_t seals; /* asked for */
    _Bool dead, closing, closed, gone;
    _Bool stranded; /* its device was left open with operations that never ended */

    _Bool woken;
    uint64_t wanted;         /* when its runtime wants to be stepped */
    uint64_t busy;           /* its thread does nothing until then */
    uint64_t sent, received; /* the times of the last note each way, which the next must not overtake */

    /* the device */
    struct sluice_device *device;
    void (*wake)(void *context);
    void *wake_context;
    struct job_op ops[JOB_OPS];
    uint32_t op_count;
    struct held_completion held[JOB_OPS];
    uint32_t held_count;
    struct queue_place places[SL_LANES][4 * JOB_RUNS];
    uint32_t open; /* sets, queues, groups and blocks of memory */

    /* faults */
    uint64_t full;   /* nothing is taken until then */
    uint32_t refuse; /* the n-th operation from now is refused; 0: none */
    _Bool sticky, sticky_poll, deaf, slow;
    uint64_t late, abort_late;
};

struct job_round {
    uint32_t kind, have, world;
    uint64_t id, deadline;
    struct sl_bytes part[JOB_RANKS];
};

struct job {
    struct sl_random random;
    struct job_options options;
    struct job_result *result;
    struct ledger ours, theirs; /* memory of the harness, and of the library */
    struct sl_mem *mem;         /* the harness's */
    struct sl_sim *sim;
    struct sl_arbiter *arbiter; /* NULL: its rank is gone */
    uint32_t host;              /* its rank */
    uint32_t ranks, plans;
    struct plan_spec spec[JOB_PLANS];
    struct job_rank rank[JOB_RANKS];
    struct job_round round[JOB_ROUNDS];
    uint64_t fill;
    uint64_t fail_call; /* calls of a backend until one fails; 0: none does */
    _Bool faults_over;
    _Bool failed;
};

uint64_t job_below(struct job *job, uint64_t bound);
_Bool job_chance(struct job *job, uint32_t percent);
void job_violated(struct job *job, const char *format, ...) SLUICE_PRINTF(2, 3);
/* At a time up to `within` from now. */
void job_later(struct job *job, uint64_t within, sl_sim_act act, void *context, uint64_t argument);
_Bool job_live(const struct job_rank *rank);

/* --- job_link.c: the control plane --- */
sluice_status job_tell(void *context, const struct sl_note *note);
sluice_status job_give(void *context, uint32_t kind, uint64_t id, const void *data, size_t bytes, uint64_t timeout_ns);
/* A rank is dead or has closed its runtime: the others hear of it. */
void job_gone(struct job *job, struct job_rank *rank, sluice_status how);
uint64_t job_link_timer(const struct job *job);
void job_link_due(struct job *job);
void job_link_drop(struct job *job);

/* --- job_draw.c: plans and runs --- */
void job_draw(struct job *job);
uint8_t job_byte(uint64_t fill, uint64_t at);

/* --- job_app.c: the application --- */
void job_app_open(struct job *job);
/* Nothing is left to do but to close. */
_Bool job_app_idle(const struct job *job);
void job_app_close(struct job_rank *rank);
/* Destroys the handle of a plan, and later closes the runtime, as the others cannot run it without this rank. */
void job_app_destroy(struct job_rank *rank, uint32_t plan);
void job_app_drop(struct job_rank *rank);
void job_open_gates(struct job *job);
void job_resume_all(struct job *job);
struct job_run *job_find_run(struct job_rank *rank, uint64_t key);

/* --- job_device.c: the simulated device with faults in front --- */
const struct sluice_backend_ops *job_backend(void);

/* --- job_fault.c --- */
void job_faults_arm(struct job *job);
void job_faults_end(struct job *job);

/* --- job_check.c --- */
void check_accepted(struct job_rank *rank, const struct sluice_queue *queue, const struct sluice_op *op);
void check_completed(struct job_rank *rank, const struct sluice_completion *completion);
void check_step(struct job_rank *rank);
void check_event(struct job_run *run, const struct sluice_event *event);
void check_job(struct job *job);

#endif
