/* tool.h: the tool as a user runs it: one command at a time, its outcome, a folder for the test's files. */
#ifndef TESTS_SUPPORT_TOOL_H
#define TESTS_SUPPORT_TOOL_H

#include "support/command.h"

#define TOOL_PATH SLUICE_TEST_BIN "/sluice"

/* Of the last tool_run; the checks below drop it. */
extern struct command_result tool_result;

/* The tool with these words. */
#define tool_run(...) tool_run_words((const char *const[]){TOOL_PATH, __VA_ARGS__, NULL})
void tool_run_words(const char *const *words);
/* Status 0 and one line of output that has `part` in it. */
void tool_succeeds(const char *part);
/* This status, one line on stderr that begins "sluice: " and has `part` in it, nothing on stdout. */
void tool_fails(int status, const char *part);

/* A folder of the test's own, for .init and .fini of a suite. */
extern char tool_folder[];
void tool_make_folder(void);
void tool_remove_folder(void);
/* A path in it; good for the next seven calls. */
const char *tool_in_folder(const char *name);
void tool_write(const char *path, const void *bytes, size_t count);
void tool_write_text(const char *path, const char *text);

#endif
