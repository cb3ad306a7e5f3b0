/* job_draw.c: plans, options and runs of a made-up job, by its seed. */
#include <stdio.h>

#include "runtime/base/hash.h"
#include "tools/faults/job_state.h"

uint8_t job_byte(uint64_t fill, uint64_t at)
{
    return (uint8_t)(sl_mix64(fill) + at * 31);
}

static void add_task(struct job *job, struct sl_plan *plan, uint32_t id)
{
    uint64_t bytes = job_chance(job, 6) ? 0 : 1 + job_below(job, JOB_TASK_BYTES);
    uint32_t source = (uint32_t)job_below(job, job->ranks);
    uint32_t destination = (uint32_t)job_below(job, job->ranks);
    struct sluice_region region = {.row_bytes = bytes, .rows = 1, .pitch = bytes};
    struct sluice_param param = {.id = id, .dtype = SLUICE_DTYPE_U8, .bytes = bytes, .name = "weight"};
    struct sluice_task task = {.id = id,
                               .source = source,
                               .destination = destination,
                               .param = id,
                               .source_dtype = SLUICE_DTYPE_U8,
                               .destination_dtype = SLUICE_DTYPE_U8,
                               .from = region,
                               .to = region};
    SL_ASSERT(sl_plan_add_param(plan, &param) == SLUICE_OK);
    SL_ASSERT(sl_plan_add_buffer(plan, id, source, SLUICE_ROLE_SOURCE, bytes) == SLUICE_OK);
    SL_ASSERT(sl_plan_add_buffer(plan, id, destination, SLUICE_ROLE_DESTINATION, bytes) == SLUICE_OK);
    SL_ASSERT(sl_plan_add_task(plan, &task) == SLUICE_OK);
}

static void draw_run(struct job *job, struct plan_spec *spec, struct run_spec *run)
{
    run->shadow = spec->seal.shadow_bytes > 0 && job_chance(job, 70);
    run->window_events = job_chance(job, 30);
    run->verify = job_chance(job, 25);
    run->changed_only = job_chance(job, 20);
    if (job_chance(job, 10))
        run->pace = 20000000;
    if (job_chance(job, 20))
        run->params = (1 + job_below(job, (UINT64_C(1) << spec->plan.task_count) - 1)) | 1;
    if ((job->options.faults & JOB_GATE) && job_chance(job, 60))
        run->gate_timeout = JOB_GATE_TIMEOUT;
}

static void draw_plan(struct job *job, struct plan_spec *spec)
{
    uint32_t tasks = 1 + (uint32_t)job_below(job, JOB_TASKS);
    sl_plan_init(&spec->plan, job->mem, job->ranks);
    for (uint32_t t = 0; t < tasks; t++)
        add_task(job, &spec->plan, t);
    SL_ASSERT(sl_plan_validate(&spec->plan) == SLUICE_OK);
    spec->seal = (struct sluice_seal_options)SLUICE_SEAL_OPTIONS_INIT;
    spec->seal.policy = job_chance(job, 70) ? SLUICE_POLICY_BALANCED : (uint32_t)job_below(job, 4);
    spec->seal.window_bytes = UINT64_C(2048) << job_below(job, 4);
    spec->seal.slots = 2 + (uint32_t)job_below(job, 3);
    if (job_chance(job, 30))
        spec->seal.direct_min = 512;
    if (job_chance(job, 60))
        spec->seal.shadow_bytes = job_chance(job, 60) ? 1 << 20 : 1 + job_below(job, 20000);
    spec->runs = 1 + (uint32_t)job_below(job, JOB_RUNS);
    for (uint32_t i = 0; i < spec->runs; i++)
        draw_run(job, spec, &spec->run[i]);
}

void job_draw(struct job *job)
{
    job->ranks = job_chance(job, 8) ? 1 : 2 + (uint32_t)job_below(job, JOB_RANKS - 1);
    job->plans = 1 + (uint32_t)job_below(job, JOB_PLANS);
    for (uint32_t p = 0; p < job->plans; p++)
        draw_plan(job, &job->spec[p]);
}
