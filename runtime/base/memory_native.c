/*
 * memory_native.c: jemalloc's explicit API, or libc.
 *
 * - An own arena is always entered with MALLOCX_TCACHE_NONE, also when freeing: a thread cache would
 *   carry its memory into other arenas, and the arena could not be destroyed whole.
 * - An own arena takes its memory by hooks of ours, its records' too: jemalloc's own hooks keep the records of an arena
 *   that was destroyed mapped for ever, so that every runtime that was opened and closed would cost 2 MiB of addresses.
 * - jemalloc is referred to weakly. A shared object linked to it cannot be loaded late (initial-exec
 *   TLS), so the program links it, or libc serves. Sanitizers see libc only.
 */
#include "runtime/base/memory_native.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

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

/* `alignment` is a multiple of the page. */
static void *hook_alloc(extent_hooks_t *hooks, void *address, size_t bytes, size_t alignment, bool *zero, bool *commit,
                        unsigned arena)
{
    (void)hooks, (void)arena;
    if (address != NULL)
        return NULL;
    uint8_t *all = mmap(NULL, bytes + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    size_t ahead = (alignment - (uintptr_t)all % alignment) % alignment;
    if (ahead > 0)
        SL_IGNORE(munmap(all, ahead));
    SL_IGNORE(munmap(all + ahead + bytes, alignment - ahead));
    *zero = 1;
    *commit = 1;
    return all + ahead;
}

static bool hook_dalloc(extent_hooks_t *hooks, void *address, size_t bytes, bool committed, unsigned arena)
{
    (void)hooks, (void)committed, (void)arena;
    return munmap(address, bytes) != 0;
}

static void hook_destroy(extent_hooks_t *hooks, void *address, size_t bytes, bool committed, unsigned arena)
{
    SL_IGNORE(hook_dalloc(hooks, address, bytes, committed, arena));
}

/* Mappings may be cut and joined anywhere. */
static bool hook_split(extent_hooks_t *hooks, void *address, size_t bytes, size_t low, size_t high, bool committed,
                       unsigned arena)
{
    (void)hooks, (void)address, (void)bytes, (void)low, (void)high, (void)committed, (void)arena;
    return 0;
}

static bool hook_merge(extent_hooks_t *hooks, void *low, size_t low_bytes, void *high, size_t high_bytes,
                       bool committed, unsigned arena)
{
    (void)hooks, (void)low, (void)low_bytes, (void)high, (void)high_bytes, (void)committed, (void)arena;
    return 0;
}

static _Bool arena_create(void **ret_context)
{
    static extent_hooks_t hooks = {
        .alloc = hook_alloc, .dalloc = hook_dalloc, .destroy = hook_destroy, .split = hook_split, .merge = hook_merge};
    extent_hooks_t *given = &hooks;
    unsigned index = 0;
    size_t bytes = sizeof index;
    if (mallctl("arenas.create", &index, &bytes, &given, sizeof given) != 0)
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
