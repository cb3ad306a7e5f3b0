/* settings.c: prints docs/settings.md from the table of settings, so that the page cannot differ from the parser. */
#include <inttypes.h>
#include <stdio.h>

#include "runtime/base/config.h"

static const char *type_words(enum sl_setting_type type)
{
    switch (type) {
    case SL_SETTING_TEXT:
        return "text";
    case SL_SETTING_U32:
        return "number";
    case SL_SETTING_SIZE:
        return "size";
    case SL_SETTING_DURATION:
        return "time";
    case SL_SETTING_BOOL:
        return "yes or no";
    case SL_SETTING_LEVEL:
        return "log level";
    }
    return "";
}

/* A range that says something: not the bounds of the type itself. */
static void print_range(const struct sl_setting *setting)
{
    if (setting->type == SL_SETTING_U32 || setting->type == SL_SETTING_SIZE)
        printf("%" PRIu64 " to %" PRIu64, setting->min, setting->max);
    else if (setting->type == SL_SETTING_DURATION)
        printf("more than 0");
}

int main(void)
{
    printf(
        "# Settings\n\n"
        "Generated from the table of settings by `build/dev/bin/settings_doc`; a test compares the two.\n\n"
        "A program's option wins over the variable, the variable over the default. A value is used whole or refused\n"
        "with an error that names the variable; an unknown name that begins with `SLUICE_` is an error too.\n\n"
        "- A number is decimal digits and nothing else: no blanks, no `+`, no `-`, no `0x`.\n"
        "- A size is a number of bytes with nothing, `k`, `M`, `G`, `T` (powers of 1000) or `Ki`, `Mi`, `Gi`, `Ti`\n"
        "  (powers of 1024) behind it.\n"
        "- A time is a number with `ns`, `us`, `ms`, `s` or `m` behind it, or `none`.\n"
        "- Yes or no is `0`, `1`, `false`, `true`, `off` or `on`.\n\n"
        "| variable | type | default | range | meaning |\n|---|---|---|---|---|\n");
    for (unsigned id = 0; id < SL_SETTINGS; id++) {
        const struct sl_setting *setting = sl_setting_info((enum sl_setting_id)id);
        printf("| `%s` | %s | %s | ", setting->variable, type_words(setting->type), setting->default_text);
        print_range(setting);
        printf(" | %s |\n", setting->help);
    }
    return 0;
}
