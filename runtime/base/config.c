/*
 * config.c: the table of settings and its reader.
 *
 * - Defaults go through the same parser as variables: a default that its own limits refuse is a fault
 *   of the table and stops the program.
 * - A variable that is there is used or refused, never passed over.
 */
#include "runtime/base/config.h"

#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

static const struct sl_setting settings[SL_SETTINGS] = {
#define SL_SETTING(id, variable, type, default_text, min, max, help) {variable, type, default_text, min, max, help},
#include "runtime/base/config_table.h"
#undef SL_SETTING
};

const struct sl_setting *sl_setting_info(enum sl_setting_id id)
{
    SL_ASSERT((unsigned)id < SL_SETTINGS);
    return &settings[id];
}

static _Bool parse_level(const char *text, uint64_t *ret)
{
    enum sluice_log_level level = SLUICE_LOG_ERROR;
    _Bool good = sl_log_level_parse(text, &level);
    *ret = (uint64_t)level;
    return good;
}

static _Bool parse_flag(const char *text, uint64_t *ret)
{
    _Bool flag = 0;
    _Bool good = sl_parse_bool(text, &flag);
    *ret = flag;
    return good;
}

static _Bool parse_number(const struct sl_setting *setting, const char *text, uint64_t *ret)
{
    switch (setting->type) {
    case SL_SETTING_TEXT:
        return *text != '\0';
    case SL_SETTING_U32:
        return sl_parse_u64(text, ret);
    case SL_SETTING_SIZE:
        return sl_parse_size(text, ret);
    case SL_SETTING_DURATION:
        return sl_parse_duration(text, ret);
    case SL_SETTING_BOOL:
        return parse_flag(text, ret);
    case SL_SETTING_LEVEL:
        return parse_level(text, ret);
    }
    return 0;
}

static _Bool has_range(const struct sl_setting *setting)
{
    return setting->type == SL_SETTING_U32 || setting->type == SL_SETTING_SIZE || setting->type == SL_SETTING_DURATION;
}

static const char *expected(enum sl_setting_type type)
{
    switch (type) {
    case SL_SETTING_TEXT:
        return "text";
    case SL_SETTING_U32:
        return "a whole number";
    case SL_SETTING_SIZE:
        return "bytes such as 65536, 256M or 4Gi";
    case SL_SETTING_DURATION:
        return "a time with its unit such as 30s, 250ms or none";
    case SL_SETTING_BOOL:
        return "0, 1, false, true, off or on";
    case SL_SETTING_LEVEL:
        return "error, warn, info, debug or trace";
    }
    return "";
}

sluice_status sl_setting_parse(enum sl_setting_id id, const char *text, enum sl_setting_source source,
                               struct sl_setting_value *ret)
{
    const struct sl_setting *setting = sl_setting_info(id);
    uint64_t number = 0;
    if (!parse_number(setting, text, &number))
        return sl_fail(SLUICE_CONFIG, "config", "%s=%s: want %s", setting->variable, text, expected(setting->type));
    if (has_range(setting) && (number < setting->min || number > setting->max))
        return sl_fail(SLUICE_CONFIG, "config", "%s=%s: out of range %llu to %llu%s", setting->variable, text,
                       (unsigned long long)setting->min, (unsigned long long)setting->max,
                       setting->type == SL_SETTING_DURATION ? " ns" : "");
    *ret = (struct sl_setting_value){.source = source, .set = 1, .number = number, .text = text};
    return SLUICE_OK;
}

static void read_defaults(struct sl_config *config)
{
    memset(config, 0, sizeof *config);
    for (unsigned id = 0; id < SL_SETTINGS; id++) {
        if (!*settings[id].default_text)
            continue;
        sluice_status status =
            sl_setting_parse((enum sl_setting_id)id, settings[id].default_text, SL_FROM_DEFAULT, &config->values[id]);
        SL_ASSERT(status == SLUICE_OK);
    }
}

/* The value when `entry` ("NAME=value") has this name. */
static const char *value_of(const char *entry, const char *name)
{
    size_t length = strlen(name);
    return strncmp(entry, name, length) == 0 && entry[length] == '=' ? entry + length + 1 : NULL;
}

static sluice_status read_entry(const char *entry, struct sl_config *config)
{
    for (unsigned id = 0; id < SL_SETTINGS; id++) {
        const char *text = value_of(entry, settings[id].variable);
        if (text)
            return sl_setting_parse((enum sl_setting_id)id, text, SL_FROM_ENVIRONMENT, &config->values[id]);
    }
    return sl_fail(SLUICE_CONFIG, "config", "%.*s: no such setting; `sluice info --settings` lists all",
                   (int)strcspn(entry, "="), entry);
}

sluice_status sl_config_read(const char *const *environment, struct sl_config *ret)
{
    struct sl_config config;
    read_defaults(&config);
    for (const char *const *entry = environment; *entry; entry++) {
        if (strncmp(*entry, "SLUICE_", 7) != 0)
            continue;
        sluice_status status = read_entry(*entry, &config);
        if (status != SLUICE_OK)
            return status;
    }
    *ret = config;
    return SLUICE_OK;
}

const char *sl_environment_get(const char *const *environment, const char *name)
{
    for (const char *const *entry = environment; *entry; entry++) {
        const char *value = value_of(*entry, name);
        if (value)
            return value;
    }
    return NULL;
}
