/* Safetensors headers: what is read from good files, and one error each for what is wrong with bad ones. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/random.h"
#include "scheduler/safetensors.h"

static uint8_t file[1 << 20];

/* A file with this header and `data` bytes behind it. */
static size_t make(const char *header, size_t data)
{
    uint64_t length = strlen(header);
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)(length >> (8 * i));
    memcpy(file + 8, header, length);
    memset(file + 8 + length, 0x5a, data);
    return 8 + length + data;
}

static void assert_refused(const char *header, size_t data, const char *text)
{
    struct sl_tensors tensors;
    size_t bytes = make(header, data);
    sluice_status status = sl_tensors_read(file, bytes, "x.safetensors", sl_mem_default(), &tensors);
    cr_assert(status == SLUICE_PARSE || status == SLUICE_LIMIT, "%s was accepted", header);
    cr_assert(strstr(sluice_last_error()->text, text) != NULL, "'%s' in '%s'", text, sluice_last_error()->text);
}

#define TWO                                                                                                            \
    "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[6,30]},"         \
    "\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]}}"

Test(safetensors, tensors_come_in_the_order_of_their_bytes)
{
    struct sl_tensors tensors;
    size_t bytes = make(TWO, 30);
    cr_assert_eq(sl_tensors_read(file, bytes, "x", sl_mem_default(), &tensors), SLUICE_OK);
    cr_assert_eq(tensors.count, 2);
    cr_assert_str_eq(tensors.list[0].name, "a");
    cr_assert_eq(tensors.list[0].dtype, SLUICE_DTYPE_BF16);
    cr_assert_eq(tensors.list[0].bytes, 6);
    cr_assert_eq(tensors.list[0].offset, 8 + strlen(TWO));
    cr_assert_eq(tensors.list[1].dims, 2);
    cr_assert_eq(tensors.list[1].shape[1], 3);
    cr_assert_eq(tensors.list[1].bytes, 24);
    sl_tensors_drop(&tensors);
}

Test(safetensors, scalars_and_empty_tensors_are_legal)
{
    struct sl_tensors tensors;
    size_t bytes = make("{\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
                        "\"e\":{\"dtype\":\"F16\",\"shape\":[0,4],\"data_offsets\":[8,8]}}",
                        8);
    cr_assert_eq(sl_tensors_read(file, bytes, "x", sl_mem_default(), &tensors), SLUICE_OK);
    cr_assert_eq(tensors.count, 2);
    cr_assert_eq(tensors.list[1].bytes, 0);
    sl_tensors_drop(&tensors);
}

Test(safetensors, every_fault_is_named)
{
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5,
                   "1 bytes belong to no tensor");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3, "do not lie in the file");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "do not lie in the file");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "its shape has 8 bytes");
    assert_refused("{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype 'F33'");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "shape[0]");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "shape[0]");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4, "2^62");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1, "at most 8");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1, "x: no such key");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                   "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
                   3, "tensor 'b' overlaps");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2, "tensor 'a' leaves a gap");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                   "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                   1, "duplicate");
    assert_refused("[]", 0, "no JSON object");
    assert_refused("{\"a\":7}", 0, "want an object");
    assert_refused("{\"a\":", 0, "line 1");
}

Test(safetensors, lengths_beyond_the_file_are_refused)
{
    struct sl_tensors tensors;
    size_t bytes = make(TWO, 30);
    memset(file, 0xff, 8);
    cr_assert_eq(sl_tensors_read(file, bytes, "x", sl_mem_default(), &tensors), SLUICE_PARSE);
    cr_assert(strstr(sluice_last_error()->text, "offset 0"));
}

Test(safetensors, truncation_and_corruption_never_read_outside)
{
    struct sl_random random = {5};
    struct sl_tensors tensors;
    size_t bytes = make(TWO, 30);
    for (size_t cut = 0; cut < bytes; cut++) {
        uint8_t *copy = sl_new_aligned(sl_mem_default(), cut + 1, 16, "test");
        memcpy(copy, file, cut);
        cr_assert_neq(sl_tensors_read(copy, cut, "x", sl_mem_default(), &tensors), SLUICE_OK);
        sl_free(sl_mem_default(), copy);
    }
    for (int round = 0; round < 20000; round++) {
        make(TWO, 30);
        for (int i = 0; i < 3; i++)
            file[sl_random_below(&random, bytes)] = (uint8_t)sl_random_next(&random);
        if (sl_tensors_read(file, bytes, "x", sl_mem_default(), &tensors) == SLUICE_OK)
            sl_tensors_drop(&tensors);
    }
}
