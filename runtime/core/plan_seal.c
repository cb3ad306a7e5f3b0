/*
 * plan_seal.c: the caller's side of a seal, and what a sealed plan can be asked.
 *
 * Invariants: everything that is computed from this rank alone is computed on the caller's thread; a
 * failure there is the call's result, and the other ranks hear of it in the seal's first round, so that
 * they fail at once; `plan->sealed` changes under the plan's lock.
 */
#include "runtime/base/clock.h"
#include "runtime/core/options.h"
#include "runtime/core/runtime_object.h"
#include "runtime/core/seal_nccl.h"
#include "runtime/core/sealed.h"
#include "scheduler/cuts.h"

static sluice_status fill_options(const struct sluice_runtime *runtime, const struct sluice_seal_options *given,
                                  struct sluice_seal_options *ret)
{
    const struct sl_setting_value *values = runtime->settings.values;
    sluice_status status = sl_options_copy(ret, sizeof *ret, given, "seal options");
    if (status != SLUICE_OK)
        return status;
    if (ret->window_bytes == 0)
        ret->window_bytes = values[SL_SET_WINDOW_BYTES].number;
    if (ret->direct_min == 0)
        ret->direct_min = values[SL_SET_DIRECT_MIN].number;
    ret->direct_min = sl_direct_min((enum sluice_policy)ret->policy, ret->direct_min);
    if (ret->slots == 0)
        ret->slots = (uint32_t)values[SL_SET_SLOTS].number;
    if (ret->slots < 2 || ret->slots > SL_SLOTS_MAX)
        return sl_fail(SLUICE_INVALID, "seal", "slots = %u is not within 2..%u", ret->slots, SL_SLOTS_MAX);
    if (ret->policy > SLUICE_POLICY_SINGLE)
        return sl_fail(SLUICE_INVALID, "seal", "policy %u does not exist", ret->policy);
    if (ret->shadow_memory > SLUICE_MEMORY_PINNED)
        return sl_fail(SLUICE_INVALID, "seal", "shadow_memory %u is neither device nor pinned memory",
                       ret->shadow_memory);
    return SLUICE_OK;
}

static sluice_status take_state(struct sluice_plan *plan)
{
    sluice_status status = SLUICE_OK;
    if (sl_plan_check(plan, "seal") != SLUICE_OK)
        return SLUICE_FORKED;
    pthread_mutex_lock(&plan->lock);
    if (atomic_load(&plan->state) != SL_PLAN_OPEN)
        status = sl_fail(SLUICE_STATE, "seal",
                         "the plan is sealed or being sealed already: for another runtime make a new one, or one by "
                         "sluice_plan_recover");
    else
        atomic_store(&plan->state, SL_PLAN_SEALING);
    pthread_mutex_unlock(&plan->lock);
    return status;
}

static struct sl_sealed *new_sealed(struct sluice_plan *plan, struct sluice_runtime *runtime)
{
    struct sl_sealed *sealed = sl_new(plan->mem, sizeof *sealed, "sealed plan");
    struct sl_sealing *sealing = sl_new(plan->mem, sizeof *sealing, "seal");
    if (sealed == NULL || sealing == NULL) {
        sl_free(plan->mem, sealed);
        sl_free(plan->mem, sealing);
        return NULL;
    }
    atomic_init(&sealed->references, 1);
    sealed->driver = &runtime->driver;
    sealed->plan = plan;
    sealed->runtime = runtime;
    sealed->sealing = sealing;
    sealed->begin.act = sl_seal_begin_order;
    sealed->orphan.act = sl_seal_orphan_order;
    sealing->mem = plan->mem;
    sealing->timeout_ns = runtime->options.seal_timeout_ns;
    sl_plan_keep(plan);
    sl_runtime_keep(runtime);
    return sealed;
}

/* The fewest windows that this rank's copies within itself want. */
static sluice_status count_local_windows(const struct sl_sealed *sealed, uint64_t most, uint32_t *ret)
{
    uint64_t units = sealed->half.local.units, share = most / SLUICE_UNIT;
    if (most == 0)
        return SLUICE_OK;
    if (share == 0)
        return sl_fail(SLUICE_INVALID, "seal",
                       "local_window_bytes = %llu is less than %u, the least that a window moves",
                       (unsigned long long)most, SLUICE_UNIT);
    if (units / share >= SLUICE_WINDOWS_MAX)
        return sl_fail(SLUICE_LIMIT, "seal", "local_window_bytes %llu would cut %llu bytes into more than %u windows",
                       (unsigned long long)most, (unsigned long long)units * SLUICE_UNIT, SLUICE_WINDOWS_MAX);
    *ret = (uint32_t)(units / share + (units % share != 0));
    return SLUICE_OK;
}

/* The same, and cut as the plan that this one recovers. */
static sluice_status count_least_windows(const struct sl_sealed *sealed, uint64_t most, uint32_t *ret)
{
    uint32_t before = sealed->plan->resumes.windows;
    sluice_status status = count_local_windows(sealed, most, ret);
    *ret = before > *ret ? before : *ret;
    return status;
}

static sluice_status assign_windows(struct sl_sealed *sealed, const struct sluice_seal_options *options,
                                    struct sl_seal_terms *terms)
{
    struct sl_sealing *sealing = sealed->sealing;
    if (terms->policy == SLUICE_POLICY_BALANCED)
        return count_least_windows(sealed, options->local_window_bytes, &terms->windows);
    sluice_status status = sl_assign_windows(&sealed->plan->store, terms->policy, options->window_bytes, sealing->mem,
                                             &sealing->window_of_task, &terms->windows);
    terms->window_of_task = sealing->window_of_task;
    return status;
}

static sluice_status check_world(const struct sluice_plan *plan, const struct sluice_runtime *runtime)
{
    if (plan->store.world == runtime->identity.world)
        return SLUICE_OK;
    return sl_fail(SLUICE_PLAN, "seal", "the plan is for %u ranks, the runtime has %u", plan->store.world,
                   runtime->identity.world);
}

static sluice_status prepare_half(struct sl_sealed *sealed)
{
    struct sluice_plan *plan = sealed->plan;
    uint32_t rank = sealed->runtime->identity.rank;
    sluice_status status = check_world(plan, sealed->runtime);
    if (status == SLUICE_OK && plan->store.partial)
        status = sl_plan_set_rank(&plan->store, rank, sealed->runtime->identity.world);
    if (status == SLUICE_OK)
        status = sl_plan_validate(&plan->store);
    if (status == SLUICE_OK)
        status = sl_half_build(&plan->store, rank, plan->mem, &sealed->half);
    if (status != SLUICE_OK)
        return status;
    sealed->half_built = 1;
    return sl_bindings_check(plan, &sealed->half);
}

/* All that needs no other rank. */
static sluice_status prepare(struct sl_sealed *sealed, const struct sluice_seal_options *options)
{
    struct sluice_runtime *runtime = sealed->runtime;
    struct sl_sealing *sealing = sealed->sealing;
    struct sl_seal_terms terms = {
        .policy = (enum sluice_policy)options->policy,
        .window_bytes = options->window_bytes,
        .direct_min = options->direct_min,
        .slots = options->slots,
        .force = options->force != 0,
        .environment = runtime->environment,
        .shadow_bytes = options->shadow_bytes,
    };
    sealed->shadow_memory_kind = (enum sluice_memory)options->shadow_memory;
    sluice_status status = prepare_half(sealed);
    if (status == SLUICE_OK)
        status = sl_seal_nccl_terms(&runtime->driver.info, &sealed->half, sealing->mem, &terms);
    if (status == SLUICE_OK)
        status = assign_windows(sealed, options, &terms);
    if (status == SLUICE_OK)
        status = sl_seal_begin(&sealed->plan->store, &sealed->half, &terms, sealing->mem, &sealing->seal);
    return status;
}

/* Takes back a seal that was never handed over. */
static void discard(struct sl_sealed *sealed)
{
    struct sl_sealing *sealing = sealed->sealing;
    sl_seal_end(sealing->seal);
    sl_free(sealing->mem, sealing->window_of_task);
    sl_free(sealing->mem, sealing);
    sealed->sealing = NULL;
    sl_sealed_release(sealed);
}

static void set_state(struct sluice_plan *plan, struct sl_sealed *sealed, enum sl_plan_state state)
{
    pthread_mutex_lock(&plan->lock);
    plan->sealed = sealed;
    if (sealed != NULL)
        atomic_store(&plan->owner, (int)sealed->runtime->pid);
    atomic_store(&plan->state, state);
    pthread_mutex_unlock(&plan->lock);
}

/* The seal failed on this rank alone: the others are told, the plan is as before. */
static sluice_status fail_alone(struct sl_sealed *sealed, sluice_status status)
{
    struct sluice_runtime *runtime = sealed->runtime;
    set_state(sealed->plan, NULL, SL_PLAN_OPEN);
    sl_notices_unreserve(&runtime->notices);
    sl_error_take(&sealed->sealing->failure);
    struct sluice_error failure = sealed->sealing->failure;
    sealed->sealing->silent = 1;
    if (runtime->identity.world == 1 || !sl_runtime_post(runtime, &sealed->begin))
        discard(sealed);
    SL_IGNORE(sl_fail_copy(&failure));
    return status;
}

static sluice_status hand_over(struct sl_sealed *sealed)
{
    struct sluice_plan *plan = sealed->plan;
    struct sluice_runtime *runtime = sealed->runtime;
    atomic_store(&plan->seal_ended, 0);
    set_state(plan, sealed, SL_PLAN_SEALING);
    if (sl_runtime_post(runtime, &sealed->begin))
        return SLUICE_OK;
    set_state(plan, NULL, SL_PLAN_OPEN);
    sl_notices_unreserve(&runtime->notices);
    discard(sealed);
    return sl_fail(SLUICE_CLOSED, "seal", "the runtime is closed");
}

static sluice_status seal_checked(struct sluice_plan *plan, struct sluice_runtime *runtime,
                                  const struct sluice_seal_options *options)
{
    if (!sl_notices_reserve(&runtime->notices)) {
        set_state(plan, NULL, SL_PLAN_OPEN);
        return sl_fail(SLUICE_LIMIT, "seal", "%d seals are under way: take their events first", SL_SEALS_MAX);
    }
    struct sl_sealed *sealed = new_sealed(plan, runtime);
    if (sealed == NULL) {
        set_state(plan, NULL, SL_PLAN_OPEN);
        sl_notices_unreserve(&runtime->notices);
        return SLUICE_NOMEM;
    }
    sluice_status status = prepare(sealed, options);
    return status != SLUICE_OK ? fail_alone(sealed, status) : hand_over(sealed);
}

sluice_status sluice_plan_seal(sluice_plan *plan, sluice_runtime *runtime, const struct sluice_seal_options *options)
{
    struct sluice_seal_options filled;
    if (plan == NULL || runtime == NULL)
        return sl_fail(SLUICE_INVALID, "seal", "a plan and a runtime are needed");
    sluice_status status = sl_runtime_check_live(runtime, "seal");
    if (status == SLUICE_OK)
        status = fill_options(runtime, options, &filled);
    if (status == SLUICE_OK)
        status = take_state(plan);
    return status == SLUICE_OK ? seal_checked(plan, runtime, &filled) : status;
}

static _Bool seal_ended(void *context)
{
    return atomic_load(&((struct sluice_plan *)context)->seal_ended);
}

sluice_status sluice_plan_seal_wait(sluice_plan *plan, sluice_runtime *runtime,
                                    const struct sluice_seal_options *options, uint64_t timeout_ns)
{
    if (runtime != NULL && sl_delivery_inside(&runtime->delivery))
        return sl_fail(SLUICE_STATE, "seal", "a callback must not wait: use sluice_plan_seal");
    sluice_status status = sluice_plan_seal(plan, runtime, options);
    if (status != SLUICE_OK)
        return status;
    /* The seal has its own deadline; two more seconds let its error come through. */
    uint64_t own = sl_deadline(runtime->options.seal_timeout_ns, 2 * SLUICE_SECOND + runtime->options.abort_timeout_ns);
    uint64_t deadline = sl_deadline(sl_now(sl_clock_system()), timeout_ns == 0 ? own : timeout_ns);
    enum sl_wait_mode mode = runtime->delivery.kind == SLUICE_DELIVER_FD ? SL_WAIT_DRAIN : SL_WAIT_OTHERS;
    if (!sl_delivery_wait(&runtime->delivery, mode, seal_ended, plan, deadline))
        return sl_fail(SLUICE_TIMEOUT, "seal", "the seal did not end in time; it goes on");
    pthread_mutex_lock(&plan->lock);
    struct sluice_error error = plan->seal_error;
    pthread_mutex_unlock(&plan->lock);
    return error.status == SLUICE_OK ? SLUICE_OK : sl_fail_copy(&error);
}

void sl_sealed_orphan(struct sluice_plan *plan)
{
    pthread_mutex_lock(&plan->lock);
    struct sl_sealed *sealed = plan->sealed;
    /* The order keeps what it lies in: the seal may fail before it is acted on. */
    if (sealed != NULL)
        sl_sealed_keep(sealed);
    /* Not taken: the runtime is closing and drops its plans itself. */
    if (sealed != NULL && !sl_runtime_post(sealed->runtime, &sealed->orphan))
        sl_sealed_release(sealed);
    pthread_mutex_unlock(&plan->lock);
}

static sluice_status fail_unsealed(void)
{
    return sl_fail(SLUICE_STATE, "plan", "the plan is not sealed, or its runtime has closed");
}

sluice_status sluice_plan_first_window(const sluice_plan *plan, uint32_t param, enum sluice_role role,
                                       uint32_t *ret_window)
{
    if (plan == NULL || ret_window == NULL || role > SLUICE_ROLE_DESTINATION || param >= plan->store.param_count)
        return sl_fail(SLUICE_INVALID, "plan", "no such parameter or role, or no place for the window");
    struct sluice_plan *own = (struct sluice_plan *)(uintptr_t)plan; /* for its lock */
    uint32_t window = UINT32_MAX;
    if (sl_plan_check(plan, "plan") != SLUICE_OK)
        return SLUICE_FORKED;
    pthread_mutex_lock(&own->lock);
    _Bool sealed = own->sealed != NULL && atomic_load(&own->state) == SL_PLAN_SEALED;
    if (sealed)
        window = own->sealed->first[role][param];
    pthread_mutex_unlock(&own->lock);
    if (!sealed)
        return fail_unsealed();
    if (window == UINT32_MAX)
        return sl_fail(SLUICE_NOT_FOUND, "plan", "no task of this rank touches parameter %u in that role", param);
    *ret_window = window;
    return SLUICE_OK;
}

static sluice_status rebind_locked(struct sluice_plan *plan, uint32_t param, enum sluice_role role, uint8_t *memory,
                                   uint64_t bytes)
{
    struct sl_sealed *sealed = plan->sealed;
    size_t index = 2 * (size_t)param + (size_t)role;
    if (sealed == NULL || atomic_load(&plan->state) != SL_PLAN_SEALED)
        return fail_unsealed();
    if (sealed->live > 0)
        return sl_fail(SLUICE_STATE, "bind", "a transfer of this plan runs: rebind after its RELEASED event");
    if (sl_plan_binding(plan, param, role) == NULL)
        return sl_fail(SLUICE_STATE, "bind", "parameter %u was not bound in that role before the seal", param);
    sluice_status status = sl_bindings_check_one(plan, &sealed->half, param, role, memory, bytes);
    if (status == SLUICE_OK && sealed->dirty == NULL) {
        sealed->dirty = sl_new_array(plan->mem, plan->store.param_count, 2, "rebound parameters");
        status = sealed->dirty != NULL ? SLUICE_OK : SLUICE_NOMEM;
    }
    if (status != SLUICE_OK)
        return status;
    plan->bindings[index] = (struct sl_binding){memory, bytes, 1};
    sealed->dirty[index] = 1;
    sealed->any_dirty = 1;
    return SLUICE_OK;
}

sluice_status sl_sealed_rebind(struct sluice_plan *plan, uint32_t param, enum sluice_role role, void *memory,
                               uint64_t bytes)
{
    if (sl_plan_check(plan, "rebind") != SLUICE_OK)
        return SLUICE_FORKED;
    pthread_mutex_lock(&plan->lock);
    sluice_status status = rebind_locked(plan, param, role, memory, bytes);
    pthread_mutex_unlock(&plan->lock);
    return status;
}
