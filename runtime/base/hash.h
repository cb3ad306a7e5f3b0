/* hash.h: XXH3 (64 and 128 bit) for digests and checksums. Not for secrets: the control plane uses libsodium. */
#ifndef SL_BASE_HASH_H
#define SL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t sl_hash64(const void *data, size_t bytes, uint64_t seed);

struct sl_hash;                              /* streaming state on the heap of the default arena */
struct sl_hash *sl_hash_open(uint64_t seed); /* NULL when out of memory */
void sl_hash_add(struct sl_hash *hash, const void *data, size_t bytes);
uint64_t sl_hash_value(const struct sl_hash *hash);
void sl_hash_close(struct sl_hash *hash);

#ifdef __CUDACC__
#define SL_EVERYWHERE __host__ __device__
#else
#define SL_EVERYWHERE
#endif

/* One round of a 64-bit mixer (for content generators, seeds and digests of weights); a bijection. */
SL_EVERYWHERE static inline uint64_t sl_mix64(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return x;
}

#endif
