/*
 * layout_parse.c: text to layout.
 *
 * - Every key at most once; numbers from 1 to SLUICE_WORLD_MAX (offset from 0).
 * - A layout that was parsed fills its world exactly, and its two grids agree on the stage of every rank.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/parse.h"
#include "scheduler/layout.h"

#define TEXT_MAX 4096

static const char *const axis_names[SL_AXES] = {"tp", "cp", "ep", "dp", "pp"};

struct key {
    const char *name;
    size_t offset; /* of a uint32_t in struct sl_layout */
    uint32_t least;
};

static const struct key keys[] = {
    {"tp", offsetof(struct sl_layout, tp), 1},       {"cp", offsetof(struct sl_layout, cp), 1},
    {"ep", offsetof(struct sl_layout, ep), 1},       {"etp", offsetof(struct sl_layout, etp), 1},
    {"pp", offsetof(struct sl_layout, pp), 1},       {"dp", offsetof(struct sl_layout, dp), 1},
    {"world", offsetof(struct sl_layout, world), 1}, {"offset", offsetof(struct sl_layout, offset), 0},
};

static sluice_status refuse(const struct sl_layout *layout, const char *key, const char *value, const char *want)
{
    return sl_fail(SLUICE_INVALID, "layout", "%s: %s=%s: want %s", layout->what, key, value, want);
}

static sluice_status set_number(struct sl_layout *layout, const struct key *key, const char *value)
{
    uint32_t number = 0;
    if (!sl_parse_u32(value, &number) || number < key->least || number > SLUICE_WORLD_MAX)
        return sl_fail(SLUICE_INVALID, "layout", "%s: %s=%s: want a number from %u to %u", layout->what, key->name,
                       value, key->least, SLUICE_WORLD_MAX);
    memcpy((char *)layout + key->offset, &number, sizeof number);
    return SLUICE_OK;
}

/* One "LAYERS" or "LAYERS*STAGES" of a split list. */
static _Bool add_split(struct sl_layout *layout, char *part)
{
    uint32_t layers = 0, stages = 1;
    char *star = strchr(part, '*');
    if (star) {
        *star = '\0';
        if (!sl_parse_u32(star + 1, &stages))
            return 0;
    }
    if (!sl_parse_u32(part, &layers) || stages == 0 || stages > SL_STAGES_MAX - layout->split_count)
        return 0;
    for (uint32_t i = 0; i < stages; i++)
        layout->splits[layout->split_count++] = layers;
    return 1;
}

static sluice_status set_splits(struct sl_layout *layout, char *value)
{
    static const char want[] = "layers per stage like 3+4*14+2, at most 1024 stages";
    char whole[64];
    SL_IGNORE(snprintf(whole, sizeof whole, "%s", value));
    for (char *part = value; part;) {
        char *next = strchr(part, '+');
        if (next)
            *next++ = '\0';
        if (!add_split(layout, part))
            return refuse(layout, "splits", whole, want);
        part = next;
    }
    return SLUICE_OK;
}

static sluice_status set_order(struct sl_layout *layout, const char *value)
{
    _Bool seen[SL_AXES] = {0};
    const char *at = value;
    for (uint32_t place = 0; place < SL_AXES; place++) {
        uint32_t axis = 0;
        while (axis < SL_AXES && strncmp(at, axis_names[axis], 2) != 0)
            axis++;
        char end = place + 1 < SL_AXES ? '-' : '\0';
        if (axis == SL_AXES || seen[axis] || at[2] != end)
            return refuse(layout, "order", value, "each of tp, cp, ep, dp and pp once, joined by '-'");
        seen[axis] = 1;
        layout->order[place] = (uint8_t)axis;
        at += 3;
    }
    return SLUICE_OK;
}

static sluice_status set_kv(struct sl_layout *layout, const char *value)
{
    if (strcmp(value, "split") != 0 && strcmp(value, "replicate") != 0)
        return refuse(layout, "kv", value, "split or replicate");
    layout->kv = value[0] == 'r' ? SL_KV_REPLICATE : SL_KV_SPLIT;
    return SLUICE_OK;
}

static sluice_status set(struct sl_layout *layout, const char *key, char *value, uint32_t *seen)
{
    static const char *const others[] = {"splits", "order", "kv"};
    uint32_t index = 0;
    while (index < SL_COUNT(keys) && strcmp(keys[index].name, key) != 0)
        index++;
    for (uint32_t i = 0; index >= SL_COUNT(keys) && i < SL_COUNT(others); i++)
        if (strcmp(others[i], key) == 0)
            index = (uint32_t)SL_COUNT(keys) + i + 1;
    if (index == SL_COUNT(keys))
        return sl_fail(SLUICE_INVALID, "layout",
                       "%s: unknown key '%s'; keys are tp, cp, ep, etp, pp, dp, world, offset, splits, order, kv",
                       layout->what, key);
    if (*seen & 1u << index)
        return sl_fail(SLUICE_INVALID, "layout", "%s: %s is given twice", layout->what, key);
    *seen |= 1u << index;
    if (index < SL_COUNT(keys))
        return set_number(layout, &keys[index], value);
    if (strcmp(key, "splits") == 0)
        return set_splits(layout, value);
    return strcmp(key, "order") == 0 ? set_order(layout, value) : set_kv(layout, value);
}

static sluice_status parse_pairs(struct sl_layout *layout, char *text)
{
    uint32_t seen = 0;
    for (char *item = text; item;) {
        char *next = strchr(item, ',');
        if (next)
            *next++ = '\0';
        char *value = strchr(item, '=');
        if (!value)
            return sl_fail(SLUICE_INVALID, "layout", "%s: '%s' is not KEY=VALUE", layout->what, item);
        *value++ = '\0';
        sluice_status status = set(layout, item, value, &seen);
        if (status != SLUICE_OK)
            return status;
        item = next;
    }
    layout->offset_given = seen >> 7 & 1u;
    return SLUICE_OK;
}

static sluice_status fill_dense(struct sl_layout *layout)
{
    uint64_t shards = (uint64_t)layout->tp * layout->cp;
    shards = shards > SLUICE_WORLD_MAX ? shards : shards * layout->pp;
    if (!layout->world && !layout->dp)
        return sl_fail(SLUICE_INVALID, "layout", "%s: give world= (or dp=)", layout->what);
    uint64_t world = layout->world ? layout->world : shards * layout->dp;
    if (world > SLUICE_WORLD_MAX || shards > SLUICE_WORLD_MAX)
        return sl_fail(SLUICE_INVALID, "layout", "%s: tp=%u x cp=%u x pp=%u x dp=%u: more than %u ranks", layout->what,
                       layout->tp, layout->cp, layout->pp, layout->dp, SLUICE_WORLD_MAX);
    if (layout->dp && world != shards * layout->dp)
        return sl_fail(SLUICE_INVALID, "layout", "%s: world=%llu is not tp=%u x cp=%u x pp=%u x dp=%u", layout->what,
                       (unsigned long long)world, layout->tp, layout->cp, layout->pp, layout->dp);
    if (world % shards != 0)
        return sl_fail(SLUICE_INVALID, "layout", "%s: world=%llu is not tp=%u x cp=%u x pp=%u x a whole number",
                       layout->what, (unsigned long long)world, layout->tp, layout->cp, layout->pp);
    layout->world = (uint32_t)world;
    layout->dp = (uint32_t)(world / shards);
    return SLUICE_OK;
}

static sluice_status fill_expert(struct sl_layout *layout)
{
    uint64_t shards = (uint64_t)layout->etp * layout->ep;
    shards = shards > SLUICE_WORLD_MAX ? shards : shards * layout->pp;
    if (layout->world % shards != 0)
        return sl_fail(SLUICE_INVALID, "layout", "%s: world=%u is not etp=%u x ep=%u x pp=%u x a whole number",
                       layout->what, layout->world, layout->etp, layout->ep, layout->pp);
    layout->edp = (uint32_t)(layout->world / shards);
    if (layout->offset > SLUICE_WORLD_MAX - layout->world)
        return sl_fail(SLUICE_INVALID, "layout", "%s: offset=%u + world=%u: more than %u ranks", layout->what,
                       layout->offset, layout->world, SLUICE_WORLD_MAX);
    return SLUICE_OK;
}

static void fill_grid(const struct sl_layout *layout, const uint32_t size[SL_AXES], struct sl_grid *ret)
{
    uint32_t stride = 1;
    for (uint32_t place = 0; place < SL_AXES; place++) {
        uint32_t axis = layout->order[place];
        ret->size[axis] = size[axis];
        ret->stride[axis] = stride;
        stride *= size[axis];
    }
    SL_ASSERT(stride == layout->world);
}

/* A rank has one pipeline stage, whichever grid is asked. */
static sluice_status check_stages(const struct sl_layout *layout)
{
    for (uint32_t rank = 0; rank < layout->world; rank++)
        if (sl_grid_at(&layout->dense, SL_AXIS_PP, rank) != sl_grid_at(&layout->expert, SL_AXIS_PP, rank))
            return sl_fail(SLUICE_INVALID, "layout",
                           "%s: with this order rank %u is in stage %u of the dense grid (tp=%u, cp=%u, dp=%u) but in "
                           "stage %u of the expert grid (etp=%u, ep=%u, edp=%u); put pp last",
                           layout->what, rank, sl_grid_at(&layout->dense, SL_AXIS_PP, rank), layout->tp, layout->cp,
                           layout->dp, sl_grid_at(&layout->expert, SL_AXIS_PP, rank), layout->etp, layout->ep,
                           layout->edp);
    return SLUICE_OK;
}

static sluice_status fill(struct sl_layout *layout)
{
    if (layout->split_count && layout->split_count != layout->pp)
        return sl_fail(SLUICE_INVALID, "layout", "%s: splits names %u stages, pp=%u", layout->what, layout->split_count,
                       layout->pp);
    if (layout->pp > SL_STAGES_MAX)
        return sl_fail(SLUICE_INVALID, "layout", "%s: pp=%u: at most %u stages", layout->what, layout->pp,
                       SL_STAGES_MAX);
    sluice_status status = fill_dense(layout);
    if (status == SLUICE_OK)
        status = fill_expert(layout);
    if (status != SLUICE_OK)
        return status;
    fill_grid(layout, (uint32_t[SL_AXES]){layout->tp, layout->cp, 1, layout->dp, layout->pp}, &layout->dense);
    fill_grid(layout, (uint32_t[SL_AXES]){layout->etp, 1, layout->ep, layout->edp, layout->pp}, &layout->expert);
    return check_stages(layout);
}

sluice_status sl_layout_parse(const char *text, const char *what, struct sl_layout *ret)
{
    struct sl_layout layout = {.tp = 1,
                               .cp = 1,
                               .ep = 1,
                               .etp = 1,
                               .pp = 1,
                               .order = {SL_AXIS_TP, SL_AXIS_CP, SL_AXIS_EP, SL_AXIS_DP, SL_AXIS_PP},
                               .what = what};
    char copy[TEXT_MAX];
    size_t length = strlen(text);
    if (length == 0 || length >= sizeof copy)
        return sl_fail(SLUICE_INVALID, "layout", "%s: want a layout like tp=8,ep=16,pp=2,world=32", what);
    memcpy(copy, text, length + 1);
    sluice_status status = parse_pairs(&layout, copy);
    if (status == SLUICE_OK)
        status = fill(&layout);
    if (status == SLUICE_OK)
        *ret = layout;
    return status;
}

sluice_status sl_layout_stages(struct sl_layout *layout, uint32_t layers)
{
    if (!layout->split_count) {
        if (layers % layout->pp)
            return sl_fail(SLUICE_INVALID, "layout", "%s: pp=%u does not divide %u layers; give splits=", layout->what,
                           layout->pp, layers);
        for (uint32_t stage = 0; stage < layout->pp; stage++)
            layout->splits[stage] = layers / layout->pp;
        layout->split_count = layout->pp;
    }
    uint64_t sum = 0;
    for (uint32_t stage = 0; stage < layout->pp; stage++)
        sum += layout->splits[stage];
    if (sum != layers)
        return sl_fail(SLUICE_INVALID, "layout", "%s: splits add up to %llu layers, the model has %u", layout->what,
                       (unsigned long long)sum, layers);
    return SLUICE_OK;
}
