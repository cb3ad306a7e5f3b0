/*
 * messages.h: a bare list of [source, destination, bytes] with `world`, as a plan. Pure.
 *
 * Each message is a task of its own parameter, in list order; other keys of the file are ignored.
 */
#ifndef SL_SCHEDULER_MESSAGES_H
#define SL_SCHEDULER_MESSAGES_H

#include "scheduler/plan.h"

/* PARSE with line and column or the path of the member; PLAN for ranks outside the world. */
sluice_status sl_messages_read(const char *text, size_t bytes, const char *what, struct sl_mem *mem,
                               struct sl_plan *ret);

#endif
