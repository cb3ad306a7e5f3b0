/* identity_test.c: launcher variables, settings and options to rank, world, address and port; by tables. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/control/control.h"

#define VARIABLES_MAX 12

struct good {
    const char *name;
    const char *environment[VARIABLES_MAX];
    uint32_t rank, world, local_rank, local_world, port;
    const char *address, *source, *missing;
};

static sluice_status find(const char *const *environment, struct sl_identity *ret)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    return sl_identity_find(&options, environment, ret);
}

static const struct good goods[] = {
    {"nothing", {NULL}, 0, 1, 0, 1, 0, "", "one rank", NULL},
    {"address only", {"MASTER_ADDR=h", NULL}, 0, 1, 0, 1, 0, "", "one rank", NULL},
    {"torchrun",
     {"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=node0", "MASTER_PORT=29500",
      "TORCHELASTIC_RUN_ID=x", NULL},
     3,
     8,
     1,
     2,
     29500,
     "node0",
     "torchrun",
     NULL},
    {"torchrun with agent store and own port",
     {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500", "SLUICE_PORT=29600",
      "TORCHELASTIC_USE_AGENT_STORE=True", NULL},
     0,
     2,
     0,
     0,
     29600,
     "127.0.0.1",
     "torchrun",
     "LOCAL_RANK"},
    {"torchrun inside Slurm",
     {"RANK=9", "WORLD_SIZE=16", "TORCHELASTIC_RUN_ID=x", "SLURM_PROCID=1", "SLURM_NTASKS=2", "MASTER_ADDR=a",
      "SLUICE_PORT=1", NULL},
     9,
     16,
     0,
     0,
     1,
     "a",
     "torchrun",
     "LOCAL_RANK"},
    {"Open MPI",
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=4", "MASTER_ADDR=a", "MASTER_PORT=7", NULL},
     1,
     4,
     1,
     4,
     7,
     "a",
     "Open MPI",
     NULL},
    {"Open MPI inside Slurm",
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "SLURM_PROCID=0", "SLURM_NTASKS=1", "MASTER_ADDR=a",
      "MASTER_PORT=7", NULL},
     1,
     4,
     0,
     0,
     7,
     "a",
     "Open MPI",
     "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI",
     {"PMI_RANK=1", "PMI_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=7", NULL},
     1,
     2,
     0,
     0,
     7,
     "a",
     "PMI",
     "LOCAL_RANK"},
    {"Slurm",
     {"SLURM_PROCID=5", "SLURM_NTASKS=8", "SLURM_LOCALID=1", "MASTER_ADDR=a", "MASTER_PORT=65535", NULL},
     5,
     8,
     1,
     0,
     65535,
     "a",
     "Slurm",
     NULL},
    {"a shell in a Slurm allocation", {"SLURM_NTASKS=8", NULL}, 0, 1, 0, 1, 0, "", "one rank", NULL},
    {"a world of one needs no address", {"RANK=0", "WORLD_SIZE=1", NULL}, 0, 1, 0, 0, 0, "", "torchrun", "LOCAL_RANK"},
    {"two launchers that agree",
     {"RANK=1", "WORLD_SIZE=2", "PMI_RANK=1", "PMI_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=7", NULL},
     1,
     2,
     0,
     0,
     7,
     "a",
     "torchrun",
     "LOCAL_RANK"},
};

Test(identity, reads_each_launcher)
{
    for (size_t i = 0; i < sizeof(goods) / sizeof(goods[0]); i++) {
        const struct good *g = &goods[i];
        struct sl_identity id;
        cr_assert_eq(find(g->environment, &id), SLUICE_OK, "%s: %s", g->name, sluice_last_error()->text);
        cr_assert_eq(id.rank, g->rank, "%s", g->name);
        cr_assert_eq(id.world, g->world, "%s", g->name);
        cr_assert_eq(id.local_rank, g->local_rank, "%s", g->name);
        cr_assert_eq(id.local_world, g->local_world, "%s", g->name);
        cr_assert_eq(id.port, g->port, "%s", g->name);
        cr_assert_str_eq(id.address, g->address, "%s", g->name);
        cr_assert_str_eq(id.source, g->source, "%s", g->name);
        if (g->missing == NULL)
            cr_assert_null(id.local_missing, "%s", g->name);
        else
            cr_assert_str_eq(id.local_missing, g->missing, "%s", g->name);
    }
}

struct bad {
    const char *environment[VARIABLES_MAX];
    const char *parts[3]; /* all in the error */
};

#define HERE "MASTER_ADDR=a", "MASTER_PORT=7"

static const struct bad bads[] = {
    {{"RANK=5", "WORLD_SIZE=4", HERE, NULL}, {"RANK is 5", "WORLD_SIZE is 4"}},
    {{"RANK=4", "WORLD_SIZE=4", HERE, NULL}, {"RANK is 4", "0 to 3"}},
    {{"RANK=0", HERE, NULL}, {"WORLD_SIZE is not set", "RANK is 0"}},
    {{"WORLD_SIZE=4", HERE, NULL}, {"RANK is not set", "WORLD_SIZE is 4"}},
    {{"RANK=", "WORLD_SIZE=4", HERE, NULL}, {"RANK is \"\"", "number"}},
    {{"RANK= 7 ", "WORLD_SIZE=8", HERE, NULL}, {"RANK is \" 7 \"", "number"}},
    {{"RANK=+5", "WORLD_SIZE=8", HERE, NULL}, {"RANK is \"+5\"", "number"}},
    {{"RANK=16abc", "WORLD_SIZE=32", HERE, NULL}, {"RANK is \"16abc\"", "number"}},
    {{"RANK=0x10", "WORLD_SIZE=32", HERE, NULL}, {"RANK is \"0x10\"", "number"}},
    {{"RANK=-1", "WORLD_SIZE=8", HERE, NULL}, {"RANK is \"-1\"", "number"}},
    {{"RANK=true", "WORLD_SIZE=8", HERE, NULL}, {"RANK is \"true\"", "number"}},
    {{"RANK=0", "WORLD_SIZE=3000000000", HERE, NULL}, {"WORLD_SIZE is 3000000000", "1 to 65536"}},
    {{"RANK=0", "WORLD_SIZE=0", HERE, NULL}, {"WORLD_SIZE is 0", "1 to 65536"}},
    {{"RANK=0", "WORLD_SIZE=2147483647", HERE, NULL}, {"WORLD_SIZE is 2147483647", "1 to 65536"}},
    {{"RANK=0", "WORLD_SIZE=4294967296", HERE, NULL}, {"WORLD_SIZE", "4294967296"}},
    {{"RANK=0", "WORLD_SIZE=12345678901234567890", HERE, NULL}, {"WORLD_SIZE", "12345678901234567890"}},
    {{"RANK=0", "WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", HERE, NULL},
     {"RANK is 0", "OMPI_COMM_WORLD_RANK is 1"}},
    {{"RANK=0", "WORLD_SIZE=2", "PMI_RANK=0", "PMI_SIZE=3", HERE, NULL}, {"WORLD_SIZE is 2", "PMI_SIZE is 3"}},
    {{"RANK=0", "WORLD_SIZE=2", "SLURM_PROCID=1", "SLURM_NTASKS=2", HERE, NULL}, {"RANK is 0", "SLURM_PROCID is 1"}},
    {{"SLURM_PROCID=0", HERE, NULL}, {"SLURM_NTASKS is not set"}},
    {{"RANK=0", "WORLD_SIZE=4", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2", HERE, NULL},
     {"LOCAL_RANK is 2", "LOCAL_WORLD_SIZE is 2"}},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=8", HERE, NULL}, {"LOCAL_WORLD_SIZE is 8"}},
    {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=two", HERE, NULL}, {"LOCAL_RANK is \"two\""}},
    {{"PMI_RANK=0", "PMI_SIZE=2", NULL}, {"MASTER_ADDR is not set", "PMI"}},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=", "MASTER_PORT=7", NULL}, {"MASTER_ADDR is \"\""}},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", NULL}, {"SLUICE_PORT", "MASTER_PORT"}},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=", NULL}, {"MASTER_PORT is \"\""}},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=0", NULL}, {"MASTER_PORT is 0", "1 to 65535"}},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=70000", NULL}, {"MASTER_PORT is 70000"}},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=abc", NULL}, {"MASTER_PORT is \"abc\""}},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "SLUICE_PORT=70000", NULL}, {"SLUICE_PORT", "70000"}},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=True", NULL},
     {"SLUICE_PORT is not set", "29500"}},
};

Test(identity, names_the_variable_and_value_that_is_wrong)
{
    for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        struct sl_identity id = {.rank = 77};
        cr_assert_eq(find(bads[i].environment, &id), SLUICE_CONFIG, "row %zu", i);
        cr_assert_eq(id.rank, 77, "row %zu wrote an output", i);
        for (size_t k = 0; k < 3 && bads[i].parts[k] != NULL; k++)
            cr_assert_not_null(strstr(sluice_last_error()->text, bads[i].parts[k]), "row %zu: \"%s\" lacks \"%s\"", i,
                               sluice_last_error()->text, bads[i].parts[k]);
    }
}

Test(identity, tells_a_program_which_options_are_missing)
{
    const char *const environment[] = {NULL};
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    struct sl_identity id = {0};
    options.world = 2;
    cr_assert_eq(sl_identity_find(&options, environment, &id), SLUICE_CONFIG);
    cr_assert_not_null(strstr(sluice_last_error()->text, "option address is not given"), "%s",
                       sluice_last_error()->text);
    options.address = "localhost";
    cr_assert_eq(sl_identity_find(&options, environment, &id), SLUICE_CONFIG);
    cr_assert_not_null(strstr(sluice_last_error()->text, "or option port"), "%s", sluice_last_error()->text);
}

Test(identity, prefers_options_to_everything)
{
    const char *const environment[] = {"RANK=1",        "WORLD_SIZE=2",         "MASTER_ADDR=a",
                                       "SLUICE_PORT=7", "SLUICE_TOKEN_FILE=/x", NULL};
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    options.world = 8;
    options.rank = 5;
    options.local_rank = 1;
    options.local_world = 4;
    options.address = "b";
    options.port = 9;
    options.token_file = "/y";
    struct sl_identity id;
    cr_assert_eq(sl_identity_find(&options, environment, &id), SLUICE_OK);
    cr_assert_eq(id.rank, 5);
    cr_assert_eq(id.world, 8);
    cr_assert_eq(id.local_rank, 1);
    cr_assert_eq(id.local_world, 4);
    cr_assert_str_eq(id.address, "b");
    cr_assert_eq(id.port, 9);
    cr_assert_str_eq(id.token_file, "/y");
    cr_assert_str_eq(id.source, "options");
}

Test(identity, fills_address_port_and_token_from_the_environment_beside_options)
{
    const char *const environment[] = {"MASTER_ADDR=a", "SLUICE_PORT=7", "SLUICE_TOKEN_FILE=/x",
                                       "XDG_RUNTIME_DIR=/run/u", NULL};
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    options.world = 2;
    struct sl_identity id;
    cr_assert_eq(sl_identity_find(&options, environment, &id), SLUICE_OK);
    cr_assert_str_eq(id.address, "a");
    cr_assert_eq(id.port, 7);
    cr_assert_str_eq(id.token_file, "/x");
    cr_assert_str_eq(id.runtime_directory, "/run/u");
    cr_assert_eq(id.local_world, 0);
    cr_assert_str_eq(id.local_missing, "option local_world");
}

Test(identity, names_the_launch_so_that_two_on_one_port_do_not_mix)
{
    static const char *const torchrun[] = {
        "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=7", "TORCHELASTIC_RUN_ID=abc", NULL};
    static const char *const slurm[] = {"SLURM_PROCID=0",
                                        "SLURM_NTASKS=2",
                                        "MASTER_ADDR=a",
                                        "MASTER_PORT=7",
                                        "SLURM_JOB_ID=17",
                                        "SLURM_STEP_ID=3",
                                        NULL};
    static const char *const mpi[] = {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "MASTER_ADDR=a",
                                      "MASTER_PORT=7",          "PMIX_NAMESPACE=x1",      NULL};
    struct sl_identity id;
    cr_assert_eq(find(torchrun, &id), SLUICE_OK);
    cr_assert_str_eq(id.job, "abc");
    cr_assert_eq(find(slurm, &id), SLUICE_OK);
    cr_assert_str_eq(id.job, "17.3");
    cr_assert_eq(find(mpi, &id), SLUICE_OK);
    cr_assert_str_eq(id.job, "x1");
}

static void refused(struct sluice_runtime_options options, const char *part)
{
    static const char *const none[] = {NULL};
    struct sl_identity id;
    cr_assert_eq(sl_identity_find(&options, none, &id), SLUICE_CONFIG);
    cr_assert_not_null(strstr(sluice_last_error()->text, part), "\"%s\" lacks \"%s\"", sluice_last_error()->text, part);
}

Test(identity, refuses_impossible_options)
{
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    options.rank = 1;
    refused(options, "option rank is 1");
    options.world = 1;
    refused(options, "option rank is 1 but option world is 1");
    options.world = 1057455228;
    refused(options, "option world is 1057455228");
    options.world = 2;
    options.address = "a";
    options.port = 70000;
    refused(options, "option port is 70000");
    options.port = 1;
    options.local_rank = 3;
    options.local_world = 2;
    refused(options, "option local_rank is 3");
}

static int no_gather(const void *send, void *recv, size_t bytes, void *user)
{
    (void)send, (void)recv, (void)bytes, (void)user;
    return -1;
}

Test(identity, needs_neither_address_nor_port_with_an_allgather)
{
    static const char *const environment[] = {"MASTER_ADDR=elsewhere", "MASTER_PORT=7", NULL};
    struct sluice_runtime_options options = SLUICE_RUNTIME_OPTIONS_INIT;
    options.world = 2;
    options.allgather = no_gather;
    struct sl_identity id;
    cr_assert_eq(sl_identity_find(&options, environment, &id), SLUICE_OK);
    cr_assert_str_eq(id.address, "");
    cr_assert_eq(id.port, 0);
}
