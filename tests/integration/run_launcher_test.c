/* `sluice run` as the ranks of a launcher: joined by its variables, told apart by their plan files. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/command.h"
#include "support/ranks.h"

#define SLUICE SLUICE_TEST_BIN "/sluice"
#define SMALL  SLUICE_TEST_DATA "/small-plan.json"

enum { RANKS = 4, TEXT = 65536 };

static char folder[] = "/tmp/sluice-launcher-test-XXXXXX";
static char out[RANKS][TEXT], err[RANKS][TEXT];
static pid_t children[RANKS];
static int statuses[RANKS];

static void make_folder(void)
{
    char port[16];
    cr_assert_not_null(mkdtemp(folder));
    (void)snprintf(port, sizeof port, "%u", test_free_port());
    cr_assert_eq(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
    cr_assert_eq(setenv("MASTER_ADDR", "127.0.0.1", 1), 0);
    cr_assert_eq(setenv("MASTER_PORT", port, 1), 0);
}

static void remove_folder(void)
{
    const char *arguments[] = {"/bin/rm", "-rf", folder, NULL};
    struct command_result result = command_run(arguments);
    command_drop(&result);
}

TestSuite(run_launcher, .init = make_folder, .fini = remove_folder, .timeout = 120);

static void set(const char *name, uint32_t value)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%u", value);
    cr_assert_eq(setenv(name, text, 1), 0);
}

static int open_output(uint32_t rank, const char *name, int to)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%u.%s", folder, rank, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return fd < 0 ? fd : dup2(fd, to);
}

static void read_output(uint32_t rank, const char *name, char *text)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%u.%s", folder, rank, name);
    FILE *file = fopen(path, "re");
    cr_assert_not_null(file);
    text[fread(text, 1, TEXT - 1, file)] = '\0';
    cr_assert_eq(fclose(file), 0);
}

static void start_rank(uint32_t r, uint32_t world, const char *plan)
{
    set("RANK", r);
    set("WORLD_SIZE", world);
    set("LOCAL_RANK", r);
    set("LOCAL_WORLD_SIZE", world);
    children[r] = fork();
    if (children[r] == 0) {
        if (open_output(r, "out", 1) == 1 && open_output(r, "err", 2) == 2)
            execl(SLUICE, SLUICE, "run", plan, "--repeat", "2", (char *)NULL);
        _exit(99);
    }
    cr_assert_gt(children[r], 0);
}

static void finish_ranks(uint32_t world)
{
    for (uint32_t r = 0; r < world; r++) {
        int state = 0;
        cr_assert_eq(waitpid(children[r], &state, 0), children[r]);
        statuses[r] = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
        read_output(r, "out", out[r]);
        read_output(r, "err", err[r]);
    }
}

/* Runs `world` ranks, rank r with plan file plans[r % 2]. */
static void run_ranks(uint32_t world, const char *const *plans)
{
    for (uint32_t r = 0; r < world; r++)
        start_rank(r, world, plans[r % 2]);
    finish_ranks(world);
}

static const char *write_plan(const char *name, uint32_t bytes)
{
    static char paths[2][256];
    static int next;
    char *path = paths[next++ % 2];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    cr_assert_not_null(file);
    cr_assert_gt(fprintf(file,
                         "{\"format\":\"sluice-plan\",\"version\":1,\"world\":2,"
                         "\"params\":[{\"id\":0,\"name\":\"w\",\"dtype\":\"u8\",\"bytes\":64}],"
                         "\"tasks\":[{\"id\":7,\"param\":0,\"from\":{\"rank\":0,\"offset\":0,\"bytes\":%u},"
                         "\"to\":{\"rank\":1,\"offset\":0,\"bytes\":%u}}]}",
                         bytes, bytes),
                 0);
    cr_assert_eq(fclose(file), 0);
    return path;
}

Test(run_launcher, ranks_refit_and_report_each_for_itself)
{
    const char *const plans[] = {SMALL, SMALL};
    run_ranks(4, plans);
    for (uint32_t r = 0; r < 4; r++) {
        char want[64];
        cr_assert_eq(statuses[r], 0, "rank %u: %s", r, err[r]);
        (void)snprintf(want, sizeof want, "in 2 parameters, rank %u of 4, 1 window, 2 refits: ", r);
        cr_assert_not_null(strstr(out[r], want), "%s", out[r]);
        cr_assert_not_null(strstr(out[r], r < 2 ? ": 0 B verified, 0 wrong" : ": 4.6 kB verified, 0 wrong"), "%s",
                           out[r]);
        cr_assert_eq(err[r][0], '\0', "%s", err[r]);
    }
}

Test(run_launcher, ranks_with_plan_files_that_differ_move_nothing_and_name_the_task)
{
    const char *const plans[] = {write_plan("a.json", 8), write_plan("b.json", 16)};
    run_ranks(2, plans);
    for (uint32_t r = 0; r < 2; r++) {
        cr_assert_eq(statuses[r], 1, "rank %u: %s", r, err[r]);
        cr_assert_eq(command_lines(err[r]), 1, "%s", err[r]);
        cr_assert_not_null(strstr(err[r], "task 7"), "%s", err[r]);
        cr_assert_not_null(strstr(err[r], "8"), "%s", err[r]);
        cr_assert_not_null(strstr(err[r], "16"), "%s", err[r]);
        cr_assert_eq(out[r][0], '\0', "%s", out[r]);
    }
}

Test(run_launcher, variables_of_pmi_alone_lack_an_address)
{
    const char *words[] = {SLUICE, "run", SMALL, NULL};
    cr_assert_eq(unsetenv("MASTER_ADDR"), 0);
    set("PMI_RANK", 1);
    set("PMI_SIZE", 4);
    struct command_result result = command_run(words);
    cr_assert_eq(result.status, 2);
    cr_assert_eq(command_lines(result.err), 1, "%s", result.err);
    cr_assert_not_null(strstr(result.err, "MASTER_ADDR is not set: PMI gives ranks"), "%s", result.err);
    command_drop(&result);
}

Test(run_launcher, a_rank_that_never_comes_is_named_within_the_deadline)
{
    const char *words[] = {SLUICE, "run", SMALL, NULL};
    cr_assert_eq(setenv("SLUICE_BOOTSTRAP_TIMEOUT", "300ms", 1), 0);
    set("RANK", 0);
    set("WORLD_SIZE", 4);
    struct command_result result = command_run(words);
    cr_assert_eq(result.status, 1, "%s", result.err);
    cr_assert_eq(command_lines(result.err), 1, "%s", result.err);
    cr_assert_not_null(strstr(result.err, "missing: 1-3"), "%s", result.err);
    command_drop(&result);
}

/* --- the job's token --- */

static const char secret[] = "correct-horse-battery-staple";

static void use_token(const char *name, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    cr_assert_eq(close(fd), 0);
    cr_assert_eq(setenv("SLUICE_TOKEN_FILE", path, 1), 0);
}

/* Whether a file that the kernel keeps about a process holds these bytes. */
static _Bool holds(pid_t pid, const char *name, const char *part, size_t part_bytes)
{
    static char text[TEXT];
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    FILE *file = fopen(path, "re");
    cr_assert_not_null(file);
    size_t bytes = fread(text, 1, sizeof text, file);
    cr_assert_eq(fclose(file), 0);
    return memmem(text, bytes, part, part_bytes) != NULL;
}

/* What a list of processes may show of a rank, once it runs the tool. */
static void shows_no_token(pid_t pid)
{
    static const char run[] = "\0run"; /* and the zero behind it */
    while (!holds(pid, "cmdline", run, sizeof run))
        sched_yield();
    cr_assert(holds(pid, "environ", "SLUICE_TOKEN_FILE=", 18));
    cr_assert_not(holds(pid, "cmdline", secret, strlen(secret)));
    cr_assert_not(holds(pid, "environ", secret, strlen(secret)));
}

static void says_no_token(uint32_t world)
{
    for (uint32_t r = 0; r < world; r++) {
        cr_assert_null(strstr(out[r], secret), "%s", out[r]);
        cr_assert_null(strstr(err[r], secret), "%s", err[r]);
    }
}

Test(run_launcher, ranks_show_their_token_to_nobody)
{
    cr_assert_eq(setenv("SLUICE_LOG", "trace", 1), 0);
    const char *plan = write_plan("plan.json", 8);
    use_token("token", secret);
    start_rank(0, 2, plan);
    shows_no_token(children[0]); /* it waits for rank 1 */
    start_rank(1, 2, plan);
    finish_ranks(2);
    for (uint32_t r = 0; r < 2; r++)
        cr_assert_eq(statuses[r], 0, "rank %u: %s", r, err[r]);
    says_no_token(2);
    const char *words[] = {SLUICE, "info", "--settings", "--json", NULL};
    struct command_result info = command_run(words);
    cr_assert_eq(info.status, 0, "%s", info.err);
    cr_assert_null(strstr(info.out, secret), "%s", info.out);
    cr_assert_null(strstr(info.err, secret), "%s", info.err);
    command_drop(&info);
}

Test(run_launcher, ranks_whose_tokens_differ_fail_and_show_neither)
{
    cr_assert_eq(setenv("SLUICE_LOG", "trace", 1), 0);
    cr_assert_eq(setenv("SLUICE_BOOTSTRAP_TIMEOUT", "2s", 1), 0);
    const char *plan = write_plan("plan.json", 8);
    use_token("token", secret);
    start_rank(0, 2, plan);
    use_token("other", "correct-horse-battery-staple, or another");
    start_rank(1, 2, plan);
    finish_ranks(2);
    for (uint32_t r = 0; r < 2; r++)
        cr_assert_eq(statuses[r], 1, "rank %u: %s", r, err[r]);
    cr_assert_not_null(strstr(err[1], "token"), "%s", err[1]);
    says_no_token(2);
}

/* The rank catches SIGINT: from then on an interrupt is no plain death. */
static _Bool catches_interrupts(uint32_t rank)
{
    char path[64], line[256];
    unsigned long long caught = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)children[rank]);
    FILE *file = fopen(path, "re");
    cr_assert_not_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "SigCgt:", 7) == 0)
            caught = strtoull(line + 7, NULL, 16);
    cr_assert_eq(fclose(file), 0);
    return (caught >> (SIGINT - 1) & 1) != 0;
}

/* None of them runs between, so that none hears of another's end before its own interrupt. */
static void interrupt_together(uint32_t count)
{
    for (uint32_t r = 0; r < count; r++) {
        int state = 0;
        cr_assert_eq(kill(children[r], SIGSTOP), 0);
        cr_assert_eq(waitpid(children[r], &state, WUNTRACED), children[r]);
        cr_assert(WIFSTOPPED(state));
    }
    for (uint32_t r = 0; r < count; r++)
        cr_assert_eq(kill(children[r], SIGINT), 0);
    for (uint32_t r = 0; r < count; r++)
        cr_assert_eq(kill(children[r], SIGCONT), 0);
}

/* Ranks 2 and 3 never come: rank 0 waits for them with the token written, rank 1 in its turn for rank 0's word. */
Test(run_launcher, interrupted_ranks_end_at_once_and_leave_nothing)
{
    char token[320];
    (void)snprintf(token, sizeof token, "%s/sluice-127.0.0.1:%s.token", folder, getenv("MASTER_PORT"));
    for (uint32_t r = 0; r < 2; r++)
        start_rank(r, 4, SMALL);
    while (access(token, F_OK) != 0 || !catches_interrupts(0) || !catches_interrupts(1))
        (void)sched_yield();
    interrupt_together(2);
    finish_ranks(2);
    for (uint32_t r = 0; r < 2; r++) {
        cr_expect_eq(statuses[r], 130, "rank %u: status %d, %s", r, statuses[r], err[r]);
        cr_expect_not_null(strstr(err[r], "interrupted"), "%s", err[r]);
    }
    cr_expect_eq(access(token, F_OK), -1);
}
