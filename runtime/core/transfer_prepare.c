/*
 * transfer_prepare.c: from options to a transfer that needs no memory any more.
 *
 * Invariants: called with the plan's lock held; nothing is shared with the scheduler thread yet; a gate
 * that stands for several parameters becomes one gate of the run, at the first window that needs it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/hash.h"
#include "runtime/core/options.h"
#include "runtime/core/runtime_object.h"
#include "runtime/core/transfer_object.h"

enum { GATE_NAME_MAX = 96 };

static sluice_status check_resume(const struct sl_sealed *sealed, const struct sluice_transfer_options *options)
{
    if (!options->resume && options->resume_windows > 0)
        return sl_fail(SLUICE_INVALID, "submit", "resume_windows is given, but resume is 0");
    if (options->resume && (options->landing != SLUICE_LANDING_IN_PLACE || options->changed_only))
        return sl_fail(SLUICE_INVALID, "submit",
                       "resume is for landing in place and without changed_only: of others nothing is kept");
    if (sl_resume_windows(sealed, options->resume_windows) > sealed->schedule.rule.windows)
        return sl_fail(SLUICE_INVALID, "submit", "resume_windows is %u, the plan has %u windows",
                       options->resume_windows, sealed->schedule.rule.windows);
    return SLUICE_OK;
}

static sluice_status check_gate(const struct sl_sealed *sealed, const struct sluice_gate *gate)
{
    if (gate == NULL || gate->runtime == sealed->runtime)
        return SLUICE_OK;
    return sl_fail(
        SLUICE_INVALID, "submit",
        "a gate was made with another runtime than the one that the plan is sealed on: make it with that one");
}

static sluice_status check_gates(const struct sl_sealed *sealed, const struct sluice_transfer_options *options)
{
    sluice_status status = check_gate(sealed, options->source_gate);
    if (status == SLUICE_OK)
        status = check_gate(sealed, options->consumer_gate);
    for (size_t i = 0; i < options->param_gate_count && status == SLUICE_OK; i++) {
        const struct sluice_param_gate *gate = &options->param_gates[i];
        if (gate->gate == NULL || gate->role > SLUICE_ROLE_DESTINATION ||
            gate->param >= sealed->plan->store.param_count)
            return sl_fail(SLUICE_INVALID, "submit", "param_gates[%zu] names no gate, role or parameter of the plan",
                           i);
        status = check_gate(sealed, gate->gate);
    }
    return status;
}

static sluice_status check_options(const struct sl_sealed *sealed, const struct sluice_transfer_options *options)
{
    uint32_t windows = sealed->schedule.rule.windows;
    if (options->params != NULL && options->params_words == 0)
        return sl_fail(SLUICE_INVALID, "submit", "params is given, but params_words is 0");
    if ((options->verify || options->changed_only) && !sealed->driver->info.digests)
        return sl_fail(SLUICE_UNSUPPORTED, "submit",
                       "the backend %s makes no digests: leave verify and changed_only zero",
                       sealed->driver->config.ops->name);
    if (options->landing > SLUICE_LANDING_SHADOW)
        return sl_fail(SLUICE_INVALID, "submit", "landing %u is neither in_place nor shadow", options->landing);
    if (options->landing == SLUICE_LANDING_SHADOW && sealed->staged < windows && !options->allow_torn)
        return sl_fail(SLUICE_INVALID, "submit",
                       "shadow memory holds %u of %u windows, so the version would not be atomic: raise shadow_bytes "
                       "of the seal on every destination rank, or set allow_torn",
                       sealed->staged, windows);
    sluice_status status = check_gates(sealed, options);
    return status == SLUICE_OK ? check_resume(sealed, options) : status;
}

/* A gate that is wanted, before gates are joined. */
struct wish {
    struct sluice_gate *gate;
    uint32_t first_window;
    uint32_t param; /* UINT32_MAX: the default gate of the role */
    enum sluice_role role;
};

static int by_gate(const void *a, const void *b)
{
    const struct wish *x = a;
    const struct wish *y = b;
    if (x->gate != y->gate)
        return (uintptr_t)x->gate < (uintptr_t)y->gate ? -1 : 1;
    if (x->role != y->role)
        return x->role < y->role ? -1 : 1;
    return x->first_window < y->first_window ? -1 : x->first_window > y->first_window;
}

/* The first window in which the transfer touches a parameter's buffer; UINT32_MAX: it does not. */
static uint32_t first_window(const struct sluice_transfer *transfer, enum sluice_role role, uint32_t param)
{
    return sl_view_has(transfer->view, param) ? transfer->sealed->first[role][param] : UINT32_MAX;
}

/* The first window that a default gate holds. Without a gate nobody looks through the parameters. */
static uint32_t first_of_role(const struct sluice_transfer *transfer, enum sluice_role role,
                              const struct sluice_gate *gate)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t param = 0; gate != NULL && param < transfer->plan->store.param_count; param++) {
        uint32_t window = first_window(transfer, role, param);
        first = window < first ? window : first;
    }
    return first;
}

/* A gate of a buffer that no task of this rank touches holds nothing. */
static void add_wish(struct wish *wishes, size_t *count, struct wish wish)
{
    if (wish.gate != NULL && wish.first_window != UINT32_MAX)
        wishes[(*count)++] = wish;
}

static size_t collect_wishes(const struct sluice_transfer *transfer, const struct sluice_transfer_options *options,
                             struct wish *wishes)
{
    size_t count = 0;
    add_wish(wishes, &count,
             (struct wish){options->source_gate, first_of_role(transfer, SLUICE_ROLE_SOURCE, options->source_gate),
                           UINT32_MAX, SLUICE_ROLE_SOURCE});
    add_wish(wishes, &count,
             (struct wish){options->consumer_gate,
                           first_of_role(transfer, SLUICE_ROLE_DESTINATION, options->consumer_gate), UINT32_MAX,
                           SLUICE_ROLE_DESTINATION});
    for (size_t i = 0; i < options->param_gate_count; i++) {
        const struct sluice_param_gate *gate = &options->param_gates[i];
        enum sluice_role role = (enum sluice_role)gate->role;
        add_wish(wishes, &count,
                 (struct wish){gate->gate, first_window(transfer, role, gate->param), gate->param, role});
    }
    qsort(wishes, count, sizeof *wishes, by_gate);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || wishes[kept - 1].gate != wishes[i].gate || wishes[kept - 1].role != wishes[i].role)
            wishes[kept++] = wishes[i];
    return kept;
}

static void name_gate(const struct sl_sealed *sealed, const struct wish *wish, char *name)
{
    const char *role = wish->role == SLUICE_ROLE_SOURCE ? "source" : "consumer";
    if (wish->param == UINT32_MAX)
        snprintf(name, GATE_NAME_MAX, "the %s gate", role);
    else
        snprintf(name, GATE_NAME_MAX, "the %s gate of parameter %u (%s)", role, wish->param,
                 sl_param_name(&sealed->plan->store, wish->param));
}

static void take_wish(struct sluice_transfer *transfer, const struct wish *wish, uint32_t index, char *name)
{
    name_gate(transfer->sealed, wish, name);
    transfer->gates[index] = (struct sl_run_gate){
        .first_window = wish->first_window,
        .consumer = wish->role == SLUICE_ROLE_DESTINATION,
        .name = name,
    };
    transfer->waits[index] = (struct sl_gate_wait){.gate = wish->gate, .transfer = transfer, .index = index};
    sl_gate_keep(wish->gate);
    atomic_fetch_add_explicit(&wish->gate->users, 1, memory_order_acq_rel);
}

/* The run's gates: those of the application, then the plan's turn, which holds back shadow landings. */
static sluice_status prepare_gates(struct sluice_transfer *transfer, const struct sluice_transfer_options *options)
{
    struct sl_mem *mem = transfer->runtime->mem;
    size_t most = options->param_gate_count + 2;
    struct wish *wishes = sl_new_array(mem, most, sizeof *wishes, "gates");
    if (wishes == NULL)
        return SLUICE_NOMEM;
    size_t count = collect_wishes(transfer, options, wishes);
    transfer->gates = sl_new_array(mem, count + 2, sizeof *transfer->gates, "gates");
    transfer->waits = sl_new_array(mem, count + 2, sizeof *transfer->waits, "gates");
    transfer->gate_names = sl_new_array(mem, count + 1, GATE_NAME_MAX, "names of gates");
    if (transfer->gates == NULL || transfer->waits == NULL || transfer->gate_names == NULL) {
        sl_free(mem, wishes);
        return SLUICE_NOMEM;
    }
    for (uint32_t i = 0; i < count; i++)
        take_wish(transfer, &wishes[i], i, transfer->gate_names + (size_t)i * GATE_NAME_MAX);
    if (transfer->changed_only || transfer->resume) {
        transfer->agree.changed = transfer->resume ? SL_CHANGED_DIGESTED : SL_CHANGED_GATES;
        transfer->agree.changed_gate = (uint32_t)count;
        transfer->gates[count].word = 1;
        transfer->gates[count].name =
            transfer->resume ? "word of the windows that all ranks have" : "digests of what changed";
        transfer->waits[count] = (struct sl_gate_wait){.transfer = transfer, .index = (uint32_t)count};
        count++;
    }
    transfer->gates[count] =
        (struct sl_run_gate){.open = 1, .turn = 1, .name = "the end of the plan's earlier transfer"};
    transfer->waits[count] = (struct sl_gate_wait){.transfer = transfer, .index = (uint32_t)count};
    transfer->config.gates = transfer->gates;
    transfer->config.gate_count = (uint32_t)count + 1;
    sl_free(mem, wishes);
    return SLUICE_OK;
}

static sluice_status prepare_windows(struct sluice_transfer *transfer)
{
    struct sl_mem *mem = transfer->runtime->mem;
    uint32_t windows = transfer->config.windows;
    transfer->window_done = sl_new_array(mem, windows, 1, "windows of a transfer");
    if (transfer->window_done == NULL)
        return SLUICE_NOMEM;
    if (!transfer->window_events && !transfer->param_events)
        return SLUICE_OK;
    transfer->window_time = sl_new_array(mem, windows, sizeof *transfer->window_time, "window times");
    return transfer->window_time != NULL ? SLUICE_OK : SLUICE_NOMEM;
}

/* The bitmap as it is compared between ranks: whole words, nothing beyond the plan's parameters. */
static size_t bitmap_bytes(const struct sluice_plan *plan)
{
    return (plan->store.param_count + 63) / 64 * sizeof(uint64_t);
}

static sluice_status prepare_view(struct sluice_transfer *transfer, const struct sluice_transfer_options *options)
{
    struct sl_sealed *sealed = transfer->sealed;
    size_t params = transfer->plan->store.param_count;
    if (options->params == NULL)
        return SLUICE_OK;
    transfer->params = sl_new(transfer->runtime->mem, bitmap_bytes(transfer->plan), "parameters of a transfer");
    if (transfer->params == NULL)
        return SLUICE_NOMEM;
    for (size_t i = 0; i < options->params_words * 64; i++) {
        uint64_t bit = options->params[i / 64] & (UINT64_C(1) << (i % 64));
        if (bit != 0 && i >= params)
            return sl_fail(SLUICE_INVALID, "submit", "params names parameter %zu, the plan has %zu", i, params);
        if (bit != 0)
            transfer->params[i / 64] |= bit;
    }
    transfer->view = &transfer->part;
    return sl_view_open(sealed, transfer->params, bitmap_bytes(transfer->plan) / sizeof(uint64_t), &transfer->part);
}

/* Memory of digests and of what they find. */
static sluice_status prepare_agree(struct sluice_transfer *transfer, const struct sluice_transfer_options *options)
{
    struct sl_mem *mem = transfer->runtime->mem;
    transfer->verify = options->verify != 0;
    transfer->changed_only = options->changed_only != 0;
    transfer->resume = options->resume != 0;
    transfer->resume_windows = sl_resume_windows(transfer->sealed, options->resume_windows);
    if (!sl_transfer_agrees(transfer))
        return SLUICE_OK;
    transfer->flags = sl_new_array(mem, transfer->sealed->schedule.rule.windows, 1, "window flags");
    if (transfer->changed_only)
        transfer->moved = sl_new(mem, bitmap_bytes(transfer->plan), "parameters of a transfer");
    _Bool complete = transfer->flags != NULL && (!transfer->changed_only || transfer->moved != NULL);
    return complete ? SLUICE_OK : SLUICE_NOMEM;
}

static uint64_t none_if_zero(uint64_t timeout)
{
    return timeout == 0 ? UINT64_MAX : timeout;
}

static uint64_t digest_options(const struct sluice_transfer *transfer, const struct sluice_transfer_options *options,
                               uint64_t version)
{
    uint64_t part = transfer->params == NULL ? 0 : sl_hash64(transfer->params, bitmap_bytes(transfer->plan), 1);
    uint64_t sealed[] = {options->landing, options->allow_torn,    version,         part,
                         transfer->verify, transfer->changed_only, transfer->resume};
    return sl_hash64(sealed, sizeof sealed, 0);
}

static void configure(struct sluice_transfer *transfer, const struct sluice_transfer_options *options)
{
    struct sl_sealed *sealed = transfer->sealed;
    struct sluice_runtime *runtime = transfer->runtime;
    const struct sl_schedule *schedule = &sealed->schedule;
    _Bool shadow = options->landing == SLUICE_LANDING_SHADOW;
    transfer->config = (struct sl_run_config){
        .windows = schedule->rule.windows,
        .slots = sealed->slots,
        .window_flags = transfer->flags != NULL ? transfer->flags : transfer->view->flags,
        .staged = shadow ? sealed->staged : 0,
        .shadow = shadow,
        .commit = shadow && transfer->view->landing_bytes > 0,
        .world_of_one = runtime->identity.world == 1,
        .priority = options->priority,
        .pace = options->pace_bytes_per_second,
        .window_bytes = sealed->peak_bytes,
        .gate_timeout_ns = none_if_zero(options->gate_timeout_ns),
        .timeout_ns = none_if_zero(options->timeout_ns),
        .stall_timeout_ns = runtime->options.stall_timeout_ns,
        .window_events = 1,
        .owner = transfer,
    };
    transfer->landing = options->landing;
    transfer->window_events = options->window_events != 0;
    transfer->param_events = options->param_events != 0;
    transfer->bytes_total = transfer->view->bytes;
}

/* Gives the run its number and version; the last step that can refuse. */
static sluice_status number(struct sluice_transfer *transfer, const struct sluice_transfer_options *options)
{
    struct sl_sealed *sealed = transfer->sealed;
    uint64_t version = options->version != 0 ? options->version : sealed->last_version + 1;
    if (version <= sealed->last_version)
        return sl_fail(SLUICE_INVALID, "submit", "version %llu is not above the plan's last, %llu",
                       (unsigned long long)version, (unsigned long long)sealed->last_version);
    transfer->number = sealed->next_run;
    transfer->config.version = version;
    transfer->config.options_digest = digest_options(transfer, options, version);
    transfer->config.key = ((uint64_t)sealed->number << 32) | transfer->number;
    return SLUICE_OK;
}

static struct sluice_transfer *new_transfer(struct sluice_plan *plan, struct sl_sealed *sealed,
                                            const struct sluice_transfer_options *options)
{
    struct sluice_runtime *runtime = sealed->runtime;
    struct sluice_transfer *transfer = sl_new(runtime->mem, sizeof *transfer, "transfer");
    if (transfer == NULL)
        return NULL;
    atomic_init(&transfer->references, 1);
    transfer->source =
        (struct sl_source){.ops = &sl_transfer_source_ops, .on_event = options->on_event, .user = options->user};
    transfer->runtime = runtime;
    transfer->plan = plan;
    transfer->sealed = sealed;
    transfer->view = &sealed->full;
    transfer->run = SL_NO_RUN;
    transfer->submit.act = sl_transfer_begin;
    transfer->ask.act = sl_transfer_asked;
    sl_runtime_keep(runtime);
    sl_plan_use(plan);
    sl_sealed_keep(sealed);
    return transfer;
}

sluice_status sl_transfer_prepare(struct sluice_plan *plan, struct sl_sealed *sealed,
                                  const struct sluice_transfer_options *given, struct sluice_transfer **ret)
{
    struct sluice_transfer_options options;
    sluice_status status = sl_options_copy(&options, sizeof options, given, "transfer options");
    if (status == SLUICE_OK)
        status = check_options(sealed, &options);
    if (status != SLUICE_OK)
        return status;
    struct sluice_transfer *transfer = new_transfer(plan, sealed, &options);
    if (transfer == NULL)
        return SLUICE_NOMEM;
    status = prepare_view(transfer, &options);
    if (status == SLUICE_OK)
        status = prepare_agree(transfer, &options);
    if (status == SLUICE_OK) {
        configure(transfer, &options);
        status = number(transfer, &options);
    }
    if (status == SLUICE_OK)
        status = prepare_gates(transfer, &options);
    if (status == SLUICE_OK)
        status = prepare_windows(transfer);
    if (status != SLUICE_OK) {
        sl_transfer_drop_gates(transfer);
        sl_transfer_release(transfer);
        return status;
    }
    *ret = transfer;
    return SLUICE_OK;
}

/* Lets go of the application's gates: they may be reset from now on. */
void sl_transfer_drop_gates(struct sluice_transfer *transfer)
{
    for (uint32_t i = 0; i < transfer->config.gate_count; i++) {
        struct sluice_gate *gate = transfer->waits[i].gate;
        transfer->waits[i].gate = NULL;
        if (gate == NULL)
            continue;
        atomic_fetch_sub_explicit(&gate->users, 1, memory_order_acq_rel);
        sl_gate_release(gate);
    }
    transfer->config.gate_count = 0;
}

void sl_transfer_keep(struct sluice_transfer *transfer)
{
    atomic_fetch_add_explicit(&transfer->references, 1, memory_order_relaxed);
}

void sl_transfer_release(struct sluice_transfer *transfer)
{
    if (transfer == NULL || atomic_fetch_sub_explicit(&transfer->references, 1, memory_order_acq_rel) != 1)
        return;
    struct sluice_runtime *runtime = transfer->runtime;
    struct sl_mem *mem = runtime->mem;
    struct sluice_plan *plan = transfer->plan;
    if (transfer->after != NULL)
        runtime->driver_config.ops->point_close(transfer->after);
    sl_view_drop(transfer->sealed, &transfer->part);
    sl_view_drop(transfer->sealed, &transfer->moved_part);
    sl_sealed_release(transfer->sealed);
    sl_free(mem, transfer->params);
    sl_free(mem, transfer->moved);
    sl_free(mem, transfer->flags);
    sl_free(mem, transfer->gates);
    sl_free(mem, transfer->waits);
    sl_free(mem, transfer->gate_names);
    sl_free(mem, transfer->window_done);
    sl_free(mem, transfer->window_time);
    sl_free(mem, transfer);
    sl_plan_unuse(plan);
    sl_runtime_release(runtime);
}
