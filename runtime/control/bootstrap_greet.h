/*
 * bootstrap_greet.h: the greeting of fixed size in which both sides prove that they know the token.
 * Pure: bytes in, bytes out. Nothing else is read from a connection before it is over.
 *
 *   server -> client   magic 8, nonce 32
 *   client -> server   magic 8, nonce 32, proof 32
 *   server -> client   code 1, proof 32
 */
#ifndef SL_CONTROL_BOOTSTRAP_GREET_H
#define SL_CONTROL_BOOTSTRAP_GREET_H

#include "runtime/control/token.h"

#define SL_GREET_HELLO  40u /* bytes of the three messages */
#define SL_GREET_ANSWER 72u
#define SL_GREET_END    33u

enum sl_greet_code {
    SL_GREET_WELCOME = 1,
    SL_GREET_WRONG = 2,      /* the token is another, or the proof is stale */
    SL_GREET_NOT_LEADING = 3 /* the token is right, but this rank takes nobody in */
};

struct sl_greet {
    uint8_t server_nonce[SL_NONCE_BYTES];
    uint8_t client_nonce[SL_NONCE_BYTES];
};

/* Server: the first message. SYSTEM. */
sluice_status sl_greet_hello(struct sl_greet *greet, uint8_t *ret_hello);
/* Server: checks the answer; `ret_end` is to be sent in any case. False: refused. */
_Bool sl_greet_check(struct sl_greet *greet, const struct sl_token *token, _Bool leading, const uint8_t *answer,
                     uint8_t *ret_end);
/* Client: answers the first message. PROTOCOL when it is not a greeting of ours; SYSTEM. */
sluice_status sl_greet_answer(struct sl_greet *greet, const struct sl_token *token, const uint8_t *hello,
                              uint8_t *ret_answer);
/* Client: OK, AUTH (either side does not know the token), BUSY (not leading). */
sluice_status sl_greet_finish(const struct sl_greet *greet, const struct sl_token *token, const uint8_t *end);

#endif
