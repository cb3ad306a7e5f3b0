/* seal_test.c: the seal's machines of several ranks against rank 0's reduction, in one thread, without sockets. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/control/seal.h"
#include "runtime/control/seal_format.h"

#define WORLD_MAX  8
#define ROUNDS_MAX 16

/* One rank: its plan (whole or its own half), terms and machine. */
struct rank {
    struct sl_plan plan;
    struct sluice_task tasks[512];
    struct sl_half half;
    struct sl_seal_terms terms;
    struct sl_seal *seal;
};

struct job {
    uint32_t world;
    uint32_t rounds;
    struct rank ranks[WORLD_MAX];
    struct sluice_error error;
};

static struct job *job_new(uint32_t world)
{
    struct job *job = sl_new(sl_mem_default(), sizeof(*job), "job");
    job->world = world;
    for (uint32_t i = 0; i < world; i++) {
        struct rank *r = &job->ranks[i];
        sl_plan_init(&r->plan, sl_mem_default(), world);
        r->plan.tasks = r->tasks;
        r->plan.borrowed = 1;
        r->plan.validated = 1;
        r->terms = (struct sl_seal_terms){.policy = SLUICE_POLICY_BALANCED, .window_bytes = 1 << 20, .slots = 3};
    }
    return job;
}

/* A task as one rank knows it; SL_NONE as type: that end is not known there. */
static void add(struct job *job, uint32_t rank, uint64_t id, uint32_t source, uint32_t destination, uint64_t bytes,
                uint8_t source_dtype, uint8_t destination_dtype)
{
    struct rank *r = &job->ranks[rank];
    struct sluice_region region = {.row_bytes = bytes, .rows = 1, .pitch = bytes};
    r->tasks[r->plan.task_count++] = (struct sluice_task){.id = id,
                                                          .source = source,
                                                          .destination = destination,
                                                          .source_dtype = source_dtype,
                                                          .destination_dtype = destination_dtype,
                                                          .from = source_dtype ? region : (struct sluice_region){0},
                                                          .to = destination_dtype ? region : (struct sluice_region){0}};
}

/* Every rank knows the whole task. */
static void add_all(struct job *job, uint64_t id, uint32_t source, uint32_t destination, uint64_t bytes)
{
    for (uint32_t i = 0; i < job->world; i++)
        add(job, i, id, source, destination, bytes, SLUICE_DTYPE_BF16, SLUICE_DTYPE_BF16);
}

static void begin(struct job *job)
{
    for (uint32_t i = 0; i < job->world; i++) {
        struct rank *r = &job->ranks[i];
        cr_assert_eq(sl_half_build(&r->plan, i, sl_mem_default(), &r->half), SLUICE_OK);
        cr_assert_eq(sl_seal_begin(&r->plan, &r->half, &r->terms, sl_mem_default(), &r->seal), SLUICE_OK);
    }
}

/* One round of all ranks; true when every rank is done. */
static sluice_status one_round(struct job *job, _Bool *ret_done)
{
    struct sl_bytes parts[WORLD_MAX];
    for (uint32_t i = 0; i < job->world; i++)
        cr_assert_eq(sl_seal_next_part(job->ranks[i].seal, &parts[i]), SLUICE_OK);
    uint8_t *data = NULL;
    size_t bytes = 0;
    sluice_status status = sl_seal_reduce(parts, job->world, sl_mem_default(), &data, &bytes, &job->error);
    job->rounds++;
    if (status != SLUICE_OK)
        return status;
    for (uint32_t i = 0; i < job->world; i++)
        cr_assert_eq(sl_seal_feed(job->ranks[i].seal, data, bytes, ret_done), SLUICE_OK);
    sl_free(sl_mem_default(), data);
    return SLUICE_OK;
}

static sluice_status seal(struct job *job)
{
    begin(job);
    _Bool done = 0;
    sluice_status status = SLUICE_OK;
    while (status == SLUICE_OK && !done) {
        cr_assert_lt(job->rounds, ROUNDS_MAX);
        status = one_round(job, &done);
    }
    return status;
}

static void job_end(struct job *job)
{
    for (uint32_t i = 0; i < job->world; i++) {
        sl_seal_end(job->ranks[i].seal);
        sl_half_drop(&job->ranks[i].half);
        sl_plan_drop(&job->ranks[i].plan);
    }
    sl_free(sl_mem_default(), job);
}

static void fails(struct job *job, sluice_status status, const char *const *texts)
{
    cr_assert_eq(seal(job), status, "%s", job->error.text);
    cr_assert_eq(job->error.status, status);
    for (; *texts != NULL; texts++)
        cr_assert_not_null(strstr(job->error.text, *texts), "\"%s\" lacks \"%s\"", job->error.text, *texts);
    job_end(job);
}
#define FAILS(job, status, ...) fails(job, status, (const char *const[]){__VA_ARGS__, NULL})

static const struct sl_seal_result *result(const struct job *job, uint32_t rank)
{
    return sl_seal_result(job->ranks[rank].seal);
}

Test(seal, agrees_at_once_when_all_propose_the_same)
{
    struct job *job = job_new(2);
    add_all(job, 7, 0, 1, 3 << 20);
    cr_assert_eq(seal(job), SLUICE_OK, "%s", job->error.text);
    cr_assert_eq(job->rounds, 1);
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert_eq(result(job, i)->rule.windows, 3);
        cr_assert_eq(result(job, i)->rule.blocks, 1);
        cr_assert_eq(result(job, i)->rule.slots, 3);
        cr_assert_eq(result(job, i)->staged, 0);
    }
    job_end(job);
}

Test(seal, rechecks_until_the_largest_proposal_suits_everybody)
{
    struct job *job = job_new(4);
    add_all(job, 1, 0, 1, 8 << 20);
    add_all(job, 2, 2, 3, 1 << 20);
    cr_assert_eq(seal(job), SLUICE_OK, "%s", job->error.text);
    cr_assert_eq(job->rounds, 2);
    for (uint32_t i = 0; i < 4; i++)
        cr_assert_eq(result(job, i)->rule.windows, 8);
    job_end(job);
}

Test(seal, lets_ranks_without_tasks_take_part)
{
    struct job *job = job_new(3);
    cr_assert_eq(seal(job), SLUICE_OK, "%s", job->error.text);
    cr_assert_eq(result(job, 2)->rule.windows, 1);
    job_end(job);
}

Test(seal, works_from_halves_alone)
{
    struct job *job = job_new(2);
    add(job, 0, 5, 0, 1, 4096, SLUICE_DTYPE_F32, SLUICE_DTYPE_NONE);
    add(job, 1, 5, 0, 1, 4096, SLUICE_DTYPE_NONE, SLUICE_DTYPE_F32);
    cr_assert_eq(seal(job), SLUICE_OK, "%s", job->error.text);
    job_end(job);
}

Test(seal, names_task_sizes_and_ranks_when_the_receiver_expects_another_size)
{
    struct job *job = job_new(3);
    add_all(job, 1, 0, 1, 64);
    add(job, 0, 7, 0, 1, 8, SLUICE_DTYPE_F32, SLUICE_DTYPE_NONE);
    add(job, 1, 7, 0, 1, 16, SLUICE_DTYPE_NONE, SLUICE_DTYPE_F32);
    FAILS(job, SLUICE_MISMATCH, "task 7", "rank 0 sends 8 bytes", "rank 1 expects 16 bytes");
}

Test(seal, finds_swapped_sizes_of_equal_total)
{
    struct job *job = job_new(2);
    add(job, 0, 1, 0, 1, 8, SLUICE_DTYPE_F32, SLUICE_DTYPE_NONE);
    add(job, 0, 2, 0, 1, 16, SLUICE_DTYPE_F32, SLUICE_DTYPE_NONE);
    add(job, 1, 1, 0, 1, 16, SLUICE_DTYPE_NONE, SLUICE_DTYPE_F32);
    add(job, 1, 2, 0, 1, 8, SLUICE_DTYPE_NONE, SLUICE_DTYPE_F32);
    FAILS(job, SLUICE_MISMATCH, "task 1", "sends 8 bytes", "expects 16 bytes");
}

Test(seal, names_the_rank_where_a_receive_is_missing)
{
    struct job *job = job_new(2);
    add_all(job, 1, 0, 1, 64);
    add(job, 0, 3, 0, 1, 32, SLUICE_DTYPE_F32, SLUICE_DTYPE_NONE);
    FAILS(job, SLUICE_MISMATCH, "task 3", "receive on rank 1 is missing");
}

Test(seal, names_the_rank_where_a_send_is_missing)
{
    struct job *job = job_new(2);
    add_all(job, 1, 0, 1, 64);
    add_all(job, 2, 0, 1, 64);
    add(job, 1, 3, 0, 1, 32, SLUICE_DTYPE_NONE, SLUICE_DTYPE_F32);
    FAILS(job, SLUICE_MISMATCH, "task 3", "send on rank 0 is missing");
}

Test(seal, finds_a_pair_that_one_side_does_not_know_at_all)
{
    struct job *job = job_new(3);
    add(job, 2, 9, 1, 2, 32, SLUICE_DTYPE_NONE, SLUICE_DTYPE_F32);
    FAILS(job, SLUICE_MISMATCH, "task 9", "send on rank 1 is missing");
}

Test(seal, names_both_types_when_they_differ)
{
    struct job *job = job_new(2);
    add(job, 0, 4, 0, 1, 8, SLUICE_DTYPE_F32, SLUICE_DTYPE_NONE);
    add(job, 1, 4, 0, 1, 8, SLUICE_DTYPE_NONE, SLUICE_DTYPE_BF16);
    FAILS(job, SLUICE_MISMATCH, "task 4", "rank 0 sends f32", "rank 1 expects bf16");
}

Test(seal, allows_untyped_bytes_on_both_sides)
{
    struct job *job = job_new(2);
    add(job, 0, 4, 0, 1, 8, SLUICE_DTYPE_BYTES, SLUICE_DTYPE_NONE);
    add(job, 1, 4, 0, 1, 8, SLUICE_DTYPE_NONE, SLUICE_DTYPE_BYTES);
    cr_assert_eq(seal(job), SLUICE_OK, "%s", job->error.text);
    job_end(job);
}

Test(seal, names_the_option_and_both_values_that_differ)
{
    struct job *job = job_new(3);
    job->ranks[2].terms.window_bytes = 4096;
    FAILS(job, SLUICE_MISMATCH, "window_bytes differs", "rank 0 has 1048576", "rank 2 has 4096");
    job = job_new(2);
    job->ranks[1].terms.policy = SLUICE_POLICY_SINGLE;
    job->ranks[1].terms.windows = 1;
    FAILS(job, SLUICE_MISMATCH, "policy differs", "rank 0 has balanced", "rank 1 has single");
    job = job_new(2);
    job->ranks[1].terms.slots = 4;
    FAILS(job, SLUICE_MISMATCH, "slots differs", "rank 0 has 3", "rank 1 has 4");
}

Test(seal, refuses_a_plan_for_another_world)
{
    struct job *job = job_new(2);
    job->ranks[1].plan.world = 4;
    FAILS(job, SLUICE_MISMATCH, "plan of rank 1", "world of 4", "2 ranks");
}

Test(seal, names_the_variable_that_differs)
{
    struct job *job = job_new(2);
    job->ranks[0].terms.environment = "NCCL_BUFFSIZE=1\nNCCL_PROTO=Simple\n";
    job->ranks[1].terms.environment = "NCCL_BUFFSIZE=2\nNCCL_PROTO=Simple\n";
    FAILS(job, SLUICE_MISMATCH, "rank 0 has NCCL_BUFFSIZE=1", "rank 1 has NCCL_BUFFSIZE=2");
    job = job_new(2);
    job->ranks[0].terms.environment = "NCCL_PROTO=Simple\n";
    FAILS(job, SLUICE_MISMATCH, "rank 0 has NCCL_PROTO=Simple", "rank 1 has it not set");
    job = job_new(2);
    job->ranks[0].terms.environment = "NCCL_PROTO=Simple\n";
    job->ranks[1].terms.environment = "NCCL_NET=Socket\nNCCL_PROTO=Simple\n";
    FAILS(job, SLUICE_MISMATCH, "rank 1 has NCCL_NET=Socket", "rank 0 has it not set");
}

Test(seal, collects_only_variables_that_change_groups)
{
    static const char *const environment[] = {"NCCL_PROTO=LL", "HOME=/", "NCCL_DEBUG=INFO", "NCCL_BUFFSIZE=1\n2", NULL};
    char *text = NULL;
    cr_assert_eq(sl_seal_environment(environment, sl_mem_default(), &text), SLUICE_OK);
    cr_assert_str_eq(text, "NCCL_BUFFSIZE=1?2\nNCCL_PROTO=LL\n");
    sl_free(sl_mem_default(), text);
}

Test(seal, deals_blocks_when_a_rank_has_more_streams_than_a_group_may_hold)
{
    struct job *job = job_new(8);
    for (uint32_t peer = 1; peer < 8; peer++)
        add_all(job, peer, 0, peer, 1 << 20);
    for (uint32_t i = 0; i < 8; i++)
        job->ranks[i].terms.items_max = 4;
    cr_assert_eq(seal(job), SLUICE_OK, "%s", job->error.text);
    cr_assert_eq(result(job, 0)->rule.blocks, 2);
    cr_assert_eq(result(job, 0)->rule.windows % 2, 0);
    uint32_t in_block[2] = {0, 0};
    for (uint32_t i = 0; i < 7; i++)
        in_block[result(job, 0)->block_of_stream[i]]++;
    cr_assert_leq(in_block[0], 4);
    cr_assert_leq(in_block[1], 4);
    for (uint32_t peer = 1; peer < 8; peer++)
        cr_assert_eq(result(job, peer)->block_of_stream[0], result(job, 0)->block_of_stream[peer - 1]);
    job_end(job);
}

Test(seal, packs_everywhere_when_one_rank_must)
{
    struct job *job = job_new(2);
    add_all(job, 1, 0, 1, 2 << 20);
    job->ranks[0].terms.direct_min = job->ranks[1].terms.direct_min = 65536;
    job->ranks[1].terms.want_packed = 1;
    cr_assert_eq(seal(job), SLUICE_OK, "%s", job->error.text);
    cr_assert_eq(result(job, 0)->rule.direct_min, 0);
    cr_assert_eq(result(job, 1)->rule.direct_min, 0);
    job_end(job);
    job = job_new(2);
    job->ranks[0].terms.direct_min = job->ranks[1].terms.direct_min = 65536;
    cr_assert_eq(seal(job), SLUICE_OK);
    cr_assert_eq(result(job, 0)->rule.direct_min, 65536);
    job_end(job);
}

Test(seal, stages_what_fits_the_smallest_shadow)
{
    struct job *job = job_new(3);
    add_all(job, 1, 0, 1, 8 << 20);
    add_all(job, 2, 0, 2, 8 << 20);
    job->ranks[1].terms.shadow_bytes = 8 << 20;
    job->ranks[2].terms.shadow_bytes = 4 << 20;
    cr_assert_eq(seal(job), SLUICE_OK, "%s", job->error.text);
    cr_assert_eq(result(job, 0)->rule.windows, 16);
    for (uint32_t i = 0; i < 3; i++)
        cr_assert_eq(result(job, i)->staged, 8);
    job_end(job);
}

Test(seal, compares_the_windows_that_other_policies_give_to_tasks)
{
    static const uint32_t windows[] = {0, 1};
    static const uint32_t others[] = {0, 0};
    struct job *job = job_new(2);
    add_all(job, 1, 0, 1, 64);
    add_all(job, 2, 0, 1, 64);
    for (uint32_t i = 0; i < 2; i++) {
        job->ranks[i].terms.policy = SLUICE_POLICY_WINDOWS;
        job->ranks[i].terms.windows = 2 + i;
        job->ranks[i].terms.window_of_task = windows;
    }
    cr_assert_eq(seal(job), SLUICE_OK, "%s", job->error.text);
    cr_assert_eq(job->rounds, 1);
    cr_assert_eq(result(job, 0)->rule.windows, 3);
    job_end(job);
    job = job_new(2);
    add_all(job, 1, 0, 1, 64);
    add_all(job, 2, 0, 1, 64);
    for (uint32_t i = 0; i < 2; i++) {
        job->ranks[i].terms.policy = SLUICE_POLICY_WINDOWS;
        job->ranks[i].terms.windows = 2;
        job->ranks[i].terms.window_of_task = i == 0 ? windows : others;
    }
    FAILS(job, SLUICE_MISMATCH, "task 2", "rank 0 gave it to window 1", "rank 1 to window 0");
}

Test(seal, tells_everybody_what_one_rank_found)
{
    struct job *job = job_new(2);
    add_all(job, 1, 0, 1, UINT64_C(1) << 40);
    job->ranks[1].terms.window_bytes = job->ranks[0].terms.window_bytes = 4096; /* more windows than there can be */
    FAILS(job, SLUICE_LIMIT, "rank 0:");
}

Test(seal, carries_the_error_of_a_rank_that_cannot_seal)
{
    struct job *job = job_new(2);
    begin(job);
    struct sluice_error failure;
    SL_IGNORE(sl_error_set(&failure, SLUICE_PLAN, "plan", "task 9 has no buffer"));
    struct sl_bytes parts[2];
    uint8_t *data = NULL;
    cr_assert_eq(sl_seal_next_part(job->ranks[0].seal, &parts[0]), SLUICE_OK);
    cr_assert_eq(sl_seal_failed_part(&failure, sl_mem_default(), &data, &parts[1].bytes), SLUICE_OK);
    parts[1].data = data;
    uint8_t *out = NULL;
    size_t bytes = 0;
    cr_assert_eq(sl_seal_reduce(parts, 2, sl_mem_default(), &out, &bytes, &job->error), SLUICE_PLAN);
    cr_assert_str_eq(job->error.text, "rank 1: task 9 has no buffer");
    sl_free(sl_mem_default(), data);
    job_end(job);
}

/* --- hostile parts --- */

static void reduce_changed(struct job *job, const struct sl_bytes *parts, uint8_t *changed, size_t bytes)
{
    struct sl_bytes both[2] = {parts[0], {.data = changed, .bytes = bytes}};
    uint8_t *out = NULL;
    size_t out_bytes = 0;
    sluice_status status = sl_seal_reduce(both, 2, sl_mem_default(), &out, &out_bytes, &job->error);
    cr_assert(status == SLUICE_OK || job->error.text[0] != '\0');
    if (status == SLUICE_OK)
        sl_free(sl_mem_default(), out);
}

Test(seal, survives_truncated_and_corrupted_parts)
{
    struct job *job = job_new(2);
    add_all(job, 1, 0, 1, 64);
    begin(job);
    struct sl_bytes parts[2];
    for (uint32_t i = 0; i < 2; i++)
        cr_assert_eq(sl_seal_next_part(job->ranks[i].seal, &parts[i]), SLUICE_OK);
    uint8_t *copy = sl_new(sl_mem_default(), parts[1].bytes, "copy");
    struct sl_random random = {.state = 1};
    for (size_t cut = 0; cut < parts[1].bytes; cut++) {
        memcpy(copy, parts[1].data, parts[1].bytes);
        reduce_changed(job, parts, copy, cut);
        copy[cut] = (uint8_t)sl_random_next(&random);
        reduce_changed(job, parts, copy, parts[1].bytes);
    }
    sl_free(sl_mem_default(), copy);
    job_end(job);
}

Test(seal, survives_truncated_and_corrupted_results)
{
    struct job *job = job_new(8);
    for (uint32_t peer = 1; peer < 8; peer++)
        add_all(job, peer, 0, peer, 1 << 20);
    for (uint32_t i = 0; i < 8; i++)
        job->ranks[i].terms.items_max = 4;
    begin(job);
    struct sl_bytes parts[8];
    for (uint32_t i = 0; i < 8; i++)
        cr_assert_eq(sl_seal_next_part(job->ranks[i].seal, &parts[i]), SLUICE_OK);
    uint8_t *data = NULL;
    size_t bytes = 0;
    cr_assert_eq(sl_seal_reduce(parts, 8, sl_mem_default(), &data, &bytes, &job->error), SLUICE_OK);
    struct sl_random random = {.state = 2};
    for (size_t cut = 0; cut < bytes; cut++) {
        struct sl_seal *seal = NULL;
        _Bool done = 0;
        cr_assert_eq(
            sl_seal_begin(&job->ranks[0].plan, &job->ranks[0].half, &job->ranks[0].terms, sl_mem_default(), &seal),
            SLUICE_OK);
        cr_assert_eq(sl_seal_feed(seal, data, cut, &done), SLUICE_PROTOCOL, "cut at %zu", cut);
        uint8_t old = data[cut];
        data[cut] = (uint8_t)sl_random_next(&random);
        SL_IGNORE(sl_seal_feed(seal, data, bytes, &done));
        data[cut] = old;
        sl_seal_end(seal);
    }
    sl_free(sl_mem_default(), data);
    job_end(job);
}
