/* seal_nccl.h: what NCCL's group rule (docs/scheduling.md) asks of a seal. Pure. */
#ifndef SL_CORE_SEAL_NCCL_H
#define SL_CORE_SEAL_NCCL_H

#include "runtime/control/seal.h"
#include "sluice/backend.h"

/*
 * Fills backend_version, items_max and want_packed; nothing without NCCL (info->version 0). HANG: policy
 * SINGLE, not forced, and the model cannot rule out that its group hangs.
 */
sluice_status sl_seal_nccl_terms(const struct sluice_backend_info *info, const struct sl_half *half, struct sl_mem *mem,
                                 struct sl_seal_terms *terms);

#endif
