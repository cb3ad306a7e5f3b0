/*
 * sealed_sets.c: from schedule and bindings to copy sets and message tables.
 *
 * Invariants: pieces keep the order of the schedule, so that shadow offsets (place_shadow) and copies
 * agree; a message without room in the slot goes straight from or into user memory, or into shadow;
 * nothing of a window is shared with another one but staging memory.
 */
#include "runtime/backend/strided.h"
#include "runtime/core/sealed.h"

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + (SLUICE_UNIT - 1)) / SLUICE_UNIT * SLUICE_UNIT;
}

static const struct sluice_task *task_of(const struct sl_sealed *sealed, const struct sl_piece *piece)
{
    return &sealed->plan->store.tasks[sealed->half.entries[piece->entry].task];
}

/* The piece inside the user's buffer. */
static struct sluice_strided user_side(const struct sl_sealed *sealed, const struct sl_piece *piece,
                                       enum sluice_role role)
{
    const struct sluice_task *task = task_of(sealed, piece);
    const struct sluice_region *region = role == SLUICE_ROLE_SOURCE ? &task->from : &task->to;
    const struct sl_binding *binding = sl_plan_binding(sealed->plan, task->param, role);
    _Bool contiguous = sl_region_contiguous(region);
    return (struct sluice_strided){
        .address = (uint64_t)(uintptr_t)binding->memory + region->offset,
        .row_bytes = contiguous ? UINT64_MAX : region->row_bytes,
        .pitch = contiguous ? 0 : region->pitch,
        .begin = piece->begin,
    };
}

static struct sluice_strided flat(const uint8_t *memory, uint64_t offset)
{
    return (struct sluice_strided){.address = (uint64_t)(uintptr_t)memory + offset, .row_bytes = UINT64_MAX};
}

uint32_t sl_piece_param(const struct sl_sealed *sealed, const struct sl_piece *piece)
{
    return task_of(sealed, piece)->param;
}

static _Bool has(const struct sl_sealed *sealed, const struct sl_view *view, const struct sl_piece *piece)
{
    return sl_view_has(view, sl_piece_param(sealed, piece));
}

/* `message`: its place among the messages of the view's window. */
static void add_copy(struct sl_sealed *sealed, const struct sl_piece *piece, uint32_t message,
                     struct sluice_strided from, struct sluice_strided to)
{
    sealed->scratch[sealed->scratch_count++] = (struct sluice_copy){
        .from = from,
        .to = to,
        .bytes = piece->end - piece->begin,
        .message = message,
        .param = sl_piece_param(sealed, piece),
    };
}

/* Turns the collected copies into a set; none gives NULL. */
static sluice_status close_scratch(struct sl_sealed *sealed, enum sluice_copy_kind kind, struct sluice_set **ret)
{
    size_t count = sealed->scratch_count;
    sealed->scratch_count = 0;
    if (count == 0)
        return SLUICE_OK;
    const struct sl_driver *driver = sealed->driver;
    return driver->config.ops->set_open(driver->device, kind, sealed->scratch, count, ret);
}

struct sluice_strided sl_sealed_source(const struct sl_sealed *sealed, const struct sl_piece *piece)
{
    return user_side(sealed, piece, SLUICE_ROLE_SOURCE);
}

struct sl_landing sl_sealed_landing(const struct sl_sealed *sealed, uint32_t window, _Bool landed)
{
    return landed ? (struct sl_landing){sealed->shadow, sealed->shadow_base[window]} : (struct sl_landing){NULL, 0};
}

struct sluice_strided sl_sealed_destination(const struct sl_sealed *sealed, const struct sl_piece *piece,
                                            struct sl_landing *landing)
{
    if (landing->shadow == NULL)
        return user_side(sealed, piece, SLUICE_ROLE_DESTINATION);
    struct sluice_strided place = flat(landing->shadow, landing->offset);
    landing->offset += round_up(piece->end - piece->begin);
    return place;
}

/* Where the pieces of one message begin in it: each at the next multiple of 16, absent ones left out. */
struct packing {
    uint64_t offset;
};

static uint64_t pack_piece(struct packing *packing, const struct sl_piece *piece)
{
    uint64_t offset = packing->offset;
    packing->offset += round_up(piece->end - piece->begin);
    return offset;
}

static void add_packed(struct sl_sealed *sealed, const struct sl_view *view, const struct sl_message *message,
                       uint32_t index, const uint8_t *slot)
{
    struct packing packing = {message->offset};
    for (uint32_t p = 0; p < message->piece_count; p++) {
        const struct sl_piece *piece = &sealed->schedule.pieces[message->first_piece + p];
        if (has(sealed, view, piece))
            add_copy(sealed, piece, index, user_side(sealed, piece, SLUICE_ROLE_SOURCE),
                     flat(slot, pack_piece(&packing, piece)));
    }
}

static sluice_status build_pack(struct sl_sealed *sealed, const struct sl_view *view, uint32_t window,
                                struct sluice_set **ret)
{
    const struct sl_window *w = &sealed->schedule.windows[window];
    const uint8_t *slot = sealed->slot_send[window % sealed->slots];
    uint32_t index = 0;
    for (uint32_t m = 0; m < w->message_count; m++) {
        const struct sl_message *message = &sealed->schedule.messages[w->first_message + m];
        if (sl_view_message_bytes(sealed, view, message) == 0)
            continue;
        if (!message->receive && message->offset != SL_NO_SLOT)
            add_packed(sealed, view, message, index, slot);
        index++;
    }
    return close_scratch(sealed, SLUICE_COPY_PACK, ret);
}

_Bool sl_sealed_is_direct(const struct sl_sealed *sealed, const struct sl_piece *piece, _Bool receive)
{
    const struct sl_driver *driver = sealed->driver;
    struct sluice_strided side = user_side(sealed, piece, receive ? SLUICE_ROLE_DESTINATION : SLUICE_ROLE_SOURCE);
    return driver->config.ops->is_direct == NULL || driver->config.ops->is_direct(driver->device, side.address);
}

/* The address of one message; a direct receive takes its place in the landing. */
static uint64_t message_address(const struct sl_sealed *sealed, uint32_t window, const struct sl_message *message,
                                struct sl_landing *landing)
{
    uint32_t slot = window % sealed->slots;
    if (message->offset != SL_NO_SLOT)
        return (uint64_t)(uintptr_t)(message->receive ? sealed->slot_recv[slot] : sealed->slot_send[slot]) +
               message->offset;
    const struct sl_piece *piece = &sealed->schedule.pieces[message->first_piece];
    struct sluice_strided side =
        message->receive ? sl_sealed_destination(sealed, piece, landing) : user_side(sealed, piece, SLUICE_ROLE_SOURCE);
    return sl_cursor_at(&side, 0).address; /* the piece lies within one row, which need not be the first */
}

static void fill_message(const struct sl_sealed *sealed, uint32_t window, const struct sl_message *message,
                         uint64_t bytes, struct sl_landing *landing, struct sluice_message *ret)
{
    *ret = (struct sluice_message){
        .address = message_address(sealed, window, message, landing),
        .bytes = bytes,
        .peer = message->peer,
        .receive = message->receive,
        .staged = message->offset != SL_NO_SLOT,
        .slot = (uint16_t)(window % sealed->slots),
    };
}

static void add_unpacked(struct sl_sealed *sealed, const struct sl_view *view, const struct sl_message *message,
                         uint32_t index, const uint8_t *slot, struct sl_landing *landing)
{
    struct packing packing = {message->offset};
    for (uint32_t p = 0; p < message->piece_count; p++) {
        const struct sl_piece *piece = &sealed->schedule.pieces[message->first_piece + p];
        if (has(sealed, view, piece))
            add_copy(sealed, piece, index, flat(slot, pack_piece(&packing, piece)),
                     sl_sealed_destination(sealed, piece, landing));
    }
}

static sluice_status build_local(struct sl_sealed *sealed, const struct sl_view *view, const struct sl_window *w,
                                 struct sl_landing *landing, struct sluice_set **ret)
{
    for (uint32_t p = 0; p < w->local_count; p++) {
        const struct sl_piece *piece = &sealed->schedule.pieces[w->first_local + p];
        if (has(sealed, view, piece))
            add_copy(sealed, piece, SLUICE_MESSAGE_NONE, user_side(sealed, piece, SLUICE_ROLE_SOURCE),
                     sl_sealed_destination(sealed, piece, landing));
    }
    return close_scratch(sealed, SLUICE_COPY_LOCAL, ret);
}

/* Buffers may have been bound anew since the seal chose which messages are staged. */
static sluice_status check_direct(const struct sl_sealed *sealed, const struct sl_message *message)
{
    const struct sl_piece *piece = &sealed->schedule.pieces[message->first_piece];
    if (message->offset != SL_NO_SLOT || sl_sealed_is_direct(sealed, piece, message->receive))
        return SLUICE_OK;
    return sl_fail(SLUICE_UNSUPPORTED, "bind",
                   "parameter %u was bound to memory of the host after the seal, which lets pieces of it go straight "
                   "from and into device memory: seal again, or leave direct_min 0",
                   sl_piece_param(sealed, piece));
}

/* Messages, unpack and local copies of one window for one landing. */
static sluice_status build_landing(struct sl_sealed *sealed, const struct sl_view *view, uint32_t window,
                                   struct sl_landing landing, struct sluice_message *messages,
                                   struct sl_window_ops *ops)
{
    const struct sl_window *w = &sealed->schedule.windows[window];
    uint32_t index = 0;
    for (uint32_t m = 0; m < w->message_count; m++) {
        const struct sl_message *message = &sealed->schedule.messages[w->first_message + m];
        uint64_t bytes = sl_view_message_bytes(sealed, view, message);
        if (bytes == 0)
            continue;
        sluice_status status = check_direct(sealed, message);
        if (status != SLUICE_OK)
            return status;
        fill_message(sealed, window, message, bytes, &landing, &messages[index]);
        if (message->receive && message->offset != SL_NO_SLOT)
            add_unpacked(sealed, view, message, index, sealed->slot_recv[window % sealed->slots], &landing);
        index++;
    }
    ops->messages = messages;
    ops->message_count = index;
    sluice_status status = close_scratch(sealed, SLUICE_COPY_UNPACK, &ops->unpack);
    return status == SLUICE_OK ? build_local(sealed, view, w, &landing, &ops->local) : status;
}

static void close_set(const struct sl_sealed *sealed, struct sluice_set **set)
{
    if (*set != NULL)
        sealed->driver->config.ops->set_close(*set);
    *set = NULL;
}

static void close_ops(const struct sl_sealed *sealed, struct sl_window_ops *ops)
{
    if (ops->shared_pack)
        ops->pack = NULL;
    close_set(sealed, &ops->pack);
    close_set(sealed, &ops->unpack);
    close_set(sealed, &ops->local);
}

sluice_status sl_view_build_window(struct sl_sealed *sealed, struct sl_view *view, uint32_t window)
{
    uint32_t first = sealed->schedule.windows[window].first_message;
    struct sl_window_ops *ops = &view->in_place[window];
    if (window < sealed->staged)
        close_ops(sealed, &view->landed[window]);
    close_ops(sealed, ops);
    sluice_status status = build_pack(sealed, view, window, &ops->pack);
    if (status == SLUICE_OK)
        status = build_landing(sealed, view, window, (struct sl_landing){NULL, 0}, &view->messages[first], ops);
    if (status != SLUICE_OK || window >= sealed->staged)
        return status;
    struct sl_window_ops *landed = &view->landed[window];
    landed->pack = ops->pack;
    landed->shared_pack = 1;
    struct sl_landing landing = {sealed->shadow, sealed->shadow_base[window]};
    return build_landing(sealed, view, window, landing, &view->landed_messages[first], landed);
}

void sl_view_close_sets(const struct sl_sealed *sealed, struct sl_view *view)
{
    for (uint32_t w = 0; view->landed != NULL && w < sealed->staged; w++)
        close_ops(sealed, &view->landed[w]);
    for (uint32_t w = 0; view->in_place != NULL && w < sealed->schedule.rule.windows; w++)
        close_ops(sealed, &view->in_place[w]);
    close_set(sealed, &view->commit);
}

/* Calls `visit` for every destination piece of a window, in the order in which build_landing places them. */
static void
each_destination(struct sl_sealed *sealed, const struct sl_view *view, uint32_t window, struct sl_landing *landing,
                 void (*visit)(struct sl_sealed *sealed, const struct sl_piece *piece, struct sl_landing *landing))
{
    const struct sl_schedule *schedule = &sealed->schedule;
    const struct sl_window *w = &schedule->windows[window];
    for (uint32_t m = 0; m < w->message_count; m++) {
        const struct sl_message *message = &schedule->messages[w->first_message + m];
        for (uint32_t p = 0; p < message->piece_count && message->receive; p++)
            if (has(sealed, view, &schedule->pieces[message->first_piece + p]))
                visit(sealed, &schedule->pieces[message->first_piece + p], landing);
    }
    for (uint32_t p = 0; p < w->local_count; p++)
        if (has(sealed, view, &schedule->pieces[w->first_local + p]))
            visit(sealed, &schedule->pieces[w->first_local + p], landing);
}

static void visit_size(struct sl_sealed *sealed, const struct sl_piece *piece, struct sl_landing *landing)
{
    (void)sealed;
    landing->offset += round_up(piece->end - piece->begin);
}

static void visit_commit(struct sl_sealed *sealed, const struct sl_piece *piece, struct sl_landing *landing)
{
    struct sluice_strided to = user_side(sealed, piece, SLUICE_ROLE_DESTINATION);
    add_copy(sealed, piece, SLUICE_MESSAGE_NONE, flat(landing->shadow, landing->offset), to);
    landing->offset += round_up(piece->end - piece->begin);
}

uint64_t sl_sealed_place_shadow(struct sl_sealed *sealed)
{
    const struct sl_view all = {.params = NULL};
    struct sl_landing landing = {NULL, 0};
    for (uint32_t w = 0; w < sealed->staged; w++) {
        sealed->shadow_base[w] = landing.offset;
        each_destination(sealed, &all, w, &landing, visit_size);
    }
    return landing.offset;
}

sluice_status sl_view_build_commit(struct sl_sealed *sealed, struct sl_view *view)
{
    close_set(sealed, &view->commit);
    for (uint32_t w = 0; w < sealed->staged; w++) {
        struct sl_landing landing = {sealed->shadow, sealed->shadow_base[w]};
        each_destination(sealed, view, w, &landing, visit_commit);
    }
    return close_scratch(sealed, SLUICE_COPY_COMMIT, &view->commit);
}

static _Bool piece_dirty(const struct sl_sealed *sealed, const struct sl_piece *piece, _Bool source, _Bool destination)
{
    const uint8_t *dirty = &sealed->dirty[2 * (size_t)task_of(sealed, piece)->param];
    return (source && dirty[SLUICE_ROLE_SOURCE]) || (destination && dirty[SLUICE_ROLE_DESTINATION]);
}

_Bool sl_sealed_window_dirty(const struct sl_sealed *sealed, uint32_t window)
{
    const struct sl_schedule *schedule = &sealed->schedule;
    const struct sl_window *w = &schedule->windows[window];
    for (uint32_t m = 0; m < w->message_count; m++) {
        const struct sl_message *message = &schedule->messages[w->first_message + m];
        for (uint32_t p = 0; p < message->piece_count; p++)
            if (piece_dirty(sealed, &schedule->pieces[message->first_piece + p], !message->receive, message->receive))
                return 1;
    }
    for (uint32_t p = 0; p < w->local_count; p++)
        if (piece_dirty(sealed, &schedule->pieces[w->first_local + p], 1, 1))
            return 1;
    return 0;
}
