/* parse.c: a text that is accepted as a number shows that number again; nothing crashes. */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_integer(const char *text)
{
    uint64_t value = 0;
    if (!sl_parse_u64(text, &value))
        return;
    char again[32];
    SL_IGNORE(snprintf(again, sizeof again, "%" PRIu64, value));
    while (*text == '0' && text[1])
        text++;
    SL_ASSERT(strcmp(again, text) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[128];
    if (bytes >= sizeof text)
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    uint64_t number = 0;
    double real = 0;
    _Bool flag = 0;
    char shown[16]; /* short on purpose */
    check_integer(text);
    if (sl_parse_size(text, &number))
        SL_IGNORE(sl_format_bytes(number, shown, sizeof shown));
    if (sl_parse_duration(text, &number))
        SL_IGNORE(sl_format_duration(number, shown, sizeof shown));
    SL_IGNORE(sl_parse_double(text, &real));
    SL_IGNORE(sl_parse_bool(text, &flag));
    return 0;
}
