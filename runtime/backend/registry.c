/*
 * registry.c: the backends that exist, and the one that is loaded.
 *
 * - A table leaves this file only after sl_backend_check accepted it.
 * - The CUDA module is looked for beside the library (or tool) that holds this code, in ../lib and in ../lib/sluice
 *   from there, and at last on the loader's own path. The first file that exists decides: when it does not load,
 *   that is the reason that is reported, and no other file is tried behind the user's back.
 * - The result of loading, good or bad, is kept: a process sees one answer.
 */
#include "runtime/backend/registry.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/backend/sim/sim.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"

#define CUDA_MODULE "libsluice_cuda.so"
#define CUDA_SYMBOL "sluice_cuda_backend"
#define PATH_BYTES  4096u

typedef const struct sluice_backend_ops *(*backend_fn)(void);

static const struct {
    const char *name;
    backend_fn ops;
} linked[] = {
    {"host", sl_host_backend},
    {"sim", sl_sim_backend},
};

static pthread_mutex_t module_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    _Bool tried;
    const struct sluice_backend_ops *ops; /* NULL: see error */
    struct sluice_error error;
} module;

static sluice_status empty_slot(const struct sluice_backend_ops *ops, const char *slot)
{
    return sl_fail(SLUICE_INVALID, "backend", "backend %s: its table has no %s", ops->name, slot);
}

/* One line a slot, so that the message can name it. */
static sluice_status check_slots(const struct sluice_backend_ops *ops)
{
#define SLOT(field)                                                                                                    \
    if (ops->field == NULL)                                                                                            \
    return empty_slot(ops, #field)
    SLOT(query);
    SLOT(open);
    SLOT(close);
    SLOT(mem_alloc);
    SLOT(mem_free);
    SLOT(queue_open);
    SLOT(queue_close);
    SLOT(set_open);
    SLOT(set_close);
    SLOT(group_address);
    SLOT(group_open);
    SLOT(group_close);
    SLOT(submit);
    SLOT(poll);
    SLOT(arm);
    SLOT(abort);
#undef SLOT
    return SLUICE_OK;
}

sluice_status sl_backend_check(const struct sluice_backend_ops *ops)
{
    if (ops == NULL)
        return sl_fail(SLUICE_INVALID, "backend", "the backend gave no table");
    /* Size and ABI come before anything else is read: another version may be shorter. */
    if (ops->size != sizeof(*ops) || ops->abi != SLUICE_BACKEND_ABI)
        return sl_fail(SLUICE_INVALID, "backend",
                       "the backend's table has ABI %u and %u bytes, this library wants ABI %u and %zu bytes: "
                       "install module and library of one version",
                       ops->abi, ops->size, SLUICE_BACKEND_ABI, sizeof(*ops));
    if (ops->name == NULL || ops->name[0] == '\0')
        return sl_fail(SLUICE_INVALID, "backend", "the backend's table has no name");
    return check_slots(ops);
}

/* dlsym gives an object pointer; POSIX lets it hold a function, ISO C has no cast for that. */
static backend_fn symbol_of(void *handle, const char *name)
{
    _Static_assert(sizeof(backend_fn) == sizeof(void *), "POSIX: function pointers fit object pointers");
    backend_fn function = NULL;
    void *address = dlsym(handle, name);
    memcpy(&function, &address, sizeof(function));
    return function;
}

sluice_status sl_backend_load(const char *path, const struct sluice_backend_ops **ret)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) /* NOLINTNEXTLINE(concurrency-mt-unsafe): libc keeps this text per thread */
        return sl_fail(SLUICE_UNSUPPORTED, "backend", "the module cannot be loaded: %s", dlerror());
    backend_fn function = symbol_of(handle, CUDA_SYMBOL);
    if (function == NULL)
        return sl_fail(SLUICE_UNSUPPORTED, "backend", "%s has no symbol %s: it is no backend of Sluice", path,
                       CUDA_SYMBOL);
    const struct sluice_backend_ops *ops = function();
    if (sl_backend_check(ops) != SLUICE_OK)
        return sl_fail(SLUICE_UNSUPPORTED, "backend", "%s: %s", path, sluice_last_error()->text);
    *ret = ops;
    return SLUICE_OK;
}

/* The folder of the object that holds this function: libsluice.so, or the tool that linked it statically. */
static _Bool own_folder(char *ret, size_t bytes)
{
    static const char anchor;
    Dl_info info;
    if (dladdr(&anchor, &info) == 0 || info.dli_fname == NULL)
        return 0;
    /* A program that was found through PATH has no folder in its name. */
    char self[PATH_BYTES];
    const char *path = info.dli_fname;
    if (strchr(path, '/') == NULL) {
        ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
        if (length <= 0)
            return 0;
        self[length] = '\0';
        path = self;
    }
    const char *slash = strrchr(path, '/');
    if (slash == NULL || (size_t)(slash - path) >= bytes)
        return 0;
    memcpy(ret, path, (size_t)(slash - path));
    ret[slash - path] = '\0';
    return 1;
}

_Bool sl_backend_module_path(const char *file, char *ret, size_t bytes)
{
    static const char *const beside[] = {"", "/sluice", "/../lib", "/../lib/sluice"};
    char folder[PATH_BYTES];
    if (!own_folder(folder, sizeof(folder)))
        return 0;
    for (size_t i = 0; i < SL_COUNT(beside); i++) {
        SL_IGNORE(snprintf(ret, bytes, "%s%s/%s", folder, beside[i], file));
        if (access(ret, F_OK) == 0)
            return 1;
    }
    return 0;
}

static sluice_status load_module(const struct sluice_backend_ops **ret)
{
    char path[PATH_BYTES + 64];
    return sl_backend_load(sl_backend_module_path(CUDA_MODULE, path, sizeof(path)) ? path : CUDA_MODULE, ret);
}

static sluice_status find_module(const struct sluice_backend_ops **ret)
{
    pthread_mutex_lock(&module_lock);
    if (!module.tried) {
        module.tried = 1;
        if (load_module(&module.ops) != SLUICE_OK)
            sl_error_take(&module.error);
    }
    pthread_mutex_unlock(&module_lock);
    if (module.ops == NULL)
        return sl_fail_copy(&module.error);
    *ret = module.ops;
    return SLUICE_OK;
}

sluice_status sl_backend_find(const char *name, const struct sluice_backend_ops **ret)
{
    for (size_t i = 0; i < SL_COUNT(linked); i++)
        if (strcmp(name, linked[i].name) == 0) {
            const struct sluice_backend_ops *ops = linked[i].ops();
            sluice_status status = sl_backend_check(ops);
            if (status == SLUICE_OK)
                *ret = ops;
            return status;
        }
    if (strcmp(name, "cuda") == 0)
        return find_module(ret);
    char names[128] = "";
    size_t used = 0;
    for (size_t i = 0; i < SL_COUNT(linked) && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s, ", linked[i].name);
    return sl_fail(SLUICE_NOT_FOUND, "backend", "no backend is called \"%s\": the names are %scuda", name, names);
}

static void list_one(const char *name, struct sl_backend_entry *ret)
{
    *ret = (struct sl_backend_entry){.name = name};
    const struct sluice_backend_ops *ops = NULL;
    if (sl_backend_find(name, &ops) != SLUICE_OK) {
        SL_IGNORE(snprintf(ret->reason, sizeof(ret->reason), "%s", sluice_last_error()->text));
        return;
    }
    SL_ASSERT(ops != NULL);
    ret->built = 1;
    ret->info.size = sizeof(ret->info);
    if (ops->query(&ret->info) != SLUICE_OK)
        SL_IGNORE(snprintf(ret->reason, sizeof(ret->reason), "%s", sluice_last_error()->text));
    else
        SL_IGNORE(snprintf(ret->reason, sizeof(ret->reason), "%s", ret->info.reason));
    ret->usable = ret->info.usable != 0;
}

uint32_t sl_backend_list(struct sl_backend_entry *ret)
{
    _Static_assert(SL_COUNT(linked) < SL_BACKENDS_MAX, "a row for each, and one for the module");
    uint32_t count = 0;
    for (size_t i = 0; i < SL_COUNT(linked); i++)
        list_one(linked[i].name, &ret[count++]);
    list_one("cuda", &ret[count++]);
    return count;
}

static uint64_t system_time(void *clock)
{
    (void)clock;
    return sl_now(sl_clock_system());
}

static void wake_nobody(void *context)
{
    (void)context;
}

static void keep_error(const struct sluice_error *error)
{
    SL_IGNORE(sl_fail_copy(error));
}

struct sluice_backend_config sl_backend_config_alone(void)
{
    return (struct sluice_backend_config){.size = sizeof(struct sluice_backend_config),
                                          .world = 1,
                                          .abort_timeout_ns = SLUICE_SECOND,
                                          .now = system_time,
                                          .wake = wake_nobody,
                                          .fail = keep_error};
}
