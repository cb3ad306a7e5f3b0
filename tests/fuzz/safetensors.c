/*
 * safetensors.c: no bytes make the reader of headers crash, read too far or leak; what it accepts lies inside the file
 * without overlap. The first 8 bytes are a length that mutations would rarely get right: it is set as well.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/safetensors.h"

enum { LENGTH_BYTES = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_tensors(const struct sl_tensors *tensors, size_t bytes)
{
    uint64_t end = 0;
    for (size_t i = 0; i < tensors->count; i++) {
        const struct sl_tensor *tensor = &tensors->list[i];
        SL_ASSERT(tensor->name != NULL && tensor->dims <= SL_TENSOR_DIMS_MAX);
        SL_ASSERT(i == 0 || tensor->offset == end);
        SL_ASSERT(tensor->offset <= bytes && tensor->bytes <= bytes - tensor->offset);
        end = tensor->offset + tensor->bytes;
    }
}

static void read_file(const uint8_t *data, size_t bytes)
{
    struct sl_tensors tensors;
    sluice_status status = sl_tensors_read(data, bytes, "input", sl_mem_default(), &tensors);
    if (status != SLUICE_OK) {
        SL_ASSERT(sluice_last_error()->status == status && sluice_last_error()->text[0] != '\0');
        return;
    }
    check_tensors(&tensors, bytes);
    sl_tensors_drop(&tensors);
}

/* As it is; then all of it as the header, and as header and contents: the last byte says how long those are. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    read_file(data, bytes);
    if (bytes == 0)
        return 0;
    uint64_t contents = data[bytes - 1];
    uint64_t header = bytes - 1;
    uint8_t *file = calloc(1, LENGTH_BYTES + header + contents);
    SL_ASSERT(file != NULL);
    memcpy(file, &header, LENGTH_BYTES);
    memcpy(file + LENGTH_BYTES, data, header);
    read_file(file, LENGTH_BYTES + header);
    read_file(file, LENGTH_BYTES + header + contents);
    free(file);
    return 0;
}
