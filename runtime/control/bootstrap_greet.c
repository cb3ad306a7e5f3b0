/*
 * bootstrap_greet.c: the greeting. Invariants: both nonces are fresh for every connection; the server
 * proves its knowledge only to a client that has proved its own.
 */
#include "runtime/control/bootstrap_greet.h"

#include <string.h>

#include "runtime/base/error.h"

enum { MAGIC_BYTES = 8 };

static const uint8_t magic[MAGIC_BYTES] = {'S', 'L', 'U', 'I', 'C', 'E', 0, 1};

sluice_status sl_greet_hello(struct sl_greet *greet, uint8_t *ret_hello)
{
    sluice_status status = sl_token_random(greet->server_nonce, sizeof(greet->server_nonce));
    if (status != SLUICE_OK)
        return status;
    memcpy(ret_hello, magic, MAGIC_BYTES);
    memcpy(ret_hello + MAGIC_BYTES, greet->server_nonce, SL_NONCE_BYTES);
    return SLUICE_OK;
}

_Bool sl_greet_check(struct sl_greet *greet, const struct sl_token *token, _Bool leading, const uint8_t *answer,
                     uint8_t *ret_end)
{
    const uint8_t *nonce = answer + MAGIC_BYTES;
    const uint8_t *proof = nonce + SL_NONCE_BYTES;
    memset(ret_end, 0, SL_GREET_END);
    ret_end[0] = SL_GREET_WRONG;
    if (memcmp(answer, magic, MAGIC_BYTES) != 0 ||
        !sl_token_verify(token, SL_PROVE_CLIENT, greet->server_nonce, nonce, proof))
        return 0;
    memcpy(greet->client_nonce, nonce, SL_NONCE_BYTES);
    ret_end[0] = leading ? SL_GREET_WELCOME : SL_GREET_NOT_LEADING;
    sl_token_prove(token, SL_PROVE_SERVER, greet->server_nonce, greet->client_nonce, ret_end + 1);
    return leading;
}

sluice_status sl_greet_answer(struct sl_greet *greet, const struct sl_token *token, const uint8_t *hello,
                              uint8_t *ret_answer)
{
    if (memcmp(hello, magic, MAGIC_BYTES) != 0)
        return sl_fail(SLUICE_PROTOCOL, "bootstrap", "its greeting is not Sluice's of this version");
    memcpy(greet->server_nonce, hello + MAGIC_BYTES, SL_NONCE_BYTES);
    sluice_status status = sl_token_random(greet->client_nonce, sizeof(greet->client_nonce));
    if (status != SLUICE_OK)
        return status;
    memcpy(ret_answer, magic, MAGIC_BYTES);
    memcpy(ret_answer + MAGIC_BYTES, greet->client_nonce, SL_NONCE_BYTES);
    sl_token_prove(token, SL_PROVE_CLIENT, greet->server_nonce, greet->client_nonce,
                   ret_answer + MAGIC_BYTES + SL_NONCE_BYTES);
    return SLUICE_OK;
}

sluice_status sl_greet_finish(const struct sl_greet *greet, const struct sl_token *token, const uint8_t *end)
{
    if (end[0] == SL_GREET_WRONG)
        return sl_fail(SLUICE_AUTH, "bootstrap", "it refused our token");
    if (!sl_token_verify(token, SL_PROVE_SERVER, greet->server_nonce, greet->client_nonce, end + 1))
        return sl_fail(SLUICE_AUTH, "bootstrap", "it does not know this job's token");
    if (end[0] == SL_GREET_NOT_LEADING)
        return sl_fail(SLUICE_BUSY, "bootstrap", "it leads no job");
    return SLUICE_OK;
}
