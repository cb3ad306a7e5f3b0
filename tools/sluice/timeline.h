/* timeline.h: ranks by time as one HTML file that needs no network. */
#ifndef SL_TOOL_TIMELINE_H
#define SL_TOOL_TIMELINE_H

#include "runtime/base/file.h"

/* The kinds of bar, in the order of the legend. */
enum timeline_kind {
    TIMELINE_GATE,
    TIMELINE_PACK,
    TIMELINE_WAIT,
    TIMELINE_GROUP,
    TIMELINE_UNPACK,
    TIMELINE_LOCAL,
    TIMELINE_COMMIT,
    TIMELINE_KINDS
};

struct timeline {
    struct sl_out out;
    uint64_t bars;
};

/* Opens the file and writes the head. `title` is shown above the picture. */
sluice_status timeline_open(const char *path, const char *title, struct timeline *ret);
/* One bar; seconds. */
void timeline_bar(struct timeline *timeline, uint32_t rank, uint32_t window, enum timeline_kind kind, double begin,
                  double end);
/* Writes the tail and commits the file; IO removes it. */
sluice_status timeline_close(struct timeline *timeline);
void timeline_drop(struct timeline *timeline);

#endif
