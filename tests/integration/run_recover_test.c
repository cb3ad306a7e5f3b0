/* `sluice run --recover`: a rank is killed or stopped in the middle, and the others go on, or all of them. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/command.h"
#include "support/running.h"

#define SLUICE SLUICE_TEST_BIN "/sluice"

enum { RANKS = 6, REFITS = 6 };

static char folder[] = "/tmp/sluice-recover-test-XXXXXX";
static char plan[64];

/* From 4 to 2 ranks, 67 MB; at the pace below a refit takes a third of a second. */
static void make_plan(void)
{
    cr_assert_not_null(mkdtemp(folder));
    (void)snprintf(plan, sizeof plan, "%s/moe.plan", folder);
    const char *words[] = {SLUICE,    "plan",
                           "--model", "qwen3-30b-a3b",
                           "--from",  "tp=2,ep=4,world=4",
                           "--to",    "tp=1,ep=2,world=2",
                           "--scale", "1/1024",
                           "-o",      plan,
                           NULL};
    struct command_result result = command_run(words);
    cr_assert_eq(result.status, 0, "%s", result.err);
    command_drop(&result);
}

static void remove_plan(void)
{
    const char *words[] = {"/bin/rm", "-rf", folder, NULL};
    struct command_result result = command_run(words);
    command_drop(&result);
}

TestSuite(run_recover, .init = make_plan, .fini = remove_plan, .timeout = 120);

static uint64_t number(const json_t *report, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(report, key));
}

/* Hits a rank when the second refit is done; the report of what became of it. */
static json_t *run(const char *who, int signal_number, uint32_t rank, char *line, size_t capacity)
{
    static char out[16384];
    pid_t children[RANKS + 1];
    const char *words[] = {SLUICE, "run",       plan, "--repeat", "6", "--window-bytes", "1M", "--pace",
                           "50M",  "--recover", who,  "--json",   NULL};
    struct running running = running_begin(words);
    running_await(&running, "refit 2 of 6", line, capacity);
    cr_assert_eq(running_children(&running, children, RANKS + 1), RANKS);
    cr_assert_eq(kill(children[rank], signal_number), 0);
    running_await(&running, "sluice: rank ", line, capacity);
    char rest[1024];
    running_await(&running, "refit 6 of 6", rest, sizeof rest);
    cr_assert_eq(running_finish(&running, out, sizeof out), 0, "%s", line);
    json_t *report = json_loads(out, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(report, "%s", out);
    cr_assert_eq(number(report, "losses"), 1, "%s", out);
    cr_assert_eq(number(report, "refits"), REFITS);
    return report;
}

static void left_out(const json_t *report, uint32_t rank)
{
    const json_t *list = json_object_get(report, "left_out");
    cr_assert_eq(json_array_size(list), 1);
    cr_assert_eq(json_integer_value(json_array_get(list, 0)), rank);
}

Test(run_recover, survivors_go_on_without_rank_0)
{
    char line[1024];
    json_t *report = run("survivors", SIGKILL, 0, line, sizeof line);
    cr_assert_not_null(strstr(line, "rank 0 (process "), "%s", line);
    cr_assert_not_null(strstr(line, "; the others go on without it"), "%s", line);
    left_out(report, 0);
    cr_assert_gt(number(report, "verified_bytes"), 0u);
    cr_assert_lt(number(report, "verified_bytes"), REFITS * number(report, "bytes"));
    json_decref(report);
}

Test(run_recover, survivors_go_on_without_a_rank_that_stopped)
{
    char line[1024];
    cr_assert_eq(setenv("SLUICE_HEARTBEAT", "500ms", 1), 0);
    json_t *report = run("survivors", SIGSTOP, 5, line, sizeof line);
    cr_assert_not_null(strstr(line, "rank 5 (process "), "%s", line);
    cr_assert_not_null(strstr(line, "was lost by the others and then ended"), "%s", line);
    left_out(report, 5);
    json_decref(report);
}

Test(run_recover, a_lost_rank_is_started_again_and_every_byte_arrives)
{
    for (uint32_t rank = 0; rank < 6; rank += 5) {
        char line[1024];
        json_t *report = run("all", SIGKILL, rank, line, sizeof line);
        cr_assert_not_null(strstr(line, "it is started again"), "%s", line);
        cr_assert_eq(json_array_size(json_object_get(report, "left_out")), 0);
        cr_assert_geq(number(report, "verified_bytes"), REFITS * number(report, "bytes"));
        json_decref(report);
    }
}

/* It joins nobody; when the others have waited long enough it is ended, and none of them has been in a job before. */
Test(run_recover, a_rank_that_stops_before_the_job_forms_is_started_again)
{
    const char *words[] = {SLUICE, "run", plan, "--recover", "all", NULL};
    char line[1024];
    pid_t children[RANKS + 1];
    cr_assert_eq(setenv("SLUICE_HEARTBEAT", "500ms", 1), 0);
    cr_assert_eq(setenv("SLUICE_BOOTSTRAP_TIMEOUT", "3s", 1), 0);
    struct running running = running_begin(words);
    while (running_children(&running, children, RANKS + 1) < 2)
        (void)sched_yield();
    cr_assert_eq(kill(children[1], SIGSTOP), 0);
    running_await(&running, "sluice: rank 1 (process ", line, sizeof line);
    cr_assert_not_null(strstr(line, "was lost by the others and then ended (Killed); it is started again"), "%s", line);
    running_await(&running, "refit 1 of 1", line, sizeof line);
    cr_assert_eq(running_finish(&running, NULL, 0), 0);
}

Test(run_recover, is_not_for_ranks_of_a_launcher)
{
    const char *words[] = {SLUICE, "run", plan, "--recover", "all", NULL};
    cr_assert_eq(setenv("RANK", "0", 1), 0);
    cr_assert_eq(setenv("WORLD_SIZE", "6", 1), 0);
    cr_assert_eq(setenv("MASTER_ADDR", "127.0.0.1", 1), 0);
    cr_assert_eq(setenv("MASTER_PORT", "29500", 1), 0);
    struct command_result result = command_run(words);
    cr_assert_eq(result.status, 2, "%s", result.err);
    cr_assert_not_null(strstr(result.err, "--recover is for ranks that this command starts itself"), "%s", result.err);
    command_drop(&result);
}

/* A deadline that is too short is no loss: it would pass again and again. */
static void times_out(const char *who)
{
    const char *words[] = {SLUICE, "run", plan, "--timeout", "1us", "--recover", who, NULL};
    struct command_result result = command_run(words);
    cr_expect_eq(result.status, 1);
    cr_expect_eq(command_lines(result.err), 1, "%s", result.err);
    cr_expect_not_null(strstr(result.err, "rank "), "%s", result.err);
    command_drop(&result);
}

Test(run_recover, survivors_do_not_try_a_transfer_again_that_took_too_long)
{
    times_out("survivors");
}

Test(run_recover, a_transfer_that_took_too_long_is_not_waited_for_by_all)
{
    times_out("all");
}
