/* Hundreds of refits of one sealed plan: memory and descriptors stay as they are, buffers may move. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/many.h"

static struct many many;

enum { PARAMS = 4, BYTES = 128 * 1024, WARM = 300, REFITS = 300 };

/* The address sanitizer keeps freed memory for a while, so that resident memory says nothing there. */
#ifdef __SANITIZE_ADDRESS__
static const _Bool resident_counts = 0;
#else
static const _Bool resident_counts = 1;
#endif

static uint64_t resident_pages(void)
{
    unsigned long long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "%llu %llu", &size, &resident), 2);
    fclose(file);
    return resident;
}

static uint32_t descriptors(void)
{
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    cr_assert_not_null(folder);
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

static void refit(struct many_rank *rank, uint64_t seed, uint32_t verify)
{
    sluice_transfer *transfer = NULL;
    struct sluice_transfer_options options = many_options(rank);
    options.landing = SLUICE_LANDING_SHADOW;
    options.verify = verify;
    options.changed_only = seed % 3 == 0;
    cr_assert_eq(sluice_submit(rank->plan, &options, &transfer), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(sluice_transfer_wait(transfer, 60 * SLUICE_SECOND), SLUICE_OK, "%s", sluice_last_error()->text);
    sluice_transfer_destroy(transfer);
}

/* The buffer of parameter 1 moves: what it held is poison. */
static void move_buffer(struct many_rank *rank)
{
    uint8_t *fresh = malloc(BYTES);
    cr_assert_not_null(fresh);
    memset(fresh, 0xee, BYTES);
    cr_assert_eq(sluice_plan_rebind(rank->plan, 1, SLUICE_ROLE_DESTINATION, fresh, BYTES), SLUICE_OK, "%s",
                 sluice_last_error()->text);
    free(rank->buffers[3]);
    rank->buffers[3] = fresh;
}

/* One rank looks while the others wait: a look opens a file itself. */
static void measure(struct many_rank *rank, uint64_t *ret_pages, uint32_t *ret_open)
{
    many_meet(rank);
    if (rank->rank == 0) {
        *ret_pages = resident_pages();
        *ret_open = descriptors();
    }
    many_meet(rank);
}

static void refit_hundreds(struct many_rank *rank)
{
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    uint64_t pages = 0;
    uint32_t open = 0;
    seal.window_bytes = 64 * 1024;
    seal.shadow_bytes = 2 * PARAMS * BYTES;
    many_plan(rank, 2, PARAMS, BYTES);
    many_fill(rank, 1);
    many_seal(rank, &seal);
    for (uint64_t i = 0; i < WARM + REFITS; i++) {
        if (i == WARM)
            measure(rank, &pages, &open);
        if (i % 50 == 10 && rank->rank >= 2)
            move_buffer(rank);
        refit(rank, i, i % 2 == 0);
    }
    cr_expect(many_holds(rank, 1));
    cr_expect_eq(sluice_version(rank->plan), (uint64_t)(WARM + REFITS));
    uint64_t pages_after = 0;
    uint32_t open_after = 0;
    measure(rank, &pages_after, &open_after);
    cr_expect(!resident_counts || pages_after <= pages + pages / 100, "%llu pages grew from %llu",
              (unsigned long long)pages_after, (unsigned long long)pages);
    cr_expect_leq(open_after, open);
    many_drop(rank);
}

Test(repeat, of_300_refits_grows_neither_memory_nor_descriptors)
{
    many_run(&many, 4, refit_hundreds);
}
