/*
 * config.h: one table of settings. It generates environment parsing, `sluice info --settings` and
 * docs/settings.md. Order: option, then SLUICE_* variable, then default. An unknown SLUICE_* name or a
 * bad value is an error that names it.
 */
#ifndef SL_BASE_CONFIG_H
#define SL_BASE_CONFIG_H

#include "runtime/base/parse.h"
#include "sluice/base.h"

enum sl_setting_type {
    SL_SETTING_TEXT,
    SL_SETTING_U32,
    SL_SETTING_SIZE,
    SL_SETTING_DURATION,
    SL_SETTING_BOOL,
    SL_SETTING_LEVEL /* a log level by its name */
};

enum sl_setting_source { SL_FROM_DEFAULT, SL_FROM_ENVIRONMENT, SL_FROM_OPTION };

/* X(id, variable, type, default text, min, max, help). The table is in config_table.h. */
struct sl_setting {
    const char *variable; /* "SLUICE_PORT" */
    enum sl_setting_type type;
    const char *default_text; /* "" for none */
    uint64_t min;
    uint64_t max;
    const char *help;
};

struct sl_setting_value {
    enum sl_setting_source source;
    _Bool set;        /* false: no value at all (default "") */
    uint64_t number;  /* U32, SIZE, DURATION, BOOL; LEVEL: enum sluice_log_level */
    const char *text; /* as given; borrowed from the environment block */
};

enum sl_setting_id {
#define SL_SETTING(id, variable, type, default_text, min, max, help) SL_SET_##id,
#include "runtime/base/config_table.h"
#undef SL_SETTING
    SL_SETTINGS
};

struct sl_config {
    struct sl_setting_value values[SL_SETTINGS];
};

const struct sl_setting *sl_setting_info(enum sl_setting_id id);
/* Reads one value as the table asks; `text` is borrowed. CONFIG naming variable and value. */
sluice_status sl_setting_parse(enum sl_setting_id id, const char *text, enum sl_setting_source source,
                               struct sl_setting_value *ret);
/* Reads defaults and the environment block `environment` (NULL-terminated, like environ). CONFIG on a bad one. */
sluice_status sl_config_read(const char *const *environment, struct sl_config *ret);
/* The value of a variable in an environment block, or NULL. */
const char *sl_environment_get(const char *const *environment, const char *name);

#endif
