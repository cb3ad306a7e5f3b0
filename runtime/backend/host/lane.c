/*
 * lane.c: one direction of one pair, one step at a time.
 *
 * - Both ends post what they are about to move, in order, up to SL_HOST_POSTS ahead, and then finish the messages in
 *   order. Each end posts before it looks at the other's post, so both see a difference in size.
 * - A staged message is handed over where it lies. With a lease the sender is done when the receiver has posted, and
 *   the receiver either keeps a landing (staged) or copies it out and ends the lease. Leases outlive the group, entries
 *   for posts must not: a group may have more messages than there are leases, and the unpack set comes only behind it.
 *   So without a free lease the receiver copies, and the sender waits until it has.
 * - Any other message goes through the bounce ring, whose room bounds what is under way; nothing is ever buffered
 *   elsewhere.
 * - A step copies at most SL_HOST_STEP bytes, so that all pairs progress together.
 * - What the other process writes is read once and checked before it is used.
 */
#include <string.h>

#include "runtime/backend/host/host.h"

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static sluice_status mismatch(const struct sl_host_link *link, bool receive, uint64_t ours, uint64_t theirs)
{
    uint32_t from = receive ? link->peer : link->group->rank;
    uint32_t to = receive ? link->group->rank : link->peer;
    return sl_fail(SLUICE_MISMATCH, SL_HOST_WHERE,
                   "rank %u sends %llu bytes to rank %u, which expects %llu: the two ranks do not run the same plan",
                   from, (unsigned long long)(receive ? theirs : ours), to,
                   (unsigned long long)(receive ? ours : theirs));
}

static void next_message(struct sl_host_side *side, struct sl_host_step *step, struct sl_host_link *link)
{
    side->move = step->queue->next[side->move];
    side->done++;
    side->moved = 0;
    link->dirty = true;
    step->moved = true;
}

/* --- sending --- */

static bool lease_free(const struct sl_host_link *link, uint32_t index)
{
    return atomic_load(&link->sending.lane->leases[index]) == link->leased[index];
}

static uint32_t take_lease(struct sl_host_link *link)
{
    uint64_t sequence = link->sending.posted;
    for (uint32_t i = 0; i < SL_HOST_LEASES; i++) {
        uint32_t index = (uint32_t)((sequence + i) % SL_HOST_LEASES);
        if (lease_free(link, index)) {
            link->leased[index] = sequence + 1;
            return index;
        }
    }
    return SL_HOST_NO_LEASE;
}

/* Our own end still reads the post of the current message. */
static bool post_free(const struct sl_host_side *side)
{
    uint64_t finished = smaller(side->done, atomic_load(&side->lane->recv_done));
    return side->posted - finished < SL_HOST_POSTS;
}

/* Stops early when the socket is full or at its end: the caller's loop comes back, or finds the loss. */
static void post_sends(struct sl_host_link *link, struct sl_host_step *step)
{
    struct sl_host_side *side = &link->sending;
    while (side->post != SL_HOST_END && post_free(side)) {
        const struct sluice_message *message = &step->messages[side->post];
        struct sl_host_post post = {.bytes = message->bytes, .how = SL_HOST_BOUNCED};
        sluice_status status = SLUICE_NOT_FOUND;
        if (message->staged)
            status = sl_host_segment_post(link, message->address, message->bytes, &post);
        if (status == SLUICE_PEER_LOST)
            atomic_store(&link->lost, true);
        if (status != SLUICE_OK && status != SLUICE_NOT_FOUND)
            return;
        if (status == SLUICE_OK)
            post.lease = take_lease(link);
        side->lane->send_posts[side->posted % SL_HOST_POSTS] = post;
        atomic_store(&side->lane->send_posted, ++side->posted);
        side->post = step->queue->next[side->post];
        link->dirty = true;
        step->moved = true;
    }
}

/* Puts a part of the current message into the ring. */
static void produce(struct sl_host_link *link, const struct sluice_message *message, struct sl_host_step *step)
{
    struct sl_host_side *side = &link->sending;
    struct sl_host_lane *lane = side->lane;
    uint64_t produced = atomic_load_explicit(&lane->produced, memory_order_relaxed);
    uint64_t used = smaller(produced - atomic_load(&lane->consumed), SL_HOST_BOUNCE);
    uint64_t at = produced % SL_HOST_BOUNCE;
    uint64_t bytes = smaller(message->bytes - side->moved, smaller(SL_HOST_BOUNCE - used, SL_HOST_BOUNCE - at));
    bytes = smaller(bytes, SL_HOST_BOUNCE / 4); /* so that the other end starts before the ring is full */
    if (bytes == 0)
        return;
    memcpy(lane->bounce + at, (const void *)(uintptr_t)(message->address + side->moved), bytes);
    side->moved += bytes;
    atomic_store(&lane->produced, produced + bytes);
    link->dirty = true;
    step->moved = true;
}

/* One step of the current message; `side->moved` tells how far it is. */
static void send_current(struct sl_host_link *link, const struct sluice_message *message, struct sl_host_step *step)
{
    struct sl_host_side *side = &link->sending;
    const struct sl_host_post *post = &side->lane->send_posts[side->done % SL_HOST_POSTS];
    if (post->how == SL_HOST_BOUNCED) {
        produce(link, message, step);
    } else if (post->lease != SL_HOST_NO_LEASE) {
        sl_host_lease_add(step->queue, link, side->done, post->lease);
        side->moved = message->bytes;
    } else if (atomic_load(&side->lane->recv_done) > side->done) {
        side->moved = message->bytes;
    }
}

sluice_status sl_host_step_send(struct sl_host_link *link, struct sl_host_step *step)
{
    struct sl_host_side *side = &link->sending;
    post_sends(link, step);
    while (side->move != SL_HOST_END && side->done < side->posted &&
           side->done < atomic_load(&side->lane->recv_posted)) {
        const struct sluice_message *message = &step->messages[side->move];
        uint64_t wanted = side->lane->recv_posts[side->done % SL_HOST_POSTS];
        if (wanted != message->bytes)
            return mismatch(link, false, message->bytes, wanted);
        send_current(link, message, step);
        if (side->moved < message->bytes)
            break;
        next_message(side, step, link);
        atomic_store(&side->lane->send_done, side->done);
    }
    return SLUICE_OK;
}

/* --- receiving --- */

static void post_receives(struct sl_host_link *link, struct sl_host_step *step)
{
    struct sl_host_side *side = &link->receiving;
    while (side->post != SL_HOST_END && side->posted - atomic_load(&side->lane->send_done) < SL_HOST_POSTS) {
        side->lane->recv_posts[side->posted % SL_HOST_POSTS] = step->messages[side->post].bytes;
        atomic_store(&side->lane->recv_posted, ++side->posted);
        side->post = step->queue->next[side->post];
        link->dirty = true;
        step->moved = true;
    }
}

/* Takes a part of the current message out of the ring. */
static void consume(struct sl_host_link *link, const struct sluice_message *message, struct sl_host_step *step)
{
    struct sl_host_side *side = &link->receiving;
    struct sl_host_lane *lane = side->lane;
    uint64_t consumed = atomic_load_explicit(&lane->consumed, memory_order_relaxed);
    uint64_t at = consumed % SL_HOST_BOUNCE;
    uint64_t there = smaller(atomic_load(&lane->produced) - consumed, SL_HOST_BOUNCE - at);
    uint64_t bytes = smaller(message->bytes - side->moved, there);
    if (bytes == 0)
        return;
    memcpy((void *)(uintptr_t)(message->address + side->moved), lane->bounce + at, bytes);
    side->moved += bytes;
    atomic_store(&lane->consumed, consumed + bytes);
    link->dirty = true;
    step->moved = true;
}

/* Leaves the message in the sender's memory for the unpack set. */
static void land(struct sl_host_link *link, struct sl_host_step *step, struct sl_host_map *map,
                 const struct sl_host_post *post)
{
    struct sl_host_side *side = &link->receiving;
    const struct sluice_message *message = &step->messages[side->move];
    uint64_t source = (uint64_t)(uintptr_t)(map->memory.base + post->offset);
    step->queue->landings[side->move] = (struct sl_host_landing){
        .link = link, .map = map, .sequence = side->done, .delta = source - message->address, .lease = post->lease};
    atomic_fetch_add(&map->held, 1);
    sl_host_group_hold(link->group);
    side->moved = message->bytes;
}

static sluice_status take_shared(struct sl_host_link *link, const struct sl_host_post *post, struct sl_host_step *step)
{
    struct sl_host_side *side = &link->receiving;
    const struct sluice_message *message = &step->messages[side->move];
    struct sl_host_map *map = NULL;
    sluice_status status = sl_host_map_find(link, post, &map);
    if (status != SLUICE_OK)
        return status;
    bool leased = post->lease < SL_HOST_LEASES;
    if (message->staged && leased) {
        land(link, step, map, post);
        return SLUICE_OK;
    }
    uint64_t bytes = smaller(message->bytes - side->moved, SL_HOST_STEP);
    memcpy((void *)(uintptr_t)(message->address + side->moved), map->memory.base + post->offset + side->moved, bytes);
    side->moved += bytes;
    step->moved = true;
    if (leased && side->moved == message->bytes)
        atomic_store(&side->lane->leases[post->lease], side->done + 1);
    return SLUICE_OK;
}

sluice_status sl_host_step_receive(struct sl_host_link *link, struct sl_host_step *step)
{
    struct sl_host_side *side = &link->receiving;
    post_receives(link, step);
    while (side->move != SL_HOST_END && side->done < side->posted &&
           side->done < atomic_load(&side->lane->send_posted)) {
        const struct sluice_message *message = &step->messages[side->move];
        struct sl_host_post post = side->lane->send_posts[side->done % SL_HOST_POSTS];
        if (post.bytes != message->bytes)
            return mismatch(link, true, message->bytes, post.bytes);
        if (post.how == SL_HOST_SHARED) {
            sluice_status status = take_shared(link, &post, step);
            if (status != SLUICE_OK)
                return status;
        } else {
            consume(link, message, step);
        }
        if (side->moved < message->bytes)
            break;
        next_message(side, step, link);
        atomic_store(&side->lane->recv_done, side->done);
    }
    return SLUICE_OK;
}
