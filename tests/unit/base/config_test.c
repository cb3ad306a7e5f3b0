/* Settings: every bad value and every unknown name is an error that says so. */
#include "runtime/base/config.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "sluice/observe.h"

static sluice_status read_one(const char *name, const char *value, struct sl_config *config)
{
    static char entry[256]; /* the values borrow from the block */
    SL_IGNORE(snprintf(entry, sizeof entry, "%s=%s", name, value));
    const char *const environment[] = {"HOME=/", entry, NULL};
    return sl_config_read(environment, config);
}

Test(config, empty_environment_gives_the_defaults)
{
    const char *const environment[] = {NULL};
    struct sl_config config;
    cr_assert_eq(sl_config_read(environment, &config), SLUICE_OK);
    cr_assert_eq(config.values[SL_SET_SLOTS].number, 3);
    cr_assert_eq(config.values[SL_SET_SLOTS].source, SL_FROM_DEFAULT);
    cr_assert_eq(config.values[SL_SET_WINDOW_BYTES].number, 256000000);
    cr_assert_eq(config.values[SL_SET_BOOTSTRAP_TIMEOUT].number, 60 * SLUICE_SECOND);
    cr_assert_eq(config.values[SL_SET_STAGING_MAX].number, UINT64_C(4294967296));
    cr_assert_eq(config.values[SL_SET_LOG].number, SLUICE_LOG_WARN);
    cr_assert_not(config.values[SL_SET_PORT].set);
    cr_assert_not(config.values[SL_SET_BACKEND].set);
}

Test(config, variable_wins_over_default)
{
    struct sl_config config;
    cr_assert_eq(read_one("SLUICE_PORT", "29500", &config), SLUICE_OK);
    cr_assert(config.values[SL_SET_PORT].set);
    cr_assert_eq(config.values[SL_SET_PORT].number, 29500);
    cr_assert_eq(config.values[SL_SET_PORT].source, SL_FROM_ENVIRONMENT);
    cr_assert_eq(read_one("SLUICE_BACKEND", "host", &config), SLUICE_OK);
    cr_assert_str_eq(config.values[SL_SET_BACKEND].text, "host");
    cr_assert_eq(read_one("SLUICE_SEAL_TIMEOUT", "none", &config), SLUICE_OK);
    cr_assert_eq(config.values[SL_SET_SEAL_TIMEOUT].number, UINT64_MAX);
    cr_assert_eq(read_one("SLUICE_LOG", "trace", &config), SLUICE_OK);
    cr_assert_eq(config.values[SL_SET_LOG].number, SLUICE_LOG_TRACE);
}

/* Case G1, for every setting that is not free text. */
Test(config, bad_value_of_any_setting_names_variable_and_value)
{
    static const char *const bad[] = {"", " 7 ", "+5", "16abc", "0x10", "-1", "99999999999999999999", "yes", "30 s"};
    for (unsigned id = 0; id < SL_SETTINGS; id++) {
        const struct sl_setting *setting = sl_setting_info((enum sl_setting_id)id);
        size_t count = setting->type == SL_SETTING_TEXT ? 1 : SL_COUNT(bad);
        for (size_t i = 0; i < count; i++) {
            struct sl_config config;
            memset(&config, 0x5a, sizeof config);
            cr_assert_eq(read_one(setting->variable, bad[i], &config), SLUICE_CONFIG, "%s=%s", setting->variable,
                         bad[i]);
            char pair[128];
            SL_IGNORE(snprintf(pair, sizeof pair, "%s=%s", setting->variable, bad[i]));
            cr_assert_not_null(strstr(sluice_last_error()->text, pair), "%s", sluice_last_error()->text);
            cr_assert_eq(((unsigned char *)&config)[0], 0x5a, "output touched");
        }
    }
}

/* The rest of case G1: right for one type, wrong for the other. */
Test(config, value_of_another_type_is_refused)
{
    static const struct {
        const char *name;
        const char *value;
    } bad[] = {{"SLUICE_PORT", "0"},
               {"SLUICE_PORT", "65536"},
               {"SLUICE_PORT", "3000000000"},
               {"SLUICE_PORT", "true"},
               {"SLUICE_PORT", "30s"},
               {"SLUICE_PORT", "64k"},
               {"SLUICE_SLOTS", "1"},
               {"SLUICE_SLOTS", "9"},
               {"SLUICE_SLOTS", "4294967299"},
               {"SLUICE_WINDOW_BYTES", "4095"},
               {"SLUICE_WINDOW_BYTES", "true"},
               {"SLUICE_WINDOW_BYTES", "30s"},
               {"SLUICE_WINDOW_BYTES", "2Ti"},
               {"SLUICE_STALL_TIMEOUT", "30"},
               {"SLUICE_STALL_TIMEOUT", "0s"},
               {"SLUICE_STALL_TIMEOUT", "true"},
               {"SLUICE_LOG", "3"},
               {"SLUICE_LOG", "WARN"}};
    for (size_t i = 0; i < SL_COUNT(bad); i++) {
        struct sl_config config;
        cr_assert_eq(read_one(bad[i].name, bad[i].value, &config), SLUICE_CONFIG, "%s=%s", bad[i].name, bad[i].value);
        cr_assert_not_null(strstr(sluice_last_error()->text, bad[i].name));
    }
}

Test(config, unknown_name_is_an_error_that_names_it)
{
    struct sl_config config;
    cr_assert_eq(read_one("SLUICE_PROT", "1", &config), SLUICE_CONFIG);
    cr_assert_not_null(strstr(sluice_last_error()->text, "SLUICE_PROT"));
    cr_assert_eq(read_one("SLUICE_PORTS", "1", &config), SLUICE_CONFIG);
    cr_assert_eq(read_one("SLUICE_", "1", &config), SLUICE_CONFIG);
    cr_assert_eq(read_one("SLUICER", "1", &config), SLUICE_OK, "not ours");
    cr_assert_eq(read_one("sluice_port", "1", &config), SLUICE_OK, "not ours");
}

Test(config, every_default_is_inside_its_own_range_and_every_help_is_one_line)
{
    for (unsigned id = 0; id < SL_SETTINGS; id++) {
        const struct sl_setting *setting = sl_setting_info((enum sl_setting_id)id);
        cr_assert_eq(strncmp(setting->variable, "SLUICE_", 7), 0);
        cr_assert_not_null(setting->help);
        cr_assert_null(strchr(setting->help, '\n'));
        struct sl_setting_value value;
        if (*setting->default_text)
            cr_assert_eq(sl_setting_parse((enum sl_setting_id)id, setting->default_text, SL_FROM_DEFAULT, &value),
                         SLUICE_OK);
    }
}

Test(config, option_goes_through_the_same_parser)
{
    struct sl_setting_value value = {0};
    cr_assert_eq(sl_setting_parse(SL_SET_DIRECT_MIN, "1Mi", SL_FROM_OPTION, &value), SLUICE_OK);
    cr_assert_eq(value.number, 1048576);
    cr_assert_eq(value.source, SL_FROM_OPTION);
    cr_assert_eq(sl_setting_parse(SL_SET_DIRECT_MIN, "1MiB", SL_FROM_OPTION, &value), SLUICE_CONFIG);
    cr_assert_eq(value.number, 1048576);
}

Test(config, environment_block_is_searched_by_whole_name)
{
    const char *const environment[] = {"RANKS=8", "RANK=3", "EMPTY=", "RANK=4", "BARE", NULL};
    cr_assert_str_eq(sl_environment_get(environment, "RANK"), "3");
    cr_assert_str_eq(sl_environment_get(environment, "EMPTY"), "");
    cr_assert_null(sl_environment_get(environment, "RAN"));
    cr_assert_null(sl_environment_get(environment, "BARE"));
}
