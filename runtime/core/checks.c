/*
 * checks.c: which bytes are digested where, and what the digests add up to.
 *
 * Invariants: every piece of a parameter is digested once where it is read and once where it landed, over all ranks;
 * a digest is mixed with the piece's place in its task. So the sums of a parameter, over all ranks, cancel out
 * exactly when everything arrived where it belongs, but for one chance in 2^64.
 */
#include "runtime/core/checks.h"
#include "runtime/base/hash.h"

/* Destination pieces keep the order of the schedule: that gives them their places in shadow memory. */
struct checker {
    struct sl_checks *checks;
    const struct sl_view *view;
    struct sl_landing landing;
};

static const struct sluice_task *task_of(const struct sl_sealed *sealed, const struct sl_piece *piece)
{
    return &sealed->plan->store.tasks[sealed->half.entries[piece->entry].task];
}

static void add_piece(struct checker *checker, const struct sl_piece *piece, _Bool landed)
{
    struct sl_checks *checks = checker->checks;
    struct sl_sealed *sealed = checks->sealed;
    if (!sl_view_has(checker->view, sl_piece_param(sealed, piece)))
        return;
    struct sluice_strided place =
        landed ? sl_sealed_destination(sealed, piece, &checker->landing) : sl_sealed_source(sealed, piece);
    const struct sluice_task *task = task_of(sealed, piece);
    checks->marks[checks->digest_count++] = (struct sl_mark){
        .position = sl_mix64(sl_mix64(task->id) + task->part) + piece->begin,
        .param = task->param,
        .landed = landed,
    };
    sealed->scratch[sealed->scratch_count++] = (struct sluice_copy){
        .from = place,
        .to = place,
        .bytes = piece->end - piece->begin,
        .message = SLUICE_MESSAGE_NONE,
        .param = task->param,
    };
}

static void add_messages(struct checker *checker, uint32_t window, _Bool receive)
{
    const struct sl_schedule *schedule = &checker->checks->sealed->schedule;
    const struct sl_window *w = &schedule->windows[window];
    for (uint32_t m = 0; m < w->message_count; m++) {
        const struct sl_message *message = &schedule->messages[w->first_message + m];
        for (uint32_t p = 0; p < message->piece_count && message->receive == receive; p++)
            add_piece(checker, &schedule->pieces[message->first_piece + p], receive);
    }
}

static sluice_status close_pieces(struct sl_checks *checks, struct sluice_set **ret)
{
    struct sl_sealed *sealed = checks->sealed;
    const struct sl_driver *driver = sealed->driver;
    size_t count = sealed->scratch_count;
    sealed->scratch_count = 0;
    if (count == 0)
        return SLUICE_OK;
    return driver->config.ops->set_open(driver->device, SLUICE_COPY_DIGEST, sealed->scratch, count, ret);
}

static sluice_status build_check(struct checker *checker, uint32_t window, struct sl_window_check *check)
{
    struct sl_checks *checks = checker->checks;
    const struct sl_schedule *schedule = &checks->sealed->schedule;
    const struct sl_window *w = &schedule->windows[window];
    check->first_source = checks->digest_count;
    add_messages(checker, window, 0);
    sluice_status status = close_pieces(checks, &check->source);
    if (status != SLUICE_OK)
        return status;
    check->first_landed = checks->digest_count;
    add_messages(checker, window, 1);
    status = close_pieces(checks, &check->landed);
    if (status != SLUICE_OK)
        return status;
    check->first_local = checks->digest_count;
    for (uint32_t p = 0; p < w->local_count; p++) {
        add_piece(checker, &schedule->pieces[w->first_local + p], 0);
        add_piece(checker, &schedule->pieces[w->first_local + p], 1);
    }
    return close_pieces(checks, &check->local);
}

static sluice_status build(struct sl_checks *checks, const struct sl_view *view, uint32_t staged)
{
    struct sl_sealed *sealed = checks->sealed;
    struct sl_mem *mem = sealed->plan->mem;
    uint32_t windows = sealed->schedule.rule.windows;
    size_t most = 2 * sealed->schedule.piece_count;
    checks->windows = sl_new_array(mem, windows, sizeof *checks->windows, "digest sets");
    checks->digests = sl_new_array(mem, most, sizeof *checks->digests, "digests");
    checks->marks = sl_new_array(mem, most, sizeof *checks->marks, "digests");
    sealed->scratch = sl_new_array(mem, most, sizeof *sealed->scratch, "digests");
    sealed->scratch_count = 0;
    sluice_status status = SLUICE_OK;
    if (checks->windows == NULL || checks->digests == NULL || checks->marks == NULL || sealed->scratch == NULL)
        status = SLUICE_NOMEM;
    for (uint32_t w = 0; w < windows && status == SLUICE_OK; w++) {
        struct checker checker = {checks, view, sl_sealed_landing(sealed, w, w < staged)};
        status = build_check(&checker, w, &checks->windows[w]);
    }
    sl_sealed_scratch_drop(sealed);
    return status;
}

sluice_status sl_checks_new(struct sl_sealed *sealed, const struct sl_view *view, uint32_t staged,
                            struct sl_checks **ret)
{
    struct sl_checks *checks = sl_new(sealed->plan->mem, sizeof *checks, "digests");
    if (checks == NULL)
        return SLUICE_NOMEM;
    checks->sealed = sealed;
    sluice_status status = build(checks, view, staged);
    if (status == SLUICE_OK)
        *ret = checks;
    else
        sl_checks_drop(checks);
    return status;
}

static void close_set(const struct sl_sealed *sealed, struct sluice_set *set)
{
    if (set != NULL)
        sealed->driver->config.ops->set_close(set);
}

void sl_checks_drop(struct sl_checks *checks)
{
    if (checks == NULL)
        return;
    const struct sl_sealed *sealed = checks->sealed;
    struct sl_mem *mem = sealed->plan->mem;
    for (uint32_t w = 0; checks->windows != NULL && w < sealed->schedule.rule.windows; w++) {
        close_set(sealed, checks->windows[w].source);
        close_set(sealed, checks->windows[w].landed);
        close_set(sealed, checks->windows[w].local);
    }
    sl_free(mem, checks->windows);
    sl_free(mem, checks->digests);
    sl_free(mem, checks->marks);
    sl_free(mem, checks);
}

void sl_checks_sum(const struct sl_checks *checks, uint32_t first, uint32_t end, uint64_t *sums)
{
    uint32_t windows = checks->sealed->schedule.rule.windows;
    size_t last = end < windows ? checks->windows[end].first_source : checks->digest_count;
    for (size_t i = checks->windows[first].first_source; i < last; i++) {
        const struct sl_mark *mark = &checks->marks[i];
        uint64_t value = sl_mix64(checks->digests[i] + mark->position);
        sums[mark->param] += mark->landed ? 0 - value : value;
    }
}
