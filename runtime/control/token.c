/*
 * token.c: token files and proofs.
 *
 * Invariants: a file is checked after it is open, never by name, so it cannot be exchanged in between; a
 * file appears whole, by rename; secrets on the stack are wiped. Errors name paths, never content.
 */
#include "runtime/control/token.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/error.h"

enum { TOKEN_MIN = 16, TOKEN_MAX = 4096, FRESH_BYTES = 32 };

static _Bool ready(void)
{
    return sodium_init() >= 0; /* may be called again and from any thread */
}

sluice_status sl_token_random(void *ret, size_t bytes)
{
    if (!ready())
        return sl_fail(SLUICE_SYSTEM, "control", "the system gives no random numbers");
    randombytes_buf(ret, bytes);
    return SLUICE_OK;
}

void sl_token_of(const void *secret, size_t bytes, struct sl_token *ret)
{
    static const uint8_t purpose[] = "sluice token 1";
    SL_ASSERT(ready());
    crypto_generichash(ret->key, sizeof(ret->key), secret, bytes, purpose, sizeof(purpose) - 1);
}

void sl_token_forget(struct sl_token *token)
{
    sodium_memzero(token, sizeof(*token));
}

/* --- reading --- */

static sluice_status refuse(const char *path, const char *reason)
{
    return sl_fail(SLUICE_CONFIG, "token", "token file %.300s: %s", path, reason);
}

static sluice_status check_file(const char *path, const struct stat *info)
{
    if (!S_ISREG(info->st_mode))
        return refuse(path, "it is not a regular file");
    if (info->st_uid != geteuid())
        return refuse(path, "it belongs to another user");
    if ((info->st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return refuse(path, "others may read or write it; chmod 600 it");
    if (info->st_size < TOKEN_MIN || info->st_size > TOKEN_MAX)
        return refuse(path, "16 to 4096 bytes are needed");
    return SLUICE_OK;
}

/* Reads up to `capacity` bytes; -1 with errno. */
static ssize_t read_whole(int fd, uint8_t *data, size_t capacity)
{
    size_t have = 0;
    while (have < capacity) {
        ssize_t got = read(fd, data + have, capacity - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

static sluice_status read_open(int fd, const char *path, struct sl_token *ret)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, "token", "token file %.300s", path);
    sluice_status status = check_file(path, &info);
    if (status != SLUICE_OK)
        return status;
    uint8_t content[TOKEN_MAX];
    ssize_t bytes = read_whole(fd, content, sizeof(content));
    if (bytes < 0)
        return sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, "token", "token file %.300s", path);
    if (bytes >= TOKEN_MIN)
        sl_token_of(content, (size_t)bytes, ret);
    sodium_memzero(content, sizeof(content));
    return bytes >= TOKEN_MIN ? SLUICE_OK : refuse(path, "it became shorter while it was read");
}

sluice_status sl_token_read(const char *path, struct sl_token *ret)
{
    if (!ready())
        return sl_fail(SLUICE_SYSTEM, "token", "the system gives no random numbers");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* a pipe must not hold us */
    if (fd < 0 && errno == ENOENT)
        return sl_fail(SLUICE_NOT_FOUND, "token", "token file %.300s does not exist", path);
    if (fd < 0)
        return sl_fail(SLUICE_CONFIG, "token", "token file %.300s: %s", path, sl_errno_words(errno));
    sluice_status status = read_open(fd, path, ret);
    SL_IGNORE(close(fd));
    return status;
}

/* --- the default file --- */

static sluice_status check_directory(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return sl_fail(SLUICE_CONFIG, "token", "directory %.256s for the job's token: %s; set SLUICE_TOKEN_FILE", path,
                       sl_errno_words(errno));
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return sl_fail(SLUICE_CONFIG, "token",
                       "directory %.256s for the job's token is not a directory of ours alone (mode 0700); set "
                       "SLUICE_TOKEN_FILE",
                       path);
    return SLUICE_OK;
}

static sluice_status find_directory(const struct sl_identity *identity, char *ret, size_t capacity)
{
    if (identity->runtime_directory[0] != '\0') {
        (void)snprintf(ret, capacity, "%s", identity->runtime_directory);
        return check_directory(ret);
    }
    (void)snprintf(ret, capacity, "/run/user/%u", (unsigned)geteuid());
    struct stat info;
    if (lstat(ret, &info) == 0)
        return check_directory(ret);
    (void)snprintf(ret, capacity, "/tmp/sluice-%u", (unsigned)geteuid());
    if (mkdir(ret, S_IRWXU) != 0 && errno != EEXIST)
        return sl_fail(SLUICE_CONFIG, "token", "directory %.256s for the job's token: %s; set SLUICE_TOKEN_FILE", ret,
                       sl_errno_words(errno));
    return check_directory(ret);
}

sluice_status sl_token_path(const struct sl_identity *identity, const char *place, char *ret, size_t capacity)
{
    char directory[sizeof(identity->runtime_directory)];
    sluice_status status = find_directory(identity, directory, sizeof(directory));
    if (status != SLUICE_OK)
        return status;
    int length = snprintf(ret, capacity, "%s/sluice-%s.token", directory, place);
    SL_ASSERT(length > 0);
    if ((size_t)length >= capacity)
        return refuse(directory, "the path is too long");
    return SLUICE_OK;
}

static _Bool write_whole(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t put = write(fd, data, bytes);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return 0;
        data += put;
        bytes -= (size_t)put;
    }
    return 1;
}

sluice_status sl_token_write(const char *path, struct sl_token *ret)
{
    uint8_t fresh[FRESH_BYTES];
    char text[2 * FRESH_BYTES + 1];
    char temporary[600];
    sluice_status status = sl_token_random(fresh, sizeof(fresh));
    if (status != SLUICE_OK)
        return status;
    sodium_bin2hex(text, sizeof(text), fresh, sizeof(fresh));
    int length = snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
    SL_ASSERT(length > 0 && (size_t)length < sizeof(temporary));
    int fd = mkostemp(temporary, O_CLOEXEC); /* mode 0600 */
    _Bool good = fd >= 0 && write_whole(fd, text, sizeof(text) - 1) && rename(temporary, path) == 0;
    if (good)
        sl_token_of(text, sizeof(text) - 1, ret);
    else
        status = sl_fail_native(SLUICE_SYSTEM, SLUICE_DOMAIN_SYSTEM, errno, "token", "token file %.300s", path);
    if (fd >= 0)
        SL_IGNORE(close(fd));
    if (fd >= 0 && !good)
        SL_IGNORE(unlink(temporary));
    sodium_memzero(fresh, sizeof(fresh));
    sodium_memzero(text, sizeof(text));
    return status;
}

void sl_token_remove(const char *path)
{
    SL_IGNORE(unlink(path));
}

/* --- proofs --- */

void sl_token_derive(const struct sl_token *token, const uint8_t *nonce, struct sl_token *ret)
{
    static const uint8_t purpose[] = "sluice job key 1";
    crypto_generichash_state state;
    crypto_generichash_init(&state, token->key, sizeof(token->key), sizeof(ret->key));
    crypto_generichash_update(&state, purpose, sizeof(purpose) - 1);
    crypto_generichash_update(&state, nonce, SL_NONCE_BYTES);
    crypto_generichash_final(&state, ret->key, sizeof(ret->key));
    sodium_memzero(&state, sizeof(state));
}

void sl_token_prove(const struct sl_token *token, enum sl_token_role role, const uint8_t *server_nonce,
                    const uint8_t *client_nonce, uint8_t *ret_proof)
{
    static const uint8_t purpose[] = "sluice proof 1";
    const uint8_t side = (uint8_t)role;
    crypto_generichash_state state;
    crypto_generichash_init(&state, token->key, sizeof(token->key), SL_PROOF_BYTES);
    crypto_generichash_update(&state, purpose, sizeof(purpose) - 1);
    crypto_generichash_update(&state, &side, 1);
    crypto_generichash_update(&state, server_nonce, SL_NONCE_BYTES);
    crypto_generichash_update(&state, client_nonce, SL_NONCE_BYTES);
    crypto_generichash_final(&state, ret_proof, SL_PROOF_BYTES);
    sodium_memzero(&state, sizeof(state));
}

_Bool sl_token_verify(const struct sl_token *token, enum sl_token_role role, const uint8_t *server_nonce,
                      const uint8_t *client_nonce, const uint8_t *proof)
{
    uint8_t own[SL_PROOF_BYTES];
    sl_token_prove(token, role, server_nonce, client_nonce, own);
    return sodium_memcmp(own, proof, sizeof(own)) == 0;
}
