/*
 * attack_test.c: strangers at the listeners of a job that runs, and members that claim what is not theirs:
 * refused, logged with address, no effect on the job.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "support/stranger.h"

static const char no_token[] = "it does not know this job's token";

/* --- without the token --- */

Test(attack, refuses_garbage_at_every_listener)
{
    struct test_ranks *ranks = stranger_running(2);
    struct sl_random random = {.state = 3};
    uint8_t garbage[512];
    for (int i = 0; i < 20; i++) {
        for (size_t k = 0; k < sizeof(garbage); k++)
            garbage[k] = (uint8_t)sl_random_next(&random);
        int fd = stranger_connect(stranger_port(ranks, (uint32_t)i % 2));
        SL_IGNORE(send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL) < 0);
        stranger_is_refused(ranks, fd, no_token);
    }
    stranger_still_works(ranks, 1);
    stranger_end(ranks);
}

/* Ranks 0 and 1. */
static void *open_two(void *context)
{
    test_ranks_open(context, 3);
    return NULL;
}

/* A proper JOIN for rank 2 from one who has proved nothing. */
Test(attack, parses_nothing_before_the_proof)
{
    struct test_ranks *ranks = stranger_prepared(3);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, open_two, ranks), 0);
    int fd = stranger_connect(ranks->port);
    for (int i = 0; i < 2; i++) /* together as long as a proof */
        stranger_join(fd, 2, 3);
    stranger_is_refused(ranks, fd, no_token);
    uint8_t answer[SL_GREET_ANSWER];
    fd = stranger_connect(ranks->port);
    cr_assert_eq(stranger_greet(fd, "another secret altogether", answer), SL_GREET_WRONG);
    SL_IGNORE(send(fd, answer, sizeof(answer), MSG_NOSIGNAL) < 0);
    stranger_is_refused(ranks, fd, no_token);
    struct sl_control *third = NULL; /* its place was not taken */
    cr_assert_eq(sl_control_open(&ranks->rank[2].config, &third), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    stranger_opened(ranks, 2);
    ranks->rank[2].control = third;
    stranger_still_works(ranks, 1);
    stranger_end(ranks);
}

Test(attack, refuses_a_wrong_token)
{
    struct test_ranks *ranks = stranger_running(2);
    uint8_t answer[SL_GREET_ANSWER];
    int fd = stranger_connect(ranks->port);
    cr_assert_eq(stranger_greet(fd, "another secret altogether", answer), SL_GREET_WRONG);
    stranger_is_refused(ranks, fd, no_token);
    stranger_still_works(ranks, 1);
    stranger_end(ranks);
}

Test(attack, refuses_a_replayed_proof)
{
    struct test_ranks *ranks = stranger_running(2);
    uint8_t answer[SL_GREET_ANSWER];
    uint8_t hello[SL_GREET_HELLO];
    uint8_t last[SL_GREET_END];
    int fd = stranger_connect(ranks->port);
    cr_assert_eq(stranger_greet(fd, stranger_secret, answer), SL_GREET_WELCOME);
    close(fd);
    fd = stranger_connect(ranks->port);
    cr_assert_eq(stranger_read(fd, hello, sizeof(hello)), sizeof(hello));
    cr_assert_eq(send(fd, answer, sizeof(answer), MSG_NOSIGNAL), (ssize_t)sizeof(answer));
    cr_assert_eq(stranger_read(fd, last, sizeof(last)), sizeof(last));
    cr_assert_eq(last[0], SL_GREET_WRONG);
    stranger_is_refused(ranks, fd, no_token);
    stranger_still_works(ranks, 1);
    stranger_end(ranks);
}

Test(attack, refuses_the_token_itself_at_other_ranks_where_only_the_job_s_key_counts)
{
    struct test_ranks *ranks = stranger_running(2);
    uint8_t answer[SL_GREET_ANSWER];
    int fd = stranger_connect(stranger_port(ranks, 1));
    cr_assert_eq(stranger_greet(fd, stranger_secret, answer), SL_GREET_WRONG);
    stranger_is_refused(ranks, fd, no_token);
    stranger_still_works(ranks, 1);
    stranger_end(ranks);
}

Test(attack, sends_slow_senders_away)
{
    struct test_ranks *ranks = stranger_running(2);
    int silent = stranger_connect(ranks->port);
    int slow = stranger_connect(ranks->port);
    cr_assert_eq(send(slow, "SLU", 3, MSG_NOSIGNAL), 3);
    int proven = stranger_greeted(ranks);
    stranger_still_works(ranks, 1);
    stranger_is_refused(ranks, silent, "it did not prove in time that it knows the job's token");
    stranger_is_refused(ranks, slow, "it did not prove in time that it knows the job's token");
    stranger_is_refused(ranks, proven, "it did not say in time who it is");
    stranger_still_works(ranks, 2);
    stranger_end(ranks);
}

Test(attack, lets_a_rank_join_between_two_thousand_half_open_connections)
{
    enum { STRANGERS = 2000 };
    static int fds[STRANGERS];
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max >= 3 * STRANGERS)
        limit.rlim_cur = 3 * STRANGERS;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    uint32_t strangers = limit.rlim_cur >= 3 * STRANGERS ? STRANGERS : (uint32_t)(limit.rlim_cur / 3);
    struct test_ranks *ranks = stranger_prepared(3);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, open_two, ranks), 0);
    for (uint32_t i = 0; i < strangers; i++)
        fds[i] = stranger_connect(ranks->port);
    struct sl_control *third = NULL;
    cr_assert_eq(sl_control_open(&ranks->rank[2].config, &third), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    stranger_opened(ranks, 2);
    ranks->rank[2].control = third;
    stranger_still_works(ranks, 1);
    for (uint32_t i = 0; i < strangers; i++)
        close(fds[i]);
    stranger_end(ranks);
}

/* --- listening --- */

/* Counts the sockets that listen on a port, of IPv4 or IPv6, by what the kernel calls their address. */
static uint32_t listeners(const char *path, uint32_t port, const char *address)
{
    char line[512], local[64], state[8];
    uint32_t count = 0;
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, " %*[0-9]: %63s %*s %7s", local, state) != 2 || strcmp(state, "0A") != 0)
            continue;
        char *colon = strchr(local, ':');
        cr_assert_not_null(colon);
        *colon = '\0';
        if (strtoul(colon + 1, NULL, 16) == port && (address == NULL || strcmp(local, address) == 0))
            count++;
    }
    if (file != NULL)
        fclose(file);
    return count;
}

Test(attack, listens_on_the_given_address_alone)
{
    struct test_ranks *ranks = stranger_prepared(2);
    for (uint32_t i = 0; i < 2; i++)
        strcpy(ranks->rank[i].config.identity.address, "127.0.0.2");
    test_ranks_open(ranks, 3);
    stranger_opened(ranks, 2);
    cr_expect_eq(listeners("/proc/net/tcp", ranks->port, NULL), 1);
    cr_expect_eq(listeners("/proc/net/tcp", ranks->port, "0200007F"), 1);
    cr_expect_eq(listeners("/proc/net/tcp6", ranks->port, NULL), 0);
    uint32_t second = stranger_port(ranks, 1); /* the address that faces rank 0 */
    cr_expect_eq(listeners("/proc/net/tcp", second, NULL), 1);
    cr_expect_eq(listeners("/proc/net/tcp", second, "0100007F"), 1);
    cr_expect_eq(listeners("/proc/net/tcp6", second, NULL), 0);
    stranger_end(ranks);
}

/* --- with the token, before it is a member --- */

Test(attack, refuses_a_second_claimant_of_a_rank)
{
    struct test_ranks *ranks = stranger_running(2);
    struct sl_control *second = NULL;
    cr_assert_eq(sl_control_open(&ranks->rank[1].config, &second), SLUICE_STATE);
    cr_assert_not_null(strstr(sluice_last_error()->text, "rank 1"));
    cr_assert_not_null(strstr(sluice_last_error()->text, "already joined"));
    stranger_still_works(ranks, 1);
    cr_assert(test_log_has(&ranks->log, "refused 127.0.0.1:"));
    cr_assert(test_log_has(&ranks->log, "rank 1 of the job at this address has already joined"));
    stranger_end(ranks);
}

Test(attack, refuses_a_rank_beyond_the_world_of_a_running_job)
{
    struct test_ranks *ranks = stranger_running(2);
    struct sl_control_config config = ranks->rank[1].config;
    struct sl_control *third = NULL;
    config.identity.world = 3;
    config.identity.rank = 2;
    cr_assert_eq(sl_control_open(&config, &third), SLUICE_STATE);
    cr_assert_not_null(strstr(sluice_last_error()->text, "already running"));
    stranger_still_works(ranks, 1);
    stranger_end(ranks);
}

Test(attack, refuses_malformed_first_messages)
{
    struct test_ranks *ranks = stranger_running(2);
    uint8_t payload[64] = {1};
    int fd = stranger_greeted(ranks);
    stranger_frame(fd, SL_FRAME_JOIN, payload, 3); /* truncated */
    stranger_is_refused(ranks, fd, "its first message is malformed");
    fd = stranger_greeted(ranks);
    stranger_frame(fd, SL_FRAME_JOIN, payload, sizeof(payload));
    stranger_is_refused(ranks, fd, "its first message is malformed");
    fd = stranger_greeted(ranks);
    stranger_frame(fd, SL_FRAME_NOTE, payload, sizeof(payload)); /* without saying who it is */
    stranger_is_refused(ranks, fd, "it did not say who it is");
    fd = stranger_greeted(ranks);
    stranger_frame(fd, 77, payload, 0);
    stranger_is_refused(ranks, fd, "it sent a frame of type 77 and 0 bytes: the limit is 65536");
    stranger_still_works(ranks, 1);
    stranger_end(ranks);
}

Test(attack, ends_a_connection_that_announces_an_oversized_frame)
{
    static const struct {
        uint8_t head[8];
        const char *why;
    } cases[] = {
        {{0xff, 0xff, 0xff, 0xff, SL_FRAME_JOIN}, "it sent a frame of type 1 and 4294967295 bytes: the limit is 65536"},
        {{0, 0, 0, 0x80, SL_FRAME_JOIN}, "it sent a frame of type 1 and 2147483648 bytes: the limit is 65536"},
        {{1, 0, 1, 0, SL_FRAME_JOIN}, "it sent a frame of type 1 and 65537 bytes: the limit is 65536"},
        {{4, 0, 0, 0, SL_FRAME_JOIN, 1, 0, 0}, "it sent a frame of type 1 and 4 bytes: the limit is 65536"}};
    struct test_ranks *ranks = stranger_running(2);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int fd = stranger_greeted(ranks);
        cr_assert_eq(send(fd, cases[i].head, sizeof(cases[i].head), MSG_NOSIGNAL), 8);
        stranger_is_refused(ranks, fd, cases[i].why);
    }
    uint8_t chunk[9] = {SL_FRAME_JOIN, 0xff, 0xff, 0xff, 0xff}; /* a large message of 4 GiB */
    int fd = stranger_greeted(ranks);
    stranger_frame(fd, SL_FRAME_CHUNK, chunk, sizeof(chunk));
    stranger_is_refused(ranks, fd, "it sent a malformed or too large message");
    stranger_still_works(ranks, 1);
    stranger_end(ranks);
}
