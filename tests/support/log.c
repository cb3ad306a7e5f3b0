/* log.c: `text` is always a terminated string of whole lines; `lock` guards the rest. */
#include "tests/support/log.h"

#include <stdio.h>
#include <string.h>

void test_log_sink(enum sluice_log_level level, const char *topic, const char *text, void *user)
{
    struct test_log *log = user;
    char line[2048];
    int length = snprintf(line, sizeof line, "%d %s: %s\n", (int)level, topic, text);
    pthread_mutex_lock(&log->lock);
    log->lines++;
    if (length > 0 && (size_t)length < sizeof line && log->length + (size_t)length < sizeof log->text) {
        memcpy(log->text + log->length, line, (size_t)length + 1);
        log->length += (size_t)length;
    }
    pthread_mutex_unlock(&log->lock);
}

_Bool test_log_has(struct test_log *log, const char *part)
{
    pthread_mutex_lock(&log->lock);
    _Bool found = strstr(log->text, part) != NULL;
    pthread_mutex_unlock(&log->lock);
    return found;
}
