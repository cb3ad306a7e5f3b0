/*
 * running.h: a program that runs while the test watches its stderr and does things to it. Asserts: a call that fails ends
 * the test.
 */
#ifndef SL_TESTS_RUNNING_H
#define SL_TESTS_RUNNING_H

#include <stdio.h>
#include <sys/types.h>

struct running {
    pid_t pid;
    FILE *err; /* its end of a pipe */
    FILE *out; /* a file without a name: read it when the program has ended */
};

/* `words` is NULL-terminated, the program first (a path). */
struct running running_begin(const char *const *words);
/* Reads lines of stderr until one has `part` in it. */
void running_await(struct running *running, const char *part, char *line, size_t capacity);
/* Waits for its end: exit status, or 128 + signal. Closes both files. `ret_out`: its stdout; NULL: nobody asks. */
int running_finish(struct running *running, char *ret_out, size_t capacity);
/* The processes that it started, in the order of their start; returns how many. */
size_t running_children(const struct running *running, pid_t *ret, size_t most);

#endif
