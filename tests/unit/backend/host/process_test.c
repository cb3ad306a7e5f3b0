/* Ranks of the host backend in processes of their own: exchange, death, strangers, leftovers. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/backend/host/host.h"
#include "support/rig.h"

enum { WORLD = 4, BYTES = 300000 };

/* What the processes of one test share besides the backend. */
struct board {
    struct sluice_blob blobs[RIG_RANKS];
    pthread_barrier_t barrier;
};

static struct board *make_board(uint32_t processes)
{
    struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&board->barrier, &attributes, processes);
    return board;
}

static pid_t child_of(void (*body)(struct board *board, uint32_t rank), struct board *board, uint32_t rank)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body(board, rank);
    _exit(0);
}

static void join_world(struct rig *rig, struct board *board, uint32_t rank, uint32_t world)
{
    rig_open_part(rig, "host", rank, 1, world, 2);
    rig_addresses(rig, board->blobs);
    pthread_barrier_wait(&board->barrier);
    rig_join(rig, board->blobs, &rig->rank[0].group);
}

static struct sluice_message message_of(const void *memory, uint64_t bytes, uint32_t peer, _Bool receive, _Bool staged)
{
    return (struct sluice_message){
        .address = (uint64_t)(uintptr_t)memory, .bytes = bytes, .peer = peer, .receive = receive, .staged = staged};
}

/* Each rank sends to each other rank, staged, and unpacks what it gets; then leaves without a word. */
static void all_to_all(struct board *board, uint32_t rank)
{
    struct rig rig;
    join_world(&rig, board, rank, WORLD);
    struct rig_rank *self = &rig.rank[0];
    uint8_t *send = rig_memory(self, SLUICE_MEMORY_SEND, WORLD * BYTES);
    uint8_t *recv = rig_memory(self, SLUICE_MEMORY_RECV, WORLD * BYTES);
    uint8_t *target = rig_memory(self, SLUICE_MEMORY_DEVICE, WORLD * BYTES);
    struct sluice_message messages[2 * WORLD];
    struct sluice_copy pieces[WORLD];
    uint32_t count = 0, received = 0;
    for (uint32_t peer = 0; peer < WORLD; peer++) {
        if (peer == rank)
            continue;
        rig_pattern(send + peer * BYTES, BYTES, rank * WORLD + peer);
        messages[count++] = message_of(send + peer * BYTES, BYTES, peer, 0, 1);
        pieces[received++] = rig_piece(recv + peer * BYTES, target + peer * BYTES, BYTES, count);
        messages[count++] = message_of(recv + peer * BYTES, BYTES, peer, 1, 1);
    }
    struct sluice_set *unpack = rig_set(self, SLUICE_COPY_UNPACK, pieces, received);
    rig_group(self, 0, messages, count, 1);
    rig_copy(self, 0, unpack, 2);
    rig_wait(self, 2);
    for (uint32_t peer = 0; peer < WORLD; peer++)
        cr_assert(peer == rank || rig_compare(target + peer * BYTES, BYTES, peer * WORLD + rank) == BYTES,
                  "rank %u: what came from rank %u is wrong", rank, peer);
}

static void wait_good(pid_t child)
{
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a rank ended with %x", status);
}

Test(host_process, four_processes_exchange_and_leave_without_closing)
{
    struct board *board = make_board(WORLD);
    pid_t children[WORLD];
    for (uint32_t i = 0; i < WORLD; i++)
        children[i] = child_of(all_to_all, board, i);
    for (uint32_t i = 0; i < WORLD; i++)
        wait_good(children[i]);
}

static void join_and_pause(struct board *board, uint32_t rank)
{
    struct rig rig;
    join_world(&rig, board, rank, 2);
    pthread_barrier_wait(&board->barrier);
    pause();
}

Test(host_process, group_with_a_killed_peer_ends_and_names_it)
{
    struct board *board = make_board(2);
    pid_t child = child_of(join_and_pause, board, 1);
    struct rig rig;
    join_world(&rig, board, 0, 2);
    uint8_t *memory = rig_memory(&rig.rank[0], SLUICE_MEMORY_DEVICE, BYTES);
    const struct sluice_message receive = message_of(memory, BYTES, 1, 1, 0);
    pthread_barrier_wait(&board->barrier);
    rig_group(&rig.rank[0], 0, &receive, 1, 1);
    cr_assert_not(rig_ended(&rig.rank[0], 1));
    kill(child, SIGKILL);
    const struct rig_end *end = rig_wait_any(&rig.rank[0], 1);
    cr_assert_eq(end->status, SLUICE_PEER_LOST, "%s", sluice_status_name(end->status));
    cr_assert_not_null(strstr(end->error.text, "rank 1"), "%s", end->error.text);
    waitpid(child, NULL, 0);
    rig_close(&rig);
}

static void send_staged_and_die(struct board *board, uint32_t rank)
{
    struct rig rig;
    join_world(&rig, board, rank, 2);
    uint8_t *send = rig_memory(&rig.rank[0], SLUICE_MEMORY_SEND, BYTES);
    rig_pattern(send, BYTES, 4);
    const struct sluice_message message = message_of(send, BYTES, 0, 0, 1);
    rig_group(&rig.rank[0], 0, &message, 1, 1);
    rig_wait(&rig.rank[0], 1);
    kill(getpid(), SIGKILL);
}

Test(host_process, what_a_rank_sent_before_it_died_is_still_unpacked)
{
    struct board *board = make_board(2);
    pid_t child = child_of(send_staged_and_die, board, 1);
    struct rig rig;
    join_world(&rig, board, 0, 2);
    struct rig_rank *self = &rig.rank[0];
    uint8_t *recv = rig_memory(self, SLUICE_MEMORY_RECV, BYTES);
    uint8_t *target = rig_memory(self, SLUICE_MEMORY_DEVICE, BYTES);
    const struct sluice_message message = message_of(recv, BYTES, 1, 1, 1);
    const struct sluice_copy piece = rig_piece(recv, target, BYTES, 0);
    struct sluice_set *unpack = rig_set(self, SLUICE_COPY_UNPACK, &piece, 1);
    rig_group(self, 0, &message, 1, 1);
    waitpid(child, NULL, 0);
    rig_wait(self, 1);
    rig_copy(self, 0, unpack, 2);
    rig_wait(self, 2);
    cr_assert_eq(rig_compare(target, BYTES, 4), BYTES);
    self->rig->ops->set_close(unpack);
    rig_close(&rig);
}

Test(host_process, killed_rank_leaves_no_socket_name_and_no_file)
{
    struct board *board = make_board(2);
    pid_t child = child_of(join_and_pause, board, 1);
    struct rig rig;
    rig_open_part(&rig, "host", 0, 1, 2, 2);
    rig_addresses(&rig, board->blobs);
    pthread_barrier_wait(&board->barrier);
    struct sl_host_address address;
    memcpy(&address, board->blobs[1].data, sizeof(address));
    rig_join(&rig, board->blobs, &rig.rank[0].group);
    pthread_barrier_wait(&board->barrier);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    char line[512];
    FILE *file = fopen("/proc/net/unix", "r");
    while (fgets(line, sizeof(line), file) != NULL)
        cr_assert_null(strstr(line, address.name), "%s", line);
    fclose(file);
    cr_assert_neq(access("/dev/shm/sluice-pair", F_OK), 0);
    rig_close(&rig);
}

/* Someone of the same user who does not know the secret. */
static int stranger(const struct sl_host_address *address)
{
    int fd = -1;
    cr_assert_eq(sl_host_dial(address, 0, &fd), SLUICE_OK);
    const uint8_t noise[40] = {1, 2, 3};
    cr_assert_eq(sl_host_send(fd, noise, sizeof(noise), NULL, 0), SLUICE_OK);
    return fd;
}

Test(host_process, stranger_without_the_secret_is_turned_away_and_the_world_opens)
{
    struct rig rig;
    rig_open(&rig, "host", 2, 1, 0);
    struct sluice_blob blobs[2];
    rig_addresses(&rig, blobs);
    struct sl_host_address address;
    memcpy(&address, blobs[0].data, sizeof(address));
    int first = stranger(&address), second = stranger(&address);
    struct sluice_group *groups[2];
    rig_join(&rig, blobs, groups);
    rig.rank[0].group = groups[0];
    rig.rank[1].group = groups[1];
    char byte;
    cr_assert_eq(recv(first, &byte, 1, 0), 0, "the stranger was answered");
    close(first);
    close(second);
    rig_close(&rig);
}

Test(host_process, answer_of_a_process_without_the_secret_fails_the_opening)
{
    struct rig rig;
    rig_open_part(&rig, "host", 1, 1, 2, 1);
    struct sluice_blob blobs[2];
    rig_addresses(&rig, blobs);
    /* An address that looks like rank 0's, with somebody else behind it. */
    struct sl_host_address address;
    memcpy(&address, blobs[1].data, sizeof(address));
    strcpy(address.name, "sluice-test-impostor");
    memset(address.secret, 9, sizeof(address.secret));
    blobs[0] = blobs[1];
    memcpy(blobs[0].data, &address, sizeof(address));
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path + 1, address.name, strlen(address.name));
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(listener, (struct sockaddr *)&name,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address.name))),
                 0);
    cr_assert_eq(listen(listener, 1), 0);
    const uint8_t peers[2] = {3, 0};
    const struct sluice_group_config config = {
        .size = sizeof(config), .rank = 1, .world = 2, .blobs = blobs, .peers = peers};
    cr_assert_eq(rig.ops->group_open(rig.rank[0].device, &config, 1, &rig.rank[0].group), SLUICE_OK);
    int accepted = accept(listener, NULL, NULL);
    const uint8_t noise[40] = {0};
    cr_assert_eq(sl_host_send(accepted, noise, sizeof(noise), NULL, 0), SLUICE_OK);
    const struct rig_end *end = rig_wait_any(&rig.rank[0], 1);
    cr_assert_eq(end->status, SLUICE_AUTH, "%s", sluice_status_name(end->status));
    close(accepted);
    close(listener);
    rig_close(&rig);
}

Test(host_process, rank_that_stopped_listening_is_named)
{
    struct rig rig;
    rig_open(&rig, "host", 2, 1, 0);
    struct sluice_blob blobs[2];
    rig_addresses(&rig, blobs);
    for (uint32_t q = 0; q < 1; q++)
        rig.ops->queue_close(rig.rank[0].queues[q]);
    rig.ops->close(rig.rank[0].device);
    const uint8_t peers[2] = {3, 0};
    const struct sluice_group_config config = {
        .size = sizeof(config), .rank = 1, .world = 2, .blobs = blobs, .peers = peers};
    struct rig rest = rig;
    rest.ranks = 1;
    rest.first = 1;
    rest.rank = &rig.rank[1];
    rest.rank->rig = &rest;
    cr_assert_eq(rig.ops->group_open(rest.rank->device, &config, 1, &rest.rank->group), SLUICE_OK);
    const struct rig_end *end = rig_wait_any(rest.rank, 1);
    cr_assert_eq(end->status, SLUICE_PEER_LOST);
    cr_assert_not_null(strstr(end->error.text, "rank 0"), "%s", end->error.text);
}

Test(host_process, send_memory_cannot_be_changed_or_shrunk_by_who_gets_its_descriptor)
{
    struct sl_host_memory memory;
    cr_assert_eq(sl_host_memory_open(8192, "sluice-test", false, &memory), SLUICE_OK);
    memory.base[5] = 1; /* the owner may */
    cr_assert_eq(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0), MAP_FAILED);
    cr_assert_neq(pwrite(memory.fd, "x", 1, 0), 1);
    cr_assert_neq(ftruncate(memory.fd, 0), 0);
    const uint8_t *peer = mmap(NULL, 8192, PROT_READ, MAP_SHARED, memory.fd, 0);
    cr_assert_neq((const void *)peer, MAP_FAILED);
    cr_assert_eq(peer[5], 1);
    sl_host_memory_drop(&memory);
}

Test(host_process, memory_that_can_shrink_or_has_another_size_is_not_mapped)
{
    struct sl_host_memory mapped = {0}, memory;
    int loose = memfd_create("sluice-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert_eq(ftruncate(loose, 8192), 0);
    cr_assert_eq(sl_host_memory_map(loose, 8192, false, &mapped), SLUICE_PROTOCOL);
    cr_assert_eq(sl_host_memory_open(8192, "sluice-test", false, &memory), SLUICE_OK);
    cr_assert_eq(sl_host_memory_map(dup(memory.fd), 16384, false, &mapped), SLUICE_PROTOCOL);
    cr_assert_null(mapped.base);
    sl_host_memory_drop(&memory);
}

static sluice_status open_with(struct rig *rig, const struct sluice_blob *blobs)
{
    const uint8_t peers[2] = {0, 3};
    const struct sluice_group_config config = {
        .size = sizeof(config), .rank = 0, .world = 2, .blobs = blobs, .peers = peers};
    return rig->ops->group_open(rig->rank[0].device, &config, 1, &rig->rank[0].group);
}

Test(host_process, wrong_addresses_are_refused)
{
    struct rig rig;
    rig_open(&rig, "host", 2, 1, 0);
    struct sluice_blob good[2], bad[2];
    rig_addresses(&rig, good);
    memcpy(bad, good, sizeof(bad));
    bad[1].bytes = 128; /* the size of an NCCL id */
    cr_assert_eq(open_with(&rig, bad), SLUICE_PROTOCOL);
    cr_assert_not_null(strstr(sluice_last_error()->text, "rank 1"));
    memcpy(bad, good, sizeof(bad));
    bad[1].data[0] ^= 1;
    cr_assert_eq(open_with(&rig, bad), SLUICE_PROTOCOL);
    memcpy(bad, good, sizeof(bad));
    bad[1].data[offsetof(struct sl_host_address, host)] ^= 1;
    cr_assert_eq(open_with(&rig, bad), SLUICE_UNSUPPORTED);
    cr_assert_not_null(strstr(sluice_last_error()->text, "another host"));
    memcpy(bad, good, sizeof(bad));
    bad[0].data[offsetof(struct sl_host_address, secret)] ^= 1;
    cr_assert_eq(open_with(&rig, bad), SLUICE_INVALID);
    rig_close(&rig);
}
