/*
 * bootstrap_gather.c: bootstrap through the caller's own all-gather.
 *
 * Invariants: every rank makes exactly two calls of the all-gather, whatever happened to it, so nobody is
 * left waiting in one; a rank's fault travels in its record and ends bootstrap on all ranks with the same
 * error. First: who is where, and who has failed. Second: where rank 0 listens, and the job's token.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/control/control_state.h"

struct record {
    uint32_t magic, protocol, version, world, rank;
    int32_t status; /* sluice_status of this rank */
    char host[128]; /* equal on ranks that reach each other by loopback */
    char text[256]; /* of its error */
    uint8_t address[SL_ADDRESS_BYTES];
    uint8_t token[SL_KEY_BYTES];
    uint8_t pad[1];
};
#define MAGIC UINT32_C(0x4c530001)

static void read_line(const char *path, char *text, size_t capacity)
{
    FILE *file = fopen(path, "re");
    text[0] = '\0';
    if (file == NULL)
        return;
    if (fgets(text, (int)capacity, file) == NULL)
        text[0] = '\0';
    SL_IGNORE(fclose(file));
    text[strcspn(text, "\n")] = '\0';
}

/* The kernel's boot and the network namespace: loopback joins exactly the processes that share both. */
static void name_host(char *text, size_t capacity)
{
    char boot[64];
    char space[64] = "";
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    ssize_t bytes = readlink("/proc/self/ns/net", space, sizeof(space) - 1);
    space[bytes > 0 ? bytes : 0] = '\0';
    if (boot[0] == '\0' || space[0] == '\0')
        (void)gethostname(boot, sizeof(boot) - 1);
    (void)snprintf(text, capacity, "%.63s %.63s", boot, space);
}

static void take_error(struct record *own)
{
    struct sluice_error error;
    sl_error_take(&error);
    own->status = error.status;
    (void)snprintf(own->text, sizeof(own->text), "%.255s", error.text);
}

/* Rank 0: the address that all ranks can reach. */
static sluice_status choose_address(struct sl_control *control, const struct record *all)
{
    const struct sl_identity *id = &control->config.identity;
    _Bool one_host = 1;
    for (uint32_t i = 1; i < control->world; i++)
        one_host = one_host && memcmp(all[i].host, all[0].host, sizeof(all[i].host)) == 0;
    if (id->address[0] != '\0')
        return sl_address_resolve(id->address, id->port, &control->address);
    if (one_host)
        return sl_address_resolve("127.0.0.1", id->port, &control->address);
    sluice_status status = sl_address_outward(&control->address);
    sl_address_set_port(&control->address, id->port);
    return status;
}

static void open_job(struct sl_control *control, const struct record *all, struct record *own)
{
    sluice_status status = choose_address(control, all);
    if (status == SLUICE_OK)
        status = sl_address_listen(&control->address, &control->listen_fd);
    if (status == SLUICE_OK)
        status = sl_token_random(own->token, sizeof(own->token));
    if (status == SLUICE_OK)
        sl_address_encode(&control->address, own->address);
    else
        take_error(own);
}

/* --- checking what came --- */

static sluice_status check_record(const struct sl_control *control, const struct record *all, uint32_t rank)
{
    const struct record *r = &all[rank];
    if (r->magic != MAGIC || r->protocol != SL_PROTOCOL || r->version != sluice_version_number())
        return sl_fail(SLUICE_MISMATCH, "bootstrap",
                       "rank %u has another library version, or the all-gather mixes up its bytes", rank);
    if (r->world != control->world || r->rank != rank)
        return sl_fail(SLUICE_MISMATCH, "bootstrap",
                       "the all-gather gave the record of rank %u of %u in place %u of %u: it must keep rank order",
                       r->rank, r->world, rank, control->world);
    return SLUICE_OK;
}

static sluice_status check_records(const struct sl_control *control, const struct record *all)
{
    for (uint32_t i = 0; i < control->world; i++) {
        sluice_status status = check_record(control, all, i);
        if (status != SLUICE_OK)
            return status;
    }
    for (uint32_t i = 0; i < control->world; i++)
        if (all[i].status != SLUICE_OK)
            return i == control->rank ? sl_fail((sluice_status)all[i].status, "bootstrap", "%.255s", all[i].text)
                                      : sl_fail(SLUICE_PEER_FAILED, "bootstrap", "rank %u: %.255s", i, all[i].text);
    return SLUICE_OK;
}

static sluice_status gather(const struct sl_control *control, const struct record *own, struct record *all)
{
    int code = control->config.allgather(own, all, sizeof(*own), control->config.allgather_user);
    if (code != 0)
        return sl_fail(SLUICE_SYSTEM, "bootstrap", "the caller's all-gather failed with %d", code);
    return SLUICE_OK;
}

static sluice_status two_gathers(struct sl_control *control, struct record *own, struct record *all)
{
    sluice_status status = gather(control, own, all);
    if (status != SLUICE_OK)
        return status;
    struct sluice_error first;
    status = check_records(control, all);
    sl_error_take(&first);
    if (status == SLUICE_OK && control->rank == 0)
        open_job(control, all, own);
    if (gather(control, own, all) != SLUICE_OK)
        return SLUICE_SYSTEM;
    status = status == SLUICE_OK ? check_records(control, all) : sl_fail_copy(&first); /* all ranks saw the first */
    if (status == SLUICE_OK && !sl_address_decode(all[0].address, &control->address))
        status = sl_fail(SLUICE_PROTOCOL, "bootstrap", "the all-gather gave no address of rank 0");
    if (status == SLUICE_OK)
        sl_token_of(all[0].token, sizeof(all[0].token), &control->token);
    return status;
}

sluice_status sl_bootstrap_gather(struct sl_control *control)
{
    struct record own = {.magic = MAGIC,
                         .protocol = SL_PROTOCOL,
                         .version = sluice_version_number(),
                         .world = control->world,
                         .rank = control->rank};
    name_host(own.host, sizeof(own.host));
    if (control->config.failure != NULL) {
        own.status = control->config.failure->status;
        (void)snprintf(own.text, sizeof(own.text), "%.255s", control->config.failure->text);
    }
    struct record *all = sl_new_array(control->mem, control->world, sizeof(*all), "records of ranks");
    if (all == NULL)
        return SLUICE_NOMEM; /* without room for the answer the call cannot be made */
    sluice_status status = two_gathers(control, &own, all);
    explicit_bzero(all, control->world * sizeof(*all));
    sl_free(control->mem, all);
    return status;
}
