/*
 * load.c: the shared library in a program that was not linked to it. It loads late, any number of
 * times (no static thread-local storage), and two copies of it do not mix.
 * Usage: build_load LIBRARY
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sluice/base.h"

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
        dlclose(library);
    }
    two_copies(argv[1]);
    return 0;
}
