/* A transfer stays until all that was launched of it is handed over, also what completes nothing. */
#include <criterion/criterion.h>
#include <stdatomic.h>

#include "runtime/backend/registry.h"
#include "support/many.h"

enum { BYTES = 4096, TRIES = 100 };

static struct many many;
static struct sluice_backend_ops slow;
static sluice_gate *gate; /* of rank 1's transfer */
static _Atomic uint32_t held, left;

/* The host backend, but what comes behind the group is refused for some tries after the transfer's end was told. */
static sluice_status submit_slow(struct sluice_queue *queue, const struct sluice_op *op)
{
    if (op->kind == SLUICE_OP_RECORD && held < TRIES) {
        if (many_count(&many.ranks[1], SLUICE_EVENT_COMPLETED) == 0)
            return SLUICE_AGAIN;
        sluice_status status = sluice_gate_reset(gate);
        held += status == SLUICE_BUSY;
        left += status == SLUICE_OK;
        if (left == 0)
            return SLUICE_AGAIN;
    }
    return sl_host_backend()->submit(queue, op);
}

static void move_direct(struct many_rank *rank)
{
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    seal.direct_min = 1;
    many_plan(rank, 1, 1, BYTES);
    many_fill(rank, 1);
    many_seal(rank, &seal);
    struct sluice_transfer_options options = many_options(rank);
    if (rank->rank == 1) {
        cr_assert_eq(sluice_gate_host(rank->runtime, &gate), SLUICE_OK);
        cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
        options.consumer_gate = gate;
    }
    many_complete(many_submit(rank->plan, &options));
    cr_assert(many_holds(rank, 1));
    if (rank->rank == 1)
        sluice_gate_destroy(gate);
    many_drop(rank);
}

Test(launch, is_handed_over_before_its_transfer_is_released)
{
    slow = *sl_host_backend();
    slow.submit = submit_slow;
    many.backends[1] = &slow;
    many_run(&many, 2, move_direct);
    cr_assert_eq(held, (uint32_t)TRIES);
    cr_assert_eq(left, 0u);
}
