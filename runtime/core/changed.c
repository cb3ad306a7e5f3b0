/*
 * changed.c: which parameters differ from the version that the destinations have.
 *
 * Invariants: a parameter counts as unchanged on a rank only when the digest of its source is that of the last transfer
 * that brought it everywhere, and its destination has not been touched by anything else of ours since: not by a
 * transfer that failed, not by a rebind.
 */
#include "runtime/core/agree.h"
#include "runtime/core/runtime_object.h"
#include "runtime/core/transfer_object.h"

static struct sl_contents *contents_of(struct sl_sealed *sealed)
{
    struct sl_contents *contents = &sealed->contents;
    struct sl_mem *mem = sealed->plan->mem;
    size_t params = sealed->plan->store.param_count;
    if (contents->known != NULL)
        return contents;
    if (contents->digest == NULL) /* else an earlier transfer got no further */
        contents->digest = sl_new_array(mem, params, sizeof *contents->digest, "digests of parameters");
    if (contents->digest != NULL)
        contents->known = sl_new_array(mem, params, 2, "digests of parameters");
    return contents->known != NULL ? contents : NULL;
}

static _Bool touches(const struct sl_sealed *sealed, enum sluice_role role, uint32_t param)
{
    return sealed->first[role][param] != UINT32_MAX;
}

/* The sources as pieces: whole buffers, each read once however many ranks get it. */
static void collect_sources(struct sluice_transfer *transfer, struct sluice_copy *pieces)
{
    const struct sl_sealed *sealed = transfer->sealed;
    struct sl_agree *agree = &transfer->agree;
    for (uint32_t param = 0; param < sealed->plan->store.param_count; param++) {
        const struct sl_binding *binding = sl_plan_binding(sealed->plan, param, SLUICE_ROLE_SOURCE);
        if (!touches(sealed, SLUICE_ROLE_SOURCE, param) || !sl_transfer_asked_for(transfer, param) || binding == NULL ||
            binding->bytes == 0)
            continue;
        struct sluice_strided place = {.address = (uint64_t)(uintptr_t)binding->memory, .row_bytes = UINT64_MAX};
        pieces[agree->source_count] = (struct sluice_copy){
            .from = place, .to = place, .bytes = binding->bytes, .message = SLUICE_MESSAGE_NONE, .param = param};
        agree->source_params[agree->source_count++] = param;
    }
}

sluice_status sl_changed_start(struct sl_driver *driver, struct sluice_transfer *transfer)
{
    struct sl_agree *agree = &transfer->agree;
    struct sl_sealed *sealed = transfer->sealed;
    struct sl_mem *mem = sealed->plan->mem;
    size_t params = sealed->plan->store.param_count;
    if (contents_of(sealed) == NULL)
        return SLUICE_NOMEM;
    agree->source_params = sl_new_array(mem, params, sizeof *agree->source_params, "sources");
    agree->source_digests = sl_new_array(mem, params, sizeof *agree->source_digests, "sources");
    struct sluice_copy *pieces = sl_new_array(mem, params, sizeof *pieces, "sources");
    sluice_status status = SLUICE_NOMEM;
    if (agree->source_params != NULL && agree->source_digests != NULL && pieces != NULL) {
        status = SLUICE_OK;
        collect_sources(transfer, pieces);
        if (agree->source_count > 0)
            status = driver->config.ops->set_open(driver->device, SLUICE_COPY_DIGEST, pieces, agree->source_count,
                                                  &agree->sources);
    }
    sl_free(mem, pieces);
    return status;
}

static void set_bit(uint64_t *words, uint32_t param)
{
    words[param / 64] |= UINT64_C(1) << (param % 64);
}

void sl_changed_fill(const struct sluice_transfer *transfer, uint64_t *words)
{
    const struct sl_sealed *sealed = transfer->sealed;
    const struct sl_contents *contents = &sealed->contents;
    for (uint32_t param = 0; param < sealed->plan->store.param_count; param++)
        for (int role = 0; role < 2; role++)
            if (touches(sealed, (enum sluice_role)role, param) && !contents->known[2 * param + (uint32_t)role])
                set_bit(words, param);
    for (size_t i = 0; i < transfer->agree.source_count; i++)
        if (transfer->agree.source_digests[i] != contents->digest[transfer->agree.source_params[i]])
            set_bit(words, transfer->agree.source_params[i]);
}

void sl_changed_note(struct sluice_transfer *transfer, _Bool good)
{
    struct sl_sealed *sealed = transfer->sealed;
    struct sl_contents *contents = &sealed->contents;
    if (contents->known == NULL)
        return; /* nobody has asked yet */
    for (uint32_t param = 0; param < sealed->plan->store.param_count; param++) {
        if (!sl_transfer_asked_for(transfer, param))
            continue;
        contents->known[2 * param + SLUICE_ROLE_SOURCE] = 0;
        contents->known[2 * param + SLUICE_ROLE_DESTINATION] = good;
    }
    if (!good || transfer->agree.changed != SL_CHANGED_KNOWN)
        return;
    for (size_t i = 0; i < transfer->agree.source_count; i++) {
        uint32_t param = transfer->agree.source_params[i];
        contents->digest[param] = transfer->agree.source_digests[i];
        contents->known[2 * param + SLUICE_ROLE_SOURCE] = 1;
    }
}
