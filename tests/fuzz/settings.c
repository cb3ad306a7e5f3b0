/*
 * settings.c: texts that people write: layouts, values of settings, an environment of several lines with what launchers
 * set. Nothing crashes; what is refused is refused with words.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "runtime/base/config.h"
#include "runtime/base/error.h"
#include "runtime/control/control.h"
#include "scheduler/layout.h"

enum { LINES_MAX = 64, BYTES_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(sluice_status status)
{
    const struct sluice_error *error = sluice_last_error();
    SL_ASSERT(status == SLUICE_OK || (error->status == status && error->text[0] != '\0'));
    SL_ASSERT(status == SLUICE_OK || strchr(error->text, '\n') == NULL);
}

static void read_layout(char *text)
{
    static struct sl_layout layout;
    sluice_status status = sl_layout_parse(text, "--from", &layout);
    check(status);
    if (status == SLUICE_OK) {
        SL_ASSERT(layout.world >= 1 && layout.world <= SLUICE_WORLD_MAX);
        check(sl_layout_stages(&layout, 1 + (uint32_t)text[0] % 100u));
    }
}

/* The first byte is the setting, the rest its value. */
static void read_value(char *text)
{
    struct sl_setting_value value = {0};
    enum sl_setting_id id = (enum sl_setting_id)((uint8_t)text[0] % SL_SETTINGS);
    if (text[0] != '\0')
        check(sl_setting_parse(id, text + 1, SL_FROM_ENVIRONMENT, &value));
}

/* Lines "NAME=VALUE". */
static void read_environment(char *text)
{
    const char *environment[LINES_MAX + 1] = {NULL};
    struct sl_config config;
    struct sl_identity identity;
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    size_t lines = 0;
    for (char *rest = text, *line; lines < LINES_MAX && (line = strsep(&rest, "\n")) != NULL;)
        environment[lines++] = line;
    check(sl_config_read(environment, &config));
    sluice_status status = sl_identity_find(&options, environment, &identity);
    check(status);
    SL_ASSERT(status != SLUICE_OK || (identity.world > 0 && identity.rank < identity.world));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const targets[])(char *) = {read_layout, read_value, read_environment};
    char text[BYTES_MAX];
    if (bytes == 0 || bytes > sizeof text)
        return 0;
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    targets[data[0] % SL_COUNT(targets)](text);
    return 0;
}
