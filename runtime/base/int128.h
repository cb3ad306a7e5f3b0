/* int128.h: a 128-bit product where 64 bits would overflow. */
#ifndef SL_BASE_INT128_H
#define SL_BASE_INT128_H

#include <stdint.h>

__extension__ typedef unsigned __int128 sl_u128;

/* floor(a * b / c), c > 0; the result must fit 64 bits. */
static inline uint64_t sl_mul_div(uint64_t a, uint64_t b, uint64_t c)
{
    return (uint64_t)(((sl_u128)a * b) / c);
}

#endif
