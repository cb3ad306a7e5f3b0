/*
 * hash.c: XXH3 in the widest form that the processor has.
 *
 * - The value does not depend on the processor: dispatch only chooses the instructions.
 * - A state is 64-byte aligned, which the library's own state type asks for.
 */
#define XXH_STATIC_LINKING_ONLY
#include "runtime/base/hash.h"

#if defined(__x86_64__)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include "runtime/base/error.h"
#include "runtime/base/memory.h"

struct sl_hash {
    XXH3_state_t state;
};

uint64_t sl_hash64(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

struct sl_hash *sl_hash_open(uint64_t seed)
{
    struct sl_hash *hash = sl_new_aligned(sl_mem_default(), sizeof *hash, _Alignof(struct sl_hash), "hash state");
    if (!hash)
        return NULL;
    XXH3_INITSTATE(&hash->state);
    XXH_errorcode failed = XXH3_64bits_reset_withSeed(&hash->state, seed);
    SL_ASSERT(failed == XXH_OK);
    return hash;
}

void sl_hash_add(struct sl_hash *hash, const void *data, size_t bytes)
{
    if (bytes == 0)
        return;
    XXH_errorcode failed = XXH3_64bits_update(&hash->state, data, bytes);
    SL_ASSERT(failed == XXH_OK);
}

uint64_t sl_hash_value(const struct sl_hash *hash)
{
    return XXH3_64bits_digest(&hash->state);
}

void sl_hash_close(struct sl_hash *hash)
{
    sl_free(sl_mem_default(), hash);
}
