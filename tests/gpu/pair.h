/*
 * pair.h: what the programs share that run two ranks, each a process (support/team.h), on one GPU or with --apart on two.
 */
#ifndef TESTS_GPU_PAIR_H
#define TESTS_GPU_PAIR_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/program.h"
#include "runtime/backend/registry.h"
#include "sluice/base.h"
#include "support/team.h"

enum { PAIR_NO_DEVICE = 77, PAIR_SECONDS = 60 };

static inline void expect(_Bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "wrong: %s\n", what);
    _exit(1);
}

static _Bool pair_apart; /* a GPU for each rank */

/* Makes the rank's GPU the current one; before anything of NCCL is called. */
static inline void pair_place(uint32_t rank)
{
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    cuda(cudaSetDevice(pair_apart ? (int)rank : 0), "set device");
    if (pair_apart)
        return;
    share_gpu(rank);
}

/* A member whose exit status says whether there are the devices. */
static inline int pair_look(struct team *team, uint32_t rank, void *user)
{
    const struct sluice_backend_ops *ops = NULL;
    struct sluice_backend_info info = {.size = sizeof info};
    (void)team, (void)rank, (void)user;
    if (sl_backend_find("cuda", &ops) == SLUICE_OK && ops->query(&info) == SLUICE_OK && info.usable &&
        info.devices > pair_apart)
        return 0;
    printf("skipped: %s\n", ops == NULL ? sluice_last_error()->text : info.reason);
    return PAIR_NO_DEVICE;
}

/* Reads the command line; the exit status when there is nothing to run, else 0. */
static inline int pair_begin(int argc, char **argv)
{
    pair_apart = argc == 2 && strcmp(argv[1], "--apart") == 0;
    if (argc > 1 && !pair_apart) {
        fprintf(stderr, "usage: %s [--apart]\n", argv[0]);
        return 2;
    }
    return team_run(1, 0, PAIR_SECONDS, pair_look, NULL);
}

#endif
