/* tool.c: see tool.h. */
#include "support/tool.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char tool_folder[] = "/tmp/sluice-tool-test-XXXXXX";
struct command_result tool_result;

void tool_run_words(const char *const *words)
{
    tool_result = command_run(words);
}

void tool_succeeds(const char *part)
{
    cr_assert_eq(tool_result.status, 0, "status %d: %s", tool_result.status, tool_result.err);
    cr_assert_eq(command_lines(tool_result.out), 1, "%s", tool_result.out);
    cr_assert_not_null(strstr(tool_result.out, part), "%s", tool_result.out);
    command_drop(&tool_result);
}

void tool_fails(int status, const char *part)
{
    cr_assert_eq(tool_result.status, status, "status %d: %s", tool_result.status, tool_result.err);
    cr_assert_eq(command_lines(tool_result.err), 1, "%s", tool_result.err);
    cr_assert_eq(strncmp(tool_result.err, "sluice: ", 8), 0, "%s", tool_result.err);
    cr_assert_not_null(strstr(tool_result.err, part), "%s", tool_result.err);
    cr_assert_eq(tool_result.out_bytes, 0);
    command_drop(&tool_result);
}

void tool_make_folder(void)
{
    cr_assert_not_null(mkdtemp(tool_folder));
}

void tool_remove_folder(void)
{
    const char *words[] = {"/bin/rm", "-rf", tool_folder, NULL};
    struct command_result result = command_run(words);
    command_drop(&result);
}

const char *tool_in_folder(const char *name)
{
    static char paths[8][256];
    static int next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", tool_folder, name);
    return path;
}

void tool_write(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "we");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, count, file), count);
    cr_assert_eq(fclose(file), 0);
}

void tool_write_text(const char *path, const char *text)
{
    tool_write(path, text, strlen(text));
}
