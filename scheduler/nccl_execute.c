/*
 * Runs the kernel plans of one group on all ranks with rendezvous semantics and finds the cycle when
 * they wait for each other.
 *
 * Invariants: a rank runs one plan at a time; in it every channel runs its batches in order and the
 * parts of a batch together; a part is done once both its ends are in a running batch. Nothing here
 * depends on time: the outcome of such a system is the same for every interleaving.
 */
#include "scheduler/nccl_internal.h"

#include <stdlib.h>
#include <string.h>

struct message {
    uint32_t source, destination;
    uint32_t tag;
    size_t first_part;
};

/* Where the two ends of one part of a message run. */
struct part {
    uint32_t message;
    uint32_t batch[2]; /* [0] of the sender, [1] of the receiver */
    uint8_t running;   /* bit 0: sender's end, bit 1: receiver's */
};

struct rank_state {
    const struct sl_nccl_plans *plans;
    uint32_t *message_of_op;
    size_t *first_work; /* per batch, into works_of_batch; one more at the end */
    uint32_t *works;    /* grouped by batch */
    uint32_t *left;     /* per batch: parts that are not done */
    uint32_t *next;     /* per batch: the following one of its channel in its plan */
    uint8_t *started;   /* per batch */
    uint32_t plan;      /* running; plan_count when all are done */
    uint32_t channels;  /* of the running plan that are not done */
    size_t plan_end;    /* one past the last batch of the running plan */
};

struct ready {
    uint32_t rank, batch;
};

struct execution {
    struct sl_mem *mem;
    struct rank_state *ranks;
    const struct sl_nccl_op *const *ops;
    uint32_t world;
    struct message *messages;
    size_t message_count;
    struct part *parts;
    size_t part_count;
    struct ready *stack; /* batches that may start */
    size_t stack_count, stack_capacity;
};

/* --- matching: the k-th send of a pair meets the k-th receive --- */

struct pair_op {
    uint64_t pair; /* source * world + destination */
    uint32_t order;
    uint32_t rank, op;
};

static int by_pair(const void *a, const void *b)
{
    const struct pair_op *x = a, *y = b;
    if (x->pair != y->pair)
        return x->pair < y->pair ? -1 : 1;
    return x->op < y->op ? -1 : x->op > y->op;
}

static size_t collect(const struct execution *e, _Bool receive, struct pair_op *list)
{
    size_t count = 0;
    for (uint32_t r = 0; r < e->world; r++)
        for (size_t i = 0; i < e->ranks[r].plans->op_count; i++) {
            const struct sl_nccl_op *op = &e->ops[r][i];
            if (op->receive != receive)
                continue;
            uint64_t source = receive ? op->peer : r;
            uint64_t destination = receive ? r : op->peer;
            list[count++] = (struct pair_op){source * e->world + destination, 0, r, (uint32_t)i};
        }
    qsort(list, count, sizeof *list, by_pair);
    return count;
}

static sluice_status lonely(const struct pair_op *end, uint32_t world, _Bool receive)
{
    return sl_fail(SLUICE_INVALID, "nccl model", "rank %llu %s rank %llu a message that the other rank does not %s",
                   (unsigned long long)(receive ? end->pair % world : end->pair / world),
                   receive ? "expects from" : "sends to",
                   (unsigned long long)(receive ? end->pair / world : end->pair % world), receive ? "send" : "expect");
}

static sluice_status join(struct execution *e, const struct pair_op *sends, size_t send_count,
                          const struct pair_op *recvs, size_t recv_count)
{
    for (size_t i = 0; i < send_count || i < recv_count; i++) {
        if (i == recv_count || (i < send_count && sends[i].pair < recvs[i].pair))
            return lonely(&sends[i], e->world, 0);
        if (i == send_count || recvs[i].pair < sends[i].pair)
            return lonely(&recvs[i], e->world, 1);
        const struct sl_nccl_op *send = &e->ops[sends[i].rank][sends[i].op];
        const struct sl_nccl_op *recv = &e->ops[recvs[i].rank][recvs[i].op];
        if (send->bytes != recv->bytes)
            return sl_fail(SLUICE_INVALID, "nccl model", "rank %u sends %llu bytes where rank %u expects %llu",
                           sends[i].rank, (unsigned long long)send->bytes, recvs[i].rank,
                           (unsigned long long)recv->bytes);
        e->messages[i] = (struct message){.source = sends[i].rank, .destination = recvs[i].rank, .tag = send->tag};
        e->ranks[sends[i].rank].message_of_op[sends[i].op] = (uint32_t)i;
        e->ranks[recvs[i].rank].message_of_op[recvs[i].op] = (uint32_t)i;
    }
    e->message_count = send_count;
    return SLUICE_OK;
}

static sluice_status match(struct execution *e)
{
    size_t total = 0;
    for (uint32_t r = 0; r < e->world; r++)
        total += e->ranks[r].plans->op_count;
    struct pair_op *sends = sl_new_array(e->mem, total, sizeof *sends, "nccl messages");
    struct pair_op *recvs = sl_new_array(e->mem, total, sizeof *recvs, "nccl messages");
    e->messages = sl_new_array(e->mem, total, sizeof *e->messages, "nccl messages");
    sluice_status status = sends && recvs && e->messages ? SLUICE_OK : SLUICE_NOMEM;
    if (status == SLUICE_OK) {
        size_t send_count = collect(e, 0, sends);
        size_t recv_count = collect(e, 1, recvs);
        status = join(e, sends, send_count, recvs, recv_count);
    }
    sl_free(e->mem, sends);
    sl_free(e->mem, recvs);
    return status;
}

/* --- laying out parts and batches --- */

static sluice_status number_parts(struct execution *e)
{
    size_t *count = sl_new_array(e->mem, e->message_count, sizeof *count, "nccl parts");
    if (count == NULL)
        return SLUICE_NOMEM;
    for (uint32_t r = 0; r < e->world; r++) {
        const struct sl_nccl_plans *plans = e->ranks[r].plans;
        for (size_t w = 0; w < plans->work_count; w++)
            if (plans->works[w].send != SL_NCCL_NONE)
                count[e->ranks[r].message_of_op[plans->works[w].send]]++;
    }
    for (size_t m = 0; m < e->message_count; m++) {
        e->messages[m].first_part = e->part_count;
        e->part_count += count[m];
    }
    sl_free(e->mem, count);
    e->parts = sl_new_array(e->mem, e->part_count, sizeof *e->parts, "nccl parts");
    return e->parts == NULL ? SLUICE_NOMEM : SLUICE_OK;
}

static void place_part(struct execution *e, uint32_t rank, uint32_t op, const struct sl_nccl_work *work, int end)
{
    if (op == SL_NCCL_NONE)
        return;
    uint32_t message = e->ranks[rank].message_of_op[op];
    struct part *part = &e->parts[e->messages[message].first_part + work->part];
    part->message = message;
    part->batch[end] = work->batch;
    e->ranks[rank].left[work->batch]++;
}

static void chain_batches(struct rank_state *rank)
{
    uint32_t last[64];
    uint32_t plan = UINT32_MAX;
    for (size_t b = 0; b < rank->plans->batch_count; b++) {
        const struct sl_nccl_batch *batch = &rank->plans->batches[b];
        if (batch->plan != plan) {
            plan = batch->plan;
            memset(last, 0xff, sizeof last);
        }
        if (last[batch->channel] != UINT32_MAX)
            rank->next[last[batch->channel]] = (uint32_t)b;
        last[batch->channel] = (uint32_t)b;
        rank->next[b] = SL_NCCL_NONE;
    }
}

static sluice_status lay_out_rank(struct execution *e, uint32_t r)
{
    struct rank_state *rank = &e->ranks[r];
    const struct sl_nccl_plans *plans = rank->plans;
    size_t batches = plans->batch_count;
    rank->first_work = sl_new_array(e->mem, batches + 2, sizeof(size_t), "nccl batches");
    rank->works = sl_new_array(e->mem, plans->work_count, sizeof(uint32_t), "nccl batches");
    rank->left = sl_new_array(e->mem, batches, sizeof(uint32_t), "nccl batches");
    rank->next = sl_new_array(e->mem, batches, sizeof(uint32_t), "nccl batches");
    rank->started = sl_new_array(e->mem, batches, 1, "nccl batches");
    if (!rank->first_work || !rank->works || !rank->left || !rank->next || !rank->started)
        return SLUICE_NOMEM;
    for (size_t w = 0; w < plans->work_count; w++)
        rank->first_work[plans->works[w].batch + 2]++;
    for (size_t b = 0; b < batches; b++)
        rank->first_work[b + 2] += rank->first_work[b + 1];
    for (size_t w = 0; w < plans->work_count; w++) {
        const struct sl_nccl_work *work = &plans->works[w];
        rank->works[rank->first_work[work->batch + 1]++] = (uint32_t)w;
        place_part(e, r, work->send, work, 0);
        place_part(e, r, work->recv, work, 1);
    }
    chain_batches(rank);
    return SLUICE_OK;
}

/* --- running --- */

static sluice_status push(struct execution *e, uint32_t rank, uint32_t batch)
{
    sluice_status status =
        sl_grow(e->mem, &e->stack, &e->stack_capacity, e->stack_count + 1, sizeof *e->stack, "nccl batches");
    if (status == SLUICE_OK)
        e->stack[e->stack_count++] = (struct ready){rank, batch};
    return status;
}

static sluice_status start_plan(struct execution *e, uint32_t r)
{
    struct rank_state *rank = &e->ranks[r];
    size_t b = rank->plan_end;
    uint64_t seen = 0;
    for (; b < rank->plans->batch_count && rank->plans->batches[b].plan == rank->plan; b++) {
        uint64_t bit = UINT64_C(1) << rank->plans->batches[b].channel;
        if (seen & bit)
            continue;
        seen |= bit;
        rank->channels++;
        sluice_status status = push(e, r, (uint32_t)b);
        if (status != SLUICE_OK)
            return status;
    }
    rank->plan_end = b;
    return SLUICE_OK;
}

static sluice_status finish_part(struct execution *e, uint32_t r, uint32_t batch)
{
    struct rank_state *rank = &e->ranks[r];
    SL_ASSERT(rank->left[batch] > 0);
    if (--rank->left[batch] > 0)
        return SLUICE_OK;
    if (rank->next[batch] != SL_NCCL_NONE)
        return push(e, r, rank->next[batch]);
    SL_ASSERT(rank->channels > 0);
    if (--rank->channels > 0)
        return SLUICE_OK;
    rank->plan++;
    return start_plan(e, r);
}

static sluice_status start_end(struct execution *e, uint32_t r, uint32_t op, uint32_t part_number, int end)
{
    if (op == SL_NCCL_NONE)
        return SLUICE_OK;
    const struct message *message = &e->messages[e->ranks[r].message_of_op[op]];
    struct part *part = &e->parts[message->first_part + part_number];
    part->running = (uint8_t)(part->running | (1 << end));
    if (part->running != 3)
        return SLUICE_OK;
    sluice_status status = finish_part(e, message->source, part->batch[0]);
    return status == SLUICE_OK ? finish_part(e, message->destination, part->batch[1]) : status;
}

static sluice_status run(struct execution *e)
{
    while (e->stack_count > 0) {
        struct ready ready = e->stack[--e->stack_count];
        struct rank_state *rank = &e->ranks[ready.rank];
        rank->started[ready.batch] = 1;
        for (size_t i = rank->first_work[ready.batch]; i < rank->first_work[ready.batch + 1]; i++) {
            const struct sl_nccl_work *work = &rank->plans->works[rank->works[i]];
            sluice_status status = start_end(e, ready.rank, work->send, work->part, 0);
            if (status == SLUICE_OK)
                status = start_end(e, ready.rank, work->recv, work->part, 1);
            if (status != SLUICE_OK)
                return status;
        }
    }
    return SLUICE_OK;
}

/* --- explaining a hang --- */

/* A part of a running batch of the rank whose other end does not run; SIZE_MAX when the batch is done. */
static size_t stuck_part_of(const struct execution *e, uint32_t r, uint32_t batch)
{
    const struct rank_state *rank = &e->ranks[r];
    for (size_t i = rank->first_work[batch]; i < rank->first_work[batch + 1]; i++) {
        const struct sl_nccl_work *work = &rank->plans->works[rank->works[i]];
        uint32_t ops[2] = {work->send, work->recv};
        for (int end = 0; end < 2; end++) {
            if (ops[end] == SL_NCCL_NONE)
                continue;
            size_t part = e->messages[rank->message_of_op[ops[end]]].first_part + work->part;
            if (e->parts[part].running == (1 << end))
                return part;
        }
    }
    return SIZE_MAX;
}

/* What keeps a rank from reaching `batch`: a stuck part of that channel, or of any channel of an earlier plan. */
static size_t blocker(const struct execution *e, uint32_t r, uint32_t batch)
{
    const struct rank_state *rank = &e->ranks[r];
    const struct sl_nccl_batch *wanted = &rank->plans->batches[batch];
    for (size_t b = 0; b < rank->plans->batch_count; b++) {
        const struct sl_nccl_batch *running = &rank->plans->batches[b];
        if (running->plan != rank->plan || !rank->started[b] || rank->left[b] == 0)
            continue;
        if (wanted->plan == rank->plan && wanted->channel != running->channel)
            continue;
        size_t part = stuck_part_of(e, r, (uint32_t)b);
        if (part != SIZE_MAX)
            return part;
    }
    return SIZE_MAX;
}

static size_t follow(const struct execution *e, size_t part)
{
    const struct message *message = &e->messages[e->parts[part].message];
    int missing = e->parts[part].running == 1 ? 1 : 0;
    uint32_t rank = missing ? message->destination : message->source;
    return blocker(e, rank, e->parts[part].batch[missing]);
}

static sluice_status explain_cycle(const struct execution *e, size_t part, struct sl_nccl_result *ret)
{
    uint32_t *seen = sl_new_array(e->mem, e->part_count, sizeof *seen, "nccl cycle");
    if (seen == NULL)
        return SLUICE_NOMEM;
    for (; seen[part] == 0; part = follow(e, part))
        seen[part] = 1;
    size_t length = 0;
    for (size_t at = part; length == 0 || at != part; at = follow(e, at))
        length++;
    sl_free(e->mem, seen);
    ret->cycle = sl_new_array(e->mem, length, sizeof *ret->cycle, "nccl cycle");
    if (ret->cycle == NULL)
        return SLUICE_NOMEM;
    for (size_t i = 0, at = part; i < length; i++, at = follow(e, at)) {
        const struct message *message = &e->messages[e->parts[at].message];
        _Bool sender_waits = e->parts[at].running == 1;
        uint32_t rank = sender_waits ? message->source : message->destination;
        uint32_t other = sender_waits ? message->destination : message->source;
        ret->cycle[i] = (struct sl_nccl_wait){rank, e->ranks[rank].plan, message->tag, other};
    }
    ret->cycle_count = (uint32_t)length;
    return SLUICE_OK;
}

/* Any part that a rank is stuck at. */
static size_t any_stuck_part(const struct execution *e, uint32_t r)
{
    const struct rank_state *rank = &e->ranks[r];
    size_t part = SIZE_MAX;
    for (size_t b = 0; part == SIZE_MAX && b < rank->plan_end; b++)
        if (rank->started[b] && rank->left[b] > 0)
            part = stuck_part_of(e, r, (uint32_t)b);
    SL_ASSERT(part != SIZE_MAX);
    return part;
}

static sluice_status judge(const struct execution *e, struct sl_nccl_result *ret)
{
    for (uint32_t r = 0; r < e->world; r++)
        if (e->ranks[r].plan < e->ranks[r].plans->plan_count) {
            ret->verdict = SL_NCCL_HANGS;
            return explain_cycle(e, any_stuck_part(e, r), ret);
        }
    return SLUICE_OK;
}

static void drop_execution(struct execution *e)
{
    for (uint32_t r = 0; e->ranks != NULL && r < e->world; r++) {
        struct rank_state *rank = &e->ranks[r];
        sl_free(e->mem, rank->message_of_op);
        sl_free(e->mem, rank->first_work);
        sl_free(e->mem, rank->works);
        sl_free(e->mem, rank->left);
        sl_free(e->mem, rank->next);
        sl_free(e->mem, rank->started);
    }
    sl_free(e->mem, e->ranks);
    sl_free(e->mem, e->messages);
    sl_free(e->mem, e->parts);
    sl_free(e->mem, e->stack);
}

static sluice_status prepare(struct execution *e, const struct sl_nccl_plans *plans)
{
    e->ranks = sl_new_array(e->mem, e->world, sizeof *e->ranks, "nccl ranks");
    if (e->ranks == NULL)
        return SLUICE_NOMEM;
    for (uint32_t r = 0; r < e->world; r++) {
        e->ranks[r].plans = &plans[r];
        e->ranks[r].message_of_op = sl_new_array(e->mem, plans[r].op_count, sizeof(uint32_t), "nccl ranks");
        if (e->ranks[r].message_of_op == NULL)
            return SLUICE_NOMEM;
    }
    sluice_status status = match(e);
    if (status == SLUICE_OK)
        status = number_parts(e);
    for (uint32_t r = 0; status == SLUICE_OK && r < e->world; r++)
        status = lay_out_rank(e, r);
    return status;
}

sluice_status sl_nccl_execute(const struct sl_nccl_config *config, const struct sl_nccl_plans *plans,
                              const struct sl_nccl_op *const *ops, uint32_t world, struct sl_mem *mem,
                              struct sl_nccl_result *ret)
{
    if (world != sl_nccl_world(config))
        return sl_fail(SLUICE_INVALID, "nccl model", "a world of %u ranks does not fill %u nodes of %u", world,
                       config->nodes, config->ranks_per_node);
    struct sl_nccl_result result = {.mem = mem};
    for (uint32_t r = 0; r < world; r++)
        if (plans[r].fifo_exceeded)
            result.verdict = SL_NCCL_HOST_HANGS;
    if (result.verdict == SL_NCCL_HOST_HANGS) {
        *ret = result;
        return SLUICE_OK;
    }
    struct execution e = {.mem = mem, .ops = ops, .world = world};
    sluice_status status = prepare(&e, plans);
    for (uint32_t r = 0; status == SLUICE_OK && r < world; r++)
        status = start_plan(&e, r);
    if (status == SLUICE_OK)
        status = run(&e);
    if (status == SLUICE_OK)
        status = judge(&e, &result);
    drop_execution(&e);
    if (status != SLUICE_OK) {
        sl_nccl_result_drop(&result);
        return status;
    }
    *ret = result;
    return SLUICE_OK;
}

void sl_nccl_result_drop(struct sl_nccl_result *result)
{
    if (result == NULL || result->mem == NULL)
        return;
    sl_free(result->mem, result->cycle);
    *result = (struct sl_nccl_result){0};
}
