/*
 * From a checkpoint, rules and two layouts to a plan, by way of the planner.
 *
 * Invariants: every tensor of the checkpoint is one parameter of the plan; the experts of a layer
 * (".experts.N." in the name) are one tensor of the planner's model, and all of them must be there and be
 * alike; the checkpoint is one layer, so layouts have no pipeline stages.
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "runtime/base/parse.h"
#include "scheduler/layout.h"

#define EXPERTS ".experts."

/* What one or more tensors of the checkpoint have in common. */
struct family {
    char name[SLUICE_NAME_MAX]; /* an expert's number is "{expert}" */
    uint32_t first;             /* tensor of the checkpoint */
    uint32_t members;           /* experts; 0: a tensor of its own */
    uint32_t begin;             /* its tensors are by_name[begin] ... */
};

struct maker {
    struct sl_mem *mem;
    const struct checkpoint *checkpoint;
    const struct checkpoint_rules *rules;
    struct sl_layout from, to;
    struct family *families;
    uint32_t family_count;
    uint32_t *by_name;   /* tensors, family by family */
    uint32_t *expert_of; /* tensor to expert */
    uint32_t *order;     /* parameter to tensor */
    struct sl_model model;
};

/* --- layouts --- */

static uint64_t common_multiple(uint64_t a, uint64_t b)
{
    uint64_t x = a, y = b;
    while (y != 0) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* "tp=2,ep=4": the least world that both grids fill. 0 when the text is no such layout; the parser says why. */
static uint64_t least_world(const char *text)
{
    uint64_t dense = 1, expert = 1;
    char copy[512], *save = NULL;
    if (strlen(text) >= sizeof copy || strstr(text, "world=") != NULL || strstr(text, "dp=") != NULL)
        return 0;
    memcpy(copy, text, strlen(text) + 1);
    for (char *item = strtok_r(copy, ",", &save); item != NULL; item = strtok_r(NULL, ",", &save)) {
        char *value = strchr(item, '=');
        uint32_t number = 0;
        if (value == NULL)
            return 0;
        *value++ = '\0';
        _Bool in_dense = strcmp(item, "tp") == 0 || strcmp(item, "cp") == 0;
        if (!in_dense && strcmp(item, "ep") != 0 && strcmp(item, "etp") != 0)
            continue;
        if (!sl_parse_u32(value, &number) || number == 0 || number > SLUICE_WORLD_MAX)
            return 0;
        *(in_dense ? &dense : &expert) *= number;
        if (dense > SLUICE_WORLD_MAX || expert > SLUICE_WORLD_MAX)
            return 0;
    }
    return common_multiple(dense, expert);
}

static sluice_status read_layout(const char *text, const char *what, struct sl_layout *ret)
{
    char whole[600];
    uint64_t world = least_world(text);
    if (world != 0)
        SL_IGNORE(snprintf(whole, sizeof whole, "%s,world=%llu", text, (unsigned long long)world) < 0);
    sluice_status status = sl_layout_parse(world != 0 ? whole : text, what, ret);
    if (status == SLUICE_OK && ret->pp > 1)
        return sl_fail(SLUICE_INVALID, "layout", "%s: pp=%u: a checkpoint is moved without pipeline stages", what,
                       ret->pp);
    return status;
}

/* --- families --- */

/* Splits "a.experts.12.b" into a name with "{expert}" and 12; false for other names. */
static _Bool expert_name(const char *name, char *ret_name, uint32_t *ret_expert)
{
    const char *at = strstr(name, EXPERTS);
    if (at == NULL)
        return 0;
    const char *digits = at + strlen(EXPERTS);
    size_t length = strspn(digits, "0123456789");
    char number[16];
    if (length == 0 || length >= sizeof number || digits[length] != '.' || (digits[0] == '0' && length > 1))
        return 0;
    memcpy(number, digits, length);
    number[length] = '\0';
    return sl_parse_u32(number, ret_expert) && *ret_expert < SL_MODEL_EXPERTS &&
           snprintf(ret_name, SLUICE_NAME_MAX, "%.*s{expert}%s", (int)(digits - name), name, digits + length) <
               (int)SLUICE_NAME_MAX;
}

static int by_family_name(const void *a, const void *b)
{
    const struct family *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order != 0 ? order : (left->first > right->first) - (left->first < right->first);
}

static int by_first(const void *a, const void *b)
{
    const struct family *left = a, *right = b;
    return (left->first > right->first) - (left->first < right->first);
}

/* One entry for each tensor, then equal names joined, in the order of the checkpoint. */
static sluice_status find_families(struct maker *maker)
{
    uint32_t count = (uint32_t)maker->checkpoint->count, kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        const char *name = maker->checkpoint->tensors[i].name;
        struct family *family = &maker->families[i];
        *family = (struct family){.first = i};
        if (strlen(name) >= SLUICE_NAME_MAX - 8 || strchr(name, '{') != NULL)
            return sl_fail(SLUICE_INVALID, "checkpoint", "tensor '%.200s': its name is too long, or has a '{'", name);
        if (expert_name(name, family->name, &maker->expert_of[i]))
            family->members = 1;
        else
            SL_IGNORE(snprintf(family->name, sizeof family->name, "%s", name) < 0);
    }
    if (count > 0)
        qsort(maker->families, count, sizeof *maker->families, by_family_name);
    for (uint32_t i = 0; i < count; i++) {
        struct family *last = kept > 0 ? &maker->families[kept - 1] : NULL;
        maker->by_name[i] = maker->families[i].first;
        if (last != NULL && strcmp(last->name, maker->families[i].name) == 0) {
            last->members++;
            continue;
        }
        maker->families[kept] = maker->families[i];
        maker->families[kept++].begin = i;
    }
    if (kept > 0)
        qsort(maker->families, kept, sizeof *maker->families, by_first);
    maker->family_count = kept;
    return SLUICE_OK;
}

/* Whether a tensor can be expert number `expert` of `members`, like the first one. */
static sluice_status check_member(const struct checkpoint_tensor *tensor, const struct checkpoint_tensor *first,
                                  uint32_t expert, uint32_t members)
{
    if (expert >= members)
        return sl_fail(SLUICE_INVALID, "checkpoint", "tensor '%.200s': there are only %u of these experts",
                       tensor->name, members);
    if (tensor->dims == first->dims && tensor->dtype == first->dtype &&
        memcmp(tensor->shape, first->shape, sizeof first->shape) == 0)
        return SLUICE_OK;
    return sl_fail(SLUICE_INVALID, "checkpoint", "tensor '%.200s' has another shape or type than '%.200s'",
                   tensor->name, first->name);
}

/* Parameters follow each other family by family, experts by number; none is missing, since no name comes twice. */
static sluice_status number_params(struct maker *maker)
{
    const struct checkpoint_tensor *tensors = maker->checkpoint->tensors;
    uint32_t param = 0;
    for (uint32_t f = 0; f < maker->family_count; f++) {
        const struct family *family = &maker->families[f];
        uint32_t members = family->members > 0 ? family->members : 1;
        for (uint32_t i = 0; i < members; i++) {
            uint32_t tensor = maker->by_name[family->begin + i];
            uint32_t expert = maker->expert_of[tensor];
            sluice_status status = check_member(&tensors[tensor], &tensors[family->first], expert, members);
            if (status != SLUICE_OK)
                return status;
            maker->order[param + expert] = tensor;
        }
        param += members;
    }
    return SLUICE_OK;
}

/* --- the planner's model --- */

static sluice_status check_divides(const struct checkpoint_tensor *tensor, const struct sl_layout *layout, _Bool expert,
                                   uint32_t dim)
{
    uint32_t shards = expert ? layout->etp : layout->tp;
    if (tensor->shape[dim] % shards == 0)
        return SLUICE_OK;
    return sl_fail(SLUICE_INVALID, "checkpoint",
                   "%s: %s=%u does not divide dimension %u of tensor '%.200s', %llu elements: give a rule for it",
                   layout->what, expert ? "etp" : "tp", shards, dim, tensor->name,
                   (unsigned long long)tensor->shape[dim]);
}

/* Whether and where to split; the rule may ask for what cannot be. */
static sluice_status choose_split(const struct maker *maker, const struct family *family, _Bool *ret_split,
                                  uint32_t *ret_dim)
{
    const struct checkpoint_tensor *tensor = &maker->checkpoint->tensors[family->first];
    enum checkpoint_split rule = checkpoint_rule_for(maker->rules, tensor->name);
    uint32_t dim = rule == CHECKPOINT_ROW ? 1 : 0;
    _Bool expert = family->members > 0;
    *ret_split = 0;
    *ret_dim = dim;
    if (rule == CHECKPOINT_REPLICATED || dim >= tensor->dims)
        return SLUICE_OK;
    sluice_status status = check_divides(tensor, &maker->from, expert, dim);
    if (status == SLUICE_OK)
        status = check_divides(tensor, &maker->to, expert, dim);
    if (status != SLUICE_OK)
        return rule == CHECKPOINT_VOCABULARY ? SLUICE_OK : status;
    *ret_split = 1;
    return SLUICE_OK;
}

static sluice_status add_tensor(struct maker *maker, const struct family *family, struct sl_tensor *ret)
{
    const struct checkpoint_tensor *tensor = &maker->checkpoint->tensors[family->first];
    _Bool split = 0;
    uint32_t dim = 0;
    sluice_status status = choose_split(maker, family, &split, &dim);
    if (status != SLUICE_OK)
        return status;
    *ret = (struct sl_tensor){.name = family->name,
                              .shape = {1, 1, 1, 1},
                              .experts = family->members,
                              .stride = 1,
                              .dims = 3,
                              .dim = (uint8_t)dim,
                              .block_count = 1,
                              .split = SL_SPLIT_NONE,
                              .dtype = tensor->dtype};
    for (uint32_t d = 0; d < tensor->dims; d++) /* the dimensions behind the second are one here */
        ret->shape[d < 2 ? d : 2] *= tensor->shape[d];
    ret->blocks[0] = ret->shape[dim];
    if (split)
        ret->split = family->members > 0 ? SL_SPLIT_ETP : SL_SPLIT_TP;
    return SLUICE_OK;
}

static sluice_status fill_model(struct maker *maker)
{
    struct sl_model *model = &maker->model;
    *model = (struct sl_model){.mem = maker->mem,
                               .name = "checkpoint",
                               .pattern = "a",
                               .layers = 1,
                               .tensor_count = maker->family_count,
                               .letters = {'a'},
                               .kinds = {{0, maker->family_count}},
                               .kind_count = 1};
    model->tensors = sl_new_array(maker->mem, maker->family_count, sizeof *model->tensors, "tensors of a checkpoint");
    if (model->tensors == NULL)
        return SLUICE_NOMEM;
    for (uint32_t f = 0; f < maker->family_count; f++) {
        sluice_status status = add_tensor(maker, &maker->families[f], &model->tensors[f]);
        if (status != SLUICE_OK)
            return status;
    }
    return SLUICE_OK;
}

/* --- the whole --- */

static sluice_status prepare(struct maker *maker, const char *from, const char *to)
{
    size_t count = maker->checkpoint->count;
    if (count > SL_PARAMS_MAX)
        return sl_fail(SLUICE_LIMIT, "checkpoint", "more than %u tensors", SL_PARAMS_MAX);
    sluice_status status = read_layout(from, "--from", &maker->from);
    if (status == SLUICE_OK)
        status = read_layout(to, "--to", &maker->to);
    if (status != SLUICE_OK)
        return status;
    maker->families = sl_new_array(maker->mem, count, sizeof *maker->families, "tensors of a checkpoint");
    maker->by_name = sl_new_array(maker->mem, count, sizeof *maker->by_name, "tensors of a checkpoint");
    maker->expert_of = sl_new_array(maker->mem, count, sizeof *maker->expert_of, "tensors of a checkpoint");
    maker->order = sl_new_array(maker->mem, count, sizeof *maker->order, "tensors of a checkpoint");
    if (maker->families == NULL || maker->by_name == NULL || maker->expert_of == NULL || maker->order == NULL)
        return SLUICE_NOMEM;
    status = find_families(maker);
    if (status == SLUICE_OK)
        status = number_params(maker);
    return status == SLUICE_OK ? fill_model(maker) : status;
}

static sluice_status list_data(const struct maker *maker, const struct sl_plan *plan, const uint8_t ***ret)
{
    const uint8_t **data = sl_new_array(maker->mem, plan->param_count, sizeof *data, "tensors of a checkpoint");
    if (data == NULL)
        return SLUICE_NOMEM;
    SL_ASSERT(plan->param_count == maker->checkpoint->count);
    for (uint32_t p = 0; p < plan->param_count; p++) {
        const struct checkpoint_tensor *tensor = &maker->checkpoint->tensors[maker->order[p]];
        SL_ASSERT(strcmp(sl_param_name(plan, p), tensor->name) == 0 && plan->params[p].bytes == tensor->bytes);
        data[p] = tensor->data;
    }
    *ret = data;
    return SLUICE_OK;
}

sluice_status checkpoint_plan(const struct checkpoint *checkpoint, const struct checkpoint_rules *rules,
                              const char *from, const char *to, struct sl_plan *ret_plan, const uint8_t ***ret_data)
{
    struct maker maker = {.mem = sl_mem_default(), .checkpoint = checkpoint, .rules = rules};
    const struct sl_layout_options options = {0};
    struct sl_plan plan = {0};
    sluice_status status = prepare(&maker, from, to);
    if (status == SLUICE_OK)
        status = sl_plan_make(&maker.model, &maker.from, &maker.to, &options, maker.mem, &plan);
    if (status == SLUICE_OK)
        status = sl_plan_validate(&plan);
    if (status == SLUICE_OK)
        status = list_data(&maker, &plan, ret_data);
    if (status == SLUICE_OK)
        *ret_plan = plan;
    else
        sl_plan_drop(&plan);
    sl_free(maker.mem, maker.model.tensors);
    sl_free(maker.mem, maker.families);
    sl_free(maker.mem, maker.by_name);
    sl_free(maker.mem, maker.expert_of);
    sl_free(maker.mem, maker.order);
    return status;
}
