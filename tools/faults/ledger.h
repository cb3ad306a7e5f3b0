/*
 * ledger.h: an allocator table that remembers its blocks, so that leaks are seen and freed, and that can fail.
 *
 * For one thread.
 */
#ifndef SL_FAULTS_LEDGER_H
#define SL_FAULTS_LEDGER_H

#include "runtime/base/memory.h"

struct ledger_block;

struct ledger {
    struct ledger_block *blocks; /* all that live */
    uint64_t live;
    uint64_t fail_in; /* the n-th allocation from now fails, the next is 1; 0: none */
    uint64_t failed;
};

extern const struct sl_mem_ops ledger_ops;

/* Frees what lives; returns how many blocks that were. */
uint64_t ledger_drop(struct ledger *ledger);

#endif
