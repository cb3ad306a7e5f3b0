/*
 * attack_test.c: strangers, and peers that break the rules, at the listeners of a job that runs: refused,
 * logged with address, no effect on the job.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/control/bootstrap_greet.h"
#include "runtime/control/control_state.h"
#include "support/ranks.h"

#define LONG (30 * SLUICE_SECOND)

static const char secret[] = "a secret of this test job";

/* A job with an explicit token, so that the test can prove that it knows it. */
static struct test_ranks *prepared(uint32_t world)
{
    struct test_ranks *ranks = test_ranks_new(world, LONG);
    char path[128];
    snprintf(path, sizeof(path), "%s/token", ranks->directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_eq(write(fd, secret, sizeof(secret) - 1), (ssize_t)sizeof(secret) - 1);
    close(fd);
    for (uint32_t i = 0; i < world; i++)
        strcpy(ranks->rank[i].config.identity.token_file, path);
    return ranks;
}

static struct test_ranks *running(uint32_t world)
{
    struct test_ranks *ranks = prepared(world);
    test_ranks_open(ranks, (1u << world) - 1);
    for (uint32_t i = 0; i < world; i++)
        cr_assert_eq(ranks->rank[i].opened, SLUICE_OK, "rank %u: %s", i, ranks->rank[i].error.text);
    return ranks;
}

static void end(struct test_ranks *ranks)
{
    cr_assert_eq(unlink(ranks->rank[0].config.identity.token_file), 0);
    test_ranks_end(ranks);
}

/* The job still does its work and nobody was lost. */
static void still_works(struct test_ranks *ranks, uint64_t id)
{
    for (uint32_t i = 0; i < ranks->world; i++)
        cr_assert_eq(sl_control_round(ranks->rank[i].control, 1, id, "x", 1, LONG), SLUICE_OK);
    for (uint32_t i = 0; i < ranks->world; i++) {
        cr_assert(test_wait_rounds(&ranks->rank[i], (uint32_t)id));
        cr_assert_eq(ranks->rank[i].round_status, SLUICE_OK, "%s", ranks->rank[i].round_error.text);
        cr_assert_neq(ranks->rank[i].lost.kind, SL_NOTE_LOST);
    }
}

/* --- a stranger's socket --- */

static int connect_to(uint32_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    while (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        poll(NULL, 0, 1);
    return fd;
}

static size_t read_all(int fd, uint8_t *data, size_t bytes)
{
    size_t have = 0;
    while (have < bytes) {
        ssize_t got = recv(fd, data + have, bytes - have, 0);
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    return have;
}

/* The other side ends the connection, whatever it says before. */
static void is_closed(int fd)
{
    uint8_t data[4096];
    while (recv(fd, data, sizeof(data), 0) > 0)
        ;
    close(fd);
}

static void token_of(const char *text, struct sl_token *ret)
{
    sl_token_of(text, strlen(text), ret);
}

/* Greets with a token; returns the code of the last message, 0 when there was none. */
static uint8_t greet(int fd, const struct sl_token *token, uint8_t *ret_answer)
{
    struct sl_greet greet;
    uint8_t hello[SL_GREET_HELLO];
    uint8_t last[SL_GREET_END] = {0};
    cr_assert_eq(read_all(fd, hello, sizeof(hello)), sizeof(hello));
    cr_assert_eq(sl_greet_answer(&greet, token, hello, ret_answer), SLUICE_OK);
    cr_assert_eq(send(fd, ret_answer, SL_GREET_ANSWER, MSG_NOSIGNAL), (ssize_t)SL_GREET_ANSWER);
    SL_IGNORE(read_all(fd, last, sizeof(last)) == 0);
    return last[0];
}

static int greeted(const struct test_ranks *ranks)
{
    struct sl_token token;
    uint8_t answer[SL_GREET_ANSWER];
    token_of(secret, &token);
    int fd = connect_to(ranks->port);
    cr_assert_eq(greet(fd, &token, answer), SL_GREET_WELCOME);
    return fd;
}

static void send_frame(int fd, uint8_t type, const void *payload, size_t bytes)
{
    uint8_t head[8] = {(uint8_t)bytes, (uint8_t)(bytes >> 8), (uint8_t)(bytes >> 16), (uint8_t)(bytes >> 24), type};
    cr_assert_eq(send(fd, head, sizeof(head), MSG_NOSIGNAL), (ssize_t)sizeof(head));
    if (bytes > 0)
        cr_assert_eq(send(fd, payload, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

static uint32_t port_of(const struct test_ranks *ranks, uint32_t rank)
{
    char text[64];
    unsigned port = 0;
    sl_control_address(ranks->rank[0].control, rank, text, sizeof(text));
    cr_assert_eq(sscanf(text, "127.0.0.1:%u", &port), 1);
    return port;
}

/* --- without the token --- */

Test(attack, refuses_garbage_at_every_listener)
{
    struct test_ranks *ranks = running(2);
    struct sl_random random = {.state = 3};
    uint8_t garbage[512];
    for (int i = 0; i < 20; i++) {
        for (size_t k = 0; k < sizeof(garbage); k++)
            garbage[k] = (uint8_t)sl_random_next(&random);
        int fd = connect_to(port_of(ranks, (uint32_t)i % 2));
        SL_IGNORE(send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL) < 0);
        is_closed(fd);
    }
    still_works(ranks, 1);
    cr_assert(test_log_has(&ranks->log, "refused 127.0.0.1:"));
    end(ranks);
}

Test(attack, refuses_a_wrong_token)
{
    struct test_ranks *ranks = running(2);
    struct sl_token token;
    uint8_t answer[SL_GREET_ANSWER];
    token_of("another secret altogether", &token);
    int fd = connect_to(ranks->port);
    cr_assert_eq(greet(fd, &token, answer), SL_GREET_WRONG);
    is_closed(fd);
    still_works(ranks, 1);
    cr_assert(test_log_has(&ranks->log, "it does not know this job's token"));
    end(ranks);
}

Test(attack, refuses_a_replayed_proof)
{
    struct test_ranks *ranks = running(2);
    struct sl_token token;
    uint8_t answer[SL_GREET_ANSWER];
    uint8_t hello[SL_GREET_HELLO];
    uint8_t last[SL_GREET_END];
    token_of(secret, &token);
    int fd = connect_to(ranks->port);
    cr_assert_eq(greet(fd, &token, answer), SL_GREET_WELCOME);
    close(fd);
    fd = connect_to(ranks->port);
    cr_assert_eq(read_all(fd, hello, sizeof(hello)), sizeof(hello));
    cr_assert_eq(send(fd, answer, sizeof(answer), MSG_NOSIGNAL), (ssize_t)sizeof(answer));
    cr_assert_eq(read_all(fd, last, sizeof(last)), sizeof(last));
    cr_assert_eq(last[0], SL_GREET_WRONG);
    is_closed(fd);
    still_works(ranks, 1);
    end(ranks);
}

Test(attack, refuses_the_token_itself_at_other_ranks_where_only_the_job_s_key_counts)
{
    struct test_ranks *ranks = running(2);
    struct sl_token token;
    uint8_t answer[SL_GREET_ANSWER];
    token_of(secret, &token);
    int fd = connect_to(port_of(ranks, 1));
    cr_assert_eq(greet(fd, &token, answer), SL_GREET_WRONG);
    is_closed(fd);
    still_works(ranks, 1);
    end(ranks);
}

Test(attack, sends_a_slow_sender_away)
{
    struct test_ranks *ranks = running(2);
    int silent = connect_to(ranks->port);
    int slow = connect_to(ranks->port);
    cr_assert_eq(send(slow, "SLU", 3, MSG_NOSIGNAL), 3);
    still_works(ranks, 1);
    is_closed(silent);
    is_closed(slow);
    still_works(ranks, 2);
    cr_assert(test_log_has(&ranks->log, "did not prove in time"));
    end(ranks);
}

static void *open_all(void *context)
{
    test_ranks_open(context, 3);
    return NULL;
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
    struct test_ranks *ranks = prepared(3);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, open_all, ranks), 0);
    for (uint32_t i = 0; i < strangers; i++)
        fds[i] = connect_to(ranks->port);
    struct sl_control *third = NULL;
    cr_assert_eq(sl_control_open(&ranks->rank[2].config, &third), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(ranks->rank[0].opened, SLUICE_OK, "%s", ranks->rank[0].error.text);
    cr_assert_eq(ranks->rank[1].opened, SLUICE_OK, "%s", ranks->rank[1].error.text);
    ranks->rank[2].control = third;
    still_works(ranks, 1);
    for (uint32_t i = 0; i < strangers; i++)
        close(fds[i]);
    end(ranks);
}

/* --- with the token --- */

Test(attack, refuses_a_second_claimant_of_a_rank)
{
    struct test_ranks *ranks = running(2);
    struct sl_control *second = NULL;
    cr_assert_eq(sl_control_open(&ranks->rank[1].config, &second), SLUICE_STATE);
    cr_assert_not_null(strstr(sluice_last_error()->text, "rank 1"));
    cr_assert_not_null(strstr(sluice_last_error()->text, "already joined"));
    still_works(ranks, 1);
    cr_assert(test_log_has(&ranks->log, "refused 127.0.0.1:"));
    cr_assert(test_log_has(&ranks->log, "rank 1 of the job at this address has already joined"));
    end(ranks);
}

Test(attack, refuses_a_rank_beyond_the_world_of_a_running_job)
{
    struct test_ranks *ranks = running(2);
    struct sl_control_config config = ranks->rank[1].config;
    struct sl_control *third = NULL;
    config.identity.world = 3;
    config.identity.rank = 2;
    cr_assert_eq(sl_control_open(&config, &third), SLUICE_STATE);
    cr_assert_not_null(strstr(sluice_last_error()->text, "already running"));
    still_works(ranks, 1);
    end(ranks);
}

Test(attack, refuses_malformed_first_messages)
{
    struct test_ranks *ranks = running(2);
    uint8_t payload[64] = {1};
    int fd = greeted(ranks);
    send_frame(fd, SL_FRAME_JOIN, payload, 3); /* truncated */
    is_closed(fd);
    fd = greeted(ranks);
    send_frame(fd, SL_FRAME_JOIN, payload, sizeof(payload));
    is_closed(fd);
    fd = greeted(ranks);
    send_frame(fd, SL_FRAME_NOTE, payload, sizeof(payload)); /* without saying who it is */
    is_closed(fd);
    fd = greeted(ranks);
    send_frame(fd, 77, payload, 0);
    is_closed(fd);
    still_works(ranks, 1);
    end(ranks);
}

Test(attack, ends_a_connection_that_announces_an_oversized_frame)
{
    static const uint8_t heads[][8] = {{0xff, 0xff, 0xff, 0xff, SL_FRAME_JOIN},
                                       {0, 0, 0, 0x80, SL_FRAME_JOIN},
                                       {1, 0, 1, 0, SL_FRAME_JOIN},
                                       {4, 0, 0, 0, SL_FRAME_JOIN, 1, 0, 0}};
    struct test_ranks *ranks = running(2);
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        int fd = greeted(ranks);
        cr_assert_eq(send(fd, heads[i], sizeof(heads[i]), MSG_NOSIGNAL), 8);
        is_closed(fd);
    }
    uint8_t chunk[9] = {SL_FRAME_JOIN, 0xff, 0xff, 0xff, 0xff}; /* a large message of 4 GiB */
    int fd = greeted(ranks);
    send_frame(fd, SL_FRAME_CHUNK, chunk, sizeof(chunk));
    is_closed(fd);
    still_works(ranks, 1);
    end(ranks);
}

/* A JOIN as a rank sends it. */
static void send_join(int fd, uint32_t rank, uint32_t world)
{
    struct sl_writer w;
    sl_writer_init(&w, sl_mem_default());
    sl_put_u32(&w, SL_PROTOCOL);
    sl_put_u32(&w, sluice_version_number());
    sl_put_u32(&w, rank);
    sl_put_u32(&w, world);
    sl_put_u16(&w, 1);
    sl_put_u64(&w, LONG);
    sl_put_u8(&w, 0);
    sl_put_text(&w, "", 1); /* job */
    sl_put_text(&w, "", 1); /* device */
    send_frame(fd, SL_FRAME_JOIN, w.data, w.bytes);
    sl_writer_drop(&w);
}

static void *open_two(void *context)
{
    test_ranks_open(context, 3);
    return NULL;
}

/* Ranks 0 and 1 and, as rank 2, the test itself. */
static int join_as_rank_2(struct test_ranks *ranks)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, open_two, ranks), 0);
    int fd = greeted(ranks);
    send_join(fd, 2, 3);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(ranks->rank[0].opened, SLUICE_OK, "%s", ranks->rank[0].error.text);
    cr_assert_eq(ranks->rank[1].opened, SLUICE_OK, "%s", ranks->rank[1].error.text);
    return fd;
}

static void rank_2_is_lost(struct test_ranks *ranks, const char *part)
{
    struct sl_note note;
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert(test_wait_lost(&ranks->rank[i], 2, &note));
        cr_assert_not_null(strstr(note.text, part), "\"%s\" lacks \"%s\"", note.text, part);
    }
}

Test(attack, gives_up_a_rank_that_sends_what_only_rank_0_may)
{
    struct test_ranks *ranks = prepared(3);
    int fd = join_as_rank_2(ranks);
    send_frame(fd, SL_FRAME_RESULT, "x", 1);
    rank_2_is_lost(ranks, "does not belong here");
    is_closed(fd);
    end(ranks);
}

Test(attack, gives_up_a_rank_whose_large_message_has_a_gap)
{
    struct test_ranks *ranks = prepared(3);
    int fd = join_as_rank_2(ranks);
    uint8_t chunk[10] = {SL_FRAME_PART, 100, 0, 0, 0, 50, 0, 0, 0, 'x'}; /* begins at 50 */
    send_frame(fd, SL_FRAME_CHUNK, chunk, sizeof(chunk));
    rank_2_is_lost(ranks, "malformed");
    is_closed(fd);
    end(ranks);
}

Test(attack, survives_random_frames_of_a_rank)
{
    struct test_ranks *ranks = prepared(3);
    int fd = join_as_rank_2(ranks);
    struct sl_random random = {.state = 5};
    uint8_t payload[256];
    for (int i = 0; i < 2000; i++) {
        size_t bytes = sl_random_below(&random, sizeof(payload));
        for (size_t k = 0; k < bytes; k++)
            payload[k] = (uint8_t)sl_random_next(&random);
        send_frame(fd, i % 2 == 0 ? SL_FRAME_NOTE : SL_FRAME_BEAT, payload, bytes);
    }
    close(fd);
    rank_2_is_lost(ranks, "rank 2");
    end(ranks);
}

Test(attack, gives_up_a_rank_that_does_not_read)
{
    struct test_ranks *ranks = prepared(3);
    for (uint32_t i = 0; i < 2; i++)
        ranks->rank[i].config.heartbeat_ns = 200 * SLUICE_MILLISECOND;
    int fd = join_as_rank_2(ranks);
    rank_2_is_lost(ranks, "no sign of life");
    close(fd);
    end(ranks);
}
