/* `sluice info`: backends and settings, for people and machines. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "support/command.h"

#define SLUICE SLUICE_TEST_BIN "/sluice"

static struct command_result result;

static void run(const char *one, const char *two)
{
    const char *words[] = {SLUICE, "info", one, two, NULL};
    result = command_run(words);
}

static const json_t *by_name(const json_t *list, const char *name)
{
    size_t index;
    json_t *entry;
    json_array_foreach(list, index, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "name")), name) == 0)
            return entry;
    }
    cr_assert_fail("no entry '%s'", name);
    return NULL;
}

Test(info, lists_backends_in_json)
{
    run("--json", NULL);
    cr_assert_eq(result.status, 0, "%s", result.err);
    json_t *root = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_str_eq(json_string_value(json_object_get(root, "version")), "0.1.0");
    cr_assert_eq(json_integer_value(json_object_get(root, "abi")), 1);
    cr_assert_null(json_object_get(root, "settings"));
    const json_t *host = by_name(json_object_get(root, "backends"), "host");
    cr_assert(json_is_true(json_object_get(host, "built")));
    cr_assert(json_is_true(json_object_get(host, "usable")));
    const json_t *cuda = by_name(json_object_get(root, "backends"), "cuda");
    cr_assert(json_is_boolean(json_object_get(cuda, "built")));
    cr_assert(json_is_boolean(json_object_get(cuda, "usable")));
    if (json_is_false(json_object_get(cuda, "usable")))
        cr_assert_gt(strlen(json_string_value(json_object_get(cuda, "reason"))), 0);
    json_decref(root);
    command_drop(&result);
}

Test(info, says_where_settings_come_from)
{
    cr_assert_eq(setenv("SLUICE_SLOTS", "4", 1), 0);
    run("--settings", "--json");
    cr_assert_eq(result.status, 0, "%s", result.err);
    json_t *root = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    const json_t *slots = by_name(json_object_get(root, "settings"), "SLUICE_SLOTS");
    cr_assert_str_eq(json_string_value(json_object_get(slots, "value")), "4");
    cr_assert_str_eq(json_string_value(json_object_get(slots, "source")), "environment");
    const json_t *window = by_name(json_object_get(root, "settings"), "SLUICE_WINDOW_BYTES");
    cr_assert_str_eq(json_string_value(json_object_get(window, "value")), "256M");
    cr_assert_str_eq(json_string_value(json_object_get(window, "source")), "default");
    json_decref(root);
    command_drop(&result);
    run("--settings", NULL);
    cr_assert_not_null(strstr(result.out, "SLUICE_SLOTS               4            environment"), "%s", result.out);
    command_drop(&result);
}

Test(info, names_a_setting_that_is_wrong)
{
    cr_assert_eq(setenv("SLUICE_SLOTS", "1", 1), 0);
    run(NULL, NULL);
    cr_assert_eq(result.status, 2);
    cr_assert_not_null(strstr(result.err, "SLUICE_SLOTS"), "%s", result.err);
    command_drop(&result);
}
