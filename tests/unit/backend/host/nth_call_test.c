/*
 * Every call of the system that two ranks make on the host backend fails once in turn, through open, seal, a version in
 * shadow memory, its commit and close: no crash, no hang, nothing left open or allocated, and a clean pass at the end.
 * The linker puts __wrap_X in the place of X.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "sluice/transfer.h"
#include "support/memory.h"
#include "support/ranks.h"
#include "support/wrap.h"

enum { BYTES = 20000, CALLS_MAX = 2000 };

static atomic_uint_fast64_t calls, fail_at; /* 0: none */

static _Bool strikes(void)
{
    return atomic_load(&fail_at) > 0 && atomic_fetch_add(&calls, 1) + 1 == atomic_load(&fail_at);
}

WRAP(int, socket, EMFILE, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, bind, EADDRINUSE, (int fd, const struct sockaddr *address, socklen_t bytes), (fd, address, bytes))
WRAP(int, listen, EADDRINUSE, (int fd, int backlog), (fd, backlog))
WRAP(int, connect, ECONNREFUSED, (int fd, const struct sockaddr *address, socklen_t bytes), (fd, address, bytes))
WRAP(int, accept4, EMFILE, (int fd, struct sockaddr *address, socklen_t *bytes, int flags), (fd, address, bytes, flags))
WRAP(ssize_t, sendmsg, ECONNRESET, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
WRAP(ssize_t, recvmsg, ECONNRESET, (int fd, struct msghdr *message, int flags), (fd, message, flags))
WRAP(int, memfd_create, EMFILE, (const char *name, unsigned flags), (name, flags))
WRAP(int, ftruncate, ENOSPC, (int fd, off_t bytes), (fd, bytes))
WRAP(int, epoll_create1, EMFILE, (int flags), (flags))
WRAP(int, epoll_ctl, ENOSPC, (int epoll, int operation, int fd, struct epoll_event *event),
     (epoll, operation, fd, event))
WRAP(int, eventfd, EMFILE, (unsigned value, int flags), (value, flags))

/* This one returns its code. */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument)
{
    return strikes() ? EAGAIN : __real_pthread_create(thread, attributes, body, argument);
}

struct life {
    uint32_t rank, port;
    pthread_t thread;
    sluice_status status;
    struct sluice_error error;
    uint8_t buffer[BYTES];
};

static sluice_status make_plan(struct life *life, sluice_plan **ret)
{
    struct sluice_region whole = {.row_bytes = BYTES, .rows = 1, .pitch = BYTES};
    sluice_status status = sluice_plan_create(2, ret);
    if (status == SLUICE_OK && life->rank == 0)
        status = sluice_plan_add_send(*ret, 0, 0, SLUICE_DTYPE_U8, 1, &whole);
    if (status == SLUICE_OK && life->rank == 1)
        status = sluice_plan_add_recv(*ret, 0, 0, SLUICE_DTYPE_U8, 0, &whole);
    if (status == SLUICE_OK)
        status = sluice_plan_bind(*ret, 0, life->rank == 0 ? SLUICE_ROLE_SOURCE : SLUICE_ROLE_DESTINATION, life->buffer,
                                  BYTES);
    return status;
}

static sluice_status run(sluice_runtime *runtime, sluice_plan *plan)
{
    struct sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    struct sluice_transfer_options options = SLUICE_TRANSFER_OPTIONS_INIT;
    sluice_transfer *transfer = NULL;
    seal.window_bytes = 4096;
    seal.shadow_bytes = 1 << 20;
    sluice_status status = sluice_plan_seal_wait(plan, runtime, &seal, 0);
    options.landing = SLUICE_LANDING_SHADOW;
    if (status == SLUICE_OK)
        status = sluice_submit(plan, &options, &transfer);
    if (status == SLUICE_OK)
        status = sluice_transfer_wait(transfer, UINT64_MAX);
    sluice_transfer_destroy(transfer);
    return status;
}

static void be_silent(enum sluice_log_level level, const char *topic, const char *text, void *user)
{
    (void)level;
    (void)topic;
    (void)text;
    (void)user;
}

static void *live(void *argument)
{
    struct life *life = argument;
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    sluice_runtime *runtime = NULL;
    sluice_plan *plan = NULL;
    options.backend = "host";
    options.on_log = be_silent;
    options.world = options.local_world = 2;
    options.rank = options.local_rank = life->rank;
    options.address = "127.0.0.1";
    options.port = life->port;
    options.bootstrap_timeout_ns = 400 * SLUICE_MILLISECOND;
    options.seal_timeout_ns = options.stall_timeout_ns = 10 * SLUICE_SECOND;
    options.abort_timeout_ns = SLUICE_SECOND;
    memset(life->buffer, life->rank == 0 ? 7 : 0, BYTES);
    life->status = sluice_runtime_open(&options, &runtime);
    if (life->status == SLUICE_OK)
        life->status = make_plan(life, &plan);
    if (life->status == SLUICE_OK)
        life->status = run(runtime, plan);
    life->error = *sluice_last_error();
    sluice_plan_destroy(plan);
    sluice_runtime_close_wait(runtime);
    return NULL;
}

static uint32_t open_files(void)
{
    uint32_t count = 0;
    DIR *all = opendir("/proc/self/fd");
    cr_assert_not_null(all);
    while (readdir(all) != NULL)
        count++;
    (void)closedir(all);
    return count;
}

/* The n-th call fails; 0: none. */
static void live_both(struct life *lives, uint64_t n)
{
    uint32_t port = test_free_port();
    atomic_store(&calls, 0);
    atomic_store(&fail_at, n);
    for (uint32_t r = 0; r < 2; r++) {
        lives[r].rank = r;
        lives[r].port = port;
        cr_assert_eq(__real_pthread_create(&lives[r].thread, NULL, live, &lives[r]), 0);
    }
    for (uint32_t r = 0; r < 2; r++)
        cr_assert_eq(pthread_join(lives[r].thread, NULL), 0);
    atomic_store(&fail_at, 0);
}

static void check(const struct life *lives, uint64_t n)
{
    for (uint32_t r = 0; r < 2; r++)
        if (lives[r].status != SLUICE_OK) {
            cr_expect_neq(lives[r].error.text[0], '\0', "call %lu: an error without words", n);
            cr_expect_null(strstr(lives[r].error.text, "took part in a round"), "call %lu: %s", n, lives[r].error.text);
        }
    uint8_t got = lives[1].buffer[0];
    for (uint32_t i = 1; i < BYTES; i++)
        cr_assert_eq(lives[1].buffer[i], got, "call %lu: a torn version", n);
    if (lives[0].status == SLUICE_OK || lives[1].status == SLUICE_OK)
        cr_expect_eq(got, 7, "call %lu: success without the bytes", n);
}

Test(host_calls, fail_once_each_and_leave_nothing_behind)
{
    static struct life lives[2];
    static struct test_memory memory;
    char folder[] = "/tmp/sluice-nth-XXXXXX";
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
    live_both(lives, 0); /* what is made once per process is there now */
    cr_assert_eq(lives[1].status, SLUICE_OK, "%s", lives[1].error.text);
    test_memory_install(&memory);
    uint32_t files = open_files();
    uint64_t n = 0;
    do {
        cr_assert_lt(++n, CALLS_MAX);
        live_both(lives, n);
        check(lives, n);
        cr_assert_eq(atomic_load(&memory.live), 0, "call %lu: %ld blocks are left", n, (long)memory.live);
        cr_assert_eq(open_files(), files, "call %lu: descriptors are left", n);
        cr_assert(atomic_load(&calls) >= n || (lives[0].status == SLUICE_OK && lives[1].status == SLUICE_OK));
    } while (atomic_load(&calls) >= n);
    cr_assert_gt(n, 50);
    (void)rmdir(folder);
}
