/*
 * memory.h: the one allocator table. jemalloc's explicit API behind it where it is linked, libc
 * otherwise and in sanitizer builds; tests install a counting or failing table.
 *
 * Every block belongs to a `struct sl_mem`; sl_mem_close asserts nothing and frees what is left where
 * the implementation can (an arena), so owners still free what they allocate.
 */
#ifndef SL_BASE_MEMORY_H
#define SL_BASE_MEMORY_H

#include "sluice/base.h"

struct sl_mem; /* an arena */

struct sl_mem_ops {
    const char *name;
    void *(*alloc)(void *context, size_t bytes, size_t alignment); /* NULL when out of memory */
    void (*free)(void *context, void *block);
};

/* The process-wide default: plans and tools. Never closed. */
struct sl_mem *sl_mem_default(void);
/* A new arena; NULL when out of memory. */
struct sl_mem *sl_mem_open(void);
void sl_mem_close(struct sl_mem *mem);
/* Replaces the table for arenas opened later and for the default (tests); NULL restores it. */
void sl_mem_install(const struct sl_mem_ops *ops, void *context);

/* Zeroed; NULL (and the thread's last error NOMEM naming `what`) when out of memory. bytes 0 gives a block. */
void *sl_new(struct sl_mem *mem, size_t bytes, const char *what);
/* count * bytes with overflow checked. */
void *sl_new_array(struct sl_mem *mem, size_t count, size_t bytes, const char *what);
/* Not zeroed, aligned (power of two). */
void *sl_new_aligned(struct sl_mem *mem, size_t bytes, size_t alignment, const char *what);
void sl_free(struct sl_mem *mem, void *block);
/* A copy of a string. */
char *sl_strdup(struct sl_mem *mem, const char *text);
/*
 * Grows `*array` (elements of `bytes`) to hold at least `need`; keeps contents. The new part
 * is not zeroed. NOMEM leaves it as it was.
 */
sluice_status sl_grow(struct sl_mem *mem, void *array_pointer, size_t *capacity, size_t need, size_t bytes,
                      const char *what);
/* "jemalloc 5.3.0-0-g..." or "libc". */
const char *sl_mem_name(void);

#endif
