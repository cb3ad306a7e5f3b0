/*
 * What the last events of a transfer mean, looked at inside their callbacks: when it has completed every byte is in
 * place; when it is released nobody reads or writes the buffers any more.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "support/many.h"

enum { PARAMS = 8, BYTES = 512 * 1024, ROUNDS = 20 };

static struct many many;

struct look {
    struct many_rank *rank;
    uint64_t seed;
    uint32_t whole; /* times that the destinations were whole at the end */
};

static void look_at_once(const struct sluice_event *event, void *user)
{
    struct look *look = user;
    struct many_rank *rank = look->rank;
    if (event->kind == SLUICE_EVENT_COMPLETED || event->kind == SLUICE_EVENT_COMMITTED)
        look->whole += many_holds(rank, look->seed);
    if (event->kind != SLUICE_EVENT_RELEASED)
        return;
    for (uint32_t p = 0; p < PARAMS && rank->rank == 0; p++)
        memset(rank->buffers[2 * p], 0xaa, rank->bytes[2 * p]);
}

static void refit(struct many_rank *rank)
{
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    struct look look = {.rank = rank};
    seal.window_bytes = BYTES;
    seal.direct_min = 64 * 1024;
    seal.shadow_bytes = 2 * PARAMS * BYTES;
    many_plan(rank, 1, PARAMS, BYTES);
    many_seal(rank, &seal);
    for (look.seed = 1; look.seed <= ROUNDS; look.seed++) {
        struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
        options.on_event = look_at_once;
        options.user = &look;
        options.landing = look.seed % 2 ? SLUICE_LANDING_IN_PLACE : SLUICE_LANDING_SHADOW;
        many_fill(rank, look.seed);
        many_meet(rank);
        many_complete(many_submit(rank->plan, &options));
        many_meet(rank);
        cr_expect(many_holds(rank, look.seed), "what the source holds after its release does not arrive");
    }
    cr_expect_eq(look.whole, (uint32_t)ROUNDS);
    many_drop(rank);
}

Test(completion, finds_destinations_whole_and_leaves_them_alone_behind_the_release)
{
    many_run(&many, 2, refit);
}
