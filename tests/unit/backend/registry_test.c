#include <criterion/criterion.h>
#include <string.h>

#include "runtime/backend/registry.h"

Test(registry, host_is_found_by_name)
{
    const struct sluice_backend_ops *ops = NULL;
    cr_assert_eq(sl_backend_find("host", &ops), SLUICE_OK);
    cr_assert_str_eq(ops->name, "host");
}

Test(registry, unknown_name_lists_the_known_ones)
{
    const struct sluice_backend_ops *ops = NULL;
    cr_assert_eq(sl_backend_find("gpu", &ops), SLUICE_NOT_FOUND);
    cr_assert_null(ops);
    cr_assert_not_null(strstr(sluice_last_error()->text, "\"gpu\""));
    cr_assert_not_null(strstr(sluice_last_error()->text, "host"));
    cr_assert_not_null(strstr(sluice_last_error()->text, "cuda"));
}

Test(registry, list_has_host_usable_and_cuda_with_a_reason)
{
    struct sl_backend_entry entries[SL_BACKENDS_MAX];
    uint32_t count = sl_backend_list(entries);
    cr_assert_geq(count, 2);
    cr_assert_str_eq(entries[0].name, "host");
    cr_assert(entries[0].built);
    cr_assert(entries[0].usable);
    cr_assert_str_eq(entries[count - 1].name, "cuda");
    for (uint32_t i = 0; i < count; i++)
        cr_assert_gt(strlen(entries[i].reason), 0, "%s gives no reason", entries[i].name);
}

Test(registry, complete_table_passes_the_check)
{
    cr_assert_eq(sl_backend_check(sl_host_backend()), SLUICE_OK);
}

Test(registry, table_of_another_abi_or_size_is_refused)
{
    struct sluice_backend_ops other = *sl_host_backend();
    other.abi = 2;
    cr_assert_eq(sl_backend_check(&other), SLUICE_INVALID);
    other = *sl_host_backend();
    other.size -= 8;
    cr_assert_eq(sl_backend_check(&other), SLUICE_INVALID);
    cr_assert_eq(sl_backend_check(NULL), SLUICE_INVALID);
}

Test(registry, every_empty_slot_is_named)
{
    static const struct {
        const char *name;
        size_t offset;
    } slots[] = {
#define SLOT(field) {#field, offsetof(struct sluice_backend_ops, field)}
        SLOT(query),       SLOT(open),     SLOT(close),     SLOT(mem_alloc),     SLOT(mem_free),   SLOT(queue_open),
        SLOT(queue_close), SLOT(set_open), SLOT(set_close), SLOT(group_address), SLOT(group_open), SLOT(group_close),
        SLOT(submit),      SLOT(poll),     SLOT(arm),       SLOT(abort),
#undef SLOT
    };
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        struct sluice_backend_ops broken = *sl_host_backend();
        memset((char *)&broken + slots[i].offset, 0, sizeof(void *));
        cr_assert_eq(sl_backend_check(&broken), SLUICE_INVALID, "%s", slots[i].name);
        cr_assert_not_null(strstr(sluice_last_error()->text, slots[i].name), "%s", slots[i].name);
    }
}

Test(registry, module_that_is_not_there_gives_the_loaders_words)
{
    const struct sluice_backend_ops *ops = NULL;
    cr_assert_eq(sl_backend_load("/nowhere/libsluice_cuda.so", &ops), SLUICE_UNSUPPORTED);
    cr_assert_null(ops);
    cr_assert_not_null(strstr(sluice_last_error()->text, "/nowhere/libsluice_cuda.so"));
}

Test(registry, library_that_is_no_backend_is_refused)
{
    const struct sluice_backend_ops *ops = NULL;
    cr_assert_eq(sl_backend_load("libm.so.6", &ops), SLUICE_UNSUPPORTED);
    cr_assert_not_null(strstr(sluice_last_error()->text, "sluice_cuda_backend"));
}
