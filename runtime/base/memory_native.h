/* memory_native.h: the allocator that the process has: jemalloc where the program links it, else libc. */
#ifndef SL_BASE_MEMORY_NATIVE_H
#define SL_BASE_MEMORY_NATIVE_H

#include "runtime/base/memory.h"

/* Takes the context NULL (shared by the process) or one of sl_native_open. */
const struct sl_mem_ops *sl_native_ops(void);
/* An arena of its own where there are arenas, else NULL in `ret_context`. False: no arena is left. */
_Bool sl_native_open(void **ret_context);
/* Destroys the arena with all that is in it. NULL is allowed. */
void sl_native_close(void *context);
/* Valid until the thread's next call. */
const char *sl_native_name(void);

#endif
