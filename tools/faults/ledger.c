/* ledger.c: libc behind a list of blocks. Invariant: the header lies right before the block, in one piece of memory. */
#include "tools/faults/ledger.h"

#include <stddef.h>
#include <stdlib.h>

#include "runtime/base/error.h"

struct ledger_block {
    struct ledger_block *next, *previous;
    void *memory; /* of both */
};

static void *ledger_alloc(void *context, size_t bytes, size_t alignment)
{
    struct ledger *ledger = context;
    if (ledger->fail_in > 0 && --ledger->fail_in == 0) {
        ledger->failed++;
        return NULL;
    }
    size_t align = alignment < _Alignof(max_align_t) ? _Alignof(max_align_t) : alignment;
    size_t before = (sizeof(struct ledger_block) + align - 1) / align * align;
    char *memory = bytes <= SIZE_MAX - 2 * before ? malloc(before + bytes + align) : NULL;
    if (memory == NULL)
        return NULL;
    char *block = memory + before;
    block += (align - (uintptr_t)block % align) % align;
    struct ledger_block *header = (struct ledger_block *)(void *)(block - sizeof *header);
    *header = (struct ledger_block){.next = ledger->blocks, .memory = memory};
    if (header->next != NULL)
        header->next->previous = header;
    ledger->blocks = header;
    ledger->live++;
    return block;
}

static void ledger_free(void *context, void *block)
{
    struct ledger *ledger = context;
    if (block == NULL)
        return;
    struct ledger_block *header = (struct ledger_block *)(void *)((char *)block - sizeof *header);
    SL_ASSERT(ledger->live > 0);
    if (header->previous != NULL)
        header->previous->next = header->next;
    else
        ledger->blocks = header->next;
    if (header->next != NULL)
        header->next->previous = header->previous;
    ledger->live--;
    free(header->memory);
}

const struct sl_mem_ops ledger_ops = {.name = "ledger", .alloc = ledger_alloc, .free = ledger_free};

uint64_t ledger_drop(struct ledger *ledger)
{
    uint64_t count = ledger->live;
    while (ledger->blocks != NULL) {
        SL_ASSERT(ledger->blocks->previous == NULL);
        ledger_free(ledger, (char *)ledger->blocks + sizeof(struct ledger_block));
    }
    return count;
}
