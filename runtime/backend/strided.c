/*
 * Pieces are copied by memcpy row by row, so any address and any pitch will do; a contiguous piece is one call.
 */
#include "runtime/backend/strided.h"

#include <string.h>

#include "runtime/backend/digest.h"

void sl_strided_copy(const struct sluice_copy *piece, uint64_t delta)
{
    struct sl_cursor from = sl_cursor_at(&piece->from, delta);
    struct sl_cursor to = sl_cursor_at(&piece->to, 0);
    uint64_t left = piece->bytes;
    while (left > 0) {
        uint64_t run = left;
        run = run < from.left ? run : from.left;
        run = run < to.left ? run : to.left;
        memcpy((void *)(uintptr_t)to.address, (const void *)(uintptr_t)from.address, run);
        left -= run;
        sl_cursor_advance(&from, run);
        sl_cursor_advance(&to, run);
    }
}

enum { DIGEST_BLOCK = 4096 }; /* whole units */

/* The next bytes of a region in one place: where they are, or gathered into `block`. */
static const void *next_block(struct sl_cursor *from, uint64_t bytes, uint8_t *block)
{
    const void *there = (const void *)(uintptr_t)from->address;
    if (bytes <= from->left) {
        sl_cursor_advance(from, bytes);
        return there;
    }
    for (uint64_t at = 0; at < bytes;) {
        uint64_t run = bytes - at < from->left ? bytes - at : from->left;
        memcpy(block + at, (const void *)(uintptr_t)from->address, run);
        at += run;
        sl_cursor_advance(from, run);
    }
    return block;
}

/* The terms of `bytes` in one place, which begin at unit `first`; only the last unit may be a part of one. */
static uint64_t digest_block(const uint8_t *block, uint64_t bytes, uint64_t first)
{
    uint64_t sum = 0, words[2];
    uint64_t units = bytes / sizeof words, rest = bytes % sizeof words;
    for (uint64_t i = 0; i < units; i++) {
        memcpy(words, block + i * sizeof words, sizeof words);
        sum += sl_digest_term(words[0], words[1], first + i);
    }
    if (rest != 0) {
        memset(words, 0, sizeof words);
        memcpy(words, block + units * sizeof words, rest);
        sum += sl_digest_term(words[0], words[1], first + units);
    }
    return sum;
}

uint64_t sl_strided_digest(const struct sluice_strided *from, uint64_t bytes)
{
    uint8_t block[DIGEST_BLOCK];
    struct sl_cursor cursor = sl_cursor_at(from, 0);
    uint64_t sum = 0;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t run = bytes - at < DIGEST_BLOCK ? bytes - at : DIGEST_BLOCK;
        sum += digest_block(next_block(&cursor, run, block), run, at / SL_DIGEST_UNIT);
        at += run;
    }
    return sl_digest_end(sum, bytes);
}
