/*
 * Runs a program with its output in memory files.
 *
 * Invariant: whatever goes wrong on the way is an assertion, so a result is always one of the program.
 */
#include "support/command.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/error.h"

extern char **environ;

static char *take(int fd, size_t *ret_bytes)
{
    off_t bytes = lseek(fd, 0, SEEK_END);
    SL_ASSERT(bytes >= 0);
    char *text = malloc((size_t)bytes + 1);
    SL_ASSERT(text != NULL && pread(fd, text, (size_t)bytes, 0) == bytes);
    text[bytes] = '\0';
    *ret_bytes = (size_t)bytes;
    SL_IGNORE(close(fd));
    return text;
}

struct command_result command_run(const char *const *arguments)
{
    struct command_result result;
    int out = memfd_create("out", MFD_CLOEXEC), err = memfd_create("err", MFD_CLOEXEC), state;
    posix_spawn_file_actions_t actions;
    pid_t child;
    SL_ASSERT(out >= 0 && err >= 0 && posix_spawn_file_actions_init(&actions) == 0);
    SL_ASSERT(posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) == 0);
    SL_ASSERT(posix_spawn_file_actions_adddup2(&actions, out, 1) == 0);
    SL_ASSERT(posix_spawn_file_actions_adddup2(&actions, err, 2) == 0);
    char *const *argv = (char *const *)(uintptr_t)arguments;
    SL_ASSERT(posix_spawn(&child, arguments[0], &actions, NULL, argv, environ) == 0);
    SL_ASSERT(waitpid(child, &state, 0) == child);
    posix_spawn_file_actions_destroy(&actions);
    result.status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    result.out = take(out, &result.out_bytes);
    result.err = take(err, &result.err_bytes);
    return result;
}

void command_drop(struct command_result *result)
{
    free(result->out);
    free(result->err);
}

int command_lines(const char *text)
{
    int lines = 0;
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        lines += text[i] == '\n';
    return length > 0 && text[length - 1] != '\n' ? -1 : lines;
}
