/* bench_foreground.h: a loop of kernels on a thread of its own, as long as a measurement beside it takes. */
#ifndef SL_TOOL_BENCH_FOREGROUND_H
#define SL_TOOL_BENCH_FOREGROUND_H

#include <pthread.h>
#include <stdatomic.h>

#include "foreground.h"
#include "sluice/base.h"

struct bench_foreground {
    const struct foreground_ops *ops;
    struct foreground *loop;
    pthread_t thread;
    atomic_bool stop;
    atomic_uint count;
    uint64_t *ends; /* when each step ended */
    sluice_status status;
    const char *text; /* of what failed */
};

/* The module's table. UNSUPPORTED: it is not there or is of another version. */
sluice_status bench_foreground_load(const struct foreground_ops **ret);
/* On the first GPU. DEVICE, NOMEM. Close it after a failure too. */
sluice_status bench_foreground_open(const struct foreground_ops *ops, enum foreground_kind kind,
                                    struct bench_foreground *ret);
void bench_foreground_close(struct bench_foreground *foreground);

/* Begins the loop. SYSTEM. */
sluice_status bench_foreground_start(struct bench_foreground *foreground);
/* Ends it and says whether all its steps went well. */
sluice_status bench_foreground_stop(struct bench_foreground *foreground);
/* Milliseconds a step took on average in [begin, end); 0 when no two ended there. After the stop. */
double bench_foreground_step_ms(const struct bench_foreground *foreground, uint64_t begin, uint64_t end);

#endif
