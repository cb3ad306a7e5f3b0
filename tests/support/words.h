/*
 * words.h: what an engine or the arbiter does next, as one line of words, so that tests compare literals.
 *
 *   engine:   "JOIN 4; READY 2; launch 0; STARTED; WINDOW 0; FAILED TIMEOUT; abort; RELEASED; release"
 *   arbiter:  "GRANT a:3 #1; FREEZE a CANCEL; STOP_AT a:3 CANCEL; OUTCOME a STAGED OK; LOST 2"
 *
 * Runs are named a, b, c by the low bits of their keys (1, 2, 3), in the engine's line by their index
 * when there are several ("launch b:0").
 */
#ifndef TESTS_SUPPORT_WORDS_H
#define TESTS_SUPPORT_WORDS_H

#include "runtime/control/arbiter.h"
#include "runtime/engine/engine.h"

/* Takes all actions. The text is valid until the next call; so is *words_error, the error of the last failure. */
const char *engine_words(struct sl_engine *engine);
const char *arbiter_words(struct sl_arbiter *arbiter);
/* Error of the last FAILED, CANCELLED or POISON that engine_words saw; text of the last note of arbiter_words. */
extern struct sluice_error words_error;
extern char words_text[SL_NOTE_TEXT_MAX];

#endif
