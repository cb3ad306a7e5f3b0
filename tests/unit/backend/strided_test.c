/* Digests of strided places. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/backend/strided.h"

enum { BYTES = 10000, ROW = 37, PITCH = 50 };

static uint8_t flat[BYTES], rows[BYTES / ROW * PITCH + PITCH];

static struct sluice_strided place(const uint8_t *memory, uint64_t row_bytes, uint64_t pitch, uint64_t begin)
{
    return (struct sluice_strided){(uint64_t)(uintptr_t)memory, row_bytes, pitch, begin};
}

static void fill(void)
{
    for (uint32_t i = 0; i < BYTES; i++) {
        flat[i] = (uint8_t)(i * 31 + i / 256);
        rows[i / ROW * PITCH + i % ROW] = flat[i];
    }
}

Test(strided, digest_does_not_depend_on_the_layout)
{
    fill();
    struct sluice_strided contiguous = place(flat, UINT64_MAX, 0, 0);
    struct sluice_strided strided = place(rows, ROW, PITCH, 0);
    cr_expect_eq(sl_strided_digest(&contiguous, BYTES), sl_strided_digest(&strided, BYTES));
    contiguous.begin = strided.begin = 1234;
    cr_expect_eq(sl_strided_digest(&contiguous, 5000), sl_strided_digest(&strided, 5000));
}

Test(strided, digest_changes_with_every_byte_and_with_the_length)
{
    fill();
    struct sluice_strided contiguous = place(flat, UINT64_MAX, 0, 0);
    uint64_t whole = sl_strided_digest(&contiguous, BYTES);
    for (uint32_t i = 0; i < BYTES; i += 97) {
        flat[i] ^= 1;
        cr_expect_neq(sl_strided_digest(&contiguous, BYTES), whole, "byte %u", i);
        flat[i] ^= 1;
    }
    cr_expect_neq(sl_strided_digest(&contiguous, BYTES - 1), whole);
    cr_expect_eq(sl_strided_digest(&contiguous, BYTES), whole);
}
