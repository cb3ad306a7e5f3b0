/*
 * sluice run: moves a plan, a list of messages or a checkpoint for real, and verifies it.
 *
 * Invariant: everything that can be wrong with the input or the command line is found before the first
 * process starts.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint.h"
#include "groups.h"
#include "run_buffers.h"
#include "run_job.h"
#include "runtime/base/config.h"
#include "runtime/base/parse.h"
#include "runtime/control/control.h"
#include "sluice/backend.h"

extern char **environ;

enum {
    MESSAGES = TOOL_LONG,
    CHECKPOINT,
    FROM,
    TO,
    RULES,
    BACKEND,
    POLICY,
    REPEAT,
    VERIFY,
    WINDOW_BYTES,
    DIRECT_MIN,
    SLOTS,
    LANDING,
    SHADOW_BYTES,
    GATE_TIMEOUT,
    TIMEOUT,
    PACE,
    RANKS_PER_GPU,
    RECOVER,
    SOURCE_MEMORY,
    DESTINATION_MEMORY,
    TRACE,
    TIMELINE,
    FORCE,
    JSON
};

static const struct tool_option options[] = {
    {"messages", "FILE", "in place of a plan: {\"world\": N, \"messages\": [[source, destination, bytes], ...]}",
     MESSAGES},
    {"checkpoint", "FILE", "a safetensors file, an index file, or the directory of one", CHECKPOINT},
    {"from", "LAYOUT", "with --checkpoint: layout of the ranks that send, like tp=2", FROM},
    {"to", "LAYOUT", "with --checkpoint: layout of the ranks that receive", TO},
    {"rules", "FILE", "with --checkpoint: how tensors are split, ahead of the built-in rules", RULES},
    {"backend", "NAME", "host or cuda (default cuda where usable)", BACKEND},
    {"policy", "P", "balanced (default), ordered, lockstep, windows or single", POLICY},
    {"repeat", "N", "refit N times with the sealed plan and changed weights (default 1)", REPEAT},
    {"verify", "WHICH", "refits to verify: all (default), or ends: the first and the last, to measure those between",
     VERIFY},
    {"window-bytes", "SIZE", "most bytes a rank moves each way per window (default 256M)", WINDOW_BYTES},
    {"direct-min", "SIZE", "pieces at least this large are messages of their own", DIRECT_MIN},
    {"slots", "S", "staging slots in rotation, 2 to 8 (default 3)", SLOTS},
    {"landing", "WHERE", "in_place (default) or shadow", LANDING},
    {"shadow-bytes", "SIZE", "shadow memory of a rank (default: what the version needs)", SHADOW_BYTES},
    {"gate-timeout", "TIME", "most time that a gate may stay closed (default none)", GATE_TIMEOUT},
    {"timeout", "TIME", "most time that one refit may take (default none)", TIMEOUT},
    {"pace", "SIZE", "bytes per second of a rank (default unlimited)", PACE},
    {"ranks-per-gpu", "N", "cuda: how many ranks share a GPU", RANKS_PER_GPU},
    {"recover", "WHO", "after the loss of a rank go on with: survivors, or all (it is started again)", RECOVER},
    {"source-memory", "KIND", "cuda: where sources lie: device (default), pinned or pageable", SOURCE_MEMORY},
    {"destination-memory", "KIND", "the same for destinations", DESTINATION_MEMORY},
    {"trace", "FILE", "write Chrome/Perfetto JSON of all ranks", TRACE},
    {"timeline", "FILE", "write a picture of ranks by time, as one HTML page", TIMELINE},
    {"force", NULL, "run what is expected to hang or not to fit into memory", FORCE},
    {"json", NULL, "machine-readable report", JSON},
    {NULL, NULL, NULL, 0},
};

static const struct tool_syntax syntax = {
    .command = "run",
    .synopsis = "PLAN | --messages FILE | --checkpoint FILE --from LAYOUT --to LAYOUT [OPTIONS]",
    .about = "Moves weights between real processes and verifies every destination byte; destinations are poisoned\n"
             "before each refit. Without a checkpoint the content is a function of parameter, byte and version.\n"
             "Under a launcher (torchrun, mpirun, srun) it is one rank; else it starts the plan's world itself.\n"
             "A checkpoint's LAYOUT is KEY=VALUE,... of tp, cp, ep, etp, dp, world, offset.",
    .options = options,
};

static _Bool read_landing(struct tool_args *args, struct run_options *opt)
{
    static const char *const names[] = {"in_place", "shadow", NULL};
    int choice = tool_choice(args, names);
    opt->landing = choice < 0 ? 0 : (uint32_t)choice;
    return choice >= 0;
}

static _Bool read_memory(struct tool_args *args, enum run_memory *memory)
{
    int choice = tool_choice(args, run_memory_names);
    *memory = choice < 0 ? RUN_MEMORY_DEVICE : (enum run_memory)choice;
    return choice >= 0;
}

static _Bool read_recover(struct tool_args *args, struct run_options *opt)
{
    static const char *const names[] = {"survivors", "all", NULL};
    int choice = tool_choice(args, names);
    opt->recover = choice < 0 ? RUN_RECOVER_NOT : (enum run_recover)(choice + 1);
    return choice >= 0;
}

static _Bool read_policy(struct tool_args *args, struct run_options *opt)
{
    int choice = tool_choice(args, tool_policies);
    opt->seal.policy = choice < 0 ? 0 : (uint32_t)choice;
    return choice >= 0;
}

static _Bool read_verify(struct tool_args *args, struct run_options *opt)
{
    static const char *const names[] = {"all", "ends", NULL};
    int choice = tool_choice(args, names);
    opt->verify_ends = choice == 1;
    return choice >= 0;
}

/* Options with a number. */
static _Bool read_number(struct tool_args *args, int option, struct run_options *opt)
{
    switch (option) {
    case POLICY:
        return read_policy(args, opt);
    case LANDING:
        return read_landing(args, opt);
    case RECOVER:
        return read_recover(args, opt);
    case VERIFY:
        return read_verify(args, opt);
    case SOURCE_MEMORY:
        return read_memory(args, &opt->memory[SLUICE_ROLE_SOURCE]);
    case DESTINATION_MEMORY:
        return read_memory(args, &opt->memory[SLUICE_ROLE_DESTINATION]);
    case REPEAT:
        return tool_u32(args, 1, RUN_REFITS_MAX, &opt->repeat);
    case WINDOW_BYTES:
        return tool_size(args, &opt->seal.window_bytes);
    case DIRECT_MIN:
        return tool_size(args, &opt->seal.direct_min);
    case SLOTS:
        return tool_u32(args, 2, 8, &opt->seal.slots);
    case SHADOW_BYTES:
        opt->allow_torn = 1;
        return tool_size(args, &opt->seal.shadow_bytes);
    case GATE_TIMEOUT:
        return tool_duration(args, &opt->gate_timeout_ns);
    case TIMEOUT:
        return tool_duration(args, &opt->timeout_ns);
    case PACE:
        return tool_size(args, &opt->pace);
    default:
        return tool_u32(args, 1, SLUICE_WORLD_MAX, &opt->ranks_per_gpu);
    }
}

static _Bool read_option(struct tool_args *args, int option, struct run_options *opt)
{
    const struct {
        int option;
        const char **to;
    } texts[] = {
        {MESSAGES, &opt->messages}, {CHECKPOINT, &opt->checkpoint}, {FROM, &opt->from},   {TO, &opt->to},
        {RULES, &opt->rules},       {BACKEND, &opt->backend},       {TRACE, &opt->trace}, {TIMELINE, &opt->timeline}};
    for (size_t i = 0; i < SL_COUNT(texts); i++)
        if (texts[i].option == option) {
            *texts[i].to = args->value;
            return 1;
        }
    if (option == FORCE)
        opt->seal.force = 1;
    else if (option == JSON)
        opt->json = 1;
    else
        return read_number(args, option, opt);
    return 1;
}

/* --- input --- */

/* What was opened for the run. */
struct input {
    struct tool_input plan; /* all forms end up here */
    struct checkpoint checkpoint;
    const uint8_t **tensors;
};

static _Bool open_checkpoint(struct tool_args *args, const struct run_options *opt, struct input *ret)
{
    struct checkpoint_rules rules = {0};
    const char *culprit = opt->checkpoint;
    sluice_status status = checkpoint_open(opt->checkpoint, &ret->checkpoint);
    if (status == SLUICE_OK && (status = checkpoint_rules_open(opt->rules, &rules)) != SLUICE_OK)
        culprit = opt->rules;
    if (status == SLUICE_OK)
        status = checkpoint_plan(&ret->checkpoint, &rules, opt->from, opt->to, &ret->plan.plan, &ret->tensors);
    checkpoint_rules_close(&rules);
    if (status != SLUICE_OK)
        args->status = tool_fail_input(culprit);
    return status == SLUICE_OK;
}

/* A checkpoint where a plan is wanted is told by its name. */
static _Bool is_checkpoint(const char *path)
{
    static const char *const ends[] = {".safetensors", ".safetensors.index.json"};
    for (size_t i = 0; i < SL_COUNT(ends); i++) {
        size_t length = strlen(path), tail = strlen(ends[i]);
        if (length >= tail && strcmp(path + length - tail, ends[i]) == 0)
            return 1;
    }
    return 0;
}

static _Bool open_input(struct tool_args *args, const struct run_options *opt, struct input *ret)
{
    char **operands;
    int count = tool_operands(args, &operands);
    const char *form = opt->checkpoint != NULL ? "--checkpoint" : opt->messages != NULL ? "--messages" : NULL;
    if (opt->checkpoint != NULL && opt->messages != NULL)
        return !tool_usage(args, "--messages and --checkpoint exclude each other");
    if (form != NULL && count > 0)
        return !tool_usage(args, "unexpected argument '%s' beside %s", operands[0], form);
    if (opt->checkpoint != NULL && (opt->from == NULL || opt->to == NULL))
        return !tool_usage(args, "--checkpoint needs --from and --to");
    const char *stray = opt->from != NULL ? "--from" : opt->to != NULL ? "--to" : opt->rules != NULL ? "--rules" : NULL;
    if (opt->checkpoint == NULL && stray != NULL)
        return !tool_usage(args, "%s is for --checkpoint", stray);
    if (opt->checkpoint != NULL)
        return open_checkpoint(args, opt, ret);
    const char *path = form == NULL ? tool_one_operand(args, "PLAN, --messages or --checkpoint") : NULL;
    if (path != NULL && is_checkpoint(path))
        return !tool_usage(args, "'%s' is a checkpoint: give it by --checkpoint, with --from and --to", path);
    return (form != NULL || path != NULL) && tool_input_open(args, path, opt->messages, &ret->plan);
}

static void close_input(struct input *input)
{
    sl_free(sl_mem_default(), input->tensors);
    tool_input_close(&input->plan);
    checkpoint_close(&input->checkpoint);
}

/* --- the job --- */

static sluice_status count_plan(struct run_job *job)
{
    const struct sl_plan *plan = job->plan;
    size_t words = plan->param_count > plan->world ? plan->param_count : plan->world;
    uint8_t *seen = sl_new_array(sl_mem_default(), words, 1, "counts of a plan");
    if (seen == NULL)
        return SLUICE_NOMEM;
    for (size_t i = 0; i < plan->task_count; i++) {
        const struct sluice_task *task = &plan->tasks[i];
        job->bytes += sl_task_bytes(task);
        job->params += !(seen[task->param] & 1);
        seen[task->param] |= 1;
        job->sources += !(seen[task->source] & 2);
        seen[task->source] |= 2;
        job->destinations += !(seen[task->destination] & 4);
        seen[task->destination] |= 4;
    }
    sl_free(sl_mem_default(), seen);
    return SLUICE_OK;
}

static _Bool check_memory(struct tool_args *args, const struct run_job *job)
{
    uint64_t bytes, memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    char need[32], have[32];
    if (job->options->seal.force)
        return 1;
    if (run_buffers_measure(job->plan, &bytes) != SLUICE_OK) {
        args->status = tool_fail();
        return 0;
    }
    if (bytes <= memory / 10 * 9)
        return 1;
    tool_say("run: the buffers of %u ranks need %s, this machine has %s: make a smaller plan with 'sluice plan "
             "--scale', or use --force",
             job->plan->world, sl_format_bytes(bytes, need, sizeof need), sl_format_bytes(memory, have, sizeof have));
    args->status = TOOL_USAGE;
    return 0;
}

/* Whether a file can be written there, before hours of work end without it. */
static _Bool check_output(struct tool_args *args, const char *path)
{
    struct sl_out out;
    if (path == NULL)
        return 1;
    if (sl_out_open(path, &out) != SLUICE_OK) {
        args->status = tool_fail_input(path);
        return 0;
    }
    sl_out_drop(&out);
    return 1;
}

static struct run_board *signal_board;

static void on_signal(int number)
{
    SL_IGNORE(number);
    atomic_store(&signal_board->stop, RUN_INTERRUPTED);
}

/* One rank of a launcher's. A second signal ends the process at once. */
static int run_alone(struct run_job *job, uint32_t rank)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    signal_board = job->board;
    SL_IGNORE(sigaction(SIGINT, &action, NULL));
    SL_IGNORE(sigaction(SIGTERM, &action, NULL));
    int status = run_rank(job, rank);
    const struct sluice_error *error = &job->board->seats[rank].error;
    if (error->status != SLUICE_OK)
        tool_say(strncmp(error->text, "rank ", 5) == 0 ? "%s" : "%s (rank %u)", error->text, rank);
    else
        run_report(job, rank);
    return status;
}

static int run_job(struct tool_args *args, struct run_job *job, const struct sl_identity *identity)
{
    job->launched = strcmp(identity->source, "one rank") == 0;
    job->local_rank = identity->local_rank;
    if (!job->launched && identity->world != job->plan->world)
        return tool_usage(args, "%s started %u ranks but the plan is for %u", identity->source, identity->world,
                          job->plan->world);
    if (!job->launched && job->options->recover != RUN_RECOVER_NOT)
        return tool_usage(args, "--recover is for ranks that this command starts itself, not for those of %s",
                          identity->source);
    if (job->launched && job->plan->world > RUN_LOCAL_RANKS_MAX)
        return tool_usage(args, "the plan is for %u ranks: more than %d need a launcher", job->plan->world,
                          RUN_LOCAL_RANKS_MAX);
    if (job->launched && !check_memory(args, job))
        return args->status;
    if (job->options->trace != NULL && job->options->timeline != NULL &&
        strcmp(job->options->trace, job->options->timeline) == 0)
        return tool_usage(args, "--trace and --timeline would write the same file, %s", job->options->trace);
    if (job->launched && (!check_output(args, job->options->trace) || !check_output(args, job->options->timeline)))
        return args->status;
    if (count_plan(job) != SLUICE_OK ||
        run_board_open(job->plan->world, job->options->repeat, &job->board) != SLUICE_OK)
        return tool_fail();
    int status = job->launched ? run_launch(job) : run_alone(job, identity->rank);
    run_board_close(job->board);
    return tool_finish(status);
}

static int run_with(struct tool_args *args, const struct run_options *opt)
{
    static const struct sluice_runtime_options none = SLUICE_RUNTIME_OPTIONS_INIT;
    const char *const *environment = (const char *const *)environ;
    struct sl_identity identity;
    struct sl_config settings;
    struct input input = {0};
    if (!tool_config(&settings, &args->status))
        return args->status;
    if (sl_identity_find(&none, environment, &identity) != SLUICE_OK)
        return tool_fail();
    int status = TOOL_USAGE;
    if (open_input(args, opt, &input)) {
        struct run_job job = {.options = opt,
                              .plan = &input.plan.plan,
                              .content = {&input.plan.plan, input.tensors},
                              .log = settings.values[SL_SET_LOG].source == SL_FROM_ENVIRONMENT};
        status = run_job(args, &job, &identity);
    } else {
        status = args->status;
    }
    close_input(&input);
    return status;
}

int cmd_run(int argc, char **argv)
{
    struct tool_args args;
    struct run_options opt = {.seal = SLUICE_SEAL_OPTIONS_INIT, .repeat = 1};
    tool_begin(&args, &syntax, argc, argv);
    int option;
    while ((option = tool_next(&args)) >= 0)
        if (!read_option(&args, option, &opt))
            return args.status;
    if (option == TOOL_STOP)
        return args.status;
    if (opt.landing == SLUICE_LANDING_IN_PLACE && opt.allow_torn)
        return tool_usage(&args, "--shadow-bytes is for --landing shadow");
    if (opt.landing == SLUICE_LANDING_SHADOW && !opt.allow_torn)
        opt.seal.shadow_bytes = SLUICE_BYTES_MAX; /* only what the version needs is taken */
    return run_with(&args, &opt);
}
