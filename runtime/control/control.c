/*
 * control.c: the control thread: its life, its loop, its mailbox.
 *
 * Invariants: the mailbox is the only door into the thread; handlers run on it and nowhere else; one
 * timer serves all deadlines; output is flushed and decisions of the arbiter are passed on once an
 * iteration. Whoever opened waits for `decided`, which always comes, since JOINING has a deadline and
 * what follows it too.
 */
#include "runtime/control/control.h"

#include <errno.h>
#include <event2/thread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/control/control_state.h"

enum { RUNS_MAX_DEFAULT = 256, SPARE_DESCRIPTORS = 64, LOOP_DESCRIPTORS = 8 };

enum mail_kind { MAIL_ROUND, MAIL_TELL };

struct mail {
    struct sl_mail mail; /* first */
    enum mail_kind kind;
    struct sl_note note;
    struct sl_waiting *waiting; /* ROUND */
    uint64_t timeout_ns;
    size_t bytes;
    uint8_t data[];
};

/* --- the loop --- */

void sl_control_decide(struct sl_control *control, const struct sluice_error *error)
{
    SL_IGNORE(pthread_mutex_lock(&control->lock));
    SL_ASSERT(!control->decided);
    control->decided = 1;
    control->open_error = error == NULL ? (struct sluice_error){0} : *error;
    SL_IGNORE(pthread_cond_signal(&control->changed));
    SL_IGNORE(pthread_mutex_unlock(&control->lock));
}

void sl_control_leave(struct sl_control *control)
{
    for (uint32_t i = 0; i < control->peer_count; i++) {
        struct sl_peer *peer = &control->peers[i];
        if (peer->wire != NULL)
            sl_wire_linger(peer->wire);
        peer->wire = NULL;
    }
    control->present = 0;
    sl_join_close(&control->join);
    sl_accept_close(&control->accept);
    control->phase = SL_CONTROL_LEAVING;
    control->leave_at = sl_deadline(sl_now(control->config.clock), SL_LEAVE_NS);
}

static void take_mail(struct sl_control *control, struct mail *mail)
{
    if (mail->kind == MAIL_ROUND && mail->waiting->kind >= SL_ROUND_SURVIVORS && control->takeover) {
        mail->mail.next = control->held; /* who survives is not known yet */
        control->held = &mail->mail;
        return;
    }
    if (mail->kind == MAIL_TELL)
        sl_note_tell(control, &mail->note);
    else
        sl_round_give(control, mail->waiting, mail->timeout_ns, mail->data, mail->bytes);
    sl_free(control->mem, mail);
}

static void take_held(struct sl_control *control)
{
    while (control->held != NULL) {
        struct mail *mail = (struct mail *)control->held;
        control->held = mail->mail.next;
        take_mail(control, mail);
    }
}

/* The end that the owner asked for. */
static void goodbye(struct sl_control *control)
{
    struct sluice_error error;
    control->takeover = SL_TAKEOVER_NONE;
    take_held(control);
    SL_IGNORE(sl_error_set(&error, SLUICE_CLOSED, "control", "the runtime was closed"));
    sl_round_fail_all(control, &error);
    if (control->phase == SL_CONTROL_RUNNING) {
        sl_peers_send(control, SL_FRAME_GOODBYE, NULL, 0);
        sl_control_leave(control);
    }
}

static void on_mail(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct sl_control *control = context;
    struct sl_mail *next = sl_mailbox_take(&control->mailbox);
    while (next != NULL) {
        struct sl_mail *mail = next;
        next = next->next;
        if (mail == &control->close_mail)
            goodbye(control);
        else
            take_mail(control, (struct mail *)mail);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    (void)context; /* what is due is looked up after every wake-up */
}

static uint64_t earliest(const struct sl_control *control)
{
    const uint64_t times[] = {sl_bootstrap_timer(control),
                              sl_round_timer(control),
                              sl_note_timer(control),
                              sl_takeover_timer(control),
                              control->phase == SL_CONTROL_RUNNING ? control->beat_at : UINT64_MAX,
                              control->phase == SL_CONTROL_LEAVING ? control->leave_at : UINT64_MAX};
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < SL_COUNT(times); i++)
        first = times[i] < first ? times[i] : first;
    return first;
}

static void arm(struct sl_control *control)
{
    uint64_t at = earliest(control);
    if (at == UINT64_MAX) {
        SL_IGNORE(event_del(&control->timer));
        return;
    }
    uint64_t now = sl_now(control->config.clock);
    uint64_t left = at > now ? at - now : 0;
    left = left > 3600 * SLUICE_SECOND ? 3600 * SLUICE_SECOND : left;
    struct timeval wait = {.tv_sec = (time_t)(left / SLUICE_SECOND),
                           .tv_usec = (suseconds_t)((left % SLUICE_SECOND + 999) / 1000)};
    if (wait.tv_usec == 1000000) {
        wait.tv_sec++;
        wait.tv_usec = 0;
    }
    SL_IGNORE(event_add(&control->timer, &wait));
}

static void due(struct sl_control *control)
{
    uint64_t now = sl_now(control->config.clock);
    sl_bootstrap_due(control, now);
    sl_takeover_due(control, now);
    if (control->takeover == SL_TAKEOVER_NONE)
        take_held(control);
    sl_round_due(control, now);
    sl_note_due(control, now);
    sl_heartbeat_due(control, now);
    sl_wires_flush(&control->wires);
    if (control->phase == SL_CONTROL_LEAVING && (!sl_wires_lingering(&control->wires) || control->leave_at <= now))
        control->phase = SL_CONTROL_ENDED;
}

static void *run(void *context)
{
    struct sl_control *control = context;
    sl_bootstrap_start(control);
    due(control);
    while (control->phase != SL_CONTROL_ENDED) {
        arm(control);
        SL_IGNORE(event_base_loop(control->base, EVLOOP_ONCE));
        due(control);
    }
    return NULL;
}

/* --- life --- */

static void enable_threads(void)
{
    SL_IGNORE(evthread_use_pthreads());
}

/* libevent ends the process when there is none for its own pipes: so we look first. */
static sluice_status descriptors_for_loop(void)
{
    int fds[LOOP_DESCRIPTORS];
    int count = 0;
    while (count < LOOP_DESCRIPTORS && (fds[count] = eventfd(0, EFD_CLOEXEC)) >= 0)
        count++;
    sluice_status status = SLUICE_OK;
    if (count < LOOP_DESCRIPTORS)
        status = sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, "control", "cannot open an event loop");
    while (count > 0)
        SL_IGNORE(close(fds[--count]));
    return status;
}

static sluice_status open_loop(struct sl_control *control)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (descriptors_for_loop() != SLUICE_OK)
        return SLUICE_SYSTEM;
    SL_IGNORE(pthread_once(&once, enable_threads));
    struct event_config *config = event_config_new();
    if (config != NULL && event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER) == 0)
        control->base = event_base_new_with_config(config);
    if (config != NULL)
        event_config_free(config);
    if (control->base == NULL)
        return sl_fail(SLUICE_SYSTEM, "control", "cannot open an event loop");
    sluice_status status = sl_mailbox_open(&control->mailbox);
    if (status == SLUICE_OK)
        status = sl_wires_open(&control->wires, control->base, control->mem);
    if (status != SLUICE_OK)
        return status;
    if (event_assign(&control->mail_event, control->base, control->mailbox.fd, EV_READ | EV_PERSIST, on_mail,
                     control) != 0 ||
        event_add(&control->mail_event, NULL) != 0 ||
        evtimer_assign(&control->timer, control->base, on_timer, control) != 0)
        return sl_fail(SLUICE_NOMEM, "control", "the event loop takes no events");
    return SLUICE_OK;
}

/* What came after the end. */
static void drop_mail(struct sl_control *control)
{
    struct sl_mail *next = sl_mailbox_take(&control->mailbox);
    while (next != NULL) {
        struct sl_mail *mail = next;
        next = next->next;
        if (mail == &control->close_mail)
            continue;
        sl_free(control->mem, ((struct mail *)mail)->waiting);
        sl_free(control->mem, mail);
    }
    sl_mailbox_close(&control->mailbox);
}

static void destroy(struct sl_control *control)
{
    sl_bootstrap_drop(control);
    sl_round_drop(control);
    sl_arbiter_destroy(control->arbiter);
    if (control->base != NULL) {
        if (control->wires.scratch != NULL)
            sl_wires_close(&control->wires);
        if (event_initialized(&control->mail_event))
            SL_IGNORE(event_del(&control->mail_event));
        if (event_initialized(&control->timer))
            SL_IGNORE(event_del(&control->timer));
        event_base_free(control->base);
    }
    if (control->mailbox.fd >= 0)
        drop_mail(control);
    sl_writer_drop(&control->scratch);
    sl_free(control->mem, control->peers);
    sl_free(control->mem, control->fate);
    SL_IGNORE(pthread_cond_destroy(&control->changed));
    SL_IGNORE(pthread_mutex_destroy(&control->lock));
    sl_free(control->mem, control);
}

static sluice_status enough_descriptors(const struct sl_control *control)
{
    struct rlimit limit;
    if (control->rank != 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return SLUICE_OK;
    if (limit.rlim_cur < (rlim_t)control->world + SPARE_DESCRIPTORS)
        return sl_fail(SLUICE_LIMIT, "control",
                       "rank 0 of %u ranks needs %u descriptors, the limit is %llu: raise it (ulimit -n)",
                       control->world, control->world + SPARE_DESCRIPTORS, (unsigned long long)limit.rlim_cur);
    return SLUICE_OK;
}

struct sl_arbiter *sl_control_arbiter(const struct sl_control *control, _Bool takeover)
{
    uint32_t runs_max = control->config.runs_max;
    struct sl_arbiter_config arbiter = {.world = control->world,
                                        .runs_max = runs_max == 0 ? RUNS_MAX_DEFAULT : runs_max,
                                        .mem = control->mem,
                                        .host = control->rank,
                                        .takeover = takeover};
    return sl_arbiter_create(&arbiter);
}

static sluice_status make_parts(struct sl_control *control)
{
    control->peer_count = control->rank == 0 ? control->world : 1;
    control->peers = sl_new_array(control->mem, control->peer_count, sizeof(*control->peers), "peers");
    control->fate = sl_new_array(control->mem, control->world, 1, "ranks that are gone");
    if (control->peers == NULL || control->fate == NULL)
        return SLUICE_NOMEM;
    for (uint32_t i = 0; i < control->peer_count; i++)
        control->peers[i].control = control;
    if (sl_grow(control->mem, &control->scratch.data, &control->scratch.capacity, SL_SCRATCH_MIN, 1, "messages") !=
        SLUICE_OK)
        return SLUICE_NOMEM;
    if (control->rank == 0) {
        control->peers[0].state = SL_PEER_PRESENT;
        control->arbiter = sl_control_arbiter(control, 0);
        if (control->arbiter == NULL)
            return sl_fail(SLUICE_NOMEM, "control", "out of memory for the arbiter of %u ranks", control->world);
    }
    sluice_status status = enough_descriptors(control);
    return status == SLUICE_OK ? open_loop(control) : status;
}

/* The thread inherits a mask that blocks everything: signals stay the application's. */
static sluice_status start_thread(struct sl_control *control)
{
    sigset_t all;
    sigset_t before;
    SL_IGNORE(sigfillset(&all));
    SL_IGNORE(pthread_sigmask(SIG_SETMASK, &all, &before));
    int code = pthread_create(&control->thread, NULL, run, control);
    SL_IGNORE(pthread_sigmask(SIG_SETMASK, &before, NULL));
    if (code != 0)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, code, "control", "cannot start the control thread");
    return SLUICE_OK;
}

static sluice_status wait_decided(struct sl_control *control)
{
    SL_IGNORE(pthread_mutex_lock(&control->lock));
    while (!control->decided)
        SL_IGNORE(pthread_cond_wait(&control->changed, &control->lock));
    struct sluice_error error = control->open_error;
    SL_IGNORE(pthread_mutex_unlock(&control->lock));
    if (error.status == SLUICE_OK)
        return SLUICE_OK;
    SL_IGNORE(pthread_join(control->thread, NULL));
    return sl_fail_copy(&error);
}

sluice_status sl_control_open(const struct sl_control_config *config, struct sl_control **ret)
{
    SL_ASSERT(config->identity.world > 0 && config->identity.rank < config->identity.world);
    struct sl_control *control = sl_new(config->mem, sizeof(*control), "the control plane");
    if (control == NULL)
        return SLUICE_NOMEM;
    control->config = *config;
    control->mem = config->mem;
    control->rank = config->identity.rank;
    control->world = config->identity.world;
    control->listen_fd = control->mailbox.fd = control->accept.fd = control->join.fd = -1;
    control->beat_at = UINT64_MAX;
    SL_IGNORE(pthread_mutex_init(&control->lock, NULL));
    SL_IGNORE(pthread_cond_init(&control->changed, NULL));
    sl_writer_init(&control->scratch, control->mem);
    sluice_status status = make_parts(control);
    /* The caller's all-gather is collective: a rank that failed until here says so through it. */
    struct sluice_error failed;
    if (status != SLUICE_OK && config->failure == NULL) {
        sl_error_take(&failed);
        control->config.failure = &failed;
    }
    if (status == SLUICE_OK || config->allgather != NULL)
        status = sl_bootstrap_prepare(control);
    if (status == SLUICE_OK)
        status = start_thread(control);
    if (status == SLUICE_OK)
        status = wait_decided(control);
    if (status == SLUICE_OK)
        *ret = control;
    else
        destroy(control);
    return status;
}

void sl_control_close(struct sl_control *control)
{
    if (control == NULL)
        return;
    sl_mailbox_post(&control->mailbox, &control->close_mail);
    SL_IGNORE(pthread_join(control->thread, NULL));
    destroy(control);
}

/* --- from other threads --- */

sluice_status sl_control_round(struct sl_control *control, uint32_t kind, uint64_t id, const void *data, size_t bytes,
                               uint64_t timeout_ns)
{
    if (bytes > SL_ROUND_MAX)
        return sl_fail(SLUICE_LIMIT, "control", "a part of a round has %zu bytes: the limit is %u", bytes,
                       SL_ROUND_MAX);
    struct mail *mail = sl_new(control->mem, sizeof(*mail) + bytes, "a part of a round");
    struct sl_waiting *waiting = sl_new(control->mem, sizeof(*waiting), "a round");
    if (mail == NULL || waiting == NULL) {
        sl_free(control->mem, mail);
        sl_free(control->mem, waiting);
        return SLUICE_NOMEM;
    }
    *waiting = (struct sl_waiting){.kind = kind, .id = id};
    mail->kind = MAIL_ROUND;
    mail->waiting = waiting;
    mail->timeout_ns = timeout_ns;
    mail->bytes = bytes;
    if (bytes > 0)
        memcpy(mail->data, data, bytes);
    sl_mailbox_post(&control->mailbox, &mail->mail);
    return SLUICE_OK;
}

sluice_status sl_control_tell(struct sl_control *control, const struct sl_note *note)
{
    struct mail *mail = sl_new(control->mem, sizeof(*mail), "a note");
    if (mail == NULL)
        return SLUICE_NOMEM;
    mail->kind = MAIL_TELL;
    mail->note = *note;
    mail->note.rank = control->rank;
    sl_mailbox_post(&control->mailbox, &mail->mail);
    return SLUICE_OK;
}

void sl_control_address(const struct sl_control *control, uint32_t rank, char *text, size_t capacity)
{
    struct sl_address address;
    SL_ASSERT(rank < control->world && capacity > 0);
    text[0] = '\0';
    if (control->roster != NULL && sl_address_decode(control->roster + (size_t)rank * SL_ADDRESS_BYTES, &address) &&
        address.bytes > 0)
        sl_address_text(&address, text, capacity);
}
