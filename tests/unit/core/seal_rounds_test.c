/* The last rounds of a seal: addresses are gathered, one rank's failure is everybody's, bad parts are refused. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/core/sealed.h"

static struct sl_ready_part parts[3];
static struct sl_bytes views[3];
static struct sluice_error error;
static uint8_t *data;
static size_t bytes;

static void fill(void)
{
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct sluice_blob blob = {.bytes = 2, .data = {(uint8_t)rank, 9}};
        sl_ready_fill(&(struct sluice_error){0}, &blob, &parts[rank]);
        views[rank] = (struct sl_bytes){(const uint8_t *)&parts[rank], sizeof parts[rank]};
    }
}

static sluice_status reduce(void)
{
    return sl_ready_reduce(views, 3, sl_mem_default(), &data, &bytes, &error);
}

Test(seal_rounds, give_every_rank_all_addresses)
{
    struct sluice_blob *blobs = NULL;
    fill();
    cr_assert_eq(reduce(), SLUICE_OK);
    cr_assert_eq(sl_ready_blobs(data, bytes, 3, sl_mem_default(), &blobs), SLUICE_OK);
    cr_expect_eq(blobs[2].bytes, 2u);
    cr_expect_eq(blobs[2].data[0], 2);
    sl_free(sl_mem_default(), blobs);
    cr_expect_eq(sl_ready_blobs(data, bytes - 1, 3, sl_mem_default(), &blobs), SLUICE_PROTOCOL);
    sl_free(sl_mem_default(), data);
}

Test(seal_rounds, pass_a_failure_on_with_rank_and_status)
{
    struct sluice_error failure;
    fill();
    sl_error_set(&failure, SLUICE_LIMIT, "seal", "too little staging");
    sl_ready_fill(&failure, NULL, &parts[1]);
    cr_expect_eq(reduce(), SLUICE_LIMIT);
    cr_expect_str_eq(error.text, "rank 1: too little staging");
}

Test(seal_rounds, name_the_cause_and_not_who_only_heard_of_it)
{
    struct sluice_error failure;
    fill();
    sl_error_set(&failure, SLUICE_PEER_FAILED, "seal", "rank 2: no descriptors");
    sl_ready_fill(&failure, NULL, &parts[0]);
    cr_expect_eq(reduce(), SLUICE_PEER_FAILED);
    cr_expect_str_eq(error.text, "rank 0: rank 2: no descriptors");
    sl_error_set(&failure, SLUICE_SYSTEM, "seal", "no descriptors");
    sl_ready_fill(&failure, NULL, &parts[2]);
    cr_expect_eq(reduce(), SLUICE_SYSTEM);
    cr_expect_str_eq(error.text, "rank 2: no descriptors");
}

Test(seal_rounds, refuse_malformed_parts_by_rank)
{
    fill();
    views[2].bytes--;
    cr_expect_eq(reduce(), SLUICE_PROTOCOL);
    cr_expect_str_eq(error.text, "rank 2 sent a malformed part");
    fill();
    parts[0].bytes = SLUICE_BLOB_MAX + 1;
    cr_expect_eq(reduce(), SLUICE_PROTOCOL);
    fill();
    parts[0].status = 5;
    cr_expect_eq(reduce(), SLUICE_PROTOCOL);
    fill();
    parts[0].status = -1000;
    cr_expect_eq(reduce(), SLUICE_PROTOCOL);
    fill();
    parts[1].bytes = UINT32_MAX;
    cr_expect_eq(reduce(), SLUICE_PROTOCOL);
}
