/*
 * recover.h: a new epoch out of the ranks that are left: rounds of survivors on the old control plane give its
 * members, then carry the bootstrap of the new runtime.
 */
#ifndef SL_CORE_RECOVER_H
#define SL_CORE_RECOVER_H

#include "runtime/control/control.h"

/* MEMBERS has id 0; GATHER an id out of the result of MEMBERS. */
enum { SL_ROUND_MEMBERS = SL_ROUND_SURVIVORS, SL_ROUND_GATHER = SL_ROUND_SURVIVORS + 1 };

/* The hub, pure but for a random number: MEMBERS gives the ranks whose parts are there, GATHER their parts in order. */
sluice_status sl_recover_reduce(uint32_t kind, const struct sl_bytes *parts, uint32_t world, struct sl_mem *mem,
                                uint8_t **ret_data, size_t *ret_bytes, struct sluice_error *error);
/* The end of one of these rounds. Control thread. */
void sl_recover_round_ended(struct sluice_runtime *runtime, sluice_status status, const struct sluice_error *error,
                            const uint8_t *data, size_t bytes);

#endif
