/*
 * segment.c: SEND memory that peers map.
 *
 * - Every SEND allocation is a memfd of its own, sealed against shrinking, so that no peer can be hit by SIGBUS, and
 *   against new writable mappings, so that no peer can change what it was sent.
 * - A peer gets the descriptor of a segment before the first message that lies in it, over the link's socket; the
 *   posts in shared memory name segments by id. Ids are never used twice.
 * - Freeing a segment tells the peers that have it. A peer unmaps when none of its unpack sets reads there any more.
 * - Nothing is left behind by a killed process: a memfd has no name in any file system.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/backend/host/host.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* What the sockets carry once a link is open. */
struct notice {
    uint32_t id;
    uint32_t dropped; /* 0: the descriptor comes with it */
    uint64_t bytes;
};

static sluice_status map(struct sl_host_memory *memory, bool writable)
{
    void *base = mmap(NULL, memory->bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, memory->fd, 0);
    if (base == MAP_FAILED)
        return sl_fail_native(SLUICE_NOMEM, SLUICE_DOMAIN_SYSTEM, errno, SL_HOST_WHERE,
                              "cannot map %llu bytes of shared memory", (unsigned long long)memory->bytes);
    memory->base = base;
    return SLUICE_OK;
}

sluice_status sl_host_memory_open(uint64_t bytes, const char *what, bool peers_write, struct sl_host_memory *ret)
{
    struct sl_host_memory memory = {.bytes = bytes, .fd = memfd_create(what, MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (memory.fd < 0)
        return sl_fail_native(SLUICE_NOMEM, SLUICE_DOMAIN_SYSTEM, errno, SL_HOST_WHERE, "cannot create shared memory");
    sluice_status status = SLUICE_OK;
    if (bytes > INT64_MAX || ftruncate(memory.fd, (off_t)bytes) != 0)
        status = sl_fail_native(SLUICE_NOMEM, SLUICE_DOMAIN_SYSTEM, errno, SL_HOST_WHERE,
                                "cannot give shared memory %llu bytes", (unsigned long long)bytes);
    if (status == SLUICE_OK)
        status = map(&memory, true);
    /* After our own mapping, which the last seal leaves writable. */
    if (status == SLUICE_OK && fcntl(memory.fd, F_ADD_SEALS, peers_write ? SEALS : SEALS | F_SEAL_FUTURE_WRITE) != 0) {
        status = sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, SL_HOST_WHERE, "cannot seal shared memory");
        munmap(memory.base, memory.bytes);
    }
    if (status == SLUICE_OK)
        *ret = memory;
    else
        close(memory.fd);
    return status;
}

sluice_status sl_host_memory_map(int fd, uint64_t bytes, bool writable, struct sl_host_memory *ret)
{
    struct sl_host_memory memory = {.bytes = bytes, .fd = fd};
    struct stat info;
    sluice_status status = SLUICE_OK;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &info) != 0 || info.st_size < 0 ||
        (uint64_t)info.st_size != bytes || bytes == 0)
        status = sl_fail(SLUICE_PROTOCOL, SL_HOST_WHERE, "a peer sent memory that is not what it announced");
    if (status == SLUICE_OK)
        status = map(&memory, writable);
    close(fd);
    memory.fd = -1;
    if (status == SLUICE_OK)
        *ret = memory;
    return status;
}

void sl_host_memory_drop(struct sl_host_memory *memory)
{
    if (memory->base == NULL)
        return;
    munmap(memory->base, memory->bytes);
    if (memory->fd >= 0)
        close(memory->fd);
    *memory = (struct sl_host_memory){.fd = -1};
}

/* --- our segments --- */

sluice_status sl_host_segment_open(struct sluice_device *device, uint64_t bytes, void **ret)
{
    struct sl_host_segment *free_entry = NULL;
    for (uint32_t i = 0; i < SL_HOST_SEGMENTS && free_entry == NULL; i++)
        if (device->segments[i].id == 0)
            free_entry = &device->segments[i];
    if (free_entry == NULL)
        return sl_fail(SLUICE_LIMIT, SL_HOST_WHERE, "more than %u send buffers of one rank: close plans",
                       SL_HOST_SEGMENTS);
    struct sl_host_memory memory;
    sluice_status status = sl_host_memory_open(bytes, "sluice-send", false, &memory);
    if (status != SLUICE_OK)
        return status;
    pthread_mutex_lock(&device->segments_lock);
    if (++device->next_segment == 0)
        device->next_segment = 1;
    *free_entry = (struct sl_host_segment){.memory = memory, .id = device->next_segment};
    pthread_mutex_unlock(&device->segments_lock);
    *ret = memory.base;
    return SLUICE_OK;
}

static void tell_dropped(struct sluice_device *device, uint32_t index, uint32_t id)
{
    const struct notice notice = {.id = id, .dropped = 1};
    for (struct sluice_group *group = device->groups; group != NULL; group = group->next) {
        if (atomic_load(&group->state) != SL_HOST_OPEN)
            continue;
        for (uint32_t i = 0; i < group->world; i++) {
            struct sl_host_link *link = group->links[i];
            if (link == NULL || link->announced[index] != id)
                continue;
            /* When this fails, the peer unmaps at the end of the communicator. */
            SL_IGNORE(sl_host_send(link->fd, &notice, sizeof(notice), NULL, 0));
            link->announced[index] = 0;
        }
    }
}

void sl_host_segment_close(struct sluice_device *device, void *memory)
{
    pthread_mutex_lock(&device->segments_lock);
    for (uint32_t i = 0; i < SL_HOST_SEGMENTS; i++) {
        struct sl_host_segment *segment = &device->segments[i];
        if (segment->id == 0 || segment->memory.base != memory)
            continue;
        tell_dropped(device, i, segment->id);
        sl_host_memory_drop(&segment->memory);
        segment->id = 0;
    }
    pthread_mutex_unlock(&device->segments_lock);
}

static uint32_t segment_of(const struct sluice_device *device, uint64_t address, uint64_t bytes)
{
    for (uint32_t i = 0; i < SL_HOST_SEGMENTS; i++) {
        const struct sl_host_segment *segment = &device->segments[i];
        uint64_t base = (uint64_t)(uintptr_t)segment->memory.base;
        if (segment->id != 0 && address >= base && address - base < segment->memory.bytes &&
            bytes <= segment->memory.bytes - (address - base))
            return i;
    }
    return SL_HOST_SEGMENTS;
}

sluice_status sl_host_segment_post(struct sl_host_link *link, uint64_t address, uint64_t bytes,
                                   struct sl_host_post *ret)
{
    struct sluice_device *device = link->group->device;
    sluice_status status = SLUICE_OK;
    pthread_mutex_lock(&device->segments_lock);
    uint32_t index = segment_of(device, address, bytes);
    if (index == SL_HOST_SEGMENTS) {
        pthread_mutex_unlock(&device->segments_lock);
        return SLUICE_NOT_FOUND;
    }
    const struct sl_host_segment *segment = &device->segments[index];
    if (link->announced[index] != segment->id) {
        const struct notice notice = {.id = segment->id, .bytes = segment->memory.bytes};
        status = sl_host_send(link->fd, &notice, sizeof(notice), &segment->memory.fd, 1);
        if (status == SLUICE_OK)
            link->announced[index] = segment->id;
    }
    if (status == SLUICE_OK)
        *ret = (struct sl_host_post){.bytes = bytes,
                                     .offset = address - (uint64_t)(uintptr_t)segment->memory.base,
                                     .segment = segment->id,
                                     .how = SL_HOST_SHARED};
    pthread_mutex_unlock(&device->segments_lock);
    return status;
}

/* --- segments of a peer --- */

static void unmap_unused(struct sl_host_link *link)
{
    struct sl_mem *mem = link->group->device->mem;
    struct sl_host_map **at = &link->maps;
    while (*at != NULL) {
        struct sl_host_map *this = *at;
        if (!this->dropped || atomic_load(&this->held) != 0) {
            at = &this->next;
            continue;
        }
        *at = this->next;
        sl_host_memory_drop(&this->memory);
        sl_free(mem, this);
    }
}

static sluice_status map_segment(struct sl_host_link *link, const struct notice *notice, int fd)
{
    struct sl_mem *mem = link->group->device->mem;
    struct sl_host_map *fresh = sl_new(mem, sizeof(*fresh), "map of a peer's send buffer");
    if (fresh == NULL) {
        close(fd);
        return SLUICE_NOMEM;
    }
    sluice_status status = sl_host_memory_map(fd, notice->bytes, false, &fresh->memory);
    if (status != SLUICE_OK) {
        sl_free(mem, fresh);
        return status;
    }
    fresh->id = notice->id;
    fresh->next = link->maps;
    link->maps = fresh;
    return SLUICE_OK;
}

static sluice_status take_notice(struct sl_host_link *link, const struct notice *notice, const int *fds,
                                 uint32_t fd_count)
{
    if (!notice->dropped && fd_count == 1)
        return map_segment(link, notice, fds[0]);
    for (uint32_t i = 0; i < fd_count; i++)
        close(fds[i]);
    if (!notice->dropped || fd_count != 0)
        return sl_fail(SLUICE_PROTOCOL, SL_HOST_WHERE, "rank %u sent %u descriptors with one segment", link->peer,
                       fd_count);
    for (struct sl_host_map *map_of = link->maps; map_of != NULL; map_of = map_of->next)
        if (map_of->id == notice->id)
            map_of->dropped = true;
    return SLUICE_OK;
}

/* Reads what lies in the socket. Its end is no failure here: what was posted before can still be used. */
static sluice_status read_notices(struct sl_host_link *link)
{
    for (;;) {
        struct notice notice;
        int fds[SL_HOST_FDS_MAX];
        uint32_t fd_count = 0;
        sluice_status status = sl_host_receive(link->fd, &notice, sizeof(notice), fds, &fd_count);
        if (status == SLUICE_AGAIN || status == SLUICE_PEER_LOST)
            break;
        if (status == SLUICE_OK)
            status = take_notice(link, &notice, fds, fd_count);
        if (status != SLUICE_OK)
            return status;
    }
    unmap_unused(link);
    return SLUICE_OK;
}

static struct sl_host_map *find(const struct sl_host_link *link, uint32_t id)
{
    struct sl_host_map *map_of = link->maps;
    while (map_of != NULL && map_of->id != id)
        map_of = map_of->next;
    return map_of;
}

sluice_status sl_host_map_find(struct sl_host_link *link, const struct sl_host_post *post, struct sl_host_map **ret)
{
    struct sl_host_map *found = find(link, post->segment);
    if (found == NULL) {
        sluice_status status = read_notices(link);
        if (status != SLUICE_OK)
            return status;
        found = find(link, post->segment);
    }
    if (found == NULL || post->offset > found->memory.bytes || post->bytes > found->memory.bytes - post->offset)
        return sl_fail(SLUICE_PROTOCOL, SL_HOST_WHERE, "rank %u posted a message outside the memory it shared",
                       link->peer);
    *ret = found;
    return SLUICE_OK;
}

void sl_host_maps_drop(struct sl_host_link *link)
{
    for (struct sl_host_map *map_of = link->maps; map_of != NULL; map_of = map_of->next) {
        SL_ASSERT(atomic_load(&map_of->held) == 0);
        map_of->dropped = true;
    }
    unmap_unused(link);
}
