/* stranger.c: see stranger.h. */
#include "support/stranger.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/error.h"

const char stranger_secret[] = "a secret of this test job";

struct test_ranks *stranger_prepared(uint32_t world)
{
    struct test_ranks *ranks = test_ranks_new(world, STRANGER_LONG);
    const size_t length = strlen(stranger_secret);
    char path[128];
    snprintf(path, sizeof(path), "%s/token", ranks->directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_eq(write(fd, stranger_secret, length), (ssize_t)length);
    close(fd);
    for (uint32_t i = 0; i < world; i++)
        strcpy(ranks->rank[i].config.identity.token_file, path);
    return ranks;
}

void stranger_opened(const struct test_ranks *ranks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(ranks->rank[i].opened, SLUICE_OK, "rank %u: %s", i, ranks->rank[i].error.text);
}

struct test_ranks *stranger_running(uint32_t world)
{
    struct test_ranks *ranks = stranger_prepared(world);
    test_ranks_open(ranks, (1u << world) - 1);
    stranger_opened(ranks, world);
    return ranks;
}

void stranger_end(struct test_ranks *ranks)
{
    cr_assert_eq(unlink(ranks->rank[0].config.identity.token_file), 0);
    test_ranks_end(ranks);
}

void stranger_still_works(struct test_ranks *ranks, uint64_t id)
{
    for (uint32_t i = 0; i < ranks->world; i++)
        cr_assert_eq(sl_control_round(ranks->rank[i].control, 1, id, "x", 1, STRANGER_LONG), SLUICE_OK);
    for (uint32_t i = 0; i < ranks->world; i++) {
        cr_assert(test_wait_rounds(&ranks->rank[i], (uint32_t)id));
        cr_assert_eq(ranks->rank[i].round_status, SLUICE_OK, "%s", ranks->rank[i].round_error.text);
        cr_assert_neq(ranks->rank[i].lost.kind, SL_NOTE_LOST);
    }
}

uint32_t stranger_port(const struct test_ranks *ranks, uint32_t rank)
{
    char text[64];
    unsigned port = 0;
    sl_control_address(ranks->rank[0].control, rank, text, sizeof(text));
    cr_assert_eq(sscanf(text, "127.0.0.1:%u", &port), 1);
    return port;
}

int stranger_connect(uint32_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    while (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        poll(NULL, 0, 1);
    return fd;
}

size_t stranger_read(int fd, uint8_t *data, size_t bytes)
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

void stranger_is_closed(int fd)
{
    uint8_t data[4096];
    while (recv(fd, data, sizeof(data), 0) > 0)
        ;
    close(fd);
}

void stranger_is_refused(struct test_ranks *ranks, int fd, const char *why)
{
    struct sockaddr_in own;
    socklen_t bytes = sizeof(own);
    char line[256];
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&own, &bytes), 0);
    snprintf(line, sizeof(line), "refused 127.0.0.1:%u: %s\n", ntohs(own.sin_port), why);
    stranger_is_closed(fd);
    cr_assert(test_log_has(&ranks->log, line), "the log lacks \"%s\":\n%s", line, ranks->log.text);
}

uint8_t stranger_greet(int fd, const char *secret, uint8_t *ret_answer)
{
    struct sl_greet greet;
    struct sl_token token;
    uint8_t hello[SL_GREET_HELLO];
    uint8_t last[SL_GREET_END] = {0};
    sl_token_of(secret, strlen(secret), &token);
    cr_assert_eq(stranger_read(fd, hello, sizeof(hello)), sizeof(hello));
    cr_assert_eq(sl_greet_answer(&greet, &token, hello, ret_answer), SLUICE_OK);
    cr_assert_eq(send(fd, ret_answer, SL_GREET_ANSWER, MSG_NOSIGNAL), (ssize_t)SL_GREET_ANSWER);
    SL_IGNORE(stranger_read(fd, last, sizeof(last)) == 0);
    return last[0];
}

int stranger_greeted(const struct test_ranks *ranks)
{
    uint8_t answer[SL_GREET_ANSWER];
    int fd = stranger_connect(ranks->port);
    cr_assert_eq(stranger_greet(fd, stranger_secret, answer), SL_GREET_WELCOME);
    return fd;
}

void stranger_frame(int fd, uint8_t type, const void *payload, size_t bytes)
{
    uint8_t head[8] = {(uint8_t)bytes, (uint8_t)(bytes >> 8), (uint8_t)(bytes >> 16), (uint8_t)(bytes >> 24), type};
    cr_assert_eq(send(fd, head, sizeof(head), MSG_NOSIGNAL), (ssize_t)sizeof(head));
    if (bytes > 0)
        cr_assert_eq(send(fd, payload, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

void stranger_join(int fd, uint32_t rank, uint32_t world)
{
    struct sl_writer w;
    sl_writer_init(&w, sl_mem_default());
    sl_put_u32(&w, SL_PROTOCOL);
    sl_put_u32(&w, sluice_version_number());
    sl_put_u32(&w, rank);
    sl_put_u32(&w, world);
    sl_put_u16(&w, 1);
    sl_put_u64(&w, STRANGER_LONG);
    sl_put_u8(&w, 0);
    sl_put_text(&w, "", 1); /* job */
    sl_put_text(&w, "", 1); /* device */
    stranger_frame(fd, SL_FRAME_JOIN, w.data, w.bytes);
    sl_writer_drop(&w);
}
