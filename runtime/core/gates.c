/*
 * gates.c: gates and who waits for them.
 *
 * Invariants: `open` is set before the order that tells of it is posted, so a run that begins meanwhile
 * sees one of the two; a wait is linked while its run waits and never after; a polled gate has waits.
 */
#include "runtime/core/gates.h"

#include "runtime/core/runtime_object.h"
#include "runtime/core/transfer_object.h"

void sl_gate_keep(struct sluice_gate *gate)
{
    atomic_fetch_add_explicit(&gate->references, 1, memory_order_relaxed);
}

void sl_gate_release(struct sluice_gate *gate)
{
    if (gate == NULL || atomic_fetch_sub_explicit(&gate->references, 1, memory_order_acq_rel) != 1)
        return;
    struct sluice_runtime *runtime = gate->runtime;
    if (gate->drop != NULL)
        gate->drop(gate->context);
    sl_free(runtime->mem, gate);
    sl_runtime_release(runtime);
}

/* Says whether the gate is open, and remembers it. The one place where a gate is looked at. */
static sluice_status check(struct sluice_gate *gate, struct sluice_error *ret_error)
{
    if (atomic_load_explicit(&gate->open, memory_order_acquire))
        return SLUICE_OK;
    sluice_status status = SLUICE_AGAIN;
    if (gate->kind == SL_GATE_VALUE && __atomic_load_n(gate->word, __ATOMIC_ACQUIRE) >= gate->value)
        status = SLUICE_OK;
    if (gate->kind == SL_GATE_QUERY) {
        *ret_error = (struct sluice_error){0};
        status = gate->query(gate->context, ret_error);
        if (status != SLUICE_OK && status != SLUICE_AGAIN && ret_error->status == SLUICE_OK)
            status =
                sl_error_set(ret_error, status, "gate", "the query of a gate failed: %s", sluice_status_words(status));
    }
    if (status == SLUICE_OK)
        atomic_store_explicit(&gate->open, 1, memory_order_release);
    return status;
}

static void poll_add(struct sl_driver *driver, struct sluice_gate *gate)
{
    if (gate->kind == SL_GATE_HOST || gate->polled)
        return;
    if (driver->polled == NULL)
        driver->gate_poll_at = driver->now + SL_GATE_POLL_NS;
    gate->polled = 1;
    gate->next_polled = driver->polled;
    driver->polled = gate;
}

static void poll_remove(struct sl_driver *driver, struct sluice_gate *gate)
{
    struct sluice_gate **link = &driver->polled;
    while (*link != NULL && *link != gate)
        link = &(*link)->next_polled;
    if (*link != NULL)
        *link = gate->next_polled;
    gate->polled = 0;
}

sluice_status sl_gate_begin(struct sl_driver *driver, struct sl_gate_wait *wait, struct sluice_error *ret_error)
{
    struct sluice_gate *gate = wait->gate;
    sluice_status status = check(gate, ret_error);
    if (status != SLUICE_AGAIN)
        return status;
    wait->next = gate->waits;
    wait->linked = 1;
    gate->waits = wait;
    poll_add(driver, gate);
    return SLUICE_AGAIN;
}

void sl_gate_end(struct sl_driver *driver, struct sl_gate_wait *wait)
{
    if (!wait->linked)
        return;
    struct sluice_gate *gate = wait->gate;
    struct sl_gate_wait **link = &gate->waits;
    while (*link != wait)
        link = &(*link)->next;
    *link = wait->next;
    wait->linked = 0;
    if (gate->waits == NULL)
        poll_remove(driver, gate);
}

/* Tells every run that waits; telling may end runs and so unlink other waits. */
static void fire(struct sl_driver *driver, struct sluice_gate *gate, const struct sluice_error *error)
{
    while (gate->waits != NULL) {
        struct sl_gate_wait *wait = gate->waits;
        uint32_t run = wait->transfer->run;
        uint32_t index = wait->index;
        sl_gate_end(driver, wait);
        sl_driver_engine_event(
            driver, (struct sl_engine_event){.kind = SL_EVENT_GATE, .run = run, .index = index, .error = error});
    }
}

/* Looks at one gate; true when its runs were told something. */
static _Bool look(struct sl_driver *driver, struct sluice_gate *gate)
{
    struct sluice_error error;
    if (gate->waits == NULL)
        return 0;
    sluice_status status = check(gate, &error);
    if (status == SLUICE_AGAIN)
        return 0;
    sl_gate_keep(gate);
    fire(driver, gate, status == SLUICE_OK ? NULL : &error);
    sl_gate_release(gate);
    return 1;
}

_Bool sl_gates_poll(struct sl_driver *driver)
{
    if (driver->polled == NULL || driver->now < driver->gate_poll_at)
        return 0;
    driver->gate_poll_at = driver->now + SL_GATE_POLL_NS;
    _Bool any = 0;
    struct sluice_gate *gate = driver->polled;
    while (gate != NULL) {
        /* What fires changes the list: begin again. Gates that fired are not in it any more. */
        _Bool fired = look(driver, gate);
        gate = fired ? driver->polled : gate->next_polled;
        any = any || fired;
    }
    return any;
}

uint64_t sl_gates_timer(const struct sl_driver *driver)
{
    return driver->polled == NULL ? UINT64_MAX : driver->gate_poll_at;
}

/* The order that sluice_gate_open and sluice_gate_poke post; it holds a reference. */
static void act(struct sl_driver *driver, struct sl_order *order)
{
    struct sluice_gate *gate = (struct sluice_gate *)((char *)order - offsetof(struct sluice_gate, order));
    atomic_exchange_explicit(&gate->posted, 0, memory_order_acq_rel);
    SL_IGNORE(look(driver, gate));
    sl_gate_release(gate);
}

static void post(struct sluice_gate *gate)
{
    if (atomic_exchange_explicit(&gate->posted, 1, memory_order_acq_rel))
        return;
    sl_gate_keep(gate);
    if (sl_runtime_post(gate->runtime, &gate->order))
        return;
    atomic_store_explicit(&gate->posted, 0, memory_order_release);
    sl_gate_release(gate);
}

static sluice_status new_gate(struct sluice_runtime *runtime, enum sl_gate_kind kind, struct sluice_gate **ret)
{
    sluice_status status = sl_runtime_check(runtime, "gate");
    if (status != SLUICE_OK)
        return status;
    if (ret == NULL)
        return sl_fail(SLUICE_INVALID, "gate", "no place for the gate given");
    struct sluice_gate *gate = sl_new(runtime->mem, sizeof *gate, "gate");
    if (gate == NULL)
        return SLUICE_NOMEM;
    atomic_init(&gate->references, 1);
    gate->runtime = runtime;
    gate->kind = kind;
    gate->order.act = act;
    sl_runtime_keep(runtime);
    *ret = gate;
    return SLUICE_OK;
}

sluice_status sluice_gate_host(sluice_runtime *runtime, sluice_gate **ret_gate)
{
    return new_gate(runtime, SL_GATE_HOST, ret_gate);
}

sluice_status sluice_gate_value(sluice_runtime *runtime, const uint64_t *word, uint64_t value, sluice_gate **ret_gate)
{
    if (word == NULL || (uintptr_t)word % sizeof *word != 0)
        return sl_fail(SLUICE_INVALID, "gate", "a value gate needs an aligned 64-bit word");
    struct sluice_gate *gate = NULL;
    sluice_status status = new_gate(runtime, SL_GATE_VALUE, ret_gate == NULL ? NULL : &gate);
    if (status != SLUICE_OK)
        return status;
    gate->word = word;
    gate->value = value;
    *ret_gate = gate;
    return SLUICE_OK;
}

sluice_status sluice_gate_query(sluice_runtime *runtime, sluice_gate_query_fn query, sluice_gate_drop_fn drop,
                                void *context, sluice_gate **ret_gate)
{
    if (query == NULL)
        return sl_fail(SLUICE_INVALID, "gate", "a query gate needs a query function");
    struct sluice_gate *gate = NULL;
    sluice_status status = new_gate(runtime, SL_GATE_QUERY, ret_gate == NULL ? NULL : &gate);
    if (status != SLUICE_OK)
        return status;
    gate->query = query;
    gate->drop = drop;
    gate->context = context;
    *ret_gate = gate;
    return SLUICE_OK;
}

static sluice_status check_gate(const struct sluice_gate *gate)
{
    return gate == NULL ? sl_fail(SLUICE_INVALID, "gate", "no gate given") : sl_runtime_check(gate->runtime, "gate");
}

sluice_status sluice_gate_open(sluice_gate *gate)
{
    sluice_status status = check_gate(gate);
    if (status != SLUICE_OK)
        return status;
    if (gate->kind != SL_GATE_HOST)
        return sl_fail(SLUICE_STATE, "gate", "only a host gate is opened by a call");
    if (!atomic_exchange_explicit(&gate->open, 1, memory_order_acq_rel))
        post(gate);
    return SLUICE_OK;
}

sluice_status sluice_gate_reset(sluice_gate *gate)
{
    sluice_status status = check_gate(gate);
    if (status != SLUICE_OK)
        return status;
    if (atomic_load_explicit(&gate->users, memory_order_acquire) > 0)
        return sl_fail(SLUICE_BUSY, "gate", "a transfer uses the gate: wait for its RELEASED event");
    atomic_store_explicit(&gate->open, 0, memory_order_release);
    return SLUICE_OK;
}

void sluice_gate_poke(sluice_gate *gate)
{
    if (gate != NULL && gate->kind != SL_GATE_HOST && sl_runtime_check(gate->runtime, "gate") == SLUICE_OK)
        post(gate);
}

void sluice_gate_destroy(sluice_gate *gate)
{
    /* What a gate's owner drops is the parent's, in the child of a fork. */
    if (gate != NULL && sl_runtime_check(gate->runtime, "gate") == SLUICE_OK)
        sl_gate_release(gate);
}
