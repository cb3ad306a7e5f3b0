/*
 * token.h: the job's secret, where it comes from, and the proof of knowing it.
 *
 * - The key is a hash of the token file's content; the content itself is not kept. Neither ever appears
 *   in a log line, an error or on the wire.
 * - A proof is a keyed hash of a role and both sides' fresh nonces, so it cannot be replayed on another
 *   connection or reflected to its maker.
 * - Functions may be called from any thread.
 */
#ifndef SL_CONTROL_TOKEN_H
#define SL_CONTROL_TOKEN_H

#include "runtime/control/control.h"

#define SL_KEY_BYTES   32u
#define SL_NONCE_BYTES 32u
#define SL_PROOF_BYTES 32u

struct sl_token {
    uint8_t key[SL_KEY_BYTES];
};

enum sl_token_role { SL_PROVE_CLIENT = 1, SL_PROVE_SERVER = 2 };

/* Random bytes that an attacker cannot foresee. SYSTEM when the machine gives none. */
sluice_status sl_token_random(void *ret, size_t bytes);
/* The key of given bytes (from the caller's all-gather). */
void sl_token_of(const void *secret, size_t bytes, struct sl_token *ret);
/*
 * Reads a token file: a regular file of 16 to 4096 bytes, ours, with no permission for others. CONFIG
 * naming path and reason; NOT_FOUND when there is none.
 */
sluice_status sl_token_read(const char *path, struct sl_token *ret);
/*
 * Where the default token of a loopback address lies ("sluice-127.0.0.1:29500.token" in a directory that
 * is ours alone). `place` is the address in words. CONFIG naming the directory and reason.
 */
sluice_status sl_token_path(const struct sl_identity *identity, const char *place, char *ret, size_t capacity);
/* Writes a fresh random token, readable by us alone; replaces what an earlier job left there. SYSTEM. */
sluice_status sl_token_write(const char *path, struct sl_token *ret);
void sl_token_remove(const char *path);
/* The key of one job: known to who knows the token and has joined. */
void sl_token_derive(const struct sl_token *token, const uint8_t *nonce, struct sl_token *ret);
void sl_token_prove(const struct sl_token *token, enum sl_token_role role, const uint8_t *server_nonce,
                    const uint8_t *client_nonce, uint8_t *ret_proof);
/* In constant time. */
_Bool sl_token_verify(const struct sl_token *token, enum sl_token_role role, const uint8_t *server_nonce,
                      const uint8_t *client_nonce, const uint8_t *proof);
void sl_token_forget(struct sl_token *token);

#endif
