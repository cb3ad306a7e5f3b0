/*
 * safetensors.h: the header of a safetensors file, read strictly from memory. Pure.
 *
 * The file: 8 bytes little-endian length of a JSON header, the header, then the tensors' bytes. Offsets
 * are relative to the end of the header. Nothing is read outside the given bytes.
 */
#ifndef SL_SCHEDULER_SAFETENSORS_H
#define SL_SCHEDULER_SAFETENSORS_H

#include "runtime/base/error.h"
#include "runtime/base/memory.h"

enum { SL_TENSOR_DIMS_MAX = 8 };

struct sl_tensor {
    char *name;
    uint64_t shape[SL_TENSOR_DIMS_MAX];
    uint32_t dims;
    uint8_t dtype; /* enum sluice_dtype */
    uint64_t bytes;
    uint64_t offset; /* of the first byte in the file */
};

struct sl_tensors {
    struct sl_mem *mem;
    struct sl_tensor *list; /* in the order of their bytes in the file */
    size_t count;
};

/*
 * PARSE with the file's name and offset or tensor: header length beyond the file, malformed or too deep
 * JSON, duplicate names, unknown dtype, shape and size that differ, ranges outside the file, overlapping
 * or leaving gaps. LIMIT for more than SL_TENSOR_DIMS_MAX dimensions. NOMEM.
 */
sluice_status sl_tensors_read(const uint8_t *file, size_t bytes, const char *what, struct sl_mem *mem,
                              struct sl_tensors *ret);
void sl_tensors_drop(struct sl_tensors *tensors);

#endif
