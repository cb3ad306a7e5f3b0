/* status.c: the words of base.h. Every list comes from its X-macro, so a new entry needs no line here. */
#include "sluice/base.h"

const char *sluice_status_name(sluice_status status)
{
    switch (status) {
#define CASE(name, value, words)                                                                                       \
    case SLUICE_##name:                                                                                                \
        return "SLUICE_" #name;
        SLUICE_STATUS_MAP(CASE)
#undef CASE
    }
    return "SLUICE_UNKNOWN";
}

const char *sluice_status_words(sluice_status status)
{
    switch (status) {
#define CASE(name, value, words)                                                                                       \
    case SLUICE_##name:                                                                                                \
        return words;
        SLUICE_STATUS_MAP(CASE)
#undef CASE
    }
    return "unknown status";
}

const char *sluice_dtype_name(uint8_t dtype)
{
    switch (dtype) {
#define CASE(name, value, text, bytes)                                                                                 \
    case value:                                                                                                        \
        return text;
        SLUICE_DTYPE_MAP(CASE)
#undef CASE
    default:
        return "none";
    }
}

uint32_t sluice_dtype_bytes(uint8_t dtype)
{
    switch (dtype) {
#define CASE(name, value, text, bytes)                                                                                 \
    case value:                                                                                                        \
        return bytes;
        SLUICE_DTYPE_MAP(CASE)
#undef CASE
    default:
        return 0;
    }
}

uint32_t sluice_version_number(void)
{
    return (SLUICE_VERSION_MAJOR << 16) | (SLUICE_VERSION_MINOR << 8) | SLUICE_VERSION_PATCH;
}

uint32_t sluice_abi_version(void)
{
    return SLUICE_ABI_VERSION;
}
