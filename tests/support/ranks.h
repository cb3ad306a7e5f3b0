/*
 * ranks.h: control planes of several ranks in one process, each opened by a thread of its own, on
 * loopback. Plain C without a test framework, so that stress programs use it too.
 */
#ifndef SL_TESTS_RANKS_H
#define SL_TESTS_RANKS_H

#include <pthread.h>
#include <sys/types.h>

#include "runtime/control/control.h"
#include "support/log.h"

#define TEST_RANKS_MAX 32

/* What a rank has heard. */
struct test_rank {
    struct test_ranks *ranks;
    struct sl_control_config config;
    struct sl_control *control; /* NULL: open failed */
    sluice_status opened;
    struct sluice_error error; /* of open */
    pthread_t thread;
    _Bool started;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    uint32_t rounds; /* how many have ended */
    uint64_t round_id;
    sluice_status round_status;
    struct sluice_error round_error;
    uint8_t round_data[64];
    size_t round_bytes;
    uint32_t notes;
    struct sl_note last;
    struct sl_note lost; /* the last SL_NOTE_LOST */
};

struct test_ranks {
    uint32_t world;
    uint32_t port;
    char directory[64]; /* a runtime directory of this test alone */
    struct test_log log;
    struct sl_log sink;
    struct test_rank rank[TEST_RANKS_MAX];
};

/* A port that nobody uses now. The kernel gives out others in between, so a clash is most unlikely. */
uint32_t test_free_port(void);
/* Configures `world` ranks on a free port of 127.0.0.1; the caller may change the configurations. */
struct test_ranks *test_ranks_new(uint32_t world, uint64_t timeout_ns);
/* Opens the ranks of the bit mask `which` at once and waits until every open has returned. */
void test_ranks_open(struct test_ranks *ranks, uint32_t which);
/* Closes those that are open, each in its own thread, and waits. */
void test_ranks_close(struct test_ranks *ranks, uint32_t which);
/* Closes all, removes the directory, frees. */
void test_ranks_end(struct test_ranks *ranks);

/*
 * Ranks 0 and 1 open, do one round and a few notes, and close; true when all of it went well. A round that was given
 * and does not end ends the test.
 */
_Bool test_ranks_live(struct test_ranks *ranks, uint64_t round_timeout_ns);

/* A part of a round, a note. */
void test_give(struct test_ranks *ranks, uint32_t rank, uint32_t kind, uint64_t id, const char *text,
               uint64_t timeout_ns);
void test_tell(struct test_ranks *ranks, uint32_t rank, uint32_t kind, uint64_t key, uint64_t a, uint64_t b);

/* Opens a rank in a child process, which then waits to be killed; `ready` is for await. */
pid_t test_rank_fork(struct test_ranks *ranks, uint32_t rank, int *ret_ready);
/* Until its open has returned; it must be good. */
void test_rank_await(int ready);
void test_rank_kill(pid_t child);

/* Each waits at most 20 s; false when it did not come. */
_Bool test_wait_rounds(struct test_rank *rank, uint32_t count);
_Bool test_wait_note(struct test_rank *rank, uint32_t kind, uint64_t key, struct sl_note *ret);
_Bool test_wait_lost(struct test_rank *rank, uint32_t lost, struct sl_note *ret);

#endif
