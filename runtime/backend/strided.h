/* strided.h: the one loop that moves the bytes of a piece in memory that the processor reaches. */
#ifndef SL_BACKEND_STRIDED_H
#define SL_BACKEND_STRIDED_H

#include "sluice/backend.h"

/* Copies one piece; `delta` is added to the address that it is read from (wraps). */
void sl_strided_copy(const struct sluice_copy *piece, uint64_t delta);

/* A digest of `bytes` stream bytes from `from->begin` on; the layout does not matter. */
uint64_t sl_strided_digest(const struct sluice_strided *from, uint64_t bytes);

#endif
