/*
 * control_state.h: the control plane of one rank from the inside; shared by control*.c, bootstrap.c and
 * heartbeat.c, included by nobody else.
 *
 * phase: JOINING ─► RUNNING ─► LEAVING ─► ENDED      (a world of one begins at RUNNING)
 *        JOINING ─► REFUSING ─► LEAVING ─► ENDED     (bootstrap failed at rank 0: late comers are told)
 *        JOINING ─► LEAVING ─► ENDED                 (it failed elsewhere)
 *
 * All but the mailbox and what `lock` guards belongs to the control thread while it runs.
 */
#ifndef SL_CONTROL_CONTROL_STATE_H
#define SL_CONTROL_CONTROL_STATE_H

#include <pthread.h>

#include "runtime/base/error.h"
#include "runtime/base/mailbox.h"
#include "runtime/control/arbiter.h"
#include "runtime/control/bootstrap_accept.h"
#include "runtime/control/bootstrap_join.h"
#include "runtime/control/control.h"
#include "runtime/control/wire_bytes.h"

#define SL_PROTOCOL    1u            /* of frames between ranks; a change of layout changes it */
#define SL_ROUND_MAX   (64u << 20)   /* bytes of a part or result */
#define SL_ROUNDS_MAX  256u          /* open at once */
#define SL_LEAVE_NS    SLUICE_SECOND /* last words reach the peers within this, or not at all */
#define SL_REFUSE_NS   SLUICE_SECOND /* rank 0 stays to tell late comers that bootstrap failed */
#define SL_COALESCE_NS (200 * SLUICE_MICROSECOND)
#define SL_SILENT_MAX  5 /* heartbeats missed in a row */
#define SL_SCRATCH_MIN 2048u
#define SL_DEVICE_MAX  256u
#define SL_FATE_TOLD   0x80u /* on_note has said it */

enum sl_control_phase {
    SL_CONTROL_JOINING,
    SL_CONTROL_RUNNING,
    SL_CONTROL_REFUSING,
    SL_CONTROL_LEAVING,
    SL_CONTROL_ENDED
};

/* LOST has the bits of LEFT: a rank that is both is lost. */
enum sl_peer_state {
    SL_PEER_ABSENT = 0,
    SL_PEER_PRESENT = 1,
    SL_PEER_LEFT = 2, /* said goodbye */
    SL_PEER_LOST = 3
};

/* The hub has one per rank, the others one for the hub. */
struct sl_peer {
    struct sl_control *control;
    struct sl_wire *wire; /* NULL: none */
    uint32_t activity;    /* at the last heartbeat */
    uint8_t silent;       /* heartbeats since anything came */
    uint8_t state;        /* enum sl_peer_state */
};

/* A round that this rank waits for. */
struct sl_waiting {
    struct sl_waiting *next;
    uint64_t id;
    uint32_t kind;
};

/* A round at the hub. Failed rounds are kept for a while, so that a late part learns how it ended. */
struct sl_round {
    struct sl_round *next;
    uint64_t id, deadline;
    uint32_t kind, have;
    struct sl_bytes *parts; /* one a rank; data NULL: not here yet; NULL array: it failed */
    struct sluice_error error;
};

/* READY of a run that was told lately. */
struct sl_ready {
    struct sl_note note;
    uint64_t sent_at;
    _Bool used, held; /* `note` waits until sent_at + SL_COALESCE_NS */
};
#define SL_READY_MAX 32

/* How far this rank is with another arbiter in the place of a lost one (control_takeover.c). */
enum sl_takeover {
    SL_TAKEOVER_NONE,
    SL_TAKEOVER_WANTED,
    SL_TAKEOVER_LEADING, /* this rank lets the others in */
    SL_TAKEOVER_JOINING  /* it is on its way to `candidate` */
};

#define SL_NOBODY UINT32_MAX

struct sl_control {
    struct sl_control_config config;
    struct sl_mem *mem;
    uint32_t rank, world;
    uint32_t hub; /* the rank of the arbiter, which all others are connected to; SL_NOBODY: none is left */
    enum sl_control_phase phase;
    struct event_base *base;
    struct sl_wires wires;
    struct sl_mailbox mailbox;
    struct sl_mail close_mail; /* close must not need memory */
    struct event mail_event, timer;
    pthread_t thread;

    pthread_mutex_t lock; /* guards the three below */
    pthread_cond_t changed;
    _Bool decided;                  /* open may return */
    struct sluice_error open_error; /* status OK: joined */

    /* bootstrap.c */
    struct sl_address address; /* of rank 0 */
    int listen_fd;             /* before sl_accept_open took it; -1: none */
    struct sl_token token;
    char token_path[640]; /* "": not the default file */
    struct sl_accept accept;
    struct sl_join join;
    uint64_t deadline;  /* JOINING */
    uint64_t look_at;   /* JOINING: for an interrupt */
    uint64_t refuse_at; /* REFUSING ends */
    uint64_t leave_at;  /* LEAVING ends */
    uint32_t told;      /* ranks that know that bootstrap failed */
    char **devices;     /* rank 0, JOINING: one a rank, NULL: none */
    uint8_t job_nonce[SL_NONCE_BYTES];
    uint8_t *roster; /* SL_ADDRESS_BYTES a rank: where each listens */

    /* heartbeat.c */
    struct sl_peer *peers;
    uint32_t peer_count, present; /* present: with a wire */
    struct sluice_error gone;     /* the first that left or was lost; status OK: none */
    uint32_t gone_rank;
    uint64_t beat_ns, beat_at; /* UINT64_MAX: none */
    uint8_t *fate;             /* by rank: SL_PEER_LEFT or SL_PEER_LOST once that is known here; | SL_FATE_TOLD */

    /* control_takeover.c */
    enum sl_takeover takeover;
    struct sl_mail *held; /* parts of survivors' rounds that came during a takeover */
    uint32_t lost_hub, candidate;
    uint64_t probe_at;               /* LEADING: look after a rank that is missing */
    uint64_t takeover_at;            /* LEADING: begin with those who are here; JOINING: try the next one */
    char hub_text[SL_NOTE_TEXT_MAX]; /* how lost_hub was lost */

    /* control_round.c */
    struct sl_waiting *waiting;
    struct sl_round *rounds;
    uint32_t round_count;

    /* control_note.c */
    struct sl_arbiter *arbiter; /* the hub's; NULL while it takes over */
    struct sl_ready ready[SL_READY_MAX];
    struct sl_writer scratch; /* SL_SCRATCH_MIN bytes from the start: notes and errors need no memory */
};

static inline _Bool sl_is_hub(const struct sl_control *control)
{
    return control->rank == control->hub;
}

/* --- control.c --- */
/* open may return; with an error the phase moves on. Once. */
void sl_control_decide(struct sl_control *control, const struct sluice_error *error);
/* Gives every wire up; the thread ends when all are gone. */
void sl_control_leave(struct sl_control *control);
/* NULL: out of memory. */
struct sl_arbiter *sl_control_arbiter(const struct sl_control *control, _Bool takeover);

/* --- bootstrap.c --- */
/* On the opening thread: addresses, token, listener. */
sluice_status sl_bootstrap_prepare(struct sl_control *control);
/* On the control thread. */
void sl_bootstrap_start(struct sl_control *control);
uint64_t sl_bootstrap_timer(const struct sl_control *control);
void sl_bootstrap_due(struct sl_control *control, uint64_t now);
/* Ends bootstrap everywhere with this error. */
void sl_bootstrap_fail(struct sl_control *control, const struct sluice_error *error);
/* Frames of rank 0. */
void sl_bootstrap_on_refuse(struct sl_control *control, const uint8_t *payload, size_t bytes);
void sl_bootstrap_on_welcome(struct sl_control *control, const uint8_t *payload, size_t bytes);
void sl_bootstrap_drop(struct sl_control *control);
void sl_bootstrap_forget_devices(struct sl_control *control);
void sl_bootstrap_remove_token(struct sl_control *control);
/* Tells a peer why it is refused and gives the wire up. */
void sl_bootstrap_send_error(struct sl_control *control, struct sl_wire *wire, const struct sluice_error *error);
/* bootstrap_lead.c: rank 0 begins to take the others in. */
sluice_status sl_bootstrap_lead(struct sl_control *control);
/* bootstrap_gather.c: the same as prepare, through the caller's all-gather. */
sluice_status sl_bootstrap_gather(struct sl_control *control);
/* "2, 5-7" of the ranks for which `missing` says so; at most `capacity` bytes, cut with "...". */
void sl_rank_list(uint32_t world, _Bool (*missing)(const void *context, uint32_t rank), const void *context, char *text,
                  size_t capacity);

/* --- heartbeat.c --- */
extern const struct sl_wire_handlers sl_peer_handlers; /* context: struct sl_peer */
uint32_t sl_peer_rank(const struct sl_peer *peer);
void sl_heartbeat_start(struct sl_control *control);
void sl_heartbeat_due(struct sl_control *control, uint64_t now);
/* All present peers. */
void sl_peers_send(struct sl_control *control, enum sl_frame type, const void *payload, size_t bytes);
void sl_peers_send_blob(struct sl_control *control, enum sl_frame type, struct sl_blob *blob);

/* --- control_takeover.c --- */
/* The hub is gone: `text` says how. What follows is done by `due`. */
void sl_takeover_want(struct sl_control *control, const char *text);
/* The leader that this rank came to does not take it in. */
void sl_takeover_refused(struct sl_control *control);
uint64_t sl_takeover_timer(const struct sl_control *control);
void sl_takeover_due(struct sl_control *control, uint64_t now);

/* --- control_round.c --- */
/* Takes `waiting` over, made by who gave the part: on_round must come even when memory is short. */
void sl_round_give(struct sl_control *control, struct sl_waiting *waiting, uint64_t timeout_ns, const uint8_t *data,
                   size_t bytes);
void sl_round_on_part(struct sl_control *control, uint32_t rank, const uint8_t *payload, size_t bytes);
void sl_round_on_result(struct sl_control *control, const uint8_t *payload, size_t bytes);
/* A rank is gone; `lost`: even rounds that have its part fail. */
void sl_round_gone(struct sl_control *control, uint32_t rank, _Bool lost);
/* Ends every round that this rank waits for. */
void sl_round_fail_all(struct sl_control *control, const struct sluice_error *error);
uint64_t sl_round_timer(const struct sl_control *control);
void sl_round_due(struct sl_control *control, uint64_t now);
void sl_round_drop(struct sl_control *control);

/* --- control_note.c --- */
void sl_note_tell(struct sl_control *control, const struct sl_note *note);
void sl_note_on_frame(struct sl_control *control, uint32_t rank, const uint8_t *payload, size_t bytes);
/* The hub: a rank is gone. */
void sl_note_gone(struct sl_control *control, uint32_t rank, const char *text);
/* Nobody is left who could say what it means that the rank is gone. */
void sl_note_gone_alone(struct sl_control *control, uint32_t rank, const char *text);
uint64_t sl_note_timer(const struct sl_control *control);
void sl_note_due(struct sl_control *control, uint64_t now);
/* The wire form; tests use it too. False: malformed. */
void sl_note_encode(const struct sl_note *note, struct sl_writer *w);
_Bool sl_note_decode(const uint8_t *payload, size_t bytes, struct sl_note *ret);

#endif
