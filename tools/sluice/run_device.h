/*
 * run_device.h: buffers of a rank in the memory of a GPU, beside those in plain memory that content is made and
 * verified in; and what several ranks on one GPU need.
 */
#ifndef SL_TOOL_RUN_DEVICE_H
#define SL_TOOL_RUN_DEVICE_H

#include "run_buffers.h"
#include "sluice/runtime.h"

/* Where buffers lie; the words of --source-memory and --destination-memory. */
enum run_memory { RUN_MEMORY_DEVICE, RUN_MEMORY_PINNED, RUN_MEMORY_PAGEABLE };
extern const char *const run_memory_names[]; /* ends with NULL */

struct run_device {
    const struct sluice_backend_ops *ops; /* NULL: buffers are plain memory */
    struct sluice_device *device;
    enum run_memory kind[2]; /* by role */
    uint8_t *memory[2];      /* NULL for pageable memory: that of the rank's plain buffers */
    uint64_t bytes[2];
};

/*
 * Sets what `ranks` on one GPU need in the environment of the process of `rank`, before NCCL reads it, and says so
 * once: NCCL refuses two ranks on one GPU unless it takes them for different hosts (before 2.30; they talk over
 * sockets) or is told to allow it. `version` is NCCL's.
 */
void run_share_gpu(uint32_t version, uint32_t ranks, uint32_t rank);

/*
 * Opens the device that the rank will use, when its backend is cuda, and takes memory like that of `buffers`, of a kind
 * for each role; without a device there is one kind, the default. Sets what NCCL needs for several ranks on a GPU in
 * this process's environment, before NCCL reads it. The device is the one that the runtime chooses: by `local_rank`.
 */
sluice_status run_device_open(const struct run_buffers *buffers, const enum run_memory kinds[2],
                              struct sluice_runtime_options *options, uint32_t ranks_per_gpu, uint32_t local_rank,
                              struct run_device *ret);
void run_device_close(struct run_device *device);

/* The same place of the rank's buffer; plain memory without a device. */
uint8_t *run_device_buffer(const struct run_device *device, const struct run_buffers *buffers, uint32_t param,
                           enum sluice_role role);
/* Sources and destinations to the device; does nothing without one. */
sluice_status run_device_upload(const struct run_device *device, const struct run_buffers *buffers);
/* Destinations back. */
sluice_status run_device_download(const struct run_device *device, const struct run_buffers *buffers);

#endif
