/* log.h: one log sink per runtime; lower case, one line, no secrets. Volume: info per object, debug per window, trace per op. */
#ifndef SL_BASE_LOG_H
#define SL_BASE_LOG_H

#include "sluice/observe.h"

struct sl_log {
    sluice_log_fn sink; /* NULL: stderr, "sluice: level: topic: text" */
    void *user;
    enum sluice_log_level level;
};

/* "error", "warn", "info", "debug" or "trace"; false for anything else. */
_Bool sl_log_level_parse(const char *text, enum sluice_log_level *ret);
const char *sl_log_level_name(enum sluice_log_level level);

void sl_log_write(const struct sl_log *log, enum sluice_log_level level, const char *topic, const char *format, ...)
    SLUICE_PRINTF(4, 5);
#define SL_LOG(log, line_level, topic, ...)                                                                            \
    do {                                                                                                               \
        if ((log) != NULL && (line_level) <= (log)->level)                                                             \
            sl_log_write((log), (line_level), (topic), __VA_ARGS__);                                                   \
    } while (0)

#endif
