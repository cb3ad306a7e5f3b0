/*
 * seal_environment.c: the variables that change how NCCL cuts, orders or moves a group. If two ranks
 * differ in one of them, their groups may be cut differently, which can hang; so the seal compares them.
 * Names of network interfaces and log settings may differ between hosts and are not here.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/config.h"
#include "runtime/control/seal_format.h"

#define VALUE_MAX 200 /* bytes of a value that are compared */

/* Sorted, so that the text is. */
static const char *const names[] = {"NCCL_ALGO",
                                    "NCCL_ALLOC_P2P_NET_LL_BUFFERS",
                                    "NCCL_BUFFSIZE",
                                    "NCCL_CHUNK_SIZE",
                                    "NCCL_CROSS_NIC",
                                    "NCCL_IB_DISABLE",
                                    "NCCL_LAUNCH_ORDER_IMPLICIT",
                                    "NCCL_MAX_CTAS",
                                    "NCCL_MAX_NCHANNELS",
                                    "NCCL_MAX_P2P_NCHANNELS",
                                    "NCCL_MAX_P2P_PEERS",
                                    "NCCL_MIN_CTAS",
                                    "NCCL_MIN_NCHANNELS",
                                    "NCCL_MIN_P2P_NCHANNELS",
                                    "NCCL_MULTI_RANK_GPU_ENABLE",
                                    "NCCL_NCHANNELS_PER_NET_PEER",
                                    "NCCL_NET",
                                    "NCCL_NET_SHARED_BUFFERS",
                                    "NCCL_NET_SHARED_COMMS",
                                    "NCCL_NVLS_ENABLE",
                                    "NCCL_P2P_DISABLE",
                                    "NCCL_P2P_EPOCH_ENABLE",
                                    "NCCL_P2P_LEVEL",
                                    "NCCL_P2P_LL_THRESHOLD",
                                    "NCCL_P2P_NET_CHUNKSIZE",
                                    "NCCL_P2P_NVL_CHUNKSIZE",
                                    "NCCL_P2P_PCI_CHUNKSIZE",
                                    "NCCL_P2P_PER_CHANNEL_NET_BW",
                                    "NCCL_P2P_PXN_LEVEL",
                                    "NCCL_P2P_SCHEDULE_GROUP_SIZE",
                                    "NCCL_P2P_USE_CUDA_MEMCPY",
                                    "NCCL_PROTO",
                                    "NCCL_PXN_DISABLE",
                                    "NCCL_SHM_DISABLE",
                                    "NCCL_WORK_ARGS_BYTES",
                                    "NCCL_WORK_FIFO_BYTES"};

static void put_line(struct sl_writer *w, const char *name, const char *value)
{
    sl_put_bytes(w, name, strlen(name));
    sl_put_bytes(w, "=", 1);
    for (size_t i = 0; value[i] != '\0' && i < VALUE_MAX; i++) {
        char c = value[i] >= ' ' && value[i] <= '~' ? value[i] : '?'; /* it ends in an error text: keep one line */
        sl_put_bytes(w, &c, 1);
    }
    sl_put_bytes(w, "\n", 1);
}

sluice_status sl_seal_environment(const char *const *environment, struct sl_mem *mem, char **ret_text)
{
    _Static_assert(SL_COUNT(names) * (VALUE_MAX + 40) < SL_SEAL_ENVIRONMENT_MAX, "the text fits a part");
    struct sl_writer w;
    sl_writer_init(&w, mem);
    for (size_t i = 0; i < SL_COUNT(names); i++) {
        const char *value = sl_environment_get(environment, names[i]);
        if (value != NULL)
            put_line(&w, names[i], value);
    }
    sl_put_u8(&w, 0);
    uint8_t *data = NULL;
    size_t bytes = 0;
    sluice_status status = sl_writer_take(&w, &data, &bytes);
    if (status == SLUICE_OK)
        *ret_text = (char *)data;
    return status;
}
