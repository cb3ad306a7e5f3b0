/* nccl_internal.h: what the files of the NCCL model share. */
#ifndef SL_SCHEDULER_NCCL_INTERNAL_H
#define SL_SCHEDULER_NCCL_INTERNAL_H

#include "scheduler/nccl_model.h"

enum { SL_NCCL_HEADER_BYTES = 16, SL_NCCL_WORK_BYTES = 48, SL_NCCL_ARGS_HEAD_BYTES = 32 };

sluice_status sl_nccl_config_check(const struct sl_nccl_config *config);
uint32_t sl_nccl_world(const struct sl_nccl_config *config);
/* Ranks that NCCL's schedule treats as one block. */
uint32_t sl_nccl_group_size(const struct sl_nccl_config *config);
/* The first channel of a round. */
uint32_t sl_nccl_channel_base(const struct sl_nccl_config *config, uint32_t round);
/* Channels that an operation of `bytes` takes; `local`: the peer is on the same node and not the rank itself. */
uint32_t sl_nccl_op_channels(const struct sl_nccl_config *config, uint64_t bytes, _Bool local);

#endif
