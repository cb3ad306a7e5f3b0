/*
 * op_check.h: what every backend refuses in an operation before it takes it: kinds that it does not know, parts that
 * are missing, markers out of range or never recorded, messages of nothing or to a rank that is no peer.
 */
#ifndef SL_BACKEND_OP_CHECK_H
#define SL_BACKEND_OP_CHECK_H

#include "sluice/backend.h"

/* What a backend knows of an operation that was handed to it. */
struct sl_op_facts {
    const char *where; /* of errors */
    uint32_t markers;  /* how many there are */
    _Bool recorded;    /* WAIT: the marker was recorded */
    _Bool points;      /* the table has points */
    uint32_t set_kind; /* of the operation's set, if it has one */
};

/* INVALID, and why. The state of a communicator and of a point is for the backend to look at. */
sluice_status sl_op_check(const struct sl_op_facts *facts, const struct sluice_op *op);
/* The messages of a GROUP. `peers`: SLUICE_PEER_ flags by rank; NULL: every other rank in both directions. */
sluice_status sl_op_check_messages(const char *where, const struct sluice_op *op, uint32_t rank, uint32_t world,
                                   const uint8_t *peers);

#endif
