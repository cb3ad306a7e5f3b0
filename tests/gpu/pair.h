/* pair.h: what the programs share that run two ranks on one GPU, each a process (support/team.h). */
#ifndef TESTS_GPU_PAIR_H
#define TESTS_GPU_PAIR_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/backend/registry.h"
#include "sluice/base.h"
#include "support/team.h"

enum { PAIR_NO_DEVICE = 77, PAIR_SECONDS = 60 };

static inline void must(sluice_status status, const char *what)
{
    if (status == SLUICE_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, sluice_status_name(status), sluice_last_error()->text);
    _exit(1);
}

static inline void cuda(cudaError_t result, const char *what)
{
    if (result == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
    _exit(1);
}

static inline void expect(_Bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "wrong: %s\n", what);
    _exit(1);
}

/* What two ranks on a GPU need; before anything of NCCL is called. */
static inline void pair_share_gpu(uint32_t rank)
{
    char host[16];
    snprintf(host, sizeof host, "rank-%u", rank);
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
}

/* A member whose exit status says whether there is a device. */
static inline int pair_look(struct team *team, uint32_t rank, void *user)
{
    const struct sluice_backend_ops *ops = NULL;
    struct sluice_backend_info info = {.size = sizeof info};
    (void)team, (void)rank, (void)user;
    if (sl_backend_find("cuda", &ops) == SLUICE_OK && ops->query(&info) == SLUICE_OK && info.usable)
        return 0;
    printf("skipped: %s\n", ops == NULL ? sluice_last_error()->text : info.reason);
    return PAIR_NO_DEVICE;
}

#endif
