/*
 * team.h: one process a rank on one machine, with a page that they share; for programs that use a GPU each. Plain C
 * without a test framework. The parent touches nothing but processes.
 */
#ifndef SL_TESTS_TEAM_H
#define SL_TESTS_TEAM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define TEAM_BYTES 128

struct team {
    uint32_t world;
    atomic_uint arrived;        /* at barriers, over all of them */
    atomic_bool failed;         /* a member has ended badly */
    uint8_t shared[TEAM_BYTES]; /* written by rank 0 ahead of a barrier: the id of a communicator */
    _Alignas(64) uint8_t data[];
};

/* What a member returns is the exit status of its process. */
typedef int team_member(struct team *team, uint32_t rank, void *user);

/*
 * Runs `world` members with `bytes` of zeroed data and waits for all. The first that fails, and a deadline of
 * `seconds`, end the others. 0: all returned 0; else the status of the first that failed, 124 after the deadline.
 */
int team_run(uint32_t world, size_t bytes, uint32_t seconds, team_member *member, void *user);

/* Until all members are here; ends the process when another one has failed. */
void team_barrier(struct team *team);

#endif
