/*
 * Shared memory of a run, and the all-gather over it.
 *
 * Invariants: a seat is written by its rank alone and read by all; an all-gather of number n uses place n of
 * every seat, so no call overwrites what another rank still reads; whoever waits leaves when the run stops, when its
 * epoch is over, or at the deadline. Waits are woken, not repeated: hundreds of ranks that look again and again leave no time for
 * what they wait for.
 */
#include "run_board.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/clock.h"

/* How long a stop may go unseen. */
#define RUN_SLICE (100 * SLUICE_MILLISECOND)

sluice_status run_board_open(uint32_t world, uint32_t refits, struct run_board **ret)
{
    size_t seats = sizeof(struct run_board), times = seats + world * sizeof(struct run_seat);
    size_t bytes = times + (size_t)world * refits * sizeof(struct run_time);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return sl_fail_native(SLUICE_NOMEM, SLUICE_DOMAIN_SYSTEM, errno, "run", "%zu bytes to share between ranks",
                              bytes);
    struct run_board *board = memory;
    board->world = world;
    board->refits = refits;
    board->bytes = bytes;
    board->seats = (struct run_seat *)((uint8_t *)memory + seats);
    board->times = (struct run_time *)((uint8_t *)memory + times);
    *ret = board;
    return SLUICE_OK;
}

void run_board_close(struct run_board *board)
{
    if (board != NULL)
        SL_IGNORE(munmap(board, board->bytes));
}

static uint32_t number_of(const struct run_place *place)
{
    return place->epoch * RUN_GATHERS + place->gathers - 1;
}

_Bool run_board_misses(const struct run_place *place, uint32_t rank)
{
    return atomic_load(&place->board->seats[rank].parts) <= number_of(place);
}

int run_board_gather(const void *send, void *recv, size_t bytes, void *place)
{
    struct run_place *own = place;
    struct run_board *board = own->board;
    if (bytes > RUN_GATHER_BYTES || own->gathers == RUN_GATHERS || own->epoch >= RUN_EPOCHS)
        return EINVAL;
    uint64_t deadline = sl_deadline(sl_now(sl_clock_system()), own->timeout_ns);
    own->gathers++;
    uint32_t number = number_of(own);
    memcpy(board->seats[own->rank].gather[number], send, bytes);
    atomic_store(&board->seats[own->rank].parts, number + 1);
    if (atomic_fetch_add(&board->gathered[number], 1) + 1 == board->world)
        sl_bell_ring(&board->all_there);
    for (;;) {
        uint32_t seen = sl_bell_look(&board->all_there);
        if (atomic_load(&board->gathered[number]) == board->world)
            break;
        if (run_board_stopped(board) != RUN_GO || atomic_load(&board->epoch) != own->epoch)
            return ECANCELED;
        own->late = sl_now(sl_clock_system()) >= deadline;
        if (own->late)
            return ETIMEDOUT;
        sl_bell_wait(&board->all_there, seen, RUN_SLICE);
    }
    for (uint32_t r = 0; r < board->world; r++)
        memcpy((uint8_t *)recv + r * bytes, board->seats[r].gather[number], bytes);
    return 0;
}
