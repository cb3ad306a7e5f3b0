/* command.h: runs a program and keeps what it printed. */
#ifndef SL_TESTS_COMMAND_H
#define SL_TESTS_COMMAND_H

#include <stddef.h>

struct command_result {
    int status; /* exit status; 128 + signal when one ended it */
    char *out, *err;
    size_t out_bytes, err_bytes;
};

/* `arguments` is NULL-terminated, the program first (a path). Standard input is empty. */
struct command_result command_run(const char *const *arguments);
void command_drop(struct command_result *result);
/* Lines of a text that ends with a newline; -1 when it does not. */
int command_lines(const char *text);

#endif
