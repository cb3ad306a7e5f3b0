/*
 * memory.c: what the library calls for memory, over a table.
 *
 * - A block is freed by the table that gave it: an arena keeps the table it was opened with, so a
 *   table installed for a test does not reach arenas that were open before.
 * - `installed` is written before threads start, so without a lock.
 */
#include "runtime/base/memory.h"

#include <stdint.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/memory_native.h"

struct sl_mem {
    const struct sl_mem_ops *ops; /* NULL: the shared one, which follows sl_mem_install */
    void *context;
};

static struct sl_mem shared;
static struct sl_mem installed;

struct sl_mem *sl_mem_default(void)
{
    return &shared;
}

void sl_mem_install(const struct sl_mem_ops *ops, void *context)
{
    installed = (struct sl_mem){.ops = ops, .context = context};
}

static struct sl_mem resolve(const struct sl_mem *mem)
{
    SL_ASSERT(mem != NULL);
    if (mem->ops)
        return *mem;
    if (installed.ops)
        return installed;
    return (struct sl_mem){.ops = sl_native_ops(), .context = NULL};
}

struct sl_mem *sl_mem_open(void)
{
    struct sl_mem fresh = installed;
    if (!fresh.ops) {
        fresh.ops = sl_native_ops();
        if (!sl_native_open(&fresh.context))
            return NULL;
    }
    struct sl_mem *mem = fresh.ops->alloc(fresh.context, sizeof *mem, _Alignof(struct sl_mem));
    if (mem)
        *mem = fresh;
    else if (fresh.ops == sl_native_ops())
        sl_native_close(fresh.context);
    return mem;
}

void sl_mem_close(struct sl_mem *mem)
{
    if (!mem)
        return;
    SL_ASSERT(mem != &shared);
    struct sl_mem gone = *mem; /* it lies in the arena that it describes */
    gone.ops->free(gone.context, mem);
    if (gone.ops == sl_native_ops())
        sl_native_close(gone.context);
}

static void *new_block(const struct sl_mem *mem, size_t bytes, size_t alignment, const char *what)
{
    struct sl_mem from = resolve(mem);
    void *block = bytes <= PTRDIFF_MAX ? from.ops->alloc(from.context, bytes ? bytes : 1, alignment) : NULL;
    if (!block)
        SL_IGNORE(sl_fail(SLUICE_NOMEM, "memory", "out of memory: %zu bytes for %s", bytes, what));
    return block;
}

void *sl_new(struct sl_mem *mem, size_t bytes, const char *what)
{
    void *block = new_block(mem, bytes, _Alignof(max_align_t), what);
    return block ? memset(block, 0, bytes) : NULL;
}

void *sl_new_array(struct sl_mem *mem, size_t count, size_t bytes, const char *what)
{
    size_t total = 0;
    if (__builtin_mul_overflow(count, bytes, &total))
        total = SIZE_MAX;
    return sl_new(mem, total, what);
}

void *sl_new_aligned(struct sl_mem *mem, size_t bytes, size_t alignment, const char *what)
{
    SL_ASSERT(alignment > 0 && (alignment & (alignment - 1)) == 0);
    return new_block(mem, bytes, alignment, what);
}

void sl_free(struct sl_mem *mem, void *block)
{
    if (!block)
        return;
    struct sl_mem to = resolve(mem);
    to.ops->free(to.context, block);
}

char *sl_strdup(struct sl_mem *mem, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = new_block(mem, bytes, 1, "text");
    return copy ? memcpy(copy, text, bytes) : NULL;
}

/* At least twice the old capacity, so that appending costs constant time in the mean. */
static size_t next_capacity(size_t capacity, size_t need)
{
    size_t next = capacity < 8 ? 8 : capacity;
    while (next < need)
        next = next > SIZE_MAX / 2 ? need : next * 2;
    return next;
}

sluice_status sl_grow(struct sl_mem *mem, void *array_pointer, size_t *capacity, size_t need, size_t bytes,
                      const char *what)
{
    if (need <= *capacity)
        return SLUICE_OK;
    void *old = NULL;
    memcpy(&old, array_pointer, sizeof old); /* the caller's pointer is of any object type */
    size_t next = next_capacity(*capacity, need);
    size_t total = 0;
    if (__builtin_mul_overflow(next, bytes, &total))
        total = SIZE_MAX;
    void *grown = new_block(mem, total, _Alignof(max_align_t), what);
    if (!grown)
        return SLUICE_NOMEM;
    if (old)
        memcpy(grown, old, *capacity * bytes);
    sl_free(mem, old);
    memcpy(array_pointer, &grown, sizeof grown);
    *capacity = next;
    return SLUICE_OK;
}

const char *sl_mem_name(void)
{
    return installed.ops ? installed.ops->name : sl_native_name();
}
