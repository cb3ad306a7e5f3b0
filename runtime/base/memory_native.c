/*
 * memory_native.c: jemalloc's explicit API, or libc.
 *
 * - An own arena is always entered with MALLOCX_TCACHE_NONE, also when freeing: a thread cache would
 *   carry its memory into other arenas, and the arena could not be destroyed whole.
 * - jemalloc is referred to weakly. A shared object linked to it cannot be loaded late (initial-exec
 *   TLS), so the program links it, or libc serves. Sanitizers see libc only.
 */
#include "runtime/base/memory_native.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/error.h"

#define NATURAL_ALIGNMENT _Alignof(max_align_t)

static void *libc_alloc(void *context, size_t bytes, size_t alignment)
{
    (void)context;
    if (alignment <= NATURAL_ALIGNMENT)
        return malloc(bytes);
    void *block = NULL;
    return posix_memalign(&block, alignment, bytes) == 0 ? block : NULL;
}

static void libc_free(void *context, void *block)
{
    (void)context;
    free(block);
}

static const struct sl_mem_ops libc_ops = {.name = "libc", .alloc = libc_alloc, .free = libc_free};

#ifndef SLUICE_LIBC_ALLOCATOR
#include <jemalloc/jemalloc.h>

#pragma weak mallocx
#pragma weak dallocx
#pragma weak mallctl

/* The context is the flags of the arena; 0 for the shared ones, where thread caches serve. */
static int flags_of(const void *context)
{
    return (int)(uintptr_t)context;
}

static void *jemalloc_alloc(void *context, size_t bytes, size_t alignment)
{
    int align = alignment <= NATURAL_ALIGNMENT ? 0 : MALLOCX_LG_ALIGN(__builtin_ctzl(alignment));
    return mallocx(bytes, flags_of(context) | align);
}

static void jemalloc_free(void *context, void *block)
{
    if (block)
        dallocx(block, flags_of(context));
}

static const struct sl_mem_ops jemalloc_ops = {.name = "jemalloc", .alloc = jemalloc_alloc, .free = jemalloc_free};

static _Bool linked(void)
{
    return mallocx && dallocx && mallctl;
}

static _Bool arena_create(void **ret_context)
{
    unsigned index = 0;
    size_t bytes = sizeof index;
    if (mallctl("arenas.create", &index, &bytes, NULL, 0) != 0)
        return 0;
    *ret_context = (void *)(uintptr_t)(unsigned)(MALLOCX_ARENA(index) | MALLOCX_TCACHE_NONE);
    return 1;
}

static void arena_destroy(void *context)
{
    char name[48];
    SL_IGNORE(snprintf(name, sizeof name, "arena.%d.destroy", (flags_of(context) >> 20) - 1));
    int failed = mallctl(name, NULL, NULL, NULL, 0);
    SL_ASSERT(failed == 0);
}

static const char *jemalloc_name(void)
{
    static _Thread_local char name[96];
    const char *version = "";
    size_t bytes = sizeof(void *);
    int failed = mallctl("version", &version, &bytes, NULL, 0);
    SL_ASSERT(failed == 0);
    SL_IGNORE(snprintf(name, sizeof name, "jemalloc %s", version));
    return name;
}

const struct sl_mem_ops *sl_native_ops(void)
{
    return linked() ? &jemalloc_ops : &libc_ops;
}

_Bool sl_native_open(void **ret_context)
{
    if (linked())
        return arena_create(ret_context);
    *ret_context = NULL;
    return 1;
}

void sl_native_close(void *context)
{
    if (context)
        arena_destroy(context);
}

const char *sl_native_name(void)
{
    return linked() ? jemalloc_name() : libc_ops.name;
}
#else
const struct sl_mem_ops *sl_native_ops(void)
{
    return &libc_ops;
}

_Bool sl_native_open(void **ret_context)
{
    *ret_context = NULL;
    return 1;
}

void sl_native_close(void *context)
{
    SL_ASSERT(context == NULL);
}

const char *sl_native_name(void)
{
    return libc_ops.name;
}
#endif
