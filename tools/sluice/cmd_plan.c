/*
 * sluice plan: from a model and two layouts to a plan file.
 *
 * Invariant: what is written depends on the command line and the model alone.
 */
#include <inttypes.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/parse.h"
#include "runtime/core/model_file.h"
#include "runtime/core/plan_io.h"
#include "tool.h"

enum { MODEL = TOOL_LONG, FROM, TO, SCALE, SOURCE_CHOICE, ID_ORDER, LIST_MODELS, JSON };

static const struct tool_option options[] = {
    {"model", "NAME|FILE", "a model of --list-models, or a model file", MODEL},
    {"from", "LAYOUT", "layout of the ranks that send", FROM},
    {"to", "LAYOUT", "layout of the ranks that receive", TO},
    {"output", "PLAN", "file to write; JSON when its name ends in .json", 'o'},
    {"source-choice", "first|balanced", "which copy sends (default balanced)", SOURCE_CHOICE},
    {"id-order", "model|destination", "how tasks are numbered (default model)", ID_ORDER},
    {"scale", "1/N", "divide the row bytes of every task by N, rounded up to 16", SCALE},
    {"list-models", NULL, "show the models that are known by name", LIST_MODELS},
    {"json", NULL, "with --list-models: print one JSON object", JSON},
    {NULL, NULL, NULL, 0},
};

static const struct tool_syntax syntax = {
    "plan", "--model NAME|FILE --from LAYOUT --to LAYOUT -o PLAN [options]",
    "Makes the plan that moves a model from one parallel layout to another.\n"
    "A LAYOUT is KEY=VALUE,...: tp, cp, ep, etp, pp (default 1), world or dp, offset (of --to: behind the\n"
    "ranks of --from; offset=0 shares them), splits=3+4*14+2 (layers per stage), order=tp-cp-ep-dp-pp,\n"
    "kv=split|replicate (fused query-key-value tensors where tp exceeds the key-value heads; default: the model's).",
    options};

struct request {
    const char *model, *from, *to, *output;
    struct sluice_layout_options options;
    _Bool list, json;
};

/* --- models --- */

static uint64_t elements_of(const struct sl_model *model)
{
    uint64_t elements = 0;
    for (uint32_t layer = 0; layer < model->layers + 2; layer++) {
        struct sl_tensors range = layer < model->layers    ? sl_model_layer(model, layer)
                                  : layer == model->layers ? model->first
                                                           : model->last;
        for (uint32_t i = range.first; i < range.first + range.count; i++) {
            const struct sl_tensor *tensor = &model->tensors[i];
            if (!tensor->tied_to)
                elements += sl_tensor_span(tensor, 0, tensor->dims) * (tensor->experts ? tensor->experts : 1);
        }
    }
    return elements;
}

static void print_model(const struct sl_model *model)
{
    uint64_t bytes = 0;
    uint64_t params = sl_model_params(model, &bytes);
    char size[32];
    printf("%-22s %6u layers %7" PRIu64 " tensors %8.1f B parameters %10s\n", model->name, model->layers, params,
           (double)elements_of(model) / 1e9, sl_format_bytes(bytes, size, sizeof(size)));
}

static void put_model(struct sl_json_writer *w, const struct sl_model *model)
{
    uint64_t bytes = 0;
    uint64_t params = sl_model_params(model, &bytes);
    size_t index;
    json_t *source;
    sl_json_object(w);
    sl_json_key(w, "name");
    sl_json_put_text(w, model->name);
    sl_json_key(w, "layers");
    sl_json_put_u64(w, model->layers);
    sl_json_key(w, "tensors");
    sl_json_put_u64(w, params);
    sl_json_key(w, "parameters");
    sl_json_put_u64(w, elements_of(model));
    sl_json_key(w, "bytes");
    sl_json_put_u64(w, bytes);
    sl_json_key(w, "sources");
    sl_json_list(w);
    json_array_foreach(json_object_get(model->root, "sources"), index, source)
        sl_json_put_text(w, json_is_string(source) ? json_string_value(source) : "");
    sl_json_list_end(w);
    sl_json_object_end(w);
}

static int list_each(const struct sl_model_names *names, struct sl_json_writer *w)
{
    for (size_t i = 0; i < names->count; i++) {
        struct sl_model model;
        if (sl_model_open(names->names[i], names->mem, &model) != SLUICE_OK)
            return tool_fail_input(names->names[i]);
        if (w)
            put_model(w, &model);
        else
            print_model(&model);
        sl_model_drop(&model);
    }
    return TOOL_OK;
}

static int list_models(_Bool json)
{
    struct sl_model_names names;
    if (sl_model_names(sl_mem_default(), &names) != SLUICE_OK)
        return tool_fail();
    struct sl_json_writer w;
    if (json) {
        sl_json_begin(&w, stdout, 0);
        sl_json_object(&w);
        sl_json_key(&w, "models");
        sl_json_list(&w);
    }
    int status = list_each(&names, json ? &w : NULL);
    if (json && status == TOOL_OK) {
        sl_json_list_end(&w);
        sl_json_object_end(&w);
        status = sl_json_end(&w) == SLUICE_OK ? TOOL_OK : tool_fail();
    }
    sl_model_names_drop(&names);
    return tool_finish(status);
}

/* --- plans --- */

static int make_plan(const struct request *request)
{
    struct sl_plan plan;
    char size[32];
    if (sl_plan_from_layouts(request->model, request->from, request->to, &request->options, sl_mem_default(), &plan) !=
        SLUICE_OK)
        return sluice_last_error()->status == SLUICE_IO ? tool_fail_input(request->model) : tool_fail();
    int status = sl_plan_store(&plan, request->output) == SLUICE_OK ? TOOL_OK : tool_fail();
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan.task_count; i++)
        bytes += sl_task_bytes(&plan.tasks[i]);
    if (status == TOOL_OK)
        fprintf(stderr, "%s: %zu tasks of %zu parameters between %u ranks, %s\n", request->output, plan.task_count,
                plan.param_count, plan.world, sl_format_bytes(bytes, size, sizeof(size)));
    sl_plan_drop(&plan);
    return status;
}

/* --- command line --- */

static _Bool read_scale(struct tool_args *args, uint64_t *ret)
{
    uint64_t divisor = 0;
    if (strncmp(args->value, "1/", 2) == 0 && sl_parse_u64(args->value + 2, &divisor) && divisor > 0) {
        *ret = divisor;
        return 1;
    }
    tool_usage(args, "--scale: '%s' is not 1/N with N at least 1", args->value);
    return 0;
}

static _Bool read_choice(struct tool_args *args, const char *const *choices, uint32_t *ret)
{
    int choice = tool_choice(args, choices);
    if (choice >= 0)
        *ret = (uint32_t)choice;
    return choice >= 0;
}

static _Bool read_option(struct tool_args *args, int option, struct request *request)
{
    static const char *const sources[] = {"balanced", "first", NULL};
    static const char *const orders[] = {"model", "destination", NULL};
    switch (option) {
    case MODEL:
        request->model = args->value;
        return 1;
    case FROM:
        request->from = args->value;
        return 1;
    case TO:
        request->to = args->value;
        return 1;
    case 'o':
        request->output = args->value;
        return 1;
    case SCALE:
        return read_scale(args, &request->options.scale);
    case SOURCE_CHOICE:
        return read_choice(args, sources, &request->options.source_choice);
    case ID_ORDER:
        return read_choice(args, orders, &request->options.id_order);
    case LIST_MODELS:
        request->list = 1;
        return 1;
    default:
        request->json = 1;
        return 1;
    }
}

static int check_request(struct tool_args *args, const struct request *request)
{
    const struct {
        const char *value, *name;
    } needed[] = {
        {request->model, "--model"}, {request->from, "--from"}, {request->to, "--to"}, {request->output, "-o"}};
    char **operands;
    if (tool_operands(args, &operands) > 0)
        return tool_usage(args, "unexpected argument '%s'", operands[0]);
    if (request->json && !request->list)
        return tool_usage(args, "--json goes with --list-models ('sluice show --json' describes a plan)");
    for (size_t i = 0; i < SL_COUNT(needed) && !request->list; i++)
        if (needed[i].value == NULL)
            return tool_usage(args, "%s is missing", needed[i].name);
    return TOOL_OK;
}

int cmd_plan(int argc, char **argv)
{
    struct tool_args args;
    struct request request = {.options = SLUICE_LAYOUT_OPTIONS_INIT};
    tool_begin(&args, &syntax, argc, argv);
    for (int option = tool_next(&args); option != TOOL_DONE; option = tool_next(&args))
        if (option == TOOL_STOP || !read_option(&args, option, &request))
            return args.status;
    if (check_request(&args, &request) != TOOL_OK)
        return args.status;
    return request.list ? list_models(request.json) : make_plan(&request);
}
