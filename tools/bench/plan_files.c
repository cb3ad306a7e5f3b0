/*
 * Reading a large plan file: time and memory of opening and validating it, in both forms.
 *
 * Usage: bench_plan_files [TASKS] [FOLDER]. Each form is read in a process of its own, so that its peak of
 * resident memory is its own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/parse.h"
#include "runtime/core/plan_io.h"

#define RANKS 64u

static void check(sluice_status status)
{
    if (status == SLUICE_OK)
        return;
    fprintf(stderr, "bench_plan_files: %s\n", sluice_last_error()->text);
    exit(1);
}

/* Half of the sources, all destinations; every third task a column slice. */
static struct sluice_task task_of(uint64_t id)
{
    uint64_t slot = id / (RANKS / 2), param = slot / 8, column = slot % 8;
    struct sluice_task task = {.id = id,
                               .source = (uint32_t)(id % (RANKS / 2)),
                               .destination = (uint32_t)(RANKS / 2 + id % (RANKS / 2)),
                               .param = (uint32_t)param,
                               .source_dtype = SLUICE_DTYPE_BF16,
                               .destination_dtype = SLUICE_DTYPE_BF16,
                               .from = {.offset = column * 4096, .row_bytes = 4096, .rows = 1, .pitch = 4096},
                               .to = {.offset = column * 512, .row_bytes = 512, .rows = 8, .pitch = 4096},
                               .origin = column * 512};
    if (param % 3 != 0)
        task.to = task.from;
    return task;
}

static void make(struct sl_plan *plan, uint64_t tasks)
{
    sl_plan_init(plan, sl_mem_default(), RANKS);
    uint64_t params = tasks / (RANKS / 2) / 8 + 1;
    for (uint64_t i = 0; i < params; i++) {
        char name[64];
        snprintf(name, sizeof(name), "model.layers.%" PRIu64 ".mlp.experts.weight", i);
        struct sluice_param param = {.id = (uint32_t)i, .dtype = SLUICE_DTYPE_BF16, .bytes = 1 << 20, .name = name};
        check(sl_plan_add_param(plan, &param));
        for (uint32_t rank = 0; rank < RANKS; rank++)
            check(sl_plan_add_buffer(plan, (uint32_t)i, rank,
                                     rank < RANKS / 2 ? SLUICE_ROLE_SOURCE : SLUICE_ROLE_DESTINATION, 1 << 20));
    }
    for (uint64_t id = 0; id < tasks; id++) {
        struct sluice_task task = task_of(id);
        check(sl_plan_add_task(plan, &task));
    }
    check(sl_plan_validate(plan));
}

static void write_files(uint64_t tasks, const char *binary, const char *json)
{
    struct sl_plan plan;
    make(&plan, tasks);
    check(sl_plan_store(&plan, binary));
    check(sl_plan_store(&plan, json));
    sl_plan_drop(&plan);
}

static void read_file(const char *form, const char *path)
{
    struct sl_plan plan;
    struct sl_map map;
    uint64_t begin = sl_now(sl_clock_system());
    check(sl_plan_open(path, &plan, &map));
    double seconds = (double)(sl_now(sl_clock_system()) - begin) * 1e-9;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double busy = (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
                  (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    printf("%-6s  %9zu tasks  opened and validated in %6.3f s (%6.3f s of processor), %5ld MiB resident at most\n",
           form, plan.task_count, seconds, busy, usage.ru_maxrss / 1024);
    sl_plan_drop(&plan);
    sl_map_close(&map);
}

/* Runs one step in a child: memory of one step does not count for the next. */
static void in_child(void (*step)(const char *, const char *), const char *one, const char *two)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        step(one, two);
        exit(0);
    }
    int state;
    if (child < 0 || waitpid(child, &state, 0) != child || state != 0)
        exit(1);
}

static uint64_t tasks = 1000000;

static void write_step(const char *binary, const char *json)
{
    write_files(tasks, binary, json);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 2 ? argv[2] : "/tmp";
    char binary[256], json[256];
    if (argc > 3 || (argc > 1 && !sl_parse_u64(argv[1], &tasks))) {
        fprintf(stderr, "Usage: bench_plan_files [TASKS] [FOLDER]\n");
        return 2;
    }
    snprintf(binary, sizeof(binary), "%s/sluice-bench-%d.plan", folder, getpid());
    snprintf(json, sizeof(json), "%s/sluice-bench-%d.json", folder, getpid());
    in_child(write_step, binary, json);
    in_child(read_file, "binary", binary);
    in_child(read_file, "json", json);
    unlink(binary);
    unlink(json);
    return 0;
}
