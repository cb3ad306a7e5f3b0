/*
 * cuda.h: streams, events and communicators of a program that uses CUDA.
 *
 * - Optional: a program that includes it needs no CUDA header and links nothing more. The functions answer
 *   UNSUPPORTED where the runtime's backend is not "cuda".
 * - `struct CUstream_st *` is cudaStream_t and CUstream, `struct CUevent_st *` is cudaEvent_t and CUevent,
 *   `struct ncclComm *` is ncclComm_t. Streams and events belong to the runtime's device.
 * - The legacy default stream is NULL or cudaStreamLegacy; the calling thread's own default stream is
 *   cudaStreamPerThread, also in programs that were compiled to make it the default: they name it.
 * - A stream that is being captured into a graph is refused (STATE): a transfer is never part of a graph.
 * - Any thread. The caller's current device stays what it was.
 */
#ifndef SLUICE_CUDA_H
#define SLUICE_CUDA_H

#include "sluice/runtime.h"
#include "sluice/transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct CUevent_st;
struct ncclComm;

/*
 * A gate that opens when all work that is in `stream` now has ended: give the producer's stream right after
 * the work that writes the weights was enqueued, or the consumer's after the last work that reads them. When
 * that work fails the transfers that wait fail with its CUDA error. Errors: INVALID, STATE, DEVICE, UNSUPPORTED.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_cuda_gate_stream(sluice_runtime *runtime, struct CUstream_st *stream,
                                                                  sluice_gate **ret_gate);

/*
 * The same for an event that the caller has recorded, of any kind. The event must outlive the gate and not be
 * recorded again before it opened. INVALID: it was never recorded, which CUDA itself would take for passed.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_cuda_gate_event(sluice_runtime *runtime, struct CUevent_st *event,
                                                                 sluice_gate **ret_gate);

/*
 * Makes later work in `stream` wait on the device for the end of the transfer on this rank, without blocking the
 * host. AGAIN: its last part is not launched yet; ask again, or wait for the terminal event. OK at once when it has
 * ended well. A transfer that failed gives its error.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_cuda_wait(sluice_transfer *transfer, struct CUstream_st *stream);

/*
 * sluice_submit for a plan whose tasks on this rank are all local: all copies are enqueued in `stream` before it
 * returns, behind the work that is there and before what comes later, and the host is not needed any more. Takes no
 * gates, no shadow landing, no pace, and cannot be cancelled. Events come as for every transfer. Errors: as
 * sluice_submit, and INVALID (a task with another rank, or a gate), STATE (after a rebind, or a capture), AGAIN (a
 * transfer of the plan that came through sluice_submit still runs), DEVICE, UNSUPPORTED (also: a buffer is in pageable
 * memory, which needs the host).
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_cuda_submit(sluice_plan *plan,
                                                             const struct sluice_transfer_options *options,
                                                             struct CUstream_st *stream,
                                                             sluice_transfer **ret_transfer);

/*
 * Lends a communicator over the ranks of the runtime, in its rank order, for the groups of its plans. Every rank
 * lends before the first seal, or none does. It stays the caller's, who leaves it alone until the runtime has
 * closed; it is never aborted by us, so after a failure the caller aborts it. STATE: a communicator exists already.
 */
SLUICE_API SLUICE_NODISCARD sluice_status sluice_cuda_lend(sluice_runtime *runtime, struct ncclComm *communicator);

#ifdef __cplusplus
}
#endif
#endif
