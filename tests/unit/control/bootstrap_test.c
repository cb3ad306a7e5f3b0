/* bootstrap_test.c: ranks find each other, or fail alike, each naming who is to blame. Threads as ranks on loopback. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "support/ranks.h"

#define LONG  (30 * SLUICE_SECOND)
#define SHORT (2 * SLUICE_SECOND)

static void says(const struct test_rank *rank, sluice_status status, const char *part)
{
    cr_assert_eq(rank->opened, status, "rank %u: %s", rank->config.identity.rank, rank->error.text);
    cr_assert_not_null(strstr(rank->error.text, part), "\"%s\" lacks \"%s\"", rank->error.text, part);
}

static void all_open(const struct test_ranks *ranks)
{
    for (uint32_t i = 0; i < ranks->world; i++)
        cr_assert_eq(ranks->rank[i].opened, SLUICE_OK, "rank %u: %s", i, ranks->rank[i].error.text);
}

static uint64_t now(void)
{
    return sl_now(sl_clock_system());
}

Test(bootstrap, joins_three_ranks_and_tells_all_addresses)
{
    struct test_ranks *ranks = test_ranks_new(3, LONG);
    test_ranks_open(ranks, 7);
    all_open(ranks);
    char expected[64];
    char first[64];
    char other[64];
    snprintf(expected, sizeof(expected), "127.0.0.1:%u", ranks->port);
    for (uint32_t rank = 0; rank < 3; rank++) {
        sl_control_address(ranks->rank[0].control, rank, first, sizeof(first));
        cr_assert_eq(strncmp(first, "127.0.0.1:", 10), 0, "%s", first);
        for (uint32_t i = 1; i < 3; i++) {
            sl_control_address(ranks->rank[i].control, rank, other, sizeof(other));
            cr_assert_str_eq(other, first);
        }
        if (rank == 0)
            cr_assert_str_eq(first, expected);
        else
            cr_assert_str_neq(first, expected);
    }
    test_ranks_end(ranks);
}

Test(bootstrap, needs_no_socket_for_one_rank)
{
    struct test_ranks *ranks = test_ranks_new(1, LONG);
    ranks->rank[0].config.identity.address[0] = '\0';
    ranks->rank[0].config.identity.port = 0;
    test_ranks_open(ranks, 1);
    all_open(ranks);
    test_ranks_end(ranks);
}

Test(bootstrap, names_the_missing_ranks_on_all_that_came)
{
    struct test_ranks *ranks = test_ranks_new(6, SHORT);
    test_ranks_open(ranks, 1 | 2 | 8);
    says(&ranks->rank[0], SLUICE_TIMEOUT, "missing: 2, 4-5");
    says(&ranks->rank[1], SLUICE_TIMEOUT, "missing: 2, 4-5");
    says(&ranks->rank[3], SLUICE_TIMEOUT, "missing: 2, 4-5");
    test_ranks_end(ranks);
}

Test(bootstrap, names_rank_0_and_its_address_when_it_never_comes)
{
    struct test_ranks *ranks = test_ranks_new(2, SHORT);
    char place[64];
    snprintf(place, sizeof(place), "rank 0 at 127.0.0.1:%u", ranks->port);
    test_ranks_open(ranks, 2);
    says(&ranks->rank[1], SLUICE_TIMEOUT, place);
    test_ranks_end(ranks);
}

Test(bootstrap, works_again_in_the_same_process_after_a_failure)
{
    struct test_ranks *ranks = test_ranks_new(3, SHORT);
    test_ranks_open(ranks, 1 | 2);
    says(&ranks->rank[0], SLUICE_TIMEOUT, "missing: 2");
    for (uint32_t i = 0; i < 3; i++)
        ranks->rank[i].config.bootstrap_timeout_ns = LONG;
    for (int round = 0; round < 20; round++) {
        test_ranks_open(ranks, 7);
        all_open(ranks);
        test_ranks_close(ranks, 7);
    }
    test_ranks_end(ranks);
}

Test(bootstrap, tells_all_at_once_what_one_rank_reports)
{
    struct test_ranks *ranks = test_ranks_new(3, LONG);
    struct sluice_error failure;
    SL_IGNORE(sl_error_set(&failure, SLUICE_DEVICE, "cuda", "no device is free"));
    ranks->rank[2].config.failure = &failure;
    uint64_t begin = now();
    test_ranks_open(ranks, 7);
    cr_assert_lt(now() - begin, LONG / 2);
    says(&ranks->rank[0], SLUICE_PEER_FAILED, "rank 2");
    says(&ranks->rank[0], SLUICE_PEER_FAILED, "no device is free");
    says(&ranks->rank[1], SLUICE_PEER_FAILED, "no device is free");
    says(&ranks->rank[2], SLUICE_DEVICE, "no device is free");
    test_ranks_end(ranks);
}

Test(bootstrap, tells_all_what_rank_0_reports)
{
    struct test_ranks *ranks = test_ranks_new(2, LONG);
    struct sluice_error failure;
    SL_IGNORE(sl_error_set(&failure, SLUICE_DEVICE, "cuda", "no device is free"));
    ranks->rank[0].config.failure = &failure;
    test_ranks_open(ranks, 3);
    says(&ranks->rank[0], SLUICE_DEVICE, "no device is free");
    says(&ranks->rank[1], SLUICE_DEVICE, "no device is free");
    test_ranks_end(ranks);
}

Test(bootstrap, refuses_two_ranks_on_one_device_and_names_both)
{
    struct test_ranks *ranks = test_ranks_new(3, LONG);
    ranks->rank[0].config.device = "GPU-a on h";
    ranks->rank[1].config.device = "GPU-b on h";
    ranks->rank[2].config.device = "GPU-b on h";
    test_ranks_open(ranks, 7);
    for (uint32_t i = 0; i < 3; i++) {
        says(&ranks->rank[i], SLUICE_CONFIG, "GPU-b on h");
        cr_assert(strstr(ranks->rank[i].error.text, "ranks 1 and 2") != NULL ||
                  strstr(ranks->rank[i].error.text, "ranks 2 and 1") != NULL);
    }
    test_ranks_end(ranks);
}

Test(bootstrap, fails_on_all_ranks_when_the_worlds_differ)
{
    struct test_ranks *ranks = test_ranks_new(2, LONG);
    ranks->rank[1].config.identity.world = 3;
    test_ranks_open(ranks, 3);
    says(&ranks->rank[0], SLUICE_MISMATCH, "rank 1");
    says(&ranks->rank[0], SLUICE_MISMATCH, "world of 3");
    says(&ranks->rank[1], SLUICE_MISMATCH, "world of 2");
    test_ranks_end(ranks);
}

Test(bootstrap, keeps_a_rank_of_another_launch_out_of_the_job)
{
    struct test_ranks *ranks = test_ranks_new(2, SHORT);
    strcpy(ranks->rank[0].config.identity.job, "job 17");
    strcpy(ranks->rank[1].config.identity.job, "job 18");
    test_ranks_open(ranks, 3);
    says(&ranks->rank[0], SLUICE_TIMEOUT, "missing: 1");
    says(&ranks->rank[1], SLUICE_STATE, "another job");
    cr_assert(test_log_has(&ranks->log, "refused 127.0.0.1:"));
    test_ranks_end(ranks);
}

/* --- ports and addresses --- */

static int listen_on(uint32_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(listen(fd, 16), 0);
    return fd;
}

Test(bootstrap, says_at_once_that_the_port_is_in_use)
{
    struct test_ranks *ranks = test_ranks_new(2, LONG);
    int fd = listen_on(ranks->port);
    char place[64];
    snprintf(place, sizeof(place), "127.0.0.1:%u", ranks->port);
    uint64_t begin = now();
    test_ranks_open(ranks, 1);
    cr_assert_lt(now() - begin, LONG / 2);
    says(&ranks->rank[0], SLUICE_SYSTEM, place);
    says(&ranks->rank[0], SLUICE_SYSTEM, "in use");
    close(fd);
    test_ranks_end(ranks);
}

Test(bootstrap, says_that_the_address_is_not_local)
{
    struct test_ranks *ranks = test_ranks_new(2, LONG);
    strcpy(ranks->rank[0].config.identity.address, "192.0.2.1");
    test_ranks_open(ranks, 1);
    says(&ranks->rank[0], SLUICE_CONFIG, "address not local");
    test_ranks_end(ranks);
}

Test(bootstrap, refuses_a_foreign_address_without_a_token)
{
    struct test_ranks *ranks = test_ranks_new(2, LONG);
    strcpy(ranks->rank[1].config.identity.address, "192.0.2.1");
    test_ranks_open(ranks, 2);
    says(&ranks->rank[1], SLUICE_CONFIG, "SLUICE_TOKEN_FILE");
    test_ranks_end(ranks);
}

Test(bootstrap, refuses_port_0_and_a_name_that_does_not_exist)
{
    struct test_ranks *ranks = test_ranks_new(2, LONG);
    ranks->rank[0].config.identity.port = 0;
    strcpy(ranks->rank[1].config.identity.address, "no-such-host.invalid");
    test_ranks_open(ranks, 3);
    says(&ranks->rank[0], SLUICE_CONFIG, "port 0");
    says(&ranks->rank[1], SLUICE_CONFIG, "no-such-host.invalid");
    test_ranks_end(ranks);
}

static void *open_job(void *context)
{
    test_ranks_open(context, 3);
    return NULL;
}

Test(bootstrap, runs_twenty_jobs_side_by_side)
{
    enum { JOBS = 20 };
    struct test_ranks *jobs[JOBS];
    pthread_t threads[JOBS];
    for (int i = 0; i < JOBS; i++)
        jobs[i] = test_ranks_new(2, LONG);
    for (int i = 0; i < JOBS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, open_job, jobs[i]), 0);
    for (int i = 0; i < JOBS; i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < JOBS; i++)
        all_open(jobs[i]);
    for (int i = 0; i < JOBS; i++)
        test_ranks_end(jobs[i]);
}

/* --- tokens --- */

static void write_token(struct test_ranks *ranks, const char *name, const char *text, mode_t mode)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", ranks->directory, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    cr_assert_eq(fchmod(fd, mode), 0);
    close(fd);
}

static void use_token(struct test_ranks *ranks, uint32_t rank, const char *name)
{
    snprintf(ranks->rank[rank].config.identity.token_file, sizeof(ranks->rank[rank].config.identity.token_file),
             "%s/%s", ranks->directory, name);
}

static void remove_token(struct test_ranks *ranks, const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", ranks->directory, name);
    cr_assert_eq(unlink(path), 0);
}

Test(bootstrap, joins_by_an_explicit_token_file)
{
    struct test_ranks *ranks = test_ranks_new(2, LONG);
    write_token(ranks, "a", "0123456789abcdef", 0600);
    use_token(ranks, 0, "a");
    use_token(ranks, 1, "a");
    test_ranks_open(ranks, 3);
    all_open(ranks);
    remove_token(ranks, "a");
    test_ranks_end(ranks);
}

Test(bootstrap, refuses_a_wrong_token_and_shows_neither)
{
    struct test_ranks *ranks = test_ranks_new(2, SHORT);
    write_token(ranks, "a", "0123456789abcdef", 0600);
    write_token(ranks, "b", "0123456789abcdeX", 0600);
    use_token(ranks, 0, "a");
    use_token(ranks, 1, "b");
    test_ranks_open(ranks, 3);
    says(&ranks->rank[1], SLUICE_AUTH, "token");
    says(&ranks->rank[0], SLUICE_TIMEOUT, "missing: 1");
    cr_assert(test_log_has(&ranks->log, "refused 127.0.0.1:"));
    cr_assert(!test_log_has(&ranks->log, "0123456789"));
    cr_assert_null(strstr(ranks->rank[1].error.text, "0123456789"));
    remove_token(ranks, "a");
    remove_token(ranks, "b");
    test_ranks_end(ranks);
}

Test(bootstrap, names_the_token_file_that_is_not_safe)
{
    struct test_ranks *ranks = test_ranks_new(2, SHORT);
    write_token(ranks, "open", "0123456789abcdef", 0640);
    write_token(ranks, "short", "0123", 0600);
    use_token(ranks, 0, "open");
    use_token(ranks, 1, "short");
    test_ranks_open(ranks, 3);
    says(&ranks->rank[0], SLUICE_CONFIG, "/open: others may read or write it");
    says(&ranks->rank[1], SLUICE_CONFIG, "/short: 16 to 4096 bytes");
    use_token(ranks, 0, "none");
    ranks->rank[1].config.identity.token_file[0] = '\0';
    cr_assert_eq(chmod(ranks->directory, 0755), 0);
    test_ranks_open(ranks, 3);
    says(&ranks->rank[0], SLUICE_CONFIG, "/none does not exist");
    says(&ranks->rank[1], SLUICE_CONFIG, "directory");
    remove_token(ranks, "open");
    remove_token(ranks, "short");
    test_ranks_end(ranks);
}

Test(bootstrap, ignores_the_token_file_of_an_earlier_job)
{
    struct test_ranks *ranks = test_ranks_new(2, LONG);
    char name[64];
    snprintf(name, sizeof(name), "sluice-127.0.0.1:%u.token", ranks->port);
    write_token(ranks, name, "a token that some earlier job left behind", 0600);
    test_ranks_open(ranks, 3);
    all_open(ranks);
    test_ranks_end(ranks);
}

Test(bootstrap, leaves_no_token_file_behind)
{
    struct test_ranks *ranks = test_ranks_new(2, LONG);
    test_ranks_open(ranks, 3);
    all_open(ranks);
    cr_assert_eq(rmdir(ranks->directory), 0, "something is left in %s", ranks->directory);
    test_ranks_end(ranks);
}

/* --- the caller's all-gather --- */

struct gather {
    pthread_barrier_t barrier;
    uint32_t world;
    uint8_t data[TEST_RANKS_MAX * 1024];
    int fail; /* calls return this */
};

struct place {
    struct gather *gather;
    uint32_t rank;
};

static int all_gather(const void *send, void *recv, size_t bytes, void *user)
{
    const struct place *place = user;
    struct gather *gather = place->gather;
    cr_assert_leq(bytes, 1024);
    memcpy(gather->data + place->rank * bytes, send, bytes);
    pthread_barrier_wait(&gather->barrier);
    memcpy(recv, gather->data, gather->world * bytes);
    pthread_barrier_wait(&gather->barrier);
    return gather->fail;
}

static void use_gather(struct test_ranks *ranks, struct gather *gather, struct place *places)
{
    gather->world = ranks->world;
    pthread_barrier_init(&gather->barrier, NULL, ranks->world);
    for (uint32_t i = 0; i < ranks->world; i++) {
        places[i] = (struct place){.gather = gather, .rank = i};
        ranks->rank[i].config.allgather = all_gather;
        ranks->rank[i].config.allgather_user = &places[i];
        ranks->rank[i].config.identity.address[0] = '\0';
        ranks->rank[i].config.identity.port = 0;
    }
}

Test(bootstrap, joins_by_the_callers_allgather_without_address_port_or_token)
{
    static struct gather gather;
    struct place places[3];
    struct test_ranks *ranks = test_ranks_new(3, LONG);
    use_gather(ranks, &gather, places);
    test_ranks_open(ranks, 7);
    all_open(ranks);
    test_ranks_end(ranks);
}

Test(bootstrap, carries_a_rank_s_failure_through_the_allgather)
{
    static struct gather gather;
    struct place places[3];
    struct test_ranks *ranks = test_ranks_new(3, LONG);
    struct sluice_error failure;
    SL_IGNORE(sl_error_set(&failure, SLUICE_DEVICE, "cuda", "no device is free"));
    use_gather(ranks, &gather, places);
    ranks->rank[1].config.failure = &failure;
    test_ranks_open(ranks, 7);
    says(&ranks->rank[0], SLUICE_PEER_FAILED, "rank 1: no device is free");
    says(&ranks->rank[1], SLUICE_DEVICE, "no device is free");
    says(&ranks->rank[2], SLUICE_PEER_FAILED, "rank 1: no device is free");
    test_ranks_end(ranks);
}

Test(bootstrap, carries_rank_0_s_busy_port_through_the_allgather)
{
    static struct gather gather;
    struct place places[2];
    struct test_ranks *ranks = test_ranks_new(2, LONG);
    int fd = listen_on(ranks->port);
    use_gather(ranks, &gather, places);
    ranks->rank[0].config.identity.port = ranks->port;
    test_ranks_open(ranks, 3);
    says(&ranks->rank[0], SLUICE_SYSTEM, "in use");
    says(&ranks->rank[1], SLUICE_PEER_FAILED, "in use");
    close(fd);
    test_ranks_end(ranks);
}

Test(bootstrap, fails_when_the_allgather_fails)
{
    static struct gather gather = {.fail = 7};
    struct place places[2];
    struct test_ranks *ranks = test_ranks_new(2, LONG);
    use_gather(ranks, &gather, places);
    test_ranks_open(ranks, 3);
    says(&ranks->rank[0], SLUICE_SYSTEM, "all-gather failed with 7");
    says(&ranks->rank[1], SLUICE_SYSTEM, "all-gather failed with 7");
    test_ranks_end(ranks);
}
