/*
 * stranger.h: a socket at the listeners of a job that runs, and what a test says on it by hand.
 *
 * The job has an explicit token, so that the test can prove that it knows it. Everything here asserts.
 */
#ifndef TESTS_SUPPORT_STRANGER_H
#define TESTS_SUPPORT_STRANGER_H

#include "runtime/control/bootstrap_greet.h"
#include "runtime/control/control_state.h"
#include "support/ranks.h"

#define STRANGER_LONG (30 * SLUICE_SECOND)

extern const char stranger_secret[]; /* what the job's token file holds */

/* A job of `world` ranks that is not open yet. */
struct test_ranks *stranger_prepared(uint32_t world);
/* The same, open. */
struct test_ranks *stranger_running(uint32_t world);
void stranger_end(struct test_ranks *ranks);
/* The job still does its work and nobody was lost. `id` grows from call to call. */
void stranger_still_works(struct test_ranks *ranks, uint64_t id);
/* The first `count` ranks are open. */
void stranger_opened(const struct test_ranks *ranks, uint32_t count);
/* Where a rank listens. */
uint32_t stranger_port(const struct test_ranks *ranks, uint32_t rank);

/* A connection to a port of 127.0.0.1; waits until somebody listens there. */
int stranger_connect(uint32_t port);
/* Bytes read before the end. */
size_t stranger_read(int fd, uint8_t *data, size_t bytes);
/* The other side ends the connection, whatever it says before; closes ours. */
void stranger_is_closed(int fd);
/* The same, and the job has logged why it refused this very connection. */
void stranger_is_refused(struct test_ranks *ranks, int fd, const char *why);

/* Greets with a token; returns the code of the last message, 0 when there was none. */
uint8_t stranger_greet(int fd, const char *secret, uint8_t *ret_answer);
/* A connection to rank 0 that has proved that it knows the token. */
int stranger_greeted(const struct test_ranks *ranks);
void stranger_frame(int fd, uint8_t type, const void *payload, size_t bytes);
/* A JOIN as a rank sends it. */
void stranger_join(int fd, uint32_t rank, uint32_t world);

#endif
