/* program.h: what GPU tests that are programs of their own share: a call that fails ends the process, with its words. */
#ifndef TESTS_GPU_PROGRAM_H
#define TESTS_GPU_PROGRAM_H

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sluice/base.h"

static inline void must(sluice_status status, const char *what)
{
    if (status == SLUICE_OK)
        return;
    fprintf(stderr, "%s: %s: %s: %s\n", program_invocation_short_name, what, sluice_status_name(status),
            sluice_last_error()->text);
    _exit(1);
}

static inline void cuda(cudaError_t result, const char *what)
{
    if (result == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, cudaGetErrorString(result));
    _exit(1);
}

/* Makes NCCL take ranks on one GPU for ranks of different hosts; from 2.30 on it is allowed to see one. Before its first call. */
static inline void share_gpu(uint32_t rank)
{
    char host[16];
    snprintf(host, sizeof host, "rank-%u", rank);
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
}

#endif
