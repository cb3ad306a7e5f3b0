/*
 * Regions whose rows are larger than a window, so that windows cut within rows: what lands, and what lies between the
 * rows and must stay.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "support/many.h"

enum { ROWS = 3, ROW = 1000, FROM = 3, FROM_PITCH = 1004, TO = 7, TO_PITCH = 1024, BYTES = 4096 };

struct setup {
    uint64_t direct_min;
    enum sluice_landing landing;
};

static struct many many;
static uint8_t buffers[2][BYTES];

static uint8_t content(uint32_t row, uint32_t column)
{
    return (uint8_t)(1 + (row * ROW + column) % 251);
}

/* Rank 0 sends ROWS rows to rank 1, apart from each other by different distances at both ends. */
static void plan_rows(struct many_rank *rank)
{
    const struct sluice_param param = {.dtype = SLUICE_DTYPE_U8, .bytes = ROWS * ROW, .name = "rows"};
    const struct sluice_task task = {
        .destination = 1,
        .from = {.offset = FROM, .row_bytes = ROW, .rows = ROWS, .pitch = FROM_PITCH},
        .to = {.offset = TO, .row_bytes = ROW, .rows = ROWS, .pitch = TO_PITCH},
        .origin = SLUICE_ORIGIN_NONE,
        .source_dtype = SLUICE_DTYPE_U8,
        .destination_dtype = SLUICE_DTYPE_U8,
    };
    cr_assert_eq(sluice_plan_create(2, &rank->plan), SLUICE_OK);
    cr_assert_eq(sluice_plan_add_param(rank->plan, &param), SLUICE_OK);
    cr_assert_eq(sluice_plan_add_task(rank->plan, &task), SLUICE_OK);
    cr_assert_eq(sluice_plan_bind(rank->plan, 0, rank->rank == 0 ? SLUICE_ROLE_SOURCE : SLUICE_ROLE_DESTINATION,
                                  buffers[rank->rank], BYTES),
                 SLUICE_OK);
}

/* What the buffer of rank 1 holds in the end: the rows, and 0xee everywhere else. */
static void expect_rows(const uint8_t *buffer)
{
    uint8_t want[BYTES];
    memset(want, 0xee, sizeof want);
    for (uint32_t row = 0; row < ROWS; row++)
        for (uint32_t column = 0; column < ROW; column++)
            want[TO + row * TO_PITCH + column] = content(row, column);
    for (uint32_t i = 0; i < BYTES; i++)
        cr_assert_eq(buffer[i], want[i], "byte %u is %u and not %u", i, buffer[i], want[i]);
}

static void move_rows(struct many_rank *rank)
{
    const struct setup *setup = rank->many->context;
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    seal.window_bytes = 256;
    seal.direct_min = setup->direct_min;
    seal.shadow_bytes = setup->landing == SLUICE_LANDING_SHADOW ? BYTES : 0;
    memset(buffers[rank->rank], rank->rank == 0 ? 0x11 : 0xee, BYTES);
    for (uint32_t row = 0; row < ROWS && rank->rank == 0; row++)
        for (uint32_t column = 0; column < ROW; column++)
            buffers[0][FROM + row * FROM_PITCH + column] = content(row, column);
    plan_rows(rank);
    many_seal(rank, &seal);
    cr_assert_eq(sluice_plan_windows(rank->plan), 12);
    struct sluice_transfer_options options = many_options(rank);
    options.landing = setup->landing;
    many_complete(many_submit(rank->plan, &options));
    if (rank->rank == 1)
        expect_rows(buffers[1]);
    many_drop(rank);
}

static void run(struct setup setup)
{
    many.context = &setup;
    many_run(&many, 2, move_rows);
}

Test(strided, rows_cut_by_windows_land_packed)
{
    run((struct setup){.direct_min = 0, .landing = SLUICE_LANDING_IN_PLACE});
    run((struct setup){.direct_min = 0, .landing = SLUICE_LANDING_SHADOW});
}

Test(strided, pieces_within_a_row_are_sent_from_and_received_in_their_own_row)
{
    run((struct setup){.direct_min = 1, .landing = SLUICE_LANDING_IN_PLACE});
    run((struct setup){.direct_min = 1, .landing = SLUICE_LANDING_SHADOW});
}
