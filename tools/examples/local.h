/* local.h: what the examples share: local processes as ranks, and errors that end the program. */
#ifndef SLUICE_EXAMPLES_LOCAL_H
#define SLUICE_EXAMPLES_LOCAL_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sluice/runtime.h"
#include "sluice/transfer.h"

#define CHECK(call) check((call), #call)

static inline void check(sluice_status status, const char *what)
{
    if (status == SLUICE_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, sluice_last_error()->text);
    exit(1);
}

static inline double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A port that is free now; a launcher would give one in MASTER_PORT. */
static inline uint32_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) {
        perror("no free port");
        exit(1);
    }
    close(fd);
    return ntohs(address.sin_port);
}

/* Options of one of `world` local ranks; under a launcher SLUICE_RUNTIME_OPTIONS_INIT alone would do. */
static inline struct sluice_runtime_options local_rank(uint32_t rank, uint32_t world, uint32_t port)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    options.backend = "host";
    options.world = options.local_world = world;
    options.rank = options.local_rank = rank;
    options.address = "127.0.0.1";
    options.port = port;
    return options;
}

/* Whether a child ended well. */
static inline int ended_well(pid_t child)
{
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#endif
