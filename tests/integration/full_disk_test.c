/*
 * Every file that the tool writes, on a full disk: an error with path and reason, exit status 1, and neither a short
 * file nor a temporary one is left.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/command.h"

#define TOOL SLUICE_TEST_BIN "/sluice"
#define PLAN SLUICE_TEST_DATA "/small-plan.json"
#define MAKE "plan --model moe-67b --scale 1/4096 --from tp=2,world=2 --to tp=4,world=4 -o"

static struct command_result shell(const char *line)
{
    return command_run((const char *const[]){"/bin/sh", "-c", line, NULL});
}

/* The command's words but for the file. */
static const char *const writers[] = {
    MAKE,
    "sim " PLAN " --timeline",
    "run " PLAN " --backend host --trace",
    "make-checkpoint",
};

Test(full_disk, is_told_with_path_and_reason_by_all_who_write_files)
{
    for (size_t i = 0; i < sizeof writers / sizeof writers[0]; i++) {
        char line[512];
        (void)snprintf(line, sizeof line, "exec %s %s /dev/full", TOOL, writers[i]);
        struct command_result result = shell(line);
        cr_expect_eq(result.status, 1, "%s: status %d: %s", writers[i], result.status, result.err);
        cr_expect_not_null(strstr(result.err, "cannot write /dev/full: No space left on device"), "%s: %s", writers[i],
                           result.err);
        command_drop(&result);
    }
}

static int count_files(const char *folder)
{
    int count = 0;
    DIR *all = opendir(folder);
    cr_assert_not_null(all);
    for (struct dirent *entry = readdir(all); entry != NULL; entry = readdir(all))
        count += entry->d_name[0] != '.';
    (void)closedir(all);
    return count;
}

/* A limit on the size of files stands for the disk: 8 blocks of 512 bytes. */
Test(full_disk, leaves_neither_a_short_nor_a_temporary_file)
{
    static const char *const files[] = {"x.plan", "x.json", "x.safetensors"};
    static const char *const commands[] = {MAKE, MAKE, "make-checkpoint"};
    char folder[] = "/tmp/sluice-full-XXXXXX";
    cr_assert_not_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char line[512];
        (void)snprintf(line, sizeof line, "ulimit -f 8; trap '' XFSZ; exec %s %s %s/%s", TOOL, commands[i], folder,
                       files[i]);
        struct command_result result = shell(line);
        cr_expect_eq(result.status, 1, "%s", result.err);
        cr_expect_not_null(strstr(result.err, files[i]), "%s", result.err);
        cr_expect_not_null(strstr(result.err, "File too large"), "%s", result.err);
        cr_expect_eq(count_files(folder), 0, "%s", files[i]);
        command_drop(&result);
    }
    (void)rmdir(folder);
}

Test(full_disk, is_told_on_standard_output_too)
{
    static const char *const commands[] = {"show " PLAN, "sim " PLAN " --json", "info", "check " PLAN};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char line[512];
        (void)snprintf(line, sizeof line, "exec %s %s >/dev/full", TOOL, commands[i]);
        struct command_result result = shell(line);
        cr_expect_eq(result.status, 1, "%s: %d", commands[i], result.status);
        cr_expect_str_eq(result.err, "sluice: cannot write to standard output\n", "%s", commands[i]);
        command_drop(&result);
    }
}
