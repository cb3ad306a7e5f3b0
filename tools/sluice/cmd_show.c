/*
 * sluice show: a plan in numbers.
 *
 * Invariant: --json and the table print the same statistics; only the table leaves ranks out of a long list.
 */
#include <inttypes.h>
#include <string.h>

#include "runtime/base/json.h"
#include "runtime/base/parse.h"
#include "scheduler/plan_stats.h"
#include "tool.h"

#define RANKS_SHOWN 64u

static const struct tool_option options[] = {
    {"json", NULL, "print one JSON object", 'j'},
    {NULL, NULL, NULL, 0},
};

static const struct tool_syntax syntax = {
    "show", "PLAN [--json]",
    "Reads a plan file of either form, validates it and prints tasks, bytes, peers and sizes.\n"
    "Sends and receives are tasks between two ranks; tasks from a rank to itself are counted as local\n"
    "tasks only. The plan bound is the busiest rank's larger direction, local tasks left out.\n"
    "Percentiles are over the bytes of all tasks.",
    options};

/* --- JSON --- */

static void put(struct sl_json_writer *w, const char *key, uint64_t value)
{
    sl_json_key(w, key);
    sl_json_put_u64(w, value);
}

static void put_rank(struct sl_json_writer *w, uint32_t rank, const struct sl_rank_stats *stats)
{
    sl_json_object(w);
    w->compact = 1;
    put(w, "rank", rank);
    put(w, "sends", stats->sends);
    put(w, "recvs", stats->recvs);
    put(w, "send_bytes", stats->send_bytes);
    put(w, "recv_bytes", stats->recv_bytes);
    put(w, "local_tasks", stats->local_tasks);
    put(w, "local_bytes", stats->local_bytes);
    put(w, "send_peers", stats->send_peers);
    put(w, "recv_peers", stats->recv_peers);
    sl_json_object_end(w);
    w->compact = 0;
}

static sluice_status print_json(const struct sl_plan *plan, const struct sl_plan_stats *stats)
{
    struct sl_json_writer w;
    sl_json_begin(&w, stdout, 0);
    sl_json_object(&w);
    put(&w, "world", plan->world);
    put(&w, "tasks", plan->task_count);
    put(&w, "params", plan->param_count);
    put(&w, "bytes", stats->bytes);
    put(&w, "plan_bound_bytes", stats->bound_bytes);
    put(&w, "local_tasks", stats->local_tasks);
    put(&w, "local_bytes", stats->local_bytes);
    put(&w, "strided_tasks", stats->strided_tasks);
    put(&w, "empty_tasks", stats->empty_tasks);
    put(&w, "task_bytes_min", stats->task_min);
    put(&w, "task_bytes_p50", stats->task_p50);
    put(&w, "task_bytes_p90", stats->task_p90);
    put(&w, "task_bytes_p99", stats->task_p99);
    put(&w, "task_bytes_max", stats->task_max);
    sl_json_key(&w, "ranks");
    sl_json_list(&w);
    for (uint32_t rank = 0; rank < plan->world; rank++)
        put_rank(&w, rank, &stats->ranks[rank]);
    sl_json_list_end(&w);
    sl_json_object_end(&w);
    return sl_json_end(&w);
}

/* --- table --- */

struct size_text {
    char text[32];
};

static struct size_text size_of(uint64_t bytes)
{
    struct size_text size;
    sl_format_bytes(bytes, size.text, sizeof(size.text));
    return size;
}

static void print_head(const char *path, const struct sl_plan *plan, const struct sl_plan_stats *stats)
{
    printf("%s: %zu tasks of %zu parameters between %u ranks\n", path, plan->task_count, plan->param_count,
           plan->world);
    printf("  bytes        %s in all, %s between ranks\n", size_of(stats->bytes).text,
           size_of(stats->bytes - stats->local_bytes).text);
    printf("  local        %" PRIu64 " tasks, %s\n", stats->local_tasks, size_of(stats->local_bytes).text);
    printf("  strided      %" PRIu64 " tasks\n", stats->strided_tasks);
    printf("  empty        %" PRIu64 " tasks\n", stats->empty_tasks);
    printf("  task bytes   min %s, p50 %s, p90 %s, p99 %s, max %s\n", size_of(stats->task_min).text,
           size_of(stats->task_p50).text, size_of(stats->task_p90).text, size_of(stats->task_p99).text,
           size_of(stats->task_max).text);
    printf("  plan bound   %s (the busiest rank's larger direction)\n\n", size_of(stats->bound_bytes).text);
}

static void print_ranks(const struct sl_plan_stats *stats)
{
    printf("%6s %10s %10s %6s %10s %10s %6s %8s %10s\n", "rank", "sends", "bytes", "peers", "recvs", "bytes", "peers",
           "local", "bytes");
    uint32_t shown = stats->world < RANKS_SHOWN ? stats->world : RANKS_SHOWN;
    for (uint32_t rank = 0; rank < shown; rank++) {
        const struct sl_rank_stats *one = &stats->ranks[rank];
        printf("%6u %10" PRIu64 " %10s %6u %10" PRIu64 " %10s %6u %8" PRIu64 " %10s\n", rank, one->sends,
               size_of(one->send_bytes).text, one->send_peers, one->recvs, size_of(one->recv_bytes).text,
               one->recv_peers, one->local_tasks, size_of(one->local_bytes).text);
    }
    if (shown < stats->world)
        printf("  ... %u more ranks; --json shows all\n", stats->world - shown);
}

static int show(const char *path, _Bool json)
{
    struct sl_plan plan;
    struct sl_map map;
    struct sl_plan_stats stats;
    int status = TOOL_OK;
    if (!tool_open_plan(path, &plan, &map, &status))
        return status;
    if (sl_plan_stats(&plan, sl_mem_default(), &stats) != SLUICE_OK) {
        status = tool_fail();
    } else if (json) {
        status = print_json(&plan, &stats) == SLUICE_OK ? TOOL_OK : tool_fail();
        sl_plan_stats_drop(&stats);
    } else {
        print_head(path, &plan, &stats);
        print_ranks(&stats);
        sl_plan_stats_drop(&stats);
        status = tool_finish(TOOL_OK);
    }
    sl_plan_drop(&plan);
    sl_map_close(&map);
    return status;
}

int cmd_show(int argc, char **argv)
{
    struct tool_args args;
    _Bool json = 0;
    tool_begin(&args, &syntax, argc, argv);
    for (int option = tool_next(&args); option != TOOL_DONE; option = tool_next(&args)) {
        if (option == TOOL_STOP)
            return args.status;
        json = 1;
    }
    const char *path = tool_one_operand(&args, "PLAN");
    return path == NULL ? args.status : show(path, json);
}
