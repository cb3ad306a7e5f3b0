/* Layouts as text: what they mean, and what is refused with which words. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/layouts.h"

static struct sl_layout layout;

static void refused(const char *text, const char *words)
{
    layout.world = 77;
    cr_expect_eq(sl_layout_parse(text, "--from", &layout), SLUICE_INVALID, "%s", text);
    cr_expect_str_eq(sluice_last_error()->text, words);
    cr_expect_eq(layout.world, 77, "%s: the output was touched", text);
}

static void taken(const char *text)
{
    cr_assert_eq(sl_layout_parse(text, "--from", &layout), SLUICE_OK, "%s: %s", text, sluice_last_error()->text);
}

Test(layout_parse, what_is_left_out_is_one_or_follows_from_world)
{
    taken("tp=8,world=32");
    cr_expect_eq(layout.tp, 8);
    cr_expect_eq(layout.cp, 1);
    cr_expect_eq(layout.ep, 1);
    cr_expect_eq(layout.etp, 1);
    cr_expect_eq(layout.pp, 1);
    cr_expect_eq(layout.dp, 4);
    cr_expect_eq(layout.edp, 32);
    cr_expect_eq(layout.offset, 0);
    cr_expect_not(layout.offset_given);
}

Test(layout_parse, world_follows_from_dp)
{
    taken("tp=2,pp=3,cp=2,dp=4,ep=8,offset=16");
    cr_expect_eq(layout.world, 48);
    cr_expect_eq(layout.edp, 2);
    cr_expect_eq(layout.offset, 16);
    cr_expect(layout.offset_given);
}

Test(layout_parse, dense_and_expert_grids_share_the_ranks)
{
    taken("tp=4,ep=2,etp=2,pp=2,world=16");
    uint32_t rank = 13; /* dense: tp 1, dp 1, stage 1; expert: etp 1, ep 0, edp 1, stage 1 */
    cr_expect_eq(sl_grid_at(&layout.dense, SL_AXIS_TP, rank), 1);
    cr_expect_eq(sl_grid_at(&layout.dense, SL_AXIS_DP, rank), 1);
    cr_expect_eq(sl_grid_at(&layout.dense, SL_AXIS_PP, rank), 1);
    cr_expect_eq(sl_grid_at(&layout.expert, SL_AXIS_TP, rank), 1);
    cr_expect_eq(sl_grid_at(&layout.expert, SL_AXIS_EP, rank), 0);
    cr_expect_eq(sl_grid_at(&layout.expert, SL_AXIS_DP, rank), 1);
    cr_expect_eq(sl_grid_at(&layout.expert, SL_AXIS_PP, rank), 1);
}

Test(layout_parse, order_moves_the_stages)
{
    taken("tp=2,pp=2,ep=2,world=8,order=tp-cp-ep-pp-dp");
    cr_expect_eq(sl_grid_at(&layout.dense, SL_AXIS_PP, 2), 1);
    cr_expect_eq(sl_grid_at(&layout.dense, SL_AXIS_PP, 4), 0);
    cr_expect_eq(sl_grid_at(&layout.dense, SL_AXIS_DP, 4), 1);
}

Test(layout_parse, splits_count_layers_stage_by_stage)
{
    taken("pp=4,world=4,splits=3+4*2+2");
    cr_assert_eq(sl_layout_stages(&layout, 13), SLUICE_OK);
    cr_expect_eq(layout.splits[0], 3);
    cr_expect_eq(layout.splits[1], 4);
    cr_expect_eq(layout.splits[2], 4);
    cr_expect_eq(layout.splits[3], 2);
    cr_expect_eq(sl_layout_stages(&layout, 12), SLUICE_INVALID);
    cr_expect_str_eq(sluice_last_error()->text, "--from: splits add up to 13 layers, the model has 12");
}

Test(layout_parse, even_stages_must_divide_the_layers)
{
    taken("pp=4,world=4");
    cr_expect_eq(sl_layout_stages(&layout, 61), SLUICE_INVALID);
    cr_expect_str_eq(sluice_last_error()->text, "--from: pp=4 does not divide 61 layers; give splits=");
    cr_expect_eq(sl_layout_stages(&layout, 60), SLUICE_OK);
    cr_expect_eq(layout.splits[3], 15);
}

Test(layout_parse, malformed_texts_are_refused)
{
    refused("", "--from: want a layout like tp=8,ep=16,pp=2,world=32");
    refused("tp", "--from: 'tp' is not KEY=VALUE");
    refused("tp=8,,world=8", "--from: '' is not KEY=VALUE");
    refused("tp=8,world=8,", "--from: '' is not KEY=VALUE");
    refused("TP=8,world=8", "--from: unknown key 'TP'; keys are tp, cp, ep, etp, pp, dp, world, offset, splits, order, "
                            "kv");
    refused("tp=8,tp=8,world=8", "--from: tp is given twice");
    refused("tp=0,world=8", "--from: tp=0: want a number from 1 to 65536");
    refused("tp=-1,world=8", "--from: tp=-1: want a number from 1 to 65536");
    refused("tp= 8,world=8", "--from: tp= 8: want a number from 1 to 65536");
    refused("tp=8,world=65537", "--from: world=65537: want a number from 1 to 65536");
    refused("tp=8,world=4294967304", "--from: world=4294967304: want a number from 1 to 65536");
    refused("world=8,offset=x", "--from: offset=x: want a number from 0 to 65536");
    refused("pp=2,world=2,splits=3+", "--from: splits=3+: want layers per stage like 3+4*14+2, at most 1024 stages");
    refused("pp=2,world=2,splits=3*2000",
            "--from: splits=3*2000: want layers per stage like 3+4*14+2, at most 1024 stages");
    refused("world=2,order=tp-cp-ep-dp", "--from: order=tp-cp-ep-dp: want each of tp, cp, ep, dp and pp once, joined "
                                         "by '-'");
    refused("world=2,order=tp-tp-ep-dp-pp", "--from: order=tp-tp-ep-dp-pp: want each of tp, cp, ep, dp and pp once, "
                                            "joined by '-'");
    refused("world=2,kv=both", "--from: kv=both: want split or replicate");
}

Test(layout_parse, what_does_not_divide_names_the_sizes)
{
    refused("tp=8", "--from: give world= (or dp=)");
    refused("tp=8,world=12", "--from: world=12 is not tp=8 x cp=1 x pp=1 x a whole number");
    refused("tp=4,dp=2,world=12", "--from: world=12 is not tp=4 x cp=1 x pp=1 x dp=2");
    refused("ep=16,world=24", "--from: world=24 is not etp=1 x ep=16 x pp=1 x a whole number");
    refused("tp=65536,cp=65536,pp=1024,dp=65536",
            "--from: tp=65536 x cp=65536 x pp=1024 x dp=65536: more than 65536 ranks");
    refused("ep=65536,etp=65536,world=8", "--from: world=8 is not etp=65536 x ep=65536 x pp=1 x a whole number");
    refused("world=65536,offset=1", "--from: offset=1 + world=65536: more than 65536 ranks");
    refused("pp=2,world=2,splits=3+4+5", "--from: splits names 3 stages, pp=2");
    refused("pp=2048,world=2048", "--from: pp=2048: at most 1024 stages");
}

Test(layout_parse, grids_that_disagree_about_stages_are_refused)
{
    refused("tp=2,pp=2,ep=4,world=8,order=tp-cp-ep-pp-dp",
            "--from: with this order rank 2 is in stage 1 of the dense grid (tp=2, cp=1, dp=2) but in stage 0 of the "
            "expert grid (etp=1, ep=4, edp=1); put pp last");
}
