/*
 * foreground.h: what a generator would run on a GPU, as loops, and copies by the driver; for `sluice bench overlap`.
 *
 * The code is in a module of its own (libsluice_foreground.so), so that the tool needs no CUDA. One thread runs the
 * steps of a handle; `copy` may run on another meanwhile. Texts live as long as the module.
 */
#ifndef SL_TOOL_FOREGROUND_H
#define SL_TOOL_FOREGROUND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum foreground_kind {
    FOREGROUND_BLOCKS = 0,   /* a memory-bound kernel of many short blocks */
    FOREGROUND_PRODUCTS = 1, /* a chain of matrix products */
    FOREGROUND_KINDS = 2
};

/* How foreground_ops.copy moves bytes. */
enum foreground_copy {
    FOREGROUND_COPY_DRIVER = 0, /* the asynchronous copy call */
    FOREGROUND_COPY_ENGINE = 1  /* the batched call, asked to overlap with kernels: a copy engine */
};

struct foreground;

struct foreground_ops {
    uint32_t size; /* of this struct */
    /* Takes up to 1 GiB of device memory. 0, or an error whose text is in `*ret_text`. */
    int (*open)(uint32_t device, enum foreground_kind kind, struct foreground **ret, const char **ret_text);
    void (*close)(struct foreground *foreground);
    /* What a step of the loop is, in words. */
    const char *(*about)(const struct foreground *foreground);
    /* Enqueues a step and waits for the one before it, so that the device always has one to run. */
    int (*step)(struct foreground *foreground, const char **ret_text);
    /* Copies within the device in a stream of its own and waits. UNSUPPORTED way: an error. */
    int (*copy)(struct foreground *foreground, enum foreground_copy way, void *to, const void *from, size_t bytes,
                const char **ret_text);
};

#define FOREGROUND_MODULE "libsluice_foreground.so"
#define FOREGROUND_SYMBOL "sluice_foreground"

#ifdef __cplusplus
}
#endif
#endif
