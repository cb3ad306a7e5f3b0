/*
 * digest.h: the digest of weights that sluice/backend.h defines, for the processor and for kernels.
 *
 * A sum of one term a unit of 16 bytes, so units can be taken in any order; one wide multiplication a term, so neither
 * has more to do than to read. Not for secrets: whoever chooses the bytes can make two contents with one digest.
 */
#ifndef SL_BACKEND_DIGEST_H
#define SL_BACKEND_DIGEST_H

#include "runtime/base/hash.h"
#include "runtime/base/int128.h"

#define SL_DIGEST_UNIT 16u
/* Odd, so that no two units of a piece have the same place. */
#define SL_DIGEST_STEP_A UINT64_C(0x9e3779b97f4a7c15)
#define SL_DIGEST_STEP_B UINT64_C(0xd6e8feb86659fd93)

/* Of unit `index`, whose words are `a` and `b`. */
SL_EVERYWHERE static inline uint64_t sl_digest_term(uint64_t a, uint64_t b, uint64_t index)
{
    sl_u128 product = (sl_u128)(a + (index + 1) * SL_DIGEST_STEP_A) * (b + (index + 1) * SL_DIGEST_STEP_B);
    return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

SL_EVERYWHERE static inline uint64_t sl_digest_end(uint64_t sum, uint64_t bytes)
{
    return sl_mix64(sum + bytes);
}

#endif
