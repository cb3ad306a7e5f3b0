/* A world of one on the host backend: its rounds end at once, inside the call that begins them. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/many.h"

enum { BYTES = 4096 };

static struct many many;
static uint8_t source[BYTES], destination[BYTES];

static void plan_copy(struct many_rank *rank)
{
    const struct sluice_param param = {.dtype = SLUICE_DTYPE_U8, .bytes = BYTES, .name = "weight"};
    const struct sluice_region whole = {.row_bytes = BYTES, .rows = 1, .pitch = BYTES};
    const struct sluice_task task = {
        .from = whole, .to = whole, .source_dtype = SLUICE_DTYPE_U8, .destination_dtype = SLUICE_DTYPE_U8};
    cr_assert_eq(sluice_plan_create(1, &rank->plan), SLUICE_OK);
    cr_assert_eq(sluice_plan_add_param(rank->plan, &param), SLUICE_OK);
    cr_assert_eq(sluice_plan_add_task(rank->plan, &task), SLUICE_OK);
    cr_assert_eq(sluice_plan_bind(rank->plan, 0, SLUICE_ROLE_SOURCE, source, BYTES), SLUICE_OK);
    cr_assert_eq(sluice_plan_bind(rank->plan, 0, SLUICE_ROLE_DESTINATION, destination, BYTES), SLUICE_OK);
}

/* The handle is given back while the gate still holds the transfer, so that the end of its round is its last moment. */
static void submit_and_forget(struct many_rank *rank, struct sluice_transfer_options options, uint8_t value)
{
    sluice_gate *gate = NULL;
    cr_assert_eq(sluice_gate_host(rank->runtime, &gate), SLUICE_OK);
    options.source_gate = gate;
    options.on_event = NULL;
    sluice_transfer_destroy(many_submit(rank->plan, &options));
    memset(source, value, BYTES);
    memset(destination, 0xee, BYTES);
    cr_assert_eq(sluice_gate_open(gate), SLUICE_OK);
    sluice_gate_destroy(gate);
    /* Runs of a plan follow each other. */
    struct sluice_transfer_options nothing = many_options(rank);
    nothing.params = &(const uint64_t){0};
    nothing.params_words = 1;
    many_complete(many_submit(rank->plan, &nothing));
    for (uint32_t i = 0; i < BYTES; i++)
        cr_assert_eq(destination[i], value);
}

/* With nothing to move the last window is launched for its check alone, which is over before the window is handed over. */
static void forget_empty(struct many_rank *rank)
{
    struct sluice_transfer_options options = many_options(rank);
    options.on_event = NULL;
    options.verify = 1;
    options.params = &(const uint64_t){0};
    options.params_words = 1;
    for (int i = 0; i < 8; i++)
        sluice_transfer_destroy(many_submit(rank->plan, &options));
    options.verify = 0;
    many_complete(many_submit(rank->plan, &options));
}

static void forget_transfers(struct many_rank *rank)
{
    plan_copy(rank);
    many_seal(rank, NULL);
    struct sluice_transfer_options options = many_options(rank);
    options.verify = 1;
    submit_and_forget(rank, options, 1);
    options.changed_only = 1;
    submit_and_forget(rank, options, 2);
    options.verify = 0;
    submit_and_forget(rank, options, 3);
    forget_empty(rank);
    many_drop(rank);
}

Test(alone, transfers_with_digests_end_though_nobody_holds_them_any_more)
{
    many_run(&many, 1, forget_transfers);
}
