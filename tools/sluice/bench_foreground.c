/*
 * bench_foreground.c: see bench_foreground.h.
 *
 * Invariants: steps are written by the loop's thread alone and read after it has ended; a loop that fails ends.
 */
#include "bench_foreground.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>

#include "bench_device.h"
#include "runtime/backend/registry.h"
#include "runtime/base/error.h"
#include "runtime/base/memory.h"

enum { STEPS_MAX = 1 << 20 };

typedef const struct foreground_ops *(*table_fn)(void);

sluice_status bench_foreground_load(const struct foreground_ops **ret)
{
    char path[PATH_MAX];
    const char *name = sl_backend_module_path(FOREGROUND_MODULE, path, sizeof path) ? path : FOREGROUND_MODULE;
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) /* NOLINTNEXTLINE(concurrency-mt-unsafe): libc keeps this text per thread */
        return sl_fail(SLUICE_UNSUPPORTED, "bench", "the loops cannot be loaded: %s", dlerror());
    table_fn function = NULL;
    void *address = dlsym(handle, FOREGROUND_SYMBOL);
    memcpy(&function, &address, sizeof function);
    const struct foreground_ops *ops = function != NULL ? function() : NULL;
    if (ops == NULL || ops->size != sizeof *ops)
        return sl_fail(SLUICE_UNSUPPORTED, "bench", "%s is not of this version", name);
    *ret = ops;
    return SLUICE_OK;
}

sluice_status bench_foreground_open(const struct foreground_ops *ops, enum foreground_kind kind,
                                    struct bench_foreground *ret)
{
    *ret = (struct bench_foreground){.ops = ops, .text = ""};
    ret->ends = sl_new_array(sl_mem_default(), STEPS_MAX, sizeof *ret->ends, "steps");
    if (ret->ends == NULL)
        return SLUICE_NOMEM;
    if (ops->open(0, kind, &ret->loop, &ret->text) != 0)
        return sl_fail(SLUICE_DEVICE, "bench", "a loop could not be opened: %s", ret->text);
    return SLUICE_OK;
}

void bench_foreground_close(struct bench_foreground *foreground)
{
    if (foreground->ops != NULL)
        foreground->ops->close(foreground->loop);
    sl_free(sl_mem_default(), foreground->ends);
    *foreground = (struct bench_foreground){.ops = NULL};
}

static void *run(void *context)
{
    struct bench_foreground *foreground = context;
    uint32_t count = 0;
    while (!atomic_load(&foreground->stop) && count < STEPS_MAX) {
        if (foreground->ops->step(foreground->loop, &foreground->text) != 0) {
            foreground->status = SLUICE_DEVICE;
            break;
        }
        foreground->ends[count++] = bench_now();
        atomic_store(&foreground->count, count);
    }
    return NULL;
}

sluice_status bench_foreground_start(struct bench_foreground *foreground)
{
    atomic_store(&foreground->stop, 0);
    atomic_store(&foreground->count, 0);
    foreground->status = SLUICE_OK;
    int failed = pthread_create(&foreground->thread, NULL, run, foreground);
    return failed == 0 ? SLUICE_OK
                       : sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, failed, "bench", "starting a thread");
}

sluice_status bench_foreground_stop(struct bench_foreground *foreground)
{
    atomic_store(&foreground->stop, 1);
    SL_ASSERT(pthread_join(foreground->thread, NULL) == 0);
    if (foreground->status != SLUICE_OK)
        return sl_fail(foreground->status, "bench", "a loop failed: %s", foreground->text);
    return SLUICE_OK;
}

double bench_foreground_step_ms(const struct bench_foreground *foreground, uint64_t begin, uint64_t end)
{
    uint32_t count = atomic_load(&foreground->count), first = 0;
    while (first < count && foreground->ends[first] < begin)
        first++;
    uint32_t last = first;
    while (last + 1 < count && foreground->ends[last + 1] < end)
        last++;
    if (last <= first)
        return 0;
    return (double)(foreground->ends[last] - foreground->ends[first]) / 1e6 / (last - first);
}
