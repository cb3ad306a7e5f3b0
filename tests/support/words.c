/* words.c: one word per kind of action and note; see words.h. */
#include "support/words.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct sluice_error words_error;
char words_text[SL_NOTE_TEXT_MAX];

static char line[4096];

static const char *const requests[] = {"?", "PAUSE", "RESUME", "CANCEL", "FAIL", "PACE"};
static const char *const phases[] = {"?", "STAGED", "DECIDE", "FINAL", "RELEASED"};
static const char *const events[] = {"?",         "SEALED", "STARTED",   "WINDOW",   "PARAM",  "STAGED",  "COMPLETED",
                                     "COMMITTED", "FAILED", "CANCELLED", "RELEASED", "CLOSED", "STALLED", "PEER_LOST"};

static void say(const char *format, ...) SLUICE_PRINTF(1, 2);

static void say(const char *format, ...)
{
    size_t used = strlen(line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, sizeof line - used, format, arguments);
    va_end(arguments);
}

/* "TIMEOUT" of SLUICE_TIMEOUT. */
static const char *status_word(int32_t status)
{
    return sluice_status_name((sluice_status)status) + strlen("SLUICE_");
}

static char run_name(const struct sl_note *note)
{
    return (char)('a' + (uint32_t)note->key - 1);
}

static void say_told(const struct sl_note *note)
{
    switch ((enum sl_note_kind)note->kind) {
    case SL_NOTE_JOIN:
        say("JOIN %u", (unsigned)note->a);
        break;
    case SL_NOTE_READY:
        say("READY %u", (unsigned)note->a);
        break;
    case SL_NOTE_LAUNCHED:
        say("LAUNCHED %u", (unsigned)note->a);
        break;
    case SL_NOTE_VOTE:
        say("VOTE %s%s%s", phases[note->a], note->status ? " " : "", note->status ? status_word(note->status) : "");
        break;
    case SL_NOTE_REQUEST:
        say("REQUEST %s%s%s", requests[note->a], note->status ? " " : "",
            note->status ? status_word(note->status) : "");
        break;
    case SL_NOTE_BROKEN:
        say("BROKEN");
        break;
    case SL_NOTE_STANDING:
        if (note->key == SL_KEY_NONE)
            say("STANDING end");
        else
            say("STANDING voted %#x seen %#x%s%s", (unsigned)note->c, (unsigned)note->d, note->status ? " " : "",
                note->status ? status_word(note->status) : "");
        break;
    case SL_NOTE_GRANT:
    case SL_NOTE_FREEZE:
    case SL_NOTE_STOP_AT:
    case SL_NOTE_OUTCOME:
    case SL_NOTE_RESUME:
    case SL_NOTE_LOST:
    case SL_NOTE_POISON:
    case SL_NOTE_SEAL_FAILED:
        say("unexpected note %u", note->kind);
        break;
    }
}

static void say_event(const struct sl_action *action)
{
    say("%s", events[action->event]);
    if (action->event == SLUICE_EVENT_WINDOW)
        say(" %u", action->window);
    if (action->event == SLUICE_EVENT_FAILED)
        say(" %s", status_word(action->error.status));
    if (action->event == SLUICE_EVENT_FAILED || action->event == SLUICE_EVENT_CANCELLED)
        words_error = action->error;
}

static void say_action(const struct sl_action *action)
{
    if (action->run > 0)
        say("%c:", (char)('a' + action->run));
    switch (action->kind) {
    case SL_ACTION_LAUNCH:
        say("launch %u", action->window);
        break;
    case SL_ACTION_COMMIT:
        say("commit");
        break;
    case SL_ACTION_TELL:
        say_told(&action->note);
        break;
    case SL_ACTION_EMIT:
        say_event(action);
        break;
    case SL_ACTION_ABORT:
        say("abort");
        break;
    case SL_ACTION_RELEASE:
        say("release");
        break;
    case SL_ACTION_POISON:
        say("poison");
        words_error = action->error;
        break;
    }
}

const char *engine_words(struct sl_engine *engine)
{
    struct sl_action action;
    line[0] = '\0';
    while (sl_engine_next(engine, &action)) {
        say("%s", line[0] ? "; " : "");
        say_action(&action);
    }
    return line;
}

static void say_answer(const struct sl_note *note)
{
    switch ((enum sl_note_kind)note->kind) {
    case SL_NOTE_GRANT:
        say("GRANT %c:%u #%u", run_name(note), (unsigned)note->a, (unsigned)note->b);
        break;
    case SL_NOTE_FREEZE:
        say("FREEZE %c %s", run_name(note), requests[note->a]);
        break;
    case SL_NOTE_STOP_AT:
        say("STOP_AT %c:%u %s", run_name(note), (unsigned)note->a, requests[note->b]);
        break;
    case SL_NOTE_OUTCOME:
        say("OUTCOME %c %s %s", run_name(note), phases[note->a], status_word(note->status));
        break;
    case SL_NOTE_RESUME:
        say("RESUME %c", run_name(note));
        break;
    case SL_NOTE_LOST:
        say("LOST %u", note->rank);
        break;
    case SL_NOTE_POISON:
        say("POISON %u", note->rank);
        break;
    case SL_NOTE_SEAL_FAILED:
        say("SEAL_FAILED %u", note->rank);
        break;
    case SL_NOTE_JOIN:
    case SL_NOTE_READY:
    case SL_NOTE_LAUNCHED:
    case SL_NOTE_VOTE:
    case SL_NOTE_REQUEST:
    case SL_NOTE_BROKEN:
    case SL_NOTE_STANDING:
        say("unexpected note %u", note->kind);
        break;
    }
}

const char *arbiter_words(struct sl_arbiter *arbiter)
{
    struct sl_note note;
    line[0] = '\0';
    while (sl_arbiter_next(arbiter, &note)) {
        say("%s", line[0] ? "; " : "");
        say_answer(&note);
        memcpy(words_text, note.text, sizeof words_text);
    }
    return line;
}
