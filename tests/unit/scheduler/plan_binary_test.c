/* The binary form: round trips, and every kind of damage with its offset. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/hash.h"
#include "support/plan_maker.h"

#define HEADER 128

/* A written file in memory, 8-aligned, and a scratch copy with room behind. */
struct file {
    uint8_t *data;
    size_t bytes;
};

static struct file write_plan(const struct sl_plan *plan)
{
    struct file file = {NULL, 0};
    FILE *stream = open_memstream((char **)&file.data, &file.bytes);
    cr_assert_not_null(stream);
    cr_assert_eq(sl_plan_write_binary(plan, stream), SLUICE_OK, "%s", sluice_last_error()->text);
    fclose(stream);
    return file;
}

static struct file write_random(uint64_t seed, uint32_t tasks)
{
    struct sl_plan plan;
    maker_random(&plan, seed, tasks);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    struct file file = write_plan(&plan);
    sl_plan_drop(&plan);
    return file;
}

/* Two parameters, one buffer, two tasks: 128 + 64 + 8 + 24 + 192 bytes. */
static struct file write_small(void)
{
    struct sl_plan plan;
    maker_open(&plan, 4, 2);
    cr_assert_eq(sl_plan_add_buffer(&plan, 0, 1, SLUICE_ROLE_DESTINATION, 64), SLUICE_OK);
    maker_add(&plan, maker_task(3, 0, 1, 0, maker_range(0, 16)));
    maker_add(&plan, maker_task(4, 0, 1, 1, maker_range(0, 32)));
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    struct file file = write_plan(&plan);
    sl_plan_drop(&plan);
    cr_assert_eq(file.bytes, HEADER + 64 + 8 + 24 + 192);
    return file;
}

/* What a forger would do: make both checksums right again. */
static void seal(struct file *file)
{
    uint64_t hash = sl_hash64(file->data + HEADER, file->bytes - HEADER, 0);
    memcpy(file->data + 112, &hash, 8);
    hash = sl_hash64(file->data, 120, 0);
    memcpy(file->data + 120, &hash, 8);
}

static void put64(struct file *file, size_t at, uint64_t value)
{
    memcpy(file->data + at, &value, 8);
}

static void put32(struct file *file, size_t at, uint32_t value)
{
    memcpy(file->data + at, &value, 4);
}

static void refused(const struct file *file, sluice_status expected, const char *text)
{
    struct sl_plan plan;
    cr_assert_eq(sl_plan_read_binary(file->data, file->bytes, "x.plan", &plan), expected);
    cr_assert_str_eq(sluice_last_error()->text, text);
}

Test(plan_binary, reads_what_it_wrote)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct sl_plan plan;
        struct file one = write_random(seed, (uint32_t)seed * 2);
        cr_assert(sl_plan_is_binary(one.data, one.bytes));
        cr_assert_eq(sl_plan_read_binary(one.data, one.bytes, "x", &plan), SLUICE_OK, "%s", sluice_last_error()->text);
        cr_assert(plan.validated);
        cr_assert(plan.borrowed);
        cr_assert_eq(plan.task_count, seed * 2);
        struct file two = write_plan(&plan);
        cr_assert_eq(two.bytes, one.bytes);
        cr_assert_arr_eq(two.data, one.data, one.bytes);
        sl_plan_drop(&plan);
        free(one.data);
        free(two.data);
    }
}

Test(plan_binary, keeps_every_field)
{
    struct file file = write_small();
    struct sl_plan plan;
    cr_assert_eq(sl_plan_read_binary(file.data, file.bytes, "x", &plan), SLUICE_OK);
    cr_assert_eq(plan.world, 4);
    cr_assert_str_eq(sl_param_name(&plan, 1), "p1");
    cr_assert_eq(plan.params[1].bytes, 4096);
    cr_assert_eq(sl_buffer_bytes(&plan, 1, SLUICE_ROLE_DESTINATION, 0), 64);
    cr_assert_eq(plan.tasks[1].id, 4);
    cr_assert_eq(plan.tasks[1].from.row_bytes, 32);
    cr_assert_eq(plan.tasks[1].origin, SLUICE_ORIGIN_NONE);
    sl_plan_drop(&plan);
    free(file.data);
}

Test(plan_binary, a_borrowed_plan_can_grow)
{
    struct file file = write_small();
    struct sl_plan plan;
    cr_assert_eq(sl_plan_read_binary(file.data, file.bytes, "x", &plan), SLUICE_OK);
    maker_add(&plan, maker_task(1, 2, 3, 1, maker_range(0, 16)));
    cr_assert_eq(sl_plan_add_buffer(&plan, 1, 3, SLUICE_ROLE_DESTINATION, 16), SLUICE_OK);
    free(file.data);
    cr_assert_not(plan.borrowed);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(plan.task_count, 3);
    cr_assert_eq(plan.tasks[0].id, 1);
    cr_assert_str_eq(sl_param_name(&plan, 0), "p0");
    sl_plan_drop(&plan);
}

Test(plan_binary, refuses_to_write_what_is_not_valid_or_whole)
{
    struct sl_plan plan;
    maker_open(&plan, 4, 1);
    FILE *sink = fopen("/dev/null", "w");
    cr_assert_eq(sl_plan_write_binary(&plan, sink), SLUICE_STATE);
    struct sluice_region region = maker_range(0, 4);
    cr_assert_eq(sl_plan_add_half(&plan, 1, 0, SLUICE_DTYPE_BF16, 1, 0, &region), SLUICE_OK);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    cr_assert_eq(sl_plan_write_binary(&plan, sink), SLUICE_STATE);
    cr_assert_eq(sl_plan_write_json(&plan, sink), SLUICE_STATE);
    fclose(sink);
    sl_plan_drop(&plan);
}

Test(plan_binary, refuses_a_truncation_at_every_byte)
{
    struct file file = write_small();
    for (size_t bytes = 0; bytes < file.bytes; bytes++) {
        struct sl_plan plan;
        uint8_t *cut = aligned_alloc(8, (bytes + 8) & ~(size_t)7);
        memcpy(cut, file.data, bytes);
        cr_assert_eq(sl_plan_read_binary(cut, bytes, "x", &plan), SLUICE_PARSE, "%zu bytes", bytes);
        cr_assert_not_null(strstr(sluice_last_error()->text, "x: offset "));
        free(cut);
    }
    free(file.data);
}

Test(plan_binary, refuses_trailing_bytes)
{
    struct file file = write_small();
    file.data = realloc(file.data, file.bytes + 8);
    memset(file.data + file.bytes, 0, 8);
    file.bytes += 8;
    refused(&file, SLUICE_PARSE, "x.plan: offset 416: trailing bytes: the header says 416 bytes, the file has 424");
    put64(&file, 16, 424);
    seal(&file);
    refused(&file, SLUICE_PARSE, "x.plan: offset 416: trailing bytes behind the last section");
    free(file.data);
}

Test(plan_binary, refuses_a_foreign_head)
{
    struct file file = write_small();
    file.data[1] ^= 1;
    refused(&file, SLUICE_PARSE, "x.plan: offset 0: not a plan file");
    file.data[1] ^= 1;
    put32(&file, 8, 2);
    seal(&file);
    refused(&file, SLUICE_PARSE, "x.plan: offset 8: version 2, this library reads version 1");
    put32(&file, 8, 1);
    put32(&file, 12, 0x04030201);
    seal(&file);
    refused(&file, SLUICE_PARSE, "x.plan: offset 12: byte order mark 04030201, want 01020304");
    free(file.data);
}

Test(plan_binary, refuses_any_flipped_bit)
{
    struct file file = write_small();
    for (size_t bit = 0; bit < file.bytes * 8; bit++) {
        struct sl_plan plan;
        file.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_assert_eq(sl_plan_read_binary(file.data, file.bytes, "x", &plan), SLUICE_PARSE, "bit %zu", bit);
        file.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    free(file.data);
}

Test(plan_binary, says_which_checksum_is_bad)
{
    struct file file = write_small();
    file.data[40] ^= 1;
    refused(&file, SLUICE_PARSE, "x.plan: offset 120: bad checksum of the header");
    file.data[40] ^= 1;
    file.data[130] ^= 1;
    refused(&file, SLUICE_PARSE, "x.plan: offset 112: bad checksum of the content");
    free(file.data);
}

/* One forged field: its place, its size, its value and what the refusal says. */
struct forgery {
    size_t at;
    int bytes;
    uint64_t value;
    sluice_status status;
    const char *text;
};

static const struct forgery forgeries[] = {
    {24, 4, 0, SLUICE_PARSE, "x.plan: offset 24: a world of 0 ranks, want 1 to 65536"},
    {24, 4, 65537, SLUICE_PARSE, "x.plan: offset 24: a world of 65537 ranks, want 1 to 65536"},
    {28, 4, 1, SLUICE_PARSE, "x.plan: offset 28: reserved bytes are not zero"},
    {32, 8, UINT64_MAX, SLUICE_PARSE,
     "x.plan: offset 32: 18446744073709551615 records of 32 bytes do not fit the file or the limit of 16777216"},
    {32, 8, 10, SLUICE_PARSE, "x.plan: offset 32: 10 records of 32 bytes do not fit the file or the limit of 16777216"},
    {40, 8, 64, SLUICE_PARSE, "x.plan: offset 40: section offset 64, want 128"},
    {48, 8, 5, SLUICE_PARSE, "x.plan: offset 196: the last name is not terminated"},
    {48, 8, 7, SLUICE_PARSE, "x.plan: offset 198: names without a parameter"},
    {48, 8, UINT64_MAX - 3, SLUICE_PARSE,
     "x.plan: offset 48: 18446744073709551612 records of 1 bytes do not fit the file or the limit of 4294967295"},
    {64, 8, 0, SLUICE_PARSE, "x.plan: offset 88: section offset 224, want 200"},
    {80, 8, 3, SLUICE_PARSE, "x.plan: offset 80: 3 records of 96 bytes do not fit the file or the limit of 4294967294"},
    {80, 8, 1, SLUICE_PARSE, "x.plan: offset 320: trailing bytes behind the last section"},
    {80, 8, UINT64_C(1) << 63, SLUICE_PARSE,
     "x.plan: offset 80: 9223372036854775808 records of 96 bytes do not fit the file or the limit of 4294967294"},
    {88, 8, 0, SLUICE_PARSE, "x.plan: offset 88: section offset 0, want 224"},
    {128, 8, (UINT64_C(1) << 62) + 1, SLUICE_PARSE, "x.plan: offset 128: parameter 0 has more than 2^62 bytes"},
    {144, 4, 1, SLUICE_PARSE, "x.plan: offset 144: name offset 1, want 0"},
    {176, 4, UINT32_MAX, SLUICE_PARSE, "x.plan: offset 176: name offset 4294967295, want 3"},
    {180, 4, 7, SLUICE_PARSE, "x.plan: offset 180: parameter id 7, want 1"},
    {184, 1, 99, SLUICE_PARSE, "x.plan: offset 184: unknown dtype 99"},
    {185, 1, 1, SLUICE_PARSE, "x.plan: offset 185: reserved bytes are not zero"},
    {192, 1, 0xff, SLUICE_PARSE, "x.plan: offset 192: the name of parameter 0 is not UTF-8"},
    {192, 1, 10, SLUICE_PARSE, "x.plan: offset 192: the name of parameter 0 has a control character"},
    {193, 1, 0, SLUICE_PARSE, "x.plan: offset 176: name offset 3, want 2"},
    {198, 1, 1, SLUICE_PARSE, "x.plan: offset 198: padding is not zero"},
    {200, 8, UINT64_MAX, SLUICE_PARSE, "x.plan: offset 200: a buffer of more than 2^63-1 bytes"},
    {208, 4, 1057455228, SLUICE_PARSE, "x.plan: offset 208: rank 1057455228 is outside the world of 4"},
    {212, 4, 2, SLUICE_PLAN, "a buffer on rank 1 is of parameter 2, but the plan has 2 parameters"},
    {216, 1, 2, SLUICE_PARSE, "x.plan: offset 216: unknown role 2"},
    {217, 1, 2, SLUICE_PARSE, "x.plan: offset 217: reserved bytes are not zero"},
    {224, 8, 5, SLUICE_PARSE, "x.plan: offset 320: tasks are not sorted: id 4 after 5"},
    {224, 8, 4, SLUICE_PLAN,
     "task id 4 is used twice: entry 0 (parameter 0 'p0', rank 0 to rank 1) and entry 1 (parameter 1 'p1', rank 0 to "
     "rank 1)"},
    {232, 4, 1057455228, SLUICE_PLAN, "task 3: its source rank 1057455228 is outside the world of 4"},
    {240, 4, 9, SLUICE_PLAN, "task 3: parameter 9 is unknown, the plan has 2 parameters"},
    {244, 2, 1, SLUICE_PLAN, "task 3: part 1: only halves have parts"},
    {280, 8, UINT64_MAX - 3, SLUICE_PLAN,
     "task 3: range overflow: its destination at offset 18446744073709551612 with 16 bytes ends beyond 2^63-1"},
};

Test(plan_binary, refuses_forged_fields_with_right_checksums)
{
    for (size_t i = 0; i < SL_COUNT(forgeries); i++) {
        struct file file = write_small();
        memcpy(file.data + forgeries[i].at, &forgeries[i].value, (size_t)forgeries[i].bytes);
        seal(&file);
        refused(&file, forgeries[i].status, forgeries[i].text);
        free(file.data);
    }
}

/* Never a crash or a read outside; what is accepted must be writable again. */
Test(plan_binary, survives_random_damage_with_right_checksums)
{
    struct sl_random random = {7};
    int accepted = 0;
    for (int round = 0; round < 3000; round++) {
        struct file file = write_random((uint64_t)round % 20, 10);
        for (uint64_t hits = 1 + sl_random_below(&random, 4); hits > 0; hits--) {
            size_t at = 16 + sl_random_below(&random, file.bytes - 16);
            file.data[at] = (uint8_t)(sl_random_below(&random, 4) == 0 ? 255 : sl_random_next(&random));
        }
        seal(&file);
        struct sl_plan plan;
        sluice_status status = sl_plan_read_binary(file.data, file.bytes, "x", &plan);
        cr_assert(status == SLUICE_OK || status == SLUICE_PARSE || status == SLUICE_PLAN, "%d", (int)status);
        if (status == SLUICE_OK) {
            struct file again = write_plan(&plan);
            cr_assert_eq(again.bytes, file.bytes);
            cr_assert_arr_eq(again.data, file.data, file.bytes);
            free(again.data);
            sl_plan_drop(&plan);
            accepted++;
        }
        free(file.data);
    }
    cr_assert_gt(accepted, 0);
}
