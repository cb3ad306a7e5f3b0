/*
 * bootstrap_lead.c: rank 0 takes the others in.
 *
 * Invariants: a rank is taken in at most once; a claim that is refused changes nothing; a fault that the
 * whole job has (versions, world, a device used twice, a rank that failed) ends bootstrap for all.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/control/control_state.h"

/* What a JOIN says. */
struct claim {
    uint32_t protocol, version, rank, world, port;
    uint64_t left_ns; /* until this rank's own deadline */
    _Bool failed;
    char job[128];
    char device[SL_DEVICE_MAX];
    struct sluice_error failure;
};

static _Bool read_claim(const uint8_t *payload, size_t bytes, struct claim *ret)
{
    struct sl_reader r = sl_reader_of(payload, bytes);
    ret->protocol = sl_get_u32(&r);
    ret->version = sl_get_u32(&r);
    ret->rank = sl_get_u32(&r);
    ret->world = sl_get_u32(&r);
    ret->port = sl_get_u16(&r);
    ret->left_ns = sl_get_u64(&r);
    ret->failed = sl_get_u8(&r) != 0;
    if (ret->protocol != SL_PROTOCOL)
        return !r.failed; /* the rest may be laid out otherwise */
    sl_get_text(&r, ret->job, sizeof(ret->job));
    sl_get_text(&r, ret->device, sizeof(ret->device));
    if (ret->failed)
        sl_get_error(&r, &ret->failure);
    return sl_reader_done(&r);
}

/* A fault that the whole job has, not only this claim. OK: none. */
static sluice_status judge(struct sl_control *control, const struct claim *claim, const char *address,
                           struct sluice_error *error)
{
    if (claim->protocol != SL_PROTOCOL || claim->version != sluice_version_number())
        return sl_error_set(error, SLUICE_MISMATCH, "bootstrap",
                            "rank %u at %s has library version %u.%u.%u (protocol %u), rank 0 has %u.%u.%u (protocol "
                            "%u): install the same on all ranks",
                            claim->rank, address, claim->version >> 16, (claim->version >> 8) & 255u,
                            claim->version & 255u, claim->protocol, SLUICE_VERSION_MAJOR, SLUICE_VERSION_MINOR,
                            SLUICE_VERSION_PATCH, SL_PROTOCOL);
    if (claim->world != control->world)
        return sl_error_set(error, SLUICE_MISMATCH, "bootstrap",
                            "rank %u at %s was told of a world of %u, rank 0 of a world of %u", claim->rank, address,
                            claim->world, control->world);
    if (claim->failed)
        return sl_error_set(error, SLUICE_PEER_FAILED, "bootstrap", "rank %u at %s: %.400s", claim->rank, address,
                            claim->failure.text);
    for (uint32_t i = 0; claim->device[0] != '\0' && i < control->world; i++)
        if (control->devices[i] != NULL && strcmp(control->devices[i], claim->device) == 0)
            return sl_error_set(error, SLUICE_CONFIG, "bootstrap",
                                "ranks %u and %u use the same device (%.200s): give each its own, by local rank or by "
                                "CUDA_VISIBLE_DEVICES, or let them share it (option device_shared; sluice run "
                                "--ranks-per-gpu)",
                                i, claim->rank, claim->device);
    return SLUICE_OK;
}

/* A claim that only concerns itself: logged, answered, without effect on the job. */
static void refuse(struct sl_control *control, struct sl_wire *wire, const char *address, const char *why)
{
    struct sluice_error error;
    SL_IGNORE(sl_error_set(&error, SLUICE_STATE, "bootstrap", "rank 0 refused us: %s", why));
    sl_accept_log_refused(&control->accept, address, why);
    sl_bootstrap_send_error(control, wire, &error);
}

static void welcome_all(struct sl_control *control)
{
    struct sl_writer w;
    uint8_t *data = NULL;
    size_t bytes = 0;
    sl_writer_init(&w, control->mem);
    sl_put_u64(&w, control->config.heartbeat_ns);
    sl_put_bytes(&w, control->job_nonce, sizeof(control->job_nonce));
    sl_put_u32(&w, control->world);
    sl_put_bytes(&w, control->roster, (size_t)control->world * SL_ADDRESS_BYTES);
    struct sl_blob *blob = NULL;
    if (sl_writer_take(&w, &data, &bytes) == SLUICE_OK)
        blob = sl_blob_of(control->mem, data, bytes);
    if (blob == NULL) {
        struct sluice_error error;
        SL_IGNORE(sl_error_set(&error, SLUICE_NOMEM, "bootstrap", "rank 0 is out of memory for the roster"));
        sl_bootstrap_fail(control, &error);
        return;
    }
    sl_peers_send_blob(control, SL_FRAME_WELCOME, blob);
    sl_blob_drop(blob);
    control->phase = SL_CONTROL_RUNNING;
    control->beat_ns = control->config.heartbeat_ns;
    sl_bootstrap_remove_token(control);
    sl_bootstrap_forget_devices(control);
    sl_heartbeat_start(control);
    sl_control_decide(control, NULL);
}

static void take_in(struct sl_control *control, struct sl_wire *wire, const struct claim *claim)
{
    struct sl_peer *peer = &control->peers[claim->rank];
    struct sl_address address;
    sl_address_of_peer(sl_wire_fd(wire), &address);
    sl_address_set_port(&address, claim->port);
    sl_address_encode(&address, control->roster + (size_t)claim->rank * SL_ADDRESS_BYTES);
    if (claim->device[0] != '\0')
        control->devices[claim->rank] = sl_strdup(control->mem, claim->device);
    peer->wire = wire;
    peer->state = SL_PEER_PRESENT;
    sl_wire_hand_over(wire, &sl_peer_handlers, peer);
    control->present++;
    uint64_t theirs = sl_deadline(sl_now(control->config.clock), claim->left_ns);
    control->deadline = theirs < control->deadline ? theirs : control->deadline;
    if (control->present == control->world - 1)
        welcome_all(control);
}

static void on_guest(void *context, struct sl_wire *wire, const char *address, const uint8_t *payload, size_t bytes)
{
    struct sl_control *control = context;
    struct claim claim = {0};
    char why[160];
    if (!read_claim(payload, bytes, &claim)) {
        sl_accept_log_refused(&control->accept, address, "its first message is malformed");
        sl_wire_close(wire);
        return;
    }
    if (control->phase == SL_CONTROL_REFUSING) {
        sl_bootstrap_send_error(control, wire, &control->open_error);
        control->told++;
        return;
    }
    if (claim.rank < control->world && control->peers[claim.rank].state != SL_PEER_ABSENT) {
        (void)snprintf(why, sizeof(why),
                       "rank %u of the job at this address has already joined; is the port in use "
                       "by another job?",
                       claim.rank);
        refuse(control, wire, address, why);
        return;
    }
    if (control->phase != SL_CONTROL_JOINING) {
        refuse(control, wire, address, "the job is already running");
        return;
    }
    if (claim.protocol == SL_PROTOCOL && strcmp(claim.job, control->config.identity.job) != 0) {
        refuse(control, wire, address, "it belongs to another job of the launcher; choose another SLUICE_PORT for it");
        return;
    }
    struct sluice_error error;
    if (judge(control, &claim, address, &error) != SLUICE_OK) {
        sl_bootstrap_fail(control, &error);
        sl_bootstrap_send_error(control, wire, &error);
        control->told++;
        return;
    }
    if (claim.rank >= control->world) {
        (void)snprintf(why, sizeof(why), "rank %u is not one of the %u ranks", claim.rank, control->world);
        refuse(control, wire, address, why);
        return;
    }
    take_in(control, wire, &claim);
}

sluice_status sl_bootstrap_lead(struct sl_control *control)
{
    control->devices = sl_new_array(control->mem, control->world, sizeof(char *), "devices of ranks");
    control->roster = sl_new_array(control->mem, control->world, SL_ADDRESS_BYTES, "addresses of ranks");
    if (control->devices == NULL || control->roster == NULL)
        return SLUICE_NOMEM;
    if (control->config.device != NULL && control->config.device[0] != '\0')
        control->devices[0] = sl_strdup(control->mem, control->config.device);
    sl_address_encode(&control->address, control->roster);
    sluice_status status = sl_token_random(control->job_nonce, sizeof(control->job_nonce));
    if (status != SLUICE_OK)
        return status;
    control->accept.token = control->token;
    control->accept.leading = 1;
    control->accept.on_guest = on_guest;
    control->accept.context = control;
    status = sl_accept_open(&control->accept, control->listen_fd);
    if (status == SLUICE_OK)
        control->listen_fd = -1;
    return status;
}
