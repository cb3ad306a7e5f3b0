/*
 * sluice info: what this installation and this machine have.
 *
 * Invariant: nothing is opened beyond what a backend's query does, so it works on every machine.
 */
#include <string.h>

#include "runtime/backend/registry.h"
#include "runtime/base/json.h"
#include "tool.h"

enum { SETTINGS = TOOL_LONG, JSON };

static const struct tool_option options[] = {
    {"settings", NULL, "all settings with their values and where these come from", SETTINGS},
    {"json", NULL, "print one JSON object", JSON},
    {NULL, NULL, NULL, 0},
};

static const struct tool_syntax syntax = {
    .command = "info",
    .synopsis = "[--settings] [--json]",
    .about = "Shows versions, backends (built: the code is there; usable: it would open here) and devices.",
    .options = options,
};

static const char *const sources[] = {"default", "environment", "option"};

static const char *value_of(const struct sl_config *config, unsigned id)
{
    const struct sl_setting_value *value = &config->values[id];
    return value->source == SL_FROM_DEFAULT ? sl_setting_info((enum sl_setting_id)id)->default_text : value->text;
}

static void put_text(struct sl_json_writer *w, const char *key, const char *text)
{
    sl_json_key(w, key);
    sl_json_put_text(w, text);
}

static void put_bool(struct sl_json_writer *w, const char *key, _Bool value)
{
    sl_json_key(w, key);
    sl_json_put_bool(w, value);
}

static void put_u64(struct sl_json_writer *w, const char *key, uint64_t value)
{
    sl_json_key(w, key);
    sl_json_put_u64(w, value);
}

static const char *version_text(char *text, size_t capacity)
{
    uint32_t number = sluice_version_number();
    SL_IGNORE(snprintf(text, capacity, "%u.%u.%u", number >> 16, (number >> 8) & 255, number & 255) < 0);
    return text;
}

/* NCCL's version from 23007; "" without NCCL. */
static const char *nccl_text(uint32_t number, char *text, size_t capacity)
{
    text[0] = '\0';
    if (number != 0)
        SL_IGNORE(snprintf(text, capacity, "%u.%u.%u", number / 10000, number / 100 % 100, number % 100) < 0);
    return text;
}

static void put_backend(struct sl_json_writer *w, const struct sl_backend_entry *entry)
{
    char nccl[32];
    sl_json_object(w);
    put_text(w, "name", entry->name);
    put_bool(w, "built", entry->built);
    put_bool(w, "usable", entry->usable);
    put_text(w, "reason", entry->reason);
    put_u64(w, "devices", entry->info.devices);
    put_text(w, "nccl", nccl_text(entry->info.version, nccl, sizeof nccl));
    sl_json_object_end(w);
}

static void put_setting(struct sl_json_writer *w, const struct sl_config *config, unsigned id)
{
    const struct sl_setting *setting = sl_setting_info((enum sl_setting_id)id);
    sl_json_object(w);
    put_text(w, "name", setting->variable);
    put_text(w, "value", value_of(config, id));
    put_text(w, "source", sources[config->values[id].source]);
    put_text(w, "default", setting->default_text);
    put_text(w, "help", setting->help);
    sl_json_object_end(w);
}

static void print_json(const struct sl_backend_entry *entries, uint32_t count, const struct sl_config *config)
{
    struct sl_json_writer w;
    char version[32];
    sl_json_begin(&w, stdout, 0);
    sl_json_object(&w);
    put_text(&w, "version", version_text(version, sizeof version));
    put_u64(&w, "abi", sluice_abi_version());
    put_text(&w, "allocator", sl_mem_name());
    sl_json_key(&w, "backends");
    sl_json_list(&w);
    for (uint32_t i = 0; i < count; i++)
        put_backend(&w, &entries[i]);
    sl_json_list_end(&w);
    if (config != NULL) {
        sl_json_key(&w, "settings");
        sl_json_list(&w);
        for (unsigned id = 0; id < SL_SETTINGS; id++)
            put_setting(&w, config, id);
        sl_json_list_end(&w);
    }
    sl_json_object_end(&w);
    SL_IGNORE(sl_json_end(&w)); /* tool_finish reports a failed stdout */
}

static void print_text(const struct sl_backend_entry *entries, uint32_t count, const struct sl_config *config)
{
    char text[32];
    printf("sluice %s, ABI %u, allocator %s\n", version_text(text, sizeof text), sluice_abi_version(), sl_mem_name());
    printf("%-10s %-6s %-7s %-8s %-8s %s\n", "backend", "built", "usable", "devices", "NCCL", "");
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_backend_entry *entry = &entries[i];
        const char *nccl = nccl_text(entry->info.version, text, sizeof text);
        printf("%-10s %-6s %-7s %-8u %-8s %s\n", entry->name, entry->built ? "yes" : "no", entry->usable ? "yes" : "no",
               entry->info.devices, nccl[0] != '\0' ? nccl : "-", entry->reason);
    }
    if (config == NULL)
        return;
    printf("\n%-26s %-12s %-12s %s\n", "setting", "value", "from", "");
    for (unsigned id = 0; id < SL_SETTINGS; id++) {
        const struct sl_setting *setting = sl_setting_info((enum sl_setting_id)id);
        printf("%-26s %-12s %-12s %s\n", setting->variable, value_of(config, id), sources[config->values[id].source],
               setting->help);
    }
}

int cmd_info(int argc, char **argv)
{
    struct tool_args args;
    struct sl_backend_entry entries[SL_BACKENDS_MAX];
    struct sl_config config;
    _Bool settings = 0, json = 0;
    char **operands;
    tool_begin(&args, &syntax, argc, argv);
    for (int option; (option = tool_next(&args)) != TOOL_DONE;) {
        if (option == TOOL_STOP)
            return args.status;
        settings = settings || option == SETTINGS;
        json = json || option == JSON;
    }
    if (tool_operands(&args, &operands) > 0)
        return tool_usage(&args, "unexpected argument '%s'", operands[0]);
    if (!tool_config(&config, &args.status))
        return args.status;
    uint32_t count = sl_backend_list(entries);
    if (json)
        print_json(entries, count, settings ? &config : NULL);
    else
        print_text(entries, count, settings ? &config : NULL);
    return tool_finish(TOOL_OK);
}
