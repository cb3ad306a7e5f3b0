/*
 * identity.c: who we are and where rank 0 is, from options, settings and launcher variables.
 *
 * Invariants: nothing is guessed and nothing half-present is passed over; every error names the variable
 * and its value. The rule is in docs/concepts.md, "Launcher variables"; this is the only file of the
 * control plane that reads the environment.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/config.h"
#include "runtime/base/error.h"
#include "runtime/control/control.h"

/* How one launcher says who we are. NULL: it does not say. */
struct launcher {
    const char *name;
    const char *rank, *world, *local_rank, *local_world;
};

static const struct launcher torchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
static const struct launcher open_mpi = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
static const struct launcher pmi = {"PMI", "PMI_RANK", "PMI_SIZE", NULL, NULL};
static const struct launcher slurm = {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL};

struct search {
    const struct sluice_runtime_options *options;
    const char *const *environment;
    const struct launcher *launcher; /* the one that counts; NULL: none */
    struct sl_config config;
    struct sl_identity *id;
};

static const char *variable(const struct search *s, const char *name)
{
    return name == NULL ? NULL : sl_environment_get(s->environment, name);
}

/* A number in [min, max]; nothing else is a number. */
static sluice_status number(const char *name, const char *text, uint32_t min, uint32_t max, uint32_t *ret)
{
    uint32_t value = 0;
    if (!sl_parse_u32(text, &value))
        return sl_fail(SLUICE_CONFIG, "identity", "%s is \"%.64s\": a decimal number is needed", name, text);
    if (value < min || value > max)
        return sl_fail(SLUICE_CONFIG, "identity", "%s is %.64s: it must be %u to %u", name, text, min, max);
    *ret = value;
    return SLUICE_OK;
}

static sluice_status read_world(const struct search *s, const struct launcher *l, uint32_t *ret_rank,
                                uint32_t *ret_world)
{
    const char *rank = variable(s, l->rank);
    const char *world = variable(s, l->world);
    if (rank == NULL || world == NULL)
        return sl_fail(SLUICE_CONFIG, "identity", "%s is %.64s but %s is not set: %s sets both",
                       rank == NULL ? l->world : l->rank, rank == NULL ? world : rank,
                       rank == NULL ? l->rank : l->world, l->name);
    sluice_status status = number(l->world, world, 1, SLUICE_WORLD_MAX, ret_world);
    if (status == SLUICE_OK)
        status = number(l->rank, rank, 0, SLUICE_WORLD_MAX - 1, ret_rank);
    if (status == SLUICE_OK && *ret_rank >= *ret_world)
        return sl_fail(SLUICE_CONFIG, "identity", "%s is %u but %s is %u: ranks go from 0 to %u", l->rank, *ret_rank,
                       l->world, *ret_world, *ret_world - 1);
    return status;
}

/* --- which launcher --- */

static _Bool present(const struct search *s, const struct launcher *l)
{
    /* A shell in a Slurm allocation has SLURM_NTASKS but is no task. */
    return variable(s, l->rank) != NULL || (l != &slurm && variable(s, l->world) != NULL);
}

/* Another launcher that is there too must say the same. */
static sluice_status agree(const struct search *s, const struct launcher *other)
{
    uint32_t rank = 0;
    uint32_t world = 0;
    sluice_status status = read_world(s, other, &rank, &world);
    if (status != SLUICE_OK)
        return status;
    const struct launcher *l = s->launcher;
    if (rank != s->id->rank)
        return sl_fail(SLUICE_CONFIG, "identity", "%s is %u but %s is %u: unset the variables of %s or of %s", l->rank,
                       s->id->rank, other->rank, rank, l->name, other->name);
    if (world != s->id->world)
        return sl_fail(SLUICE_CONFIG, "identity", "%s is %u but %s is %u: unset the variables of %s or of %s", l->world,
                       s->id->world, other->world, world, l->name, other->name);
    return SLUICE_OK;
}

/*
 * torchrun's agent (TORCHELASTIC_RUN_ID) starts us itself, so what is around it describes the agent.
 * Open MPI and PMI start their daemons through Slurm, so then Slurm's variables describe the daemons.
 */
static sluice_status read_launchers(struct search *s)
{
    const struct launcher *const order[] = {&torchrun, &open_mpi, &pmi, &slurm};
    _Bool agent = present(s, &torchrun) && variable(s, "TORCHELASTIC_RUN_ID") != NULL;
    _Bool mpi = present(s, &open_mpi) || present(s, &pmi);
    for (size_t i = 0; i < SL_COUNT(order); i++) {
        _Bool hidden = (agent && i > 0) || (mpi && order[i] == &slurm);
        if (hidden || !present(s, order[i]))
            continue;
        sluice_status status = SLUICE_OK;
        if (s->launcher == NULL) {
            s->launcher = order[i];
            status = read_world(s, order[i], &s->id->rank, &s->id->world);
        } else {
            status = agree(s, order[i]);
        }
        if (status != SLUICE_OK)
            return status;
    }
    return SLUICE_OK;
}

/* --- local rank --- */

static sluice_status check_local(const char *rank_name, const char *world_name, struct sl_identity *id)
{
    if (id->local_world > id->world)
        return sl_fail(SLUICE_CONFIG, "identity", "%s is %u but the world is %u", world_name, id->local_world,
                       id->world);
    if (id->local_world > 0 && id->local_rank >= id->local_world)
        return sl_fail(SLUICE_CONFIG, "identity", "%s is %u but %s is %u", rank_name, id->local_rank, world_name,
                       id->local_world);
    if (id->local_rank >= id->world)
        return sl_fail(SLUICE_CONFIG, "identity", "%s is %u but the world is %u", rank_name, id->local_rank, id->world);
    return SLUICE_OK;
}

static sluice_status read_local(struct search *s)
{
    const struct launcher *l = s->launcher;
    const char *rank = variable(s, l->local_rank);
    const char *world = variable(s, l->local_world);
    s->id->local_missing = rank != NULL ? NULL : l->local_rank != NULL ? l->local_rank : "LOCAL_RANK";
    sluice_status status = SLUICE_OK;
    if (rank != NULL)
        status = number(l->local_rank, rank, 0, SLUICE_WORLD_MAX - 1, &s->id->local_rank);
    if (status == SLUICE_OK && world != NULL)
        status = number(l->local_world, world, 1, SLUICE_WORLD_MAX, &s->id->local_world);
    return status == SLUICE_OK ? check_local(l->local_rank, l->local_world, s->id) : status;
}

/* --- the job --- */

/* Equal on all ranks of one launch, another on the next. */
static void read_job(struct search *s)
{
    const char *first = NULL;
    const char *second = NULL;
    if (s->launcher == &torchrun) {
        first = variable(s, "TORCHELASTIC_RUN_ID");
    } else if (s->launcher == &slurm) {
        first = variable(s, "SLURM_JOB_ID");
        second = variable(s, "SLURM_STEP_ID");
    } else if (s->launcher == &open_mpi) {
        first = variable(s, "PMIX_NAMESPACE");
    }
    if (first != NULL)
        (void)snprintf(s->id->job, sizeof(s->id->job), "%s%s%s", first, second == NULL ? "" : ".",
                       second == NULL ? "" : second);
}

/* --- sources, in order --- */

static sluice_status from_options(struct search *s)
{
    const struct sluice_runtime_options *o = s->options;
    if (o->world > SLUICE_WORLD_MAX)
        return sl_fail(SLUICE_CONFIG, "identity", "option world is %u: it must be 1 to %u", o->world, SLUICE_WORLD_MAX);
    if (o->rank >= o->world)
        return sl_fail(SLUICE_CONFIG, "identity", "option rank is %u but option world is %u: ranks go from 0 to %u",
                       o->rank, o->world, o->world - 1);
    s->id->source = "options";
    s->id->rank = o->rank;
    s->id->world = o->world;
    s->id->local_rank = o->local_rank;
    s->id->local_world = o->local_world;
    s->id->local_missing = o->local_world == 0 && o->local_rank == 0 && o->world > 1 ? "option local_world" : NULL;
    return check_local("option local_rank", "option local_world", s->id);
}

static sluice_status from_launcher(struct search *s)
{
    if (s->options->rank != 0)
        return sl_fail(SLUICE_CONFIG, "identity", "option rank is %u but option world is not given", s->options->rank);
    sluice_status status = read_launchers(s);
    if (status != SLUICE_OK)
        return status;
    if (s->launcher == NULL) {
        s->id->source = "one rank";
        s->id->world = s->id->local_world = 1;
        return SLUICE_OK;
    }
    s->id->source = s->launcher->name;
    read_job(s);
    return read_local(s);
}

/* --- where rank 0 is --- */

static sluice_status copy_text(const char *name, const char *text, char *ret, size_t capacity)
{
    if (strlen(text) >= capacity)
        return sl_fail(SLUICE_CONFIG, "identity", "%s has %zu bytes: at most %zu are possible", name, strlen(text),
                       capacity - 1);
    memcpy(ret, text, strlen(text) + 1);
    return SLUICE_OK;
}

static sluice_status find_address(struct search *s)
{
    const char *name = s->options->address != NULL ? "option address" : "MASTER_ADDR";
    const char *text = s->options->address != NULL ? s->options->address : variable(s, "MASTER_ADDR");
    if (s->options->allgather != NULL) /* it carries the address; a given one says where rank 0 listens */
        text = s->options->address != NULL ? text : "";
    else if (text == NULL && s->options->world != 0)
        return sl_fail(
            SLUICE_CONFIG, "identity",
            "option address is not given and MASTER_ADDR is not set: where rank 0 is must be said too, alike "
            "on all ranks, as is the port (option port or SLUICE_PORT)");
    else if (text == NULL)
        return sl_fail(SLUICE_CONFIG, "identity",
                       "MASTER_ADDR is not set: %s gives ranks but not where rank 0 is; set MASTER_ADDR and "
                       "SLUICE_PORT alike on all ranks",
                       s->id->source);
    else if (text[0] == '\0')
        return sl_fail(SLUICE_CONFIG, "identity", "%s is \"\": the name or address of rank 0's host is needed", name);
    return copy_text(name, text, s->id->address, sizeof(s->id->address));
}

static _Bool agent_has_port(const struct search *s)
{
    const char *text = variable(s, "TORCHELASTIC_USE_AGENT_STORE");
    return text != NULL && (strcmp(text, "True") == 0 || strcmp(text, "true") == 0 || strcmp(text, "1") == 0);
}

static sluice_status find_port(struct search *s)
{
    const struct sl_setting_value *setting = &s->config.values[SL_SET_PORT];
    if (s->options->port > 65535)
        return sl_fail(SLUICE_CONFIG, "identity", "option port is %u: it must be 1 to 65535", s->options->port);
    if (s->options->port != 0 || setting->set) {
        s->id->port = s->options->port != 0 ? s->options->port : (uint32_t)setting->number;
        return SLUICE_OK;
    }
    if (s->options->allgather != NULL)
        return SLUICE_OK;
    const char *text = variable(s, "MASTER_PORT");
    if (agent_has_port(s))
        return sl_fail(SLUICE_CONFIG, "identity",
                       "SLUICE_PORT is not set: torchrun's agent listens on MASTER_PORT %.64s itself; set SLUICE_PORT "
                       "to a free port, alike on all ranks",
                       text == NULL ? "(not set)" : text);
    if (text == NULL)
        return sl_fail(
            SLUICE_CONFIG, "identity",
            "neither SLUICE_PORT nor MASTER_PORT is set: set one, or option port, to a free port of rank 0's "
            "host, alike on all ranks");
    return number("MASTER_PORT", text, 1, 65535, &s->id->port);
}

static sluice_status find_token(struct search *s)
{
    const struct sl_setting_value *setting = &s->config.values[SL_SET_TOKEN_FILE];
    const char *directory = variable(s, "XDG_RUNTIME_DIR");
    if (directory != NULL && directory[0] == '/') /* the standard says: a relative one is to be ignored */
        SL_IGNORE(copy_text("XDG_RUNTIME_DIR", directory, s->id->runtime_directory, sizeof(s->id->runtime_directory)));
    const char *option = s->options->token_file;
    if (option == NULL && !setting->set)
        return SLUICE_OK;
    const char *name = option != NULL ? "option token_file" : "SLUICE_TOKEN_FILE";
    return copy_text(name, option != NULL ? option : setting->text, s->id->token_file, sizeof(s->id->token_file));
}

sluice_status sl_identity_find(const struct sluice_runtime_options *options, const char *const *environment,
                               struct sl_identity *ret)
{
    struct sl_identity id = {0};
    struct search s = {.options = options, .environment = environment, .id = &id};
    sluice_status status = sl_config_read(environment, &s.config);
    if (status == SLUICE_OK)
        status = options->world != 0 ? from_options(&s) : from_launcher(&s);
    if (status == SLUICE_OK && id.world > 1) {
        status = find_address(&s);
        if (status == SLUICE_OK)
            status = find_port(&s);
        if (status == SLUICE_OK)
            status = find_token(&s);
    }
    if (status == SLUICE_OK)
        *ret = id;
    return status;
}
