/*
 * load.c: the shared library in a program that was not linked to it. It loads late, works and unloads,
 * any number of times (no static thread-local storage, no thread left), and two copies do not mix.
 * Usage: build_load LIBRARY
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sluice/plan.h"
#include "sluice/runtime.h"
#include "sluice/transfer.h"

typedef uint32_t (*number_fn)(void);
typedef const struct sluice_error *(*error_fn)(void);

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "build_load: %s: %s\n", what, detail);
    exit(1);
}

static void *load(const char *path, int scope)
{
    void *library = dlopen(path, RTLD_NOW | scope);
    if (!library)
        fail("cannot load", dlerror());
    return library;
}

static void symbol(void *library, const char *name, void *ret_function)
{
    void *address = dlsym(library, name);
    if (!address)
        fail("missing symbol", name);
    memcpy(ret_function, &address, sizeof address); /* ISO C has no cast from object to function pointer */
}

static void use(void *library)
{
    number_fn abi = NULL;
    symbol(library, "sluice_abi_version", &abi);
    if (abi() != SLUICE_ABI_VERSION)
        fail("library and header differ", "ABI version");
    error_fn last_error = NULL;
    symbol(library, "sluice_last_error", &last_error);
    if (last_error()->status != SLUICE_OK)
        fail("fresh thread has an error", last_error()->text);
}

/* Every function that a refit of one rank needs. X(name) */
#define REFIT_FUNCTIONS(X)                                                                                             \
    X(runtime_open)                                                                                                    \
    X(runtime_close_wait)                                                                                              \
    X(plan_create)                                                                                                     \
    X(plan_destroy)                                                                                                    \
    X(plan_add_param)                                                                                                  \
    X(plan_add_task)                                                                                                   \
    X(plan_bind)                                                                                                       \
    X(plan_seal_wait)                                                                                                  \
    X(submit)                                                                                                          \
    X(transfer_wait)                                                                                                   \
    X(transfer_destroy)

struct refit {
#define MEMBER(name) __typeof__(&sluice_##name) name;
    REFIT_FUNCTIONS(MEMBER)
    error_fn last_error;
};

static void check(const struct refit *api, const char *what, sluice_status status)
{
    if (status != SLUICE_OK)
        fail(what, api->last_error()->text);
}

static sluice_plan *make_plan(const struct refit *api, char *source, char *destination, uint64_t bytes)
{
    struct sluice_region whole = {.row_bytes = bytes, .rows = 1, .pitch = bytes};
    struct sluice_param param = {.dtype = SLUICE_DTYPE_U8, .bytes = bytes, .name = "weight"};
    struct sluice_task task = {
        .from = whole, .to = whole, .source_dtype = SLUICE_DTYPE_U8, .destination_dtype = SLUICE_DTYPE_U8};
    sluice_plan *plan = NULL;
    check(api, "create", api->plan_create(1, &plan));
    check(api, "add_param", api->plan_add_param(plan, &param));
    check(api, "add_task", api->plan_add_task(plan, &task));
    check(api, "bind", api->plan_bind(plan, 0, SLUICE_ROLE_SOURCE, source, bytes));
    check(api, "bind", api->plan_bind(plan, 0, SLUICE_ROLE_DESTINATION, destination, bytes));
    return plan;
}

/* Open, seal, move a buffer, close: all threads of the library come and go. */
static void refit(void *library)
{
    struct refit api;
#define FIND(name) symbol(library, "sluice_" #name, &api.name);
    REFIT_FUNCTIONS(FIND)
    symbol(library, "sluice_last_error", &api.last_error);
    char source[] = "seven times seven weights";
    char destination[sizeof source] = "";
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    options.world = 1;
    options.backend = "host";
    sluice_runtime *runtime = NULL;
    check(&api, "open", api.runtime_open(&options, &runtime));
    sluice_plan *plan = make_plan(&api, source, destination, sizeof source);
    check(&api, "seal", api.plan_seal_wait(plan, runtime, NULL, 0));
    sluice_transfer *transfer = NULL;
    check(&api, "submit", api.submit(plan, NULL, &transfer));
    check(&api, "wait", api.transfer_wait(transfer, 60 * SLUICE_SECOND));
    if (memcmp(source, destination, sizeof source) != 0)
        fail("wrong bytes", destination);
    api.transfer_destroy(transfer);
    api.plan_destroy(plan);
    api.runtime_close_wait(runtime);
}

static void copy_file(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb");
    FILE *out = fopen(to, "wb");
    if (!in || !out)
        fail("cannot copy", to);
    char buffer[65536];
    for (size_t bytes = fread(buffer, 1, sizeof buffer, in); bytes > 0; bytes = fread(buffer, 1, sizeof buffer, in))
        if (fwrite(buffer, 1, bytes, out) != bytes)
            fail("cannot write", to);
    fclose(in);
    if (fclose(out) != 0)
        fail("cannot write", to);
}

/* Both in the global scope: symbols of the first must not be taken by the second. */
static void two_copies(const char *path)
{
    char copy[] = "/tmp/libsluice-copy-XXXXXX";
    int fd = mkstemp(copy);
    if (fd < 0)
        fail("cannot make a file", copy);
    close(fd);
    copy_file(path, copy);
    void *first = load(path, RTLD_GLOBAL);
    void *second = load(copy, RTLD_GLOBAL);
    unlink(copy);
    error_fn errors[2] = {NULL, NULL};
    symbol(first, "sluice_last_error", &errors[0]);
    symbol(second, "sluice_last_error", &errors[1]);
    use(first);
    use(second);
    refit(first);
    refit(second);
    if (errors[0]() == errors[1]())
        fail("two copies share state", "sluice_last_error");
    dlclose(second);
    use(first);
    dlclose(first);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        fail("usage", "build_load LIBRARY");
    for (int i = 0; i < 50; i++) {
        void *library = load(argv[1], RTLD_LOCAL);
        use(library);
        refit(library);
        dlclose(library);
    }
    two_copies(argv[1]);
    return 0;
}
