/* Several ranks in one process on the host backend: seal, refits, shadow landing, gates, cancel, mismatches. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/many.h"

static struct many many;

enum { PARAMS = 6, BYTES = 48 * 1024 };

static struct sluice_seal_options small_windows(void)
{
    struct sluice_seal_options options = SLUICE_SEAL_OPTIONS_INIT;
    options.window_bytes = 32 * 1024;
    return options;
}

/* A plan with content in the sources, sealed. */
static void start(struct many_rank *rank, uint32_t sources, uint64_t seed, const struct sluice_seal_options *seal)
{
    many_plan(rank, sources, PARAMS, BYTES);
    many_fill(rank, seed);
    many_seal(rank, seal);
}

static void refit_once(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    start(rank, 1, 5, &seal);
    cr_expect_gt(sluice_plan_windows(rank->plan), 3u);
    struct sluice_transfer_options options = many_options(rank);
    many_complete(many_submit(rank->plan, &options));
    cr_expect(many_holds(rank, 5));
    cr_expect_eq(many_count(rank, SLUICE_EVENT_COMPLETED), 1u);
    cr_expect_eq(many_count(rank, SLUICE_EVENT_RELEASED), 1u);
    cr_expect_eq(sluice_version(rank->plan), 1u);
    many_drop(rank);
}

Test(world, of_two_refits_in_many_windows)
{
    many_run(&many, 2, refit_once);
}

enum { REFITS = 20 };

static void refit_often(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    many_plan(rank, 2, PARAMS, BYTES);
    many_seal(rank, &seal);
    for (uint64_t seed = 1; seed <= REFITS; seed++) {
        struct sluice_transfer_options options = many_options(rank);
        many_fill(rank, seed);
        many_meet(rank);
        many_complete(many_submit(rank->plan, &options));
        cr_expect(many_holds(rank, seed));
    }
    cr_expect_eq(sluice_version(rank->plan), (uint64_t)REFITS);
    many_drop(rank);
}

Test(world, of_four_refits_again_and_again_with_one_seal)
{
    many_run(&many, 4, refit_often);
}

static void single_messages(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    seal.direct_min = 4096;
    start(rank, 2, 3, &seal);
    struct sluice_transfer_options options = many_options(rank);
    many_complete(many_submit(rank->plan, &options));
    cr_expect(many_holds(rank, 3));
    many_drop(rank);
}

Test(world, sends_large_pieces_straight_from_user_memory)
{
    many_run(&many, 4, single_messages);
}

/* Rank 1's gate opens last: everybody waits, nothing is written, then all is right. */
static void commit_in_shadow(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    sluice_gate *gate = NULL;
    seal.shadow_bytes = 2 * PARAMS * BYTES;
    start(rank, 1, 8, &seal);
    cr_assert_eq(sluice_gate_host(rank->runtime, &gate), SLUICE_OK);
    struct sluice_transfer_options options = many_options(rank);
    options.landing = SLUICE_LANDING_SHADOW;
    options.consumer_gate = rank->rank > 0 ? gate : NULL;
    options.version = 12;
    sluice_transfer *transfer = many_submit(rank->plan, &options);
    while (many_count(rank, SLUICE_EVENT_STAGED) == 0)
        sched_yield();
    many_meet(rank);
    cr_expect(many_untouched(rank));
    cr_expect_eq(sluice_version(rank->plan), 0u);
    many_meet(rank);
    cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
    many_complete(transfer);
    cr_expect(many_holds(rank, 8));
    cr_expect_eq(many_count(rank, SLUICE_EVENT_COMMITTED), 1u);
    cr_expect_eq(sluice_version(rank->plan), 12u);
    sluice_gate_destroy(gate);
    many_drop(rank);
}

Test(world, of_three_commits_a_shadow_version_on_all)
{
    many_run(&many, 3, commit_in_shadow);
}

static void torn_allowed(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    sluice_transfer *transfer = NULL;
    seal.shadow_bytes = PARAMS * BYTES / 2;
    start(rank, 1, 9, &seal);
    struct sluice_transfer_options options = many_options(rank);
    options.landing = SLUICE_LANDING_SHADOW;
    cr_expect_eq(sluice_submit(rank->plan, &options, &transfer), SLUICE_INVALID);
    cr_expect_not_null(strstr(sluice_last_error()->text, "4 of 9 windows"), "%s", sluice_last_error()->text);
    options.allow_torn = 1;
    many_complete(many_submit(rank->plan, &options));
    cr_expect(many_holds(rank, 9));
    cr_expect_eq(many_count(rank, SLUICE_EVENT_STAGED), 1u);
    many_drop(rank);
}

Test(world, streams_the_rest_in_place_where_shadow_memory_is_short)
{
    many_run(&many, 2, torn_allowed);
}

/* Rank 0's source gate stays closed until all saw that nothing moves. */
static void gated_source(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    sluice_gate *gate = NULL;
    start(rank, 1, 1, &seal);
    cr_assert_eq(sluice_gate_host(rank->runtime, &gate), SLUICE_OK);
    struct sluice_transfer_options options = many_options(rank);
    options.source_gate = gate;
    sluice_transfer *transfer = many_submit(rank->plan, &options);
    cr_expect_eq(sluice_transfer_wait(transfer, 20 * SLUICE_MILLISECOND), SLUICE_TIMEOUT);
    many_meet(rank);
    cr_expect(many_untouched(rank));
    cr_expect_eq(many_count(rank, SLUICE_EVENT_STARTED), 0u);
    many_meet(rank);
    if (rank->rank == 0) {
        many_fill(rank, 2);
        cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
    }
    many_complete(transfer);
    cr_expect(many_holds(rank, 2));
    sluice_gate_destroy(gate);
    many_drop(rank);
}

Test(world, waits_everywhere_for_one_ranks_gate)
{
    many_run(&many, 2, gated_source);
}

static void cancelled(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    sluice_gate *gate = NULL;
    start(rank, 1, 1, &seal);
    cr_assert_eq(sluice_gate_host(rank->runtime, &gate), SLUICE_OK);
    struct sluice_param_gate last = {.param = PARAMS - 1, .role = SLUICE_ROLE_DESTINATION, .gate = gate};
    struct sluice_transfer_options options = many_options(rank);
    options.param_gates = rank->rank == 1 ? &last : NULL;
    options.param_gate_count = rank->rank == 1;
    sluice_transfer *transfer = many_submit(rank->plan, &options);
    while (many_count(rank, SLUICE_EVENT_STARTED) == 0)
        sched_yield();
    if (rank->rank == 1)
        sluice_transfer_cancel(transfer);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_CANCELLED);
    cr_expect_eq(many_count(rank, SLUICE_EVENT_CANCELLED), 1u);
    sluice_transfer_destroy(transfer);
    many_meet(rank);
    many_fill(rank, 4); /* the buffers are free again, the plan is as good as before */
    many_meet(rank);
    cr_expect(many_untouched(rank), "nothing of the cancelled transfer arrives behind its release");
    options.param_gate_count = 0;
    many_complete(many_submit(rank->plan, &options));
    cr_expect(many_holds(rank, 4));
    sluice_gate_destroy(gate);
    many_drop(rank);
}

Test(world, stops_on_all_ranks_when_one_cancels_and_runs_again)
{
    many_run(&many, 2, cancelled);
}

static void mismatched(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    many_plan(rank, 1, PARAMS, BYTES);
    many_fill(rank, 1);
    seal.window_bytes *= 1 + rank->rank;
    cr_expect_eq(sluice_plan_seal_wait(rank->plan, rank->runtime, &seal, 0), SLUICE_MISMATCH);
    cr_expect_not_null(strstr(sluice_last_error()->text, "window_bytes"), "%s", sluice_last_error()->text);
    seal = small_windows();
    cr_expect_eq(sluice_plan_seal_wait(rank->plan, rank->runtime, &seal, 0), SLUICE_OK);
    while (many_count(rank, SLUICE_EVENT_SEALED) == 0) /* events may still be on their way */
        sched_yield();
    cr_expect_eq(many_count(rank, SLUICE_EVENT_FAILED), 1u);
    many_drop(rank);
}

Test(world, that_disagrees_fails_to_seal_on_all_ranks_and_may_try_again)
{
    many_run(&many, 2, mismatched);
}

static void one_cannot(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    many_plan(rank, 1, PARAMS, BYTES);
    if (rank->rank == 1)
        cr_assert_eq(sluice_plan_bind(rank->plan, 0, SLUICE_ROLE_DESTINATION, rank->buffers[1], 10), SLUICE_OK);
    sluice_status status = sluice_plan_seal_wait(rank->plan, rank->runtime, &seal, 0);
    cr_expect_eq(status, SLUICE_PLAN, "%s", sluice_last_error()->text);
    cr_expect(rank->rank == 1 || strstr(sluice_last_error()->text, "rank 1: ") != NULL);
    cr_expect_not_null(strstr(sluice_last_error()->text, "10 bytes"), "%s", sluice_last_error()->text);
    many_drop(rank);
}

Test(world, hears_at_once_of_a_rank_that_cannot_seal)
{
    many_run(&many, 2, one_cannot);
}

static void too_little_staging(struct many_rank *rank)
{
    many_plan(rank, 1, PARAMS, BYTES);
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    sluice_status status = sluice_plan_seal_wait(rank->plan, rank->runtime, &seal, 0);
    cr_expect_eq(status, SLUICE_LIMIT);
    cr_expect_not_null(strstr(sluice_last_error()->text, "staging_bytes_max"), "%s", sluice_last_error()->text);
    seal.window_bytes = 16 * 1024; /* three slots find room */
    many_fill(rank, 2);
    many_seal(rank, &seal);
    many_complete(many_submit(rank->plan, NULL));
    cr_expect(many_holds(rank, 2));
    many_drop(rank);
}

Test(world, refuses_staging_above_the_limit_with_option_and_takes_smaller_windows)
{
    many.options.staging_bytes_max = 64 * 1024;
    many_run(&many, 2, too_little_staging);
}

/* Two plans, submitted in opposite order on the two ranks. */
static void crossing(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    struct many_rank second = {.many = rank->many, .rank = rank->rank, .runtime = rank->runtime};
    sluice_transfer *first_transfer = NULL, *second_transfer = NULL;
    pthread_mutex_init(&second.lock, NULL);
    many_plan(rank, 1, PARAMS, BYTES);
    many_plan(&second, 1, PARAMS, BYTES);
    many_fill(rank, 21);
    many_fill(&second, 22);
    many_seal(rank, &seal);
    many_seal(&second, &seal);
    for (int round = 0; round < 10; round++) {
        _Bool swapped = rank->rank == 1;
        first_transfer = many_submit(swapped ? second.plan : rank->plan, NULL);
        second_transfer = many_submit(swapped ? rank->plan : second.plan, NULL);
        many_complete(first_transfer);
        many_complete(second_transfer);
    }
    cr_expect(many_holds(rank, 21));
    cr_expect(many_holds(&second, 22));
    many_drop(&second);
    many_drop(rank);
    pthread_mutex_destroy(&second.lock);
}

Test(world, runs_two_plans_submitted_in_opposite_order)
{
    many_run(&many, 2, crossing);
}

static void idle_rank(struct many_rank *rank)
{
    struct sluice_progress progress = {.size = sizeof progress};
    struct sluice_region whole = {.row_bytes = 64, .rows = 1, .pitch = 64};
    static uint8_t source[64], destination[64];
    memset(rank->rank == 0 ? source : destination, 7, 64);
    cr_assert_eq(sluice_plan_create(4, &rank->plan), SLUICE_OK);
    if (rank->rank == 1)
        memset(destination, 0, sizeof destination);
    if (rank->rank == 0) {
        cr_assert_eq(sluice_plan_add_send(rank->plan, 3, 0, SLUICE_DTYPE_U8, 1, &whole), SLUICE_OK);
        cr_assert_eq(sluice_plan_bind(rank->plan, 0, SLUICE_ROLE_SOURCE, source, 64), SLUICE_OK);
    }
    if (rank->rank == 1) {
        cr_assert_eq(sluice_plan_add_recv(rank->plan, 3, 0, SLUICE_DTYPE_U8, 0, &whole), SLUICE_OK);
        cr_assert_eq(sluice_plan_bind(rank->plan, 0, SLUICE_ROLE_DESTINATION, destination, 64), SLUICE_OK);
    }
    many_seal(rank, NULL);
    struct sluice_transfer_options options = many_options(rank);
    sluice_transfer *transfer = many_submit(rank->plan, &options);
    cr_assert_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_expect_eq(many_count(rank, SLUICE_EVENT_COMPLETED), 1u);
    cr_assert_eq(sluice_transfer_progress(transfer, &progress), SLUICE_OK);
    cr_expect_eq(progress.state, (uint32_t)SLUICE_TRANSFER_DONE);
    cr_expect_eq(progress.bytes_total, rank->rank < 2 ? 64u : 0u);
    for (int i = 0; i < 64 && rank->rank == 1; i++)
        cr_assert_eq(destination[i], 7);
    sluice_transfer_destroy(transfer);
    sluice_plan_destroy(rank->plan);
}

Test(world, with_ranks_that_have_nothing_to_do_completes_on_all)
{
    many_run(&many, 4, idle_rank);
}

/* Rank 1 leaves while rank 0 waits for it. */
static void left_alone(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    sluice_transfer *transfer = NULL;
    start(rank, 1, 1, &seal);
    many_meet(rank);
    if (rank->rank == 0) {
        struct sluice_transfer_options options = many_options(rank);
        transfer = many_submit(rank->plan, &options);
        cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_PEER_LOST, "%s", sluice_last_error()->text);
        cr_expect_not_null(strstr(sluice_last_error()->text, "rank 1"), "%s", sluice_last_error()->text);
        cr_expect_eq(many_count(rank, SLUICE_EVENT_FAILED), 1u);
        cr_expect_eq(many_count(rank, SLUICE_EVENT_RELEASED), 1u);
        sluice_transfer_destroy(transfer);
    }
    many_drop(rank);
}

Test(world, fails_a_transfer_whose_peer_has_left)
{
    many_run(&many, 2, left_alone);
}

/* Rank 1 stays, but submits nothing; closing rank 0 must not wait for it for ever. */
static void closed_alone(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    sluice_transfer *transfer = NULL;
    start(rank, 1, 1, &seal);
    if (rank->rank == 0) {
        struct sluice_transfer_options options = many_options(rank);
        transfer = many_submit(rank->plan, &options);
        sluice_runtime_close(rank->runtime);
        cr_expect_neq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_OK);
        cr_expect_eq(many_count(rank, SLUICE_EVENT_RELEASED), 1u);
        sluice_transfer_destroy(transfer);
    }
    many_meet(rank);
    many_drop(rank);
}

Test(world, closes_in_bounded_time_though_the_peer_never_submits)
{
    many.options.abort_timeout_ns = 200 * SLUICE_MILLISECOND;
    many_run(&many, 2, closed_alone);
}

static _Bool param_is(const struct many_rank *rank, uint32_t param, _Bool moved, uint64_t seed)
{
    struct many_rank one = *rank;
    uint8_t *buffers[2 * PARAMS] = {NULL};
    uint8_t *destination = rank->buffers[2 * param + 1];
    one.buffers = buffers;
    buffers[2 * param + 1] = destination;
    return moved ? many_holds(&one, seed) : many_untouched(&one);
}

/* Parameters 1 and 4 of six, in both landings, packed and direct. */
static void some_params(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    const uint64_t some = 1u << 1 | 1u << 4;
    seal.shadow_bytes = 2 * PARAMS * BYTES;
    seal.direct_min = *(const uint64_t *)rank->many->context;
    many_plan(rank, 2, PARAMS, BYTES);
    many_seal(rank, &seal);
    struct sluice_transfer_options options = many_options(rank);
    options.params = &some;
    options.params_words = 1;
    for (options.landing = 0; options.landing <= SLUICE_LANDING_SHADOW; options.landing++) {
        many_fill(rank, 30 + options.landing);
        many_meet(rank);
        many_complete(many_submit(rank->plan, &options));
        for (uint32_t p = 0; p < PARAMS; p++)
            cr_expect(param_is(rank, p, p == 1 || p == 4, 30 + options.landing), "parameter %u", p);
    }
    many_drop(rank);
}

Test(world, moves_some_parameters_packed)
{
    uint64_t direct_min = 0;
    many.context = &direct_min;
    many_run(&many, 4, some_params);
}

Test(world, moves_some_parameters_in_direct_messages)
{
    uint64_t direct_min = 2048;
    many.context = &direct_min;
    many_run(&many, 4, some_params);
}

static void different_params(struct many_rank *rank)
{
    struct sluice_seal_options seal = small_windows();
    uint64_t some = 1u << rank->rank;
    start(rank, 1, 1, &seal);
    struct sluice_transfer_options options = many_options(rank);
    options.params = &some;
    options.params_words = 1;
    sluice_transfer *transfer = many_submit(rank->plan, &options);
    cr_expect_eq(sluice_transfer_wait(transfer, UINT64_MAX), SLUICE_MISMATCH, "%s", sluice_last_error()->text);
    cr_expect(many_untouched(rank));
    sluice_transfer_destroy(transfer);
    many_drop(rank);
}

Test(world, refuses_a_run_for_which_ranks_name_different_parameters)
{
    many_run(&many, 2, different_params);
}
