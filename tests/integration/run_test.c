/* `sluice run` as a user runs it: real processes, verified bytes, reports, traces, signals and errors. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/running.h"
#include "support/tool.h"

#define SMALL SLUICE_TEST_DATA "/small-plan.json"
#define HANG  SLUICE_TEST_DATA "/hang-4ranks.json"

TestSuite(run, .init = tool_make_folder, .fini = tool_remove_folder);

#define RUN(...) tool_run("run", __VA_ARGS__)

/* A plan of 13,162 tasks from 4 to 2 ranks, 67 MB. */
static const char *make_plan(void)
{
    const char *path = tool_in_folder("moe.plan");
    const char *words[] = {TOOL_PATH, "plan",
                           "--model", "qwen3-30b-a3b",
                           "--from",  "tp=2,ep=4,world=4",
                           "--to",    "tp=1,ep=2,world=2",
                           "--scale", "1/1024",
                           "-o",      path,
                           NULL};
    tool_result = command_run(words);
    cr_assert_eq(tool_result.status, 0, "%s", tool_result.err);
    command_drop(&tool_result);
    return path;
}

Test(run, moves_and_verifies_a_plan_file)
{
    RUN(SMALL);
    tool_succeeds("moved 4.6 kB in 2 parameters, 3 to 2 ranks, 1 window, 1 refit: 4.6 kB verified, 0 wrong; ");
}

Test(run, reports_in_json)
{
    RUN(SMALL, "--repeat", "3", "--json");
    cr_assert_eq(tool_result.status, 0, "%s", tool_result.err);
    json_t *report = json_loads(tool_result.out, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(report);
    cr_assert(json_is_true(json_object_get(report, "ok")));
    cr_assert_eq(json_integer_value(json_object_get(report, "world")), 4);
    cr_assert_eq(json_integer_value(json_object_get(report, "refits")), 3);
    cr_assert_eq(json_integer_value(json_object_get(report, "bytes")), 4608);
    cr_assert_eq(json_integer_value(json_object_get(report, "params")), 2);
    cr_assert_eq(json_integer_value(json_object_get(report, "verified_bytes")), 13824);
    cr_assert_eq(json_array_size(json_object_get(report, "seconds")), 3);
    cr_assert_eq(json_array_size(json_object_get(report, "ranks")), 4);
    cr_assert_eq(command_lines(tool_result.err), 3, "a line per refit: %s", tool_result.err);
    json_decref(report);
    command_drop(&tool_result);
}

Test(run, verifies_the_first_and_the_last_refit_when_only_the_ends_are_asked_for)
{
    RUN(SMALL, "--repeat", "5", "--verify", "ends");
    cr_assert_eq(tool_result.status, 0, "%s", tool_result.err);
    cr_assert_not_null(strstr(tool_result.out, "5 refits: 9.2 kB verified, 0 wrong"), "%s", tool_result.out);
    cr_assert_eq(command_lines(tool_result.err), 5, "a line per refit: %s", tool_result.err);
    command_drop(&tool_result);
}

Test(run, moves_with_every_policy_and_landing)
{
    static const char *const policies[] = {"balanced", "ordered", "lockstep", "windows", "single"};
    const char *plan = make_plan();
    for (size_t i = 0; i < 5; i++) {
        RUN(plan, "--policy", policies[i], "--window-bytes", "4M");
        tool_succeeds(": 67.3 MB verified, 0 wrong; ");
    }
    RUN(plan, "--window-bytes", "2M", "--direct-min", "4k", "--slots", "4");
    tool_succeeds(": 67.3 MB verified, 0 wrong; ");
    RUN(plan, "--window-bytes", "2M", "--landing", "shadow", "--repeat", "2");
    tool_succeeds(", 2 refits: 134.7 MB verified, 0 wrong; ");
    RUN(plan, "--window-bytes", "2M", "--landing", "shadow", "--shadow-bytes", "8M");
    tool_succeeds(": 67.3 MB verified, 0 wrong; ");
}

Test(run, finishes_the_list_that_hangs_on_nccl)
{
    RUN("--messages", HANG);
    tool_succeeds(" in 134 parameters, 3 to 2 ranks, ");
}

Test(run, traces_all_ranks_in_one_file)
{
    const char *trace = tool_in_folder("trace.json"), *picture = tool_in_folder("trace.html");
    RUN(SMALL, "--trace", trace, "--timeline", picture);
    tool_succeeds(" verified, 0 wrong; ");
    json_t *root = json_load_file(trace, JSON_REJECT_DUPLICATES, NULL);
    size_t index, groups = 0, packs = 0, unpacks = 0, gates = 0;
    json_t *event;
    double before = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), index, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));
        const json_t *args = json_object_get(event, "args");
        cr_assert_str_eq(json_string_value(json_object_get(event, "ph")), "X");
        cr_assert_geq(json_number_value(json_object_get(event, "ts")), before, "sorted by time, one clock");
        before = json_number_value(json_object_get(event, "ts"));
        cr_assert(json_is_integer(json_object_get(args, "rank")));
        cr_assert(json_is_integer(json_object_get(args, "window")));
        cr_assert(json_is_integer(json_object_get(args, "queue")));
        groups += strcmp(name, "group") == 0;
        packs += strcmp(name, "pack") == 0;
        unpacks += strcmp(name, "unpack") == 0;
        gates += strcmp(name, "gate") == 0;
    }
    cr_assert_eq(groups, 4, "ranks 0 to 3 have messages");
    cr_assert_eq(packs, 2, "ranks 0 and 1 send");
    cr_assert_eq(unpacks, 2, "ranks 2 and 3 receive");
    cr_assert_eq(gates, 4);
    cr_assert_eq(access(picture, R_OK), 0);
    json_decref(root);
}

/* --- signals --- */

/* The kernel reports a process that has ended as missing, or as a zombie that init has not reaped. */
static _Bool is_gone(pid_t pid)
{
    char path[64], text[256] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 1;
    const char *got = fgets(text, sizeof text, file);
    (void)fclose(file);
    return got == NULL || strstr(text, ") Z ") != NULL;
}

/* A process closes its files a moment before it has ended; the test's own deadline is the limit. */
static void await_gone(const pid_t *pids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        while (!is_gone(pids[i]))
            sched_yield();
}

static int count_entries(const char *path)
{
    const char *words[] = {"/bin/ls", "-A", path, NULL};
    tool_result = command_run(words);
    int lines = tool_result.out_bytes == 0 ? 0 : command_lines(tool_result.out);
    command_drop(&tool_result);
    return lines;
}

static void interrupt(int signal_number)
{
    char line[1024];
    pid_t children[8];
    const char *words[] = {TOOL_PATH, "run", SMALL, "--repeat", "100000", NULL};
    const char *private_folder = tool_in_folder("runtime");
    const char *mkdir_words[] = {"/bin/mkdir", "-m", "700", "-p", private_folder, NULL};
    tool_result = command_run(mkdir_words);
    command_drop(&tool_result);
    cr_assert_eq(setenv("XDG_RUNTIME_DIR", private_folder, 1), 0);
    struct running running = running_begin(words);
    running_await(&running, "refit 3 of 100000", line, sizeof line);
    cr_assert_eq(running_children(&running, children, 8), 4);
    cr_assert_eq(kill(running.pid, signal_number), 0);
    running_await(&running, "sluice: ", line, sizeof line);
    cr_assert_str_eq(line, "sluice: interrupted\n");
    cr_assert_eq(running_finish(&running, NULL, 0), 130);
    for (int i = 0; i < 4; i++)
        cr_assert(is_gone(children[i]), "process %d is left", (int)children[i]);
    cr_assert_eq(count_entries(private_folder), 0);
}

Test(run, leaves_nothing_when_interrupted, .timeout = 60)
{
    interrupt(SIGINT);
}

Test(run, leaves_nothing_when_terminated, .timeout = 60)
{
    interrupt(SIGTERM);
}

Test(run, names_a_rank_that_was_killed, .timeout = 60)
{
    char line[1024], want[128];
    pid_t children[8];
    const char *words[] = {TOOL_PATH, "run", SMALL, "--repeat", "100000", NULL};
    struct running running = running_begin(words);
    running_await(&running, "refit 3 of 100000", line, sizeof line);
    cr_assert_eq(running_children(&running, children, 8), 4);
    cr_assert_eq(kill(children[2], SIGKILL), 0);
    running_await(&running, "sluice: ", line, sizeof line);
    (void)snprintf(want, sizeof want, "sluice: rank 2 (process %d) was ended by signal 9 (Killed)\n", (int)children[2]);
    cr_assert_str_eq(line, want);
    cr_assert_eq(running_finish(&running, NULL, 0), 1);
    for (int i = 0; i < 4; i++)
        cr_assert(is_gone(children[i]), "process %d is left", (int)children[i]);
}

Test(run, ranks_end_with_a_parent_that_was_killed, .timeout = 60)
{
    char line[1024];
    pid_t children[8];
    const char *words[] = {TOOL_PATH, "run", SMALL, "--repeat", "100000", NULL};
    struct running running = running_begin(words);
    running_await(&running, "refit 1 of 100000", line, sizeof line);
    cr_assert_eq(running_children(&running, children, 8), 4);
    cr_assert_eq(kill(running.pid, SIGKILL), 0);
    while (fgets(line, sizeof line, running.err) != NULL) {
    } /* the pipe ends with its last writer */
    cr_assert_eq(running_finish(&running, NULL, 0), 128 + SIGKILL);
    await_gone(children, 4);
}

/* --- errors --- */

Test(run, refuses_bad_command_lines)
{
    RUN("--repeat", "0", SMALL);
    tool_fails(2, "--repeat: '0' is not an integer from 1 to 100000");
    RUN("--slots", "9", SMALL);
    tool_fails(2, "--slots: '9'");
    RUN("--landing", "moon", SMALL);
    tool_fails(2, "--landing: 'moon' is not one of in_place, shadow");
    RUN("--policy", "fifo", SMALL);
    tool_fails(2, "--policy: 'fifo'");
    RUN("--timeout", "5", SMALL);
    tool_fails(2, "--timeout: '5' is not a duration");
    RUN("--pace", "fast", SMALL);
    tool_fails(2, "--pace: 'fast' is not a size");
    RUN("--shadow-bytes", "1M", SMALL);
    tool_fails(2, "--shadow-bytes is for --landing shadow");
    RUN("--from", "tp=2", SMALL);
    tool_fails(2, "--from is for --checkpoint");
    RUN("--trace", tool_in_folder("same"), "--timeline", tool_in_folder("same"), SMALL);
    tool_fails(2, "--trace and --timeline would write the same file");
    RUN("--messages", HANG, SMALL);
    tool_fails(2, "beside --messages");
    RUN("--json");
    tool_fails(2, "PLAN, --messages or --checkpoint is missing");
    RUN("--backend", "nope", SMALL);
    tool_fails(2, "no backend is called \"nope\"");
    RUN("--backend", "host", "--ranks-per-gpu", "2", SMALL);
    tool_fails(2, "--ranks-per-gpu is for --backend cuda");
    RUN("model.safetensors");
    tool_fails(2, "'model.safetensors' is a checkpoint: give it by --checkpoint, with --from and --to");
}

Test(run, refuses_bad_input)
{
    const char *bad = tool_in_folder("bad.json");
    RUN(tool_in_folder("none.plan"));
    tool_fails(2, "none.plan");
    tool_write_text(bad, "{\"world\":2,\"messages\":[[0,2,8]]}");
    RUN("--messages", bad);
    tool_fails(2, "bad.json");
    RUN(SMALL, "--trace", "/nonexistent/trace.json");
    tool_fails(2, "/nonexistent/trace.json");
    RUN(SMALL, "--window-bytes", "1");
    tool_fails(2, "window_bytes 1 is too small");
}

Test(run, refuses_sizes_that_differ_between_the_ends_of_a_task)
{
    const char *bad = tool_in_folder("sizes.json");
    tool_write_text(bad, "{\"format\":\"sluice-plan\",\"version\":1,\"world\":2,"
                         "\"params\":[{\"id\":0,\"name\":\"w\",\"dtype\":\"u8\",\"bytes\":64}],"
                         "\"tasks\":[{\"id\":7,\"param\":0,\"from\":{\"rank\":0,\"offset\":0,\"bytes\":8},"
                         "\"to\":{\"rank\":1,\"offset\":0,\"bytes\":16}}]}");
    RUN(bad);
    tool_fails(2, "task 7");
}

Test(run, names_a_refit_that_takes_too_long)
{
    RUN(SMALL, "--timeout", "1us");
    tool_fails(1, "rank ");
}

Test(run, needs_less_memory_than_the_machine_has)
{
    const char *huge = tool_in_folder("huge.json");
    tool_write_text(huge, "{\"world\":2,\"messages\":[[0,1,1152921504606846976]]}");
    RUN("--messages", huge);
    tool_fails(2, "make a smaller plan");
}

/* --- launcher variables --- */

static void set(const char *name, const char *value)
{
    cr_assert_eq(setenv(name, value, 1), 0);
}

Test(run, names_launcher_variables_that_are_wrong)
{
    set("RANK", "0");
    RUN(SMALL);
    tool_fails(2, "RANK is 0 but WORLD_SIZE is not set");
    set("WORLD_SIZE", "4");
    RUN(SMALL);
    tool_fails(2, "MASTER_ADDR is not set");
    set("MASTER_ADDR", "127.0.0.1");
    RUN(SMALL);
    tool_fails(2, "neither SLUICE_PORT nor MASTER_PORT is set");
    static const char *const ports[] = {"", "0", "70000", "abc"};
    for (size_t i = 0; i < 4; i++) {
        set("MASTER_PORT", ports[i]);
        RUN(SMALL);
        tool_fails(2, "MASTER_PORT is ");
    }
    set("RANK", "5");
    set("MASTER_PORT", "29500");
    RUN(SMALL);
    tool_fails(2, "RANK is 5 but WORLD_SIZE is 4");
    set("RANK", "0");
    set("WORLD_SIZE", "2");
    RUN(SMALL);
    tool_fails(2, "torchrun started 2 ranks but the plan is for 4");
}

Test(run, names_an_address_that_is_not_local)
{
    set("RANK", "0");
    set("WORLD_SIZE", "4");
    set("MASTER_ADDR", "192.0.2.1");
    set("MASTER_PORT", "29500");
    set("SLUICE_BOOTSTRAP_TIMEOUT", "20s");
    RUN(SMALL);
    cr_assert_neq(tool_result.status, 0);
    cr_assert_eq(command_lines(tool_result.err), 1, "%s", tool_result.err);
    cr_assert_not_null(strstr(tool_result.err, "192.0.2.1"), "%s", tool_result.err);
    command_drop(&tool_result);
}

Test(run, names_settings_that_are_wrong)
{
    set("SLUICE_SLOTS", "9");
    RUN(SMALL);
    tool_fails(2, "SLUICE_SLOTS");
    cr_assert_eq(unsetenv("SLUICE_SLOTS"), 0);
    set("SLUICE_SLOT", "3");
    RUN(SMALL);
    tool_fails(2, "SLUICE_SLOT: no such setting");
}
