/*
 * Every socket call of two ranks fails once in turn, through bootstrap, a round, notes and the end: no crash, no hang,
 * no leak, errors with words, and a clean pass at the end. The linker puts __wrap_X in the place of X.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/socket.h>

#include "runtime/base/error.h"
#include "support/memory.h"
#include "support/ranks.h"
#include "support/wrap.h"

#define SHORT (300 * SLUICE_MILLISECOND)
#define LONG  (30 * SLUICE_SECOND)

static atomic_uint_fast64_t calls, fail_at; /* 0: none */

static _Bool strikes(void)
{
    return atomic_fetch_add(&calls, 1) + 1 == atomic_load(&fail_at);
}

WRAP(int, socket, EMFILE, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, bind, EADDRINUSE, (int fd, const struct sockaddr *address, socklen_t bytes), (fd, address, bytes))
WRAP(int, listen, EADDRINUSE, (int fd, int backlog), (fd, backlog))
WRAP(int, connect, ECONNREFUSED, (int fd, const struct sockaddr *address, socklen_t bytes), (fd, address, bytes))
WRAP(int, accept4, EMFILE, (int fd, struct sockaddr *address, socklen_t *bytes, int flags), (fd, address, bytes, flags))
WRAP(int, getsockname, ENOBUFS, (int fd, struct sockaddr *address, socklen_t *bytes), (fd, address, bytes))
WRAP(int, getsockopt, ENOBUFS, (int fd, int level, int name, void *value, socklen_t *bytes),
     (fd, level, name, value, bytes))
WRAP(int, setsockopt, ENOBUFS, (int fd, int level, int name, const void *value, socklen_t bytes),
     (fd, level, name, value, bytes))
WRAP(ssize_t, send, ECONNRESET, (int fd, const void *data, size_t bytes, int flags), (fd, data, bytes, flags))
WRAP(ssize_t, recv, ECONNRESET, (int fd, void *data, size_t bytes, int flags), (fd, data, bytes, flags))

Test(sockets, survive_every_call_that_fails_once)
{
    static struct test_memory memory;
    test_memory_install(&memory);
    _Bool clean = 0, nothing_failed = 0;
    uint64_t n = 1;
    for (; n < 1000 && !clean; n += !nothing_failed) {
        /* A pass in which nothing fails may be slow on a busy machine: it comes again, with time. */
        const uint64_t patience = nothing_failed ? LONG : SHORT;
        struct test_ranks *ranks = test_ranks_new(2, patience); /* its own socket is not counted */
        int64_t before = memory.live;
        atomic_store(&calls, 0);
        atomic_store(&fail_at, n);
        _Bool good = test_ranks_live(ranks, patience);
        nothing_failed = atomic_load(&calls) < n;
        clean = good && nothing_failed;
        atomic_store(&fail_at, 0);
        cr_assert_eq(memory.live, before, "call %lu: %ld blocks are left", n, (long)(memory.live - before));
        cr_assert(good || !nothing_failed || patience == SHORT, "nothing failed, and yet it went wrong");
        for (uint32_t i = 0; i < 2; i++)
            if (ranks->rank[i].opened != SLUICE_OK)
                cr_assert_neq(ranks->rank[i].error.text[0], '\0', "call %lu: an error without words", n);
        test_ranks_end(ranks);
    }
    cr_assert(clean);
    cr_assert_gt(n, 20);
}
