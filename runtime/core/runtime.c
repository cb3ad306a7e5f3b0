/*
 * runtime.c: opening and closing a runtime.
 *
 * Invariants: opened in the order delivery, device, control plane, and taken down the other way round;
 * a rank whose device does not open still joins the others, to tell them why; the struct is freed by
 * the last reference, never by a thread that the struct owns.
 */
#include <string.h>
#include <unistd.h>

#include "runtime/backend/registry.h"
#include "runtime/core/agree.h"
#include "runtime/core/recover.h"
#include "runtime/core/runtime_object.h"
#include "runtime/core/sealed.h"

extern char **environ;

void sl_runtime_keep(struct sluice_runtime *runtime)
{
    atomic_fetch_add_explicit(&runtime->references, 1, memory_order_relaxed);
}

void sl_runtime_release(struct sluice_runtime *runtime)
{
    if (atomic_fetch_sub_explicit(&runtime->references, 1, memory_order_acq_rel) != 1)
        return;
    struct sl_mem *mem = runtime->mem;
    sl_free(mem, runtime->environment);
    sl_free(sl_mem_default(), runtime->origin);
    sl_trace_close(&runtime->trace);
    sl_delivery_drop(&runtime->delivery);
    pthread_mutex_destroy(&runtime->lock);
    pthread_cond_destroy(&runtime->opened_changed);
    sl_free(sl_mem_default(), runtime);
    sl_mem_close(mem);
}

_Bool sl_runtime_post(struct sluice_runtime *runtime, struct sl_order *order)
{
    pthread_mutex_lock(&runtime->lock);
    _Bool taken = !runtime->dead;
    if (taken)
        sl_driver_post(&runtime->driver, order);
    pthread_mutex_unlock(&runtime->lock);
    return taken;
}

sluice_status sl_runtime_check(const struct sluice_runtime *runtime, const char *where)
{
    if (runtime == NULL)
        return sl_fail(SLUICE_INVALID, where, "no runtime given");
    if (runtime->pid != getpid())
        return sl_fail(SLUICE_FORKED, where,
                       "the runtime was opened by process %d and is used in its child %d: open a new one after fork",
                       (int)runtime->pid, (int)getpid());
    return SLUICE_OK;
}

sluice_status sl_runtime_check_live(const struct sluice_runtime *runtime, const char *where)
{
    sluice_status status = sl_runtime_check(runtime, where);
    if (status != SLUICE_OK)
        return status;
    if (atomic_load_explicit(&runtime->closing, memory_order_acquire))
        return sl_fail(SLUICE_CLOSED, where, "the runtime is closed");
    const struct sl_driver *driver = &runtime->driver;
    if (atomic_load_explicit(&driver->lost, memory_order_acquire))
        return sl_fail(SLUICE_PEER_LOST, where, "%.300s: recover the runtime, or close it and open it again",
                       driver->lost_error.text);
    if (atomic_load_explicit(&driver->poisoned, memory_order_acquire))
        return sl_fail(SLUICE_POISONED, where, "%.300s: recover the runtime, or close it and open it again",
                       driver->poison_error.text);
    return SLUICE_OK;
}

/* --- what comes from the control thread --- */

/* Something that the other ranks said is lost: the scheduler thread ends what may wait for it. */
static void miss(struct sluice_runtime *runtime)
{
    pthread_mutex_lock(&runtime->lock);
    if (!runtime->dead)
        sl_driver_missed(&runtime->driver);
    pthread_mutex_unlock(&runtime->lock);
}

struct round_order {
    struct sl_order order;
    struct sl_mem *mem;
    uint32_t kind;
    uint64_t id;
    struct sluice_error error;
    size_t bytes;
    uint8_t data[];
};

static void act_round(struct sl_driver *driver, struct sl_order *order)
{
    struct round_order *round = (struct round_order *)order;
    const struct sluice_error *error = round->error.status != SLUICE_OK ? &round->error : NULL;
    if (round->kind >= SL_ROUND_CHANGED)
        sl_agree_round_ended(driver, round->kind, round->id, error, round->data, round->bytes);
    else
        sl_seal_round_ended(driver, round->kind, round->id, error, round->data, round->bytes);
    sl_free(round->mem, round);
}

void sl_runtime_on_round(void *context, uint32_t kind, uint64_t id, sluice_status status,
                         const struct sluice_error *error, const uint8_t *data, size_t bytes)
{
    struct sluice_runtime *runtime = context;
    if (kind >= SL_ROUND_SURVIVORS) {
        sl_recover_round_ended(runtime, status, error, data, bytes);
        return;
    }
    size_t carried = status == SLUICE_OK ? bytes : 0;
    struct round_order *round = sl_new(runtime->mem, sizeof *round + carried, "result of a round");
    if (round == NULL) {
        miss(runtime);
        return;
    }
    *round = (struct round_order){.mem = runtime->mem, .kind = kind, .id = id, .bytes = carried};
    round->order.act = act_round;
    if (status != SLUICE_OK && error != NULL)
        round->error = *error;
    round->error.status = status;
    if (carried > 0)
        memcpy(round->data, data, carried);
    if (!sl_runtime_post(runtime, &round->order))
        sl_free(runtime->mem, round);
}

struct note_order {
    struct sl_order order;
    struct sluice_runtime *runtime;
    struct sl_note note;
};

static void see_loss(struct sl_driver *driver, const struct sl_note *note)
{
    struct sluice_error error;
    SL_IGNORE(sl_error_set(&error, SLUICE_PEER_LOST, "control", "rank %u is gone: %s", note->rank, note->text));
    sl_seal_lost(driver, &error);
    if (note->status == SLUICE_CLOSED || note->b != 0)
        return;
    sl_driver_lost(driver, &error);
    sl_notices_post(driver->config.notices, SLUICE_EVENT_PEER_LOST, NULL, note->rank, driver->now, &error);
}

static void act_note(struct sl_driver *driver, struct sl_order *order)
{
    struct note_order *carried = (struct note_order *)order;
    const struct sl_note *note = &carried->note;
    if (note->kind == SL_NOTE_LOST)
        see_loss(driver, note);
    if (note->kind == SL_NOTE_SEAL_FAILED)
        sl_seal_heard(driver, note);
    else
        sl_driver_engine_event(driver, (struct sl_engine_event){.kind = SL_EVENT_NOTE, .note = note});
    sl_free(carried->runtime->mem, carried);
}

void sl_runtime_on_note(void *context, const struct sl_note *note)
{
    struct sluice_runtime *runtime = context;
    struct note_order *carried = sl_new(runtime->mem, sizeof *carried, "note");
    if (carried == NULL) {
        miss(runtime);
        return;
    }
    carried->order.act = act_note;
    carried->runtime = runtime;
    carried->note = *note;
    if (!sl_runtime_post(runtime, &carried->order))
        sl_free(runtime->mem, carried);
}

/* --- opening --- */

static sluice_status link_tell(void *context, const struct sl_note *note)
{
    return sl_control_tell(((struct sluice_runtime *)context)->control, note);
}

static sluice_status link_round(void *context, uint32_t kind, uint64_t id, const void *data, size_t bytes,
                                uint64_t timeout_ns)
{
    return sl_control_round(((struct sluice_runtime *)context)->control, kind, id, data, bytes, timeout_ns);
}

static sluice_status find_backend(const struct sluice_runtime *runtime, const struct sluice_backend_ops **ret)
{
    const char *name = runtime->options.backend;
    struct sluice_backend_info info = {.size = sizeof info};
    if (runtime->hooks.backend != NULL) {
        *ret = runtime->hooks.backend;
        return SLUICE_OK;
    }
    if (name != NULL)
        return sl_backend_find(name, ret);
    if (sl_backend_find("cuda", ret) == SLUICE_OK && (*ret)->query(&info) == SLUICE_OK && info.usable)
        return SLUICE_OK;
    return sl_backend_find("host", ret);
}

/* The device index: the option, else the local rank. */
static sluice_status choose_device(const struct sluice_runtime *runtime, const struct sluice_backend_info *info,
                                   uint32_t *ret)
{
    const struct sl_identity *identity = &runtime->identity;
    uint32_t devices = info->devices == 0 ? 1 : info->devices;
    if (runtime->options.device > devices)
        return sl_fail(SLUICE_CONFIG, "runtime", "device %u (option device, plus one) does not exist: there are %u",
                       runtime->options.device - 1, devices);
    if (runtime->options.device == 0 && devices > 1 && identity->local_missing != NULL)
        return sl_fail(SLUICE_CONFIG, "runtime", "%u devices and no local rank: set %s or the option device", devices,
                       identity->local_missing);
    *ret = runtime->options.device != 0 ? runtime->options.device - 1 : identity->local_rank % devices;
    return SLUICE_OK;
}

/* For backends in modules, whose last error is not ours. */
static void keep_error(const struct sluice_error *error)
{
    SL_IGNORE(sl_fail_copy(error));
}

static sluice_status configure_driver(struct sluice_runtime *runtime)
{
    struct sl_driver_config *config = &runtime->driver_config;
    const struct sluice_runtime_options *options = &runtime->options;
    struct sluice_backend_info info = {.size = sizeof info};
    uint32_t device = 0;
    sluice_status status = find_backend(runtime, &config->ops);
    if (status == SLUICE_OK)
        status = config->ops->query(&info);
    if (status == SLUICE_OK && !info.usable)
        status = sl_fail(SLUICE_UNSUPPORTED, "runtime", "backend %s is not usable: %s", config->ops->name, info.reason);
    if (status == SLUICE_OK)
        status = choose_device(runtime, &info, &device);
    config->backend = (struct sluice_backend_config){
        .size = sizeof config->backend,
        .device = device,
        .rank = runtime->identity.rank,
        .world = runtime->identity.world,
        .max_ctas = options->max_ctas,
        .high_priority = options->queue_priority,
        .trace = options->trace,
        .staging_bytes_max = options->staging_bytes_max,
        .abort_timeout_ns = options->abort_timeout_ns,
        .now = runtime->clock->now,
        .clock = runtime->clock->context,
        .log = runtime->log.sink,
        .log_user = runtime->log.user,
        .extra = runtime->hooks.backend_extra,
        .fail = keep_error,
        .host_staging_bytes_max = options->host_staging_bytes_max,
    };
    return status;
}

static void connect_driver(struct sluice_runtime *runtime)
{
    struct sl_driver_config *config = &runtime->driver_config;
    const struct sluice_runtime_options *options = &runtime->options;
    config->mem = runtime->mem;
    config->rank = runtime->identity.rank;
    config->world = runtime->identity.world;
    config->transfers_max = options->transfers_max;
    config->events_max = options->events_max;
    config->staging_bytes_max = options->staging_bytes_max;
    config->stall_timeout_ns = options->stall_timeout_ns;
    config->abort_timeout_ns = options->abort_timeout_ns;
    config->link = (struct sl_link){runtime, link_tell, link_round};
    if (runtime->hooks.link.tell != NULL)
        config->link = runtime->hooks.link;
    config->log = &runtime->log;
    config->delivery = &runtime->delivery;
    config->notices = &runtime->notices;
    config->trace = options->trace ? &runtime->trace : NULL;
}

/* Joins the other ranks. `failure` NULL: this rank can take part. */
static sluice_status open_control(struct sluice_runtime *runtime, const struct sluice_error *failure)
{
    const struct sluice_runtime_options *options = &runtime->options;
    if (runtime->identity.world == 1 || runtime->hooks.link.tell != NULL)
        return SLUICE_OK;
    struct sl_control_config config = {
        .identity = runtime->identity,
        .handlers = {runtime, sl_runtime_on_round, sl_runtime_on_note, sl_runtime_reduce},
        .clock = runtime->clock,
        .log = &runtime->log,
        .mem = runtime->mem,
        .allgather = options->allgather,
        .allgather_user = options->allgather_user,
        .bootstrap_timeout_ns = options->bootstrap_timeout_ns,
        .interrupt = runtime->hooks.interrupt,
        .heartbeat_ns = options->heartbeat_ns,
        .device = options->device_shared ? NULL : runtime->driver.info.identity,
        .failure = failure,
    };
    return sl_control_open(&config, &runtime->control);
}

/* Ends what an opening had started. */
static sluice_status give_up(struct sluice_runtime *runtime)
{
    struct sluice_error error;
    sl_error_take(&error);
    sl_delivery_mute(&runtime->delivery, &runtime->notices.source); /* nobody has the handle */
    sluice_runtime_close(runtime);
    sl_scheduler_join(runtime);
    sl_delivery_stop(&runtime->delivery);
    sl_notices_drop(&runtime->notices);
    sl_runtime_release(runtime);
    return sl_fail_copy(&error);
}

static sluice_status open_parts(struct sluice_runtime *runtime)
{
    sluice_status status = configure_driver(runtime);
    connect_driver(runtime);
    if (status == SLUICE_OK && runtime->options.trace)
        status = sl_trace_open(runtime->mem, runtime->identity.rank, SL_TRACE_CAPACITY, &runtime->trace);
    if (status == SLUICE_OK)
        status = sl_seal_environment((const char *const *)environ, runtime->mem, &runtime->environment);
    sl_runtime_keep(runtime); /* the scheduler's */
    if (status == SLUICE_OK)
        status = sl_scheduler_start(runtime);
    if (status != SLUICE_OK) {
        struct sluice_error failure;
        sl_error_take(&failure);
        sl_runtime_release(runtime);
        SL_IGNORE(open_control(runtime, &failure));
        return sl_fail_copy(&failure);
    }
    return open_control(runtime, NULL);
}

static void init_locks(struct sluice_runtime *runtime)
{
    SL_ASSERT(pthread_mutex_init(&runtime->lock, NULL) == 0);
    SL_ASSERT(pthread_cond_init(&runtime->opened_changed, NULL) == 0);
}

static sluice_status take_origin(struct sluice_runtime *runtime, const struct sl_runtime_hooks *hooks)
{
    uint32_t world = runtime->identity.world;
    runtime->origin_world = hooks->origin != NULL ? hooks->origin_world : world;
    if (hooks->origin == NULL)
        return SLUICE_OK;
    runtime->origin = sl_new_array(sl_mem_default(), world, sizeof *runtime->origin, "ranks of an epoch");
    if (runtime->origin == NULL)
        return SLUICE_NOMEM;
    memcpy(runtime->origin, hooks->origin, world * sizeof *runtime->origin);
    return SLUICE_OK;
}

/* A runtime with all that needs no thread, no device and no other rank; NULL: the thread's last error says why. */
static struct sluice_runtime *new_runtime(const struct sluice_runtime_options *options,
                                          const struct sl_runtime_hooks *hooks)
{
    struct sluice_runtime *runtime = sl_new(sl_mem_default(), sizeof *runtime, "runtime");
    if (runtime == NULL)
        return NULL;
    const char *const *environment = (const char *const *)environ;
    sluice_status status = sl_config_read(environment, &runtime->settings);
    if (status == SLUICE_OK)
        status = sl_runtime_fill_options(options, &runtime->settings, &runtime->options);
    if (status == SLUICE_OK && hooks->identity != NULL)
        runtime->identity = *hooks->identity;
    else if (status == SLUICE_OK)
        status = sl_identity_find(&runtime->options, environment, &runtime->identity);
    if (status == SLUICE_OK)
        status = take_origin(runtime, hooks);
    if (status == SLUICE_OK && (runtime->mem = sl_mem_open()) == NULL)
        status = sl_fail(SLUICE_NOMEM, "runtime", "out of memory for the runtime's arena");
    if (status == SLUICE_OK)
        status = sl_delivery_open(&runtime->delivery, (enum sluice_delivery)runtime->options.delivery,
                                  runtime->options.event_base);
    if (status != SLUICE_OK) {
        sl_mem_close(runtime->mem);
        sl_free(sl_mem_default(), runtime->origin);
        sl_free(sl_mem_default(), runtime);
        return NULL;
    }
    atomic_init(&runtime->references, 1);
    runtime->pid = getpid();
    runtime->dead = 1; /* until the driver is open */
    runtime->hooks = *hooks;
    runtime->hooks.identity = NULL;
    runtime->hooks.origin = NULL;
    runtime->clock = hooks->clock != NULL ? hooks->clock : sl_clock_system();
    runtime->log = (struct sl_log){runtime->options.on_log, runtime->options.user,
                                   (enum sluice_log_level)(runtime->options.log_level - 1)};
    init_locks(runtime);
    return runtime;
}

sluice_status sl_runtime_open_with(const struct sluice_runtime_options *options, const struct sl_runtime_hooks *hooks,
                                   struct sluice_runtime **ret_runtime)
{
    if (ret_runtime == NULL)
        return sl_fail(SLUICE_INVALID, "runtime", "no place for the runtime given");
    struct sluice_runtime *runtime = new_runtime(options, hooks);
    if (runtime == NULL)
        return sluice_last_error()->status;
    sl_notices_init(&runtime->notices, &runtime->delivery, runtime, &runtime->log, runtime->options.on_event,
                    runtime->options.user);
    if (open_parts(runtime) != SLUICE_OK)
        return give_up(runtime);
    *ret_runtime = runtime;
    return SLUICE_OK;
}

sluice_status sluice_runtime_open(const struct sluice_runtime_options *options, sluice_runtime **ret_runtime)
{
    static const struct sl_runtime_hooks none = {0};
    return sl_runtime_open_with(options, &none, ret_runtime);
}

uint64_t sl_runtime_step(struct sluice_runtime *runtime, uint64_t now)
{
    if (runtime->dead)
        return UINT64_MAX;
    uint64_t next = sl_driver_step(&runtime->driver, now);
    if (runtime->driver.finished)
        sl_runtime_end(runtime);
    return next;
}
