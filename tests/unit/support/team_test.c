/* Processes of a team: barriers, the first failure, the deadline. */
#include <criterion/criterion.h>
#include <unistd.h>

#include "support/team.h"

/* Every rank adds its number between barriers; all see the sum. */
static int add_up(struct team *team, uint32_t rank, void *user)
{
    atomic_uint *sum = (atomic_uint *)(void *)team->data;
    uint32_t rounds = *(uint32_t *)user;
    for (uint32_t i = 1; i <= rounds; i++) {
        atomic_fetch_add(sum, rank);
        team_barrier(team);
        if (atomic_load(sum) != i * 6)
            return 1;
        team_barrier(team);
    }
    return 0;
}

static int fail_on_2(struct team *team, uint32_t rank, void *user)
{
    (void)user;
    if (rank == 2)
        return 7;
    team_barrier(team); /* never full */
    return 0;
}

static int wait_for_ever(struct team *team, uint32_t rank, void *user)
{
    (void)team, (void)user;
    if (rank == 1)
        return 0;
    for (;;)
        pause();
}

Test(team, members_meet_at_barriers)
{
    uint32_t rounds = 50;
    cr_assert_eq(team_run(4, sizeof(atomic_uint), 60, add_up, &rounds), 0);
}

Test(team, first_failure_ends_those_who_wait)
{
    cr_assert_eq(team_run(4, 0, 60, fail_on_2, NULL), 7);
}

Test(team, deadline_ends_all)
{
    cr_assert_eq(team_run(2, 0, 1, wait_for_ever, NULL), 124);
}
