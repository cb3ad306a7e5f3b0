/* bench_hosted.h: copies between a GPU and memory of the host, for `sluice bench local`. */
#ifndef SL_TOOL_BENCH_HOSTED_H
#define SL_TOOL_BENCH_HOSTED_H

#include "bench_device.h"

/* Prints a line for each direction and size of tensor: medians of `iters` rounds after `warmup`. CORRUPT, NOMEM, ... */
sluice_status bench_hosted(struct bench_device *bench, uint32_t warmup, uint32_t iters, _Bool json);

#endif
