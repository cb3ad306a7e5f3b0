/* Hash, mixer, random numbers, 128-bit products, clock and log. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/int128.h"
#include "runtime/base/log.h"
#include "runtime/base/random.h"
#include "tests/support/log.h"
#include "tests/support/memory.h"

/* XXH3's published value of nothing, so that files keep their digests. */
Test(hash, value_is_xxh3)
{
    cr_assert_eq(sl_hash64("", 0, 0), UINT64_C(0x2d06800538d394c2));
}

Test(hash, stream_equals_one_call_however_it_is_cut)
{
    static unsigned char data[5000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7);
    for (size_t piece = 1; piece < sizeof data; piece = piece * 3 + 1) {
        struct sl_hash *hash = sl_hash_open(99);
        for (size_t i = 0; i < sizeof data; i += piece)
            sl_hash_add(hash, data + i, piece < sizeof data - i ? piece : sizeof data - i);
        cr_assert_eq(sl_hash_value(hash), sl_hash64(data, sizeof data, 99));
        sl_hash_close(hash);
    }
    cr_assert_neq(sl_hash64(data, sizeof data, 99), sl_hash64(data, sizeof data, 98));
    sl_hash_close(NULL);
}

Test(hash, no_memory_is_null)
{
    struct test_memory memory;
    test_memory_install(&memory);
    test_memory_fail_at(&memory, 1);
    cr_assert_null(sl_hash_open(0));
}

Test(int128, product_is_exact_beyond_64_bits)
{
    cr_assert_eq(sl_mul_div(UINT64_C(1) << 62, 1000003, UINT64_C(1) << 20), UINT64_C(1000003) << 42);
    cr_assert_eq(sl_mul_div(UINT64_MAX, UINT64_MAX, UINT64_MAX), UINT64_MAX);
    cr_assert_eq(sl_mul_div(7, 3, 2), 10);
}

/* The first values of SplitMix64 with seed 1234567, as its author gives them. */
Test(random, sequence_is_splitmix64)
{
    struct sl_random random = {.state = 1234567};
    cr_assert_eq(sl_random_next(&random), UINT64_C(6457827717110365317));
    cr_assert_eq(sl_random_next(&random), UINT64_C(3203168211198807973));
    for (int i = 0; i < 1000; i++)
        cr_assert_lt(sl_random_below(&random, 7), 7);
}

Test(clock, system_clock_never_goes_back)
{
    uint64_t last = sl_now(sl_clock_system());
    cr_assert_gt(last, 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t now = sl_now(sl_clock_system());
        cr_assert_geq(now, last);
        last = now;
    }
}

Test(clock, deadline_saturates)
{
    cr_assert_eq(sl_deadline(100, 50), 150);
    cr_assert_eq(sl_deadline(100, UINT64_MAX), UINT64_MAX);
    cr_assert_eq(sl_deadline(UINT64_MAX - 1, 5), UINT64_MAX);
}

Test(log, lines_above_the_level_are_not_written)
{
    static struct test_log captured = TEST_LOG_INIT;
    struct sl_log log = {.sink = test_log_sink, .user = &captured, .level = SLUICE_LOG_INFO};
    SL_LOG(&log, SLUICE_LOG_DEBUG, "seal", "hidden");
    SL_LOG(&log, SLUICE_LOG_INFO, "seal", "rank %d\njoined", 3);
    SL_LOG((struct sl_log *)NULL, SLUICE_LOG_ERROR, "seal", "nobody listens");
    cr_assert_eq(captured.lines, 1);
    cr_assert_str_eq(captured.text, "2 seal: rank 3 joined\n");
    cr_assert(test_log_has(&captured, "joined"));
    cr_assert_not(test_log_has(&captured, "hidden"));
}

Test(log, long_text_is_cut)
{
    static struct test_log captured = TEST_LOG_INIT;
    struct sl_log log = {.sink = test_log_sink, .user = &captured, .level = SLUICE_LOG_INFO};
    SL_LOG(&log, SLUICE_LOG_INFO, "x", "%5000d", 1);
    cr_assert_eq(captured.lines, 1);
    cr_assert_eq(captured.length, strlen("2 x: ") + 1023 + 1);
}

Test(log, levels_have_names)
{
    enum sluice_log_level level = SLUICE_LOG_ERROR;
    cr_assert(sl_log_level_parse("debug", &level));
    cr_assert_eq(level, SLUICE_LOG_DEBUG);
    cr_assert_not(sl_log_level_parse("Debug", &level));
    cr_assert_not(sl_log_level_parse("", &level));
    cr_assert_str_eq(sl_log_level_name(SLUICE_LOG_WARN), "warn");
}
