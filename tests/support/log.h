/* log.h: collects log lines in a test. Any thread may write; read when the writers are done. */
#ifndef SL_TESTS_LOG_H
#define SL_TESTS_LOG_H

#include <pthread.h>
#include <stddef.h>

#include "sluice/observe.h"

struct test_log {
    pthread_mutex_t lock;
    size_t lines;
    size_t length;
    char text[65536]; /* "level topic: text\n" a line; lines that find no room are counted only */
};

#define TEST_LOG_INIT                                                                                                  \
    {                                                                                                                  \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                                              \
    }

/* A sluice_log_fn; `user` is a struct test_log. */
void test_log_sink(enum sluice_log_level level, const char *topic, const char *text, void *user);
_Bool test_log_has(struct test_log *log, const char *part);

#endif
