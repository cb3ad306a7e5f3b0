/* running.c: see running.h. */
#include "support/running.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct running running_begin(const char *const *words)
{
    struct running running;
    int ends[2], out = memfd_create("stdout", MFD_CLOEXEC);
    posix_spawn_file_actions_t actions;
    cr_assert_geq(out, 0);
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    cr_assert_eq(posix_spawn_file_actions_init(&actions), 0);
    cr_assert_eq(posix_spawn_file_actions_adddup2(&actions, out, 1), 0);
    cr_assert_eq(posix_spawn_file_actions_adddup2(&actions, ends[1], 2), 0);
    cr_assert_eq(posix_spawn(&running.pid, words[0], &actions, NULL, (char *const *)(uintptr_t)words, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    cr_assert_eq(close(ends[1]), 0);
    running.err = fdopen(ends[0], "r");
    running.out = fdopen(out, "r");
    cr_assert(running.err != NULL && running.out != NULL);
    return running;
}

void running_await(struct running *running, const char *part, char *line, size_t capacity)
{
    while (fgets(line, (int)capacity, running->err) != NULL)
        if (strstr(line, part) != NULL)
            return;
    cr_assert_fail("the output ended without '%s'", part);
}

int running_finish(struct running *running, char *ret_out, size_t capacity)
{
    int state;
    cr_assert_eq(waitpid(running->pid, &state, 0), running->pid);
    cr_assert_eq(fclose(running->err), 0);
    rewind(running->out);
    if (ret_out != NULL)
        ret_out[fread(ret_out, 1, capacity - 1, running->out)] = '\0';
    cr_assert_eq(fclose(running->out), 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

size_t running_children(const struct running *running, pid_t *ret, size_t most)
{
    char path[64];
    size_t count = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)running->pid, (int)running->pid);
    FILE *file = fopen(path, "re");
    int child;
    cr_assert_not_null(file);
    while (count < most && fscanf(file, "%d", &child) == 1)
        ret[count++] = child;
    cr_assert_eq(fclose(file), 0);
    return count;
}
