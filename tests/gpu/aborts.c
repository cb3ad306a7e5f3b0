/*
 * aborts.c: two ranks on one GPU or on two; the communicator of rank 0 is aborted in each state that it can be in.
 *
 * Through the backend's table. Whatever the state, the abort ends what was accepted with ABORTED within its deadline,
 * the communicator is not kept aside, a second abort changes nothing, and everything closes. Exit status 77: no device.
 */
#include "gpu/pair.h"
#include "runtime/backend/cuda/device.h"
#include "runtime/base/clock.h"

enum { MESSAGE_BYTES = 1 << 20, OPENING_COOKIE = 1, GROUP_COOKIE = 2 };

enum moment { OPENING, WARMING, READY, LAUNCHING, RUNNING, MOMENTS };
static const char *const names[] = {"opening", "warming up", "ready", "launching a group", "running a group"};

struct rank {
    struct team *team;
    uint32_t number;
    const struct sluice_backend_ops *ops;
    struct sluice_device *device;
    struct sluice_queue *queue;
    struct sluice_group *group;
    struct sluice_message message;
    sluice_status ended[3]; /* by cookie; SLUICE_AGAIN: not yet */
    void *memory;
};

static void poll_once(struct rank *rank)
{
    struct sluice_completion done;
    uint32_t count = 0;
    must(rank->ops->poll(rank->device, &done, 1, &count), "poll");
    if (count > 0)
        rank->ended[done.cookie] = done.status;
}

/* The team's deadline ends a wait for ever. */
static sluice_status await(struct rank *rank, uint64_t cookie)
{
    while (rank->ended[cookie] == SLUICE_AGAIN)
        poll_once(rank);
    return rank->ended[cookie];
}

static void open_device(struct rank *rank)
{
    struct sluice_backend_config config = sl_backend_config_alone();
    config.device = pair_apart ? rank->number : 0;
    config.rank = rank->number;
    config.world = 2;
    config.max_ctas = 4;
    config.abort_timeout_ns = 5 * SLUICE_SECOND;
    must(sl_backend_find("cuda", &rank->ops), "backend");
    must(rank->ops->open(&config, &rank->device), "open");
    must(rank->ops->queue_open(rank->device, &rank->queue), "queue_open");
    must(rank->ops->mem_alloc(rank->device, SLUICE_MEMORY_RECV, MESSAGE_BYTES, &rank->memory), "mem_alloc");
    rank->message = (struct sluice_message){.address = (uint64_t)(uintptr_t)rank->memory,
                                            .bytes = MESSAGE_BYTES,
                                            .peer = 1 - rank->number,
                                            .receive = 1,
                                            .staged = 1};
}

static void open_group(struct rank *rank)
{
    struct sluice_blob blobs[2] = {{.bytes = 0}};
    uint8_t peers[2] = {15, 15}; /* both directions, both warmed up */
    peers[rank->number] = 0;
    memcpy(blobs[0].data, rank->team->shared, TEAM_BYTES);
    blobs[0].bytes = TEAM_BYTES;
    const struct sluice_group_config config = {
        .size = sizeof config, .rank = rank->number, .world = 2, .blobs = blobs, .peers = peers};
    must(rank->ops->group_open(rank->device, &config, OPENING_COOKIE, &rank->group), "group_open");
}

static void submit_receive(struct rank *rank)
{
    const struct sluice_op op = {.kind = SLUICE_OP_GROUP,
                                 .group = rank->group,
                                 .messages = &rank->message,
                                 .message_count = 1,
                                 .cookie = GROUP_COOKIE,
                                 .notify = 1};
    must(rank->ops->submit(rank->queue, &op), "submit");
}

static void abort_and_check(struct rank *rank, enum moment moment)
{
    must(rank->ops->abort(rank->group), "abort");
    if (moment < READY)
        expect(await(rank, OPENING_COOKIE) == SLUICE_ABORTED, "the opening ends with ABORTED");
    if (moment == READY)
        submit_receive(rank);
    if (moment >= READY)
        expect(await(rank, GROUP_COOKIE) == SLUICE_ABORTED, "the group ends with ABORTED");
    while (rank->group->state != SL_CUDA_GROUP_DEAD)
        poll_once(rank);
    expect(!rank->group->kept_aside, "the communicator let go");
    must(rank->ops->abort(rank->group), "a second abort");
    poll_once(rank);
}

/* Brings rank 0 to the moment; the peer does what that takes and no more. */
static void reach(struct rank *rank, enum moment moment)
{
    if (rank->number == 0 || moment > OPENING)
        open_group(rank);
    if (moment == WARMING)
        while (rank->number == 0 && rank->group->state == SL_CUDA_GROUP_OPENING)
            poll_once(rank);
    if (moment >= READY)
        expect(await(rank, OPENING_COOKIE) == SLUICE_OK, "the communicator opens");
    if (rank->number != 0)
        return;
    static const enum sl_cuda_group_state states[] = {SL_CUDA_GROUP_OPENING, SL_CUDA_GROUP_WARMING, SL_CUDA_GROUP_READY,
                                                      SL_CUDA_GROUP_READY, SL_CUDA_GROUP_READY};
    for (int i = 0; moment < READY && i < 1000; i++) { /* it stays there */
        poll_once(rank);
        expect(rank->group->state == states[moment], "rank 0 waits for its peer");
    }
    if (moment >= LAUNCHING)
        submit_receive(rank);
    while (moment == RUNNING && rank->queue->issued == 0)
        poll_once(rank);
    expect(rank->group->state == states[moment], "the communicator is in the state that was asked for");
    expect(moment < LAUNCHING || rank->ended[GROUP_COOKIE] == SLUICE_AGAIN, "the group waits for its peer");
}

static int be_rank(struct team *team, uint32_t number, void *user)
{
    enum moment moment = *(enum moment *)user;
    struct rank rank = {.team = team, .number = number, .ended = {SLUICE_AGAIN, SLUICE_AGAIN, SLUICE_AGAIN}};
    struct sluice_blob blob;
    pair_place(number);
    open_device(&rank);
    if (number == 0) {
        must(rank.ops->group_address(rank.device, &blob), "group_address");
        expect(blob.bytes == TEAM_BYTES, "an id fits");
        memcpy(team->shared, blob.data, TEAM_BYTES);
    }
    team_barrier(team);
    reach(&rank, moment);
    if (number == 0) {
        uint64_t begin = sl_now(sl_clock_system());
        abort_and_check(&rank, moment);
        printf("aborts: %-18s ended after %.2f s\n", names[moment], (double)(sl_now(sl_clock_system()) - begin) / 1e9);
    }
    team_barrier(team);
    if (number != 0 && rank.group != NULL) {
        must(rank.ops->abort(rank.group), "abort"); /* whoever is left waits for nobody */
        while (rank.group->state != SL_CUDA_GROUP_DEAD)
            poll_once(&rank);
    }
    rank.ops->group_close(rank.group);
    rank.ops->mem_free(rank.device, SLUICE_MEMORY_RECV, rank.memory, MESSAGE_BYTES);
    rank.ops->queue_close(rank.queue);
    rank.ops->close(rank.device);
    return 0;
}

int main(int argc, char **argv)
{
    int wrong = 0, nothing = pair_begin(argc, argv);
    if (nothing != 0)
        return nothing;
    for (enum moment moment = OPENING; moment < MOMENTS; moment++) {
        int status = team_run(2, 0, PAIR_SECONDS, be_rank, &moment);
        if (status != 0)
            fprintf(stderr, "aborts: failed: %s (%d)\n", names[moment], status);
        wrong |= status != 0;
    }
    return wrong;
}
