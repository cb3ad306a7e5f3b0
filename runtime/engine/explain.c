/* explain.c: what a run waits for, in words, for people and for errors. */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/engine/run.h"

struct text {
    char *data;
    size_t bytes;
    size_t used; /* length of the whole text, which may not fit */
};

static void add(struct text *text, const char *format, ...) SLUICE_PRINTF(2, 3);

static void add(struct text *text, const char *format, ...)
{
    size_t room = text->used < text->bytes ? text->bytes - text->used : 0;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(room ? text->data + text->used : NULL, room, format, arguments);
    va_end(arguments);
    SL_ASSERT(length >= 0);
    text->used += (size_t)length;
}

static struct text text_of(char *data, size_t bytes)
{
    if (bytes > 0)
        data[0] = '\0';
    return (struct text){.data = data, .bytes = bytes};
}

/* Closed, and in the way of the decision or else of the next window. */
static _Bool holds(const struct run *run, const struct sl_run_gate *gate, _Bool decision)
{
    if (gate->open || decision != (run->config.shadow && gate->consumer))
        return 0;
    return decision || gate->first_window <= run->ready;
}

static void add_gates(struct text *text, const struct run *run, _Bool decision)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < run->config.gate_count; i++) {
        const struct sl_run_gate *gate = &run->config.gates[i];
        if (!holds(run, gate, decision) || count++ > 0)
            continue;
        if (gate->name)
            add(text, "%s", gate->name);
        else
            add(text, "gate %u", i);
    }
    if (count > 1)
        add(text, " and %u more", count - 1);
}

static void add_nodes(struct text *text, uint8_t pending)
{
    static const char *const names[] = {"pack", "group", "unpack", "local copy"};
    const char *separator = " (not done: ";
    for (uint32_t i = 0; i < SL_COUNT(names); i++) {
        if (pending & (1u << i)) {
            add(text, "%s%s", separator, names[i]);
            separator = ", ";
        }
    }
    add(text, ")");
}

/* What a window that is ready here is not granted for. */
static const char *lacking(const struct run *run)
{
    if (run->config.world_of_one)
        return "its pace";
    return run->pace.rate > 0 ? "other ranks or its pace" : "other ranks";
}

static void add_window(struct text *text, const struct run *run)
{
    uint32_t total = run->config.windows;
    if (run->running > 0) {
        add(text, "window %u of %u is running", run->done, total);
        add_nodes(text, run->pending[run->done % run->config.slots]);
        add(text, ", launched %u, granted %u", run->launched, run->granted);
    } else if (run->paused) {
        add(text, "paused before window %u of %u", run->launched, total);
    } else if (run->launched >= sl_run_ready(run)) {
        add(text, "window %u of %u is gated: waits for ", run->launched, total);
        add_gates(text, run, 0);
        add(text, "; granted %u", run->granted);
    } else if (run->launched < run->granted) {
        add(text, "window %u of %u is granted, waits for its turn; granted %u", run->launched, total, run->granted);
    } else {
        add(text, "window %u of %u is ready here, waits for %s; granted %u", run->launched, total, lacking(run),
            run->granted);
        if (run->unready > 0)
            add(text, "; rank %u was not ready", run->unready_rank);
    }
}

static void add_state(struct text *text, const struct run *run)
{
    switch (run->state) {
    case RUN_WINDOWS:
    case RUN_REST:
        if (run->deserted)
            add(text, "a peer left a group of window %u of %u or later, waits to hear why", run->done,
                run->config.windows);
        else if (run->launched == sl_run_goal(run) && run->running == 0)
            add(text, "all windows are done here");
        else
            add_window(text, run);
        break;
    case RUN_STAGED_VOTE:
        add(text, "staged here, waits for other ranks to stage");
        break;
    case RUN_GATES:
        add(text, "staged on all ranks, waits for ");
        add_gates(text, run, 1);
        break;
    case RUN_DECIDE_VOTE:
        add(text, "consumer gates are open here, waits for other ranks' consumer gates");
        break;
    case RUN_COMMIT:
        add(text, "the commit copy is running");
        break;
    case RUN_FINAL_VOTE:
        add(text, "every byte is in place here, waits for other ranks");
        break;
    case RUN_ENDED:
        if (run->nodes > 0)
            add(text, "ended, %u operations are still in flight", run->nodes);
        else
            add(text, "ended, waits for other ranks to release their buffers");
        break;
    case RUN_FREE:
    case RUN_STATES:
        break;
    }
}

size_t sl_run_words(const struct run *run, char *data, size_t bytes)
{
    struct text text = text_of(data, bytes);
    add_state(&text, run);
    return text.used;
}

size_t sl_run_gate_words(const struct run *run, char *data, size_t bytes)
{
    struct text text = text_of(data, bytes);
    _Bool decision = run->gates_closed == run->words_closed;
    if (decision)
        add(&text, "the decision of version %llu waits for ", (unsigned long long)run->config.version);
    else
        add(&text, "window %u of %u waits for ", run->ready, run->config.windows);
    add_gates(&text, run, decision);
    add(&text, "; granted %u, launched %u, done %u", run->granted, run->launched, run->done);
    return text.used;
}

static void add_range(struct text *text, uint32_t begin, uint32_t end, const char *word, const char **separator)
{
    if (begin == end)
        return;
    if (end - begin == 1)
        add(text, "%s%u %s", *separator, begin, word);
    else
        add(text, "%s%u-%u %s", *separator, begin, end - 1, word);
    *separator = ", ";
}

size_t sl_run_damage(const struct run *run, char *data, size_t bytes)
{
    struct text text = text_of(data, bytes);
    unsigned long long version = run->config.version;
    if (run->config.shadow && !run->decided) {
        add(&text, "; the old version is untouched");
    } else if (run->state == RUN_FINAL_VOTE && run->config.shadow) {
        add(&text, "; version %llu is in place on this rank", version);
    } else if (run->config.shadow && run->launched == run->config.staged && !run->commit_begun) {
        add(&text, "; nothing of version %llu is in place on this rank", version);
    } else if (run->config.shadow) {
        add(&text, "; version %llu is torn on this rank", version);
    } else if (run->launched == 0) {
        add(&text, "; nothing was moved");
    } else {
        const char *separator = "; windows ";
        add_range(&text, 0, run->done, "done", &separator);
        add_range(&text, run->done, run->launched, "unknown", &separator);
        add_range(&text, run->launched, run->config.windows, "untouched", &separator);
    }
    return text.used;
}

static void add_requests(struct text *text, const struct run *run)
{
    if (run->frozen)
        add(text, "; all ranks agree where to stop");
    if (run->halt)
        add(text, "; stops at window %u", run->halt_at);
    if (run->failing)
        add(text, "; failing: %s", run->error.text);
}

size_t sl_engine_explain(const struct sl_engine *engine, uint32_t index, uint64_t now, char *data, size_t bytes)
{
    struct text text = text_of(data, bytes);
    if (index >= engine->used || engine->runs[index].state == RUN_FREE)
        return 0;
    const struct run *run = &engine->runs[index];
    uint64_t elapsed = now > run->submit_ns ? now - run->submit_ns : 0;
    add(&text, "rank %u, plan %u run %u, %.3f s: ", engine->rank, (unsigned)(run->config.key >> 32),
        (unsigned)run->config.key, (double)elapsed / 1e9);
    add_state(&text, run);
    add_requests(&text, run);
    if (engine->abort != ABORT_NONE)
        add(&text, "; the backend's abort is awaited");
    return text.used;
}
