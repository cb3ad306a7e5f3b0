/* base_glue.h: delivery on a user's event_base, through one file descriptor. */
#ifndef SL_LOOP_BASE_GLUE_H
#define SL_LOOP_BASE_GLUE_H

#include "runtime/loop/delivery.h"

/* Adds the delivery's descriptor to `base`. Call it where event_add on that base is safe. */
sluice_status sl_base_join(struct sl_delivery *delivery, struct event_base *base);
/* Removes it if it is still there; on the loop's thread, or while no loop runs, or on a base with locks. */
void sl_base_leave(struct sl_delivery *delivery);

#endif
