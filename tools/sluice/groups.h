/* groups.h: what check, sim and run share: the input (plan or message list), policy names, NCCL's settings. */
#ifndef SL_TOOL_GROUPS_H
#define SL_TOOL_GROUPS_H

#include "scheduler/cuts.h"
#include "tool.h"

/* An opened input and what keeps it alive. */
struct tool_input {
    struct sl_plan plan;
    struct sl_map map;
    const char *path;
};

/* A plan file, or with `messages` a list of [source, destination, bytes]. Prints its error; false then. */
_Bool tool_input_open(struct tool_args *args, const char *plan_path, const char *messages_path, struct tool_input *ret);
void tool_input_close(struct tool_input *input);

/* Names in the order of enum sluice_policy, NULL at the end. */
extern const char *const tool_policies[];

enum tool_group_option {
    TOOL_POLICY = TOOL_LONG + 100,
    TOOL_WINDOW_BYTES,
    TOOL_DIRECT_MIN,
    TOOL_NCCL,
    TOOL_CHANNELS,
    TOOL_CHANNELS_PER_PEER,
    TOOL_CHUNK,
    TOOL_NODES
};
#define TOOL_GROUP_OPTIONS                                                                                             \
    {"policy", "P", "balanced (default), ordered, lockstep, windows or single", TOOL_POLICY},                          \
        {"window-bytes", "SIZE", "most bytes a rank moves each way per window (default 256M)", TOOL_WINDOW_BYTES},     \
        {"direct-min", "SIZE", "pieces at least this large are messages of their own", TOOL_DIRECT_MIN},               \
        {"nccl", "VERSION", "NCCL's version (default 2.30.7)", TOOL_NCCL},                                             \
        {"channels", "P", "point-to-point channels, a power of two (default 32)", TOOL_CHANNELS},                      \
        {"channels-per-peer", "C", "channels of one peer (default 2)", TOOL_CHANNELS_PER_PEER},                        \
        {"chunk", "BYTES", "NCCL's chunk (default 128Ki; 512Ki on one node)", TOOL_CHUNK},                             \
    {                                                                                                                  \
        "nodes", "NODESxRANKS", "nodes and ranks on each (default: eights where they fit)", TOOL_NODES                 \
    }

/* What the options above say, with defaults: tool_groups_init. `cuts.nccl` is set when they are settled. */
struct tool_groups {
    struct sl_cuts_options cuts;
    struct sl_nccl_config nccl;
};
void tool_groups_init(struct tool_groups *groups);
/* Takes one of the options above. False after an error line. */
_Bool tool_group_option(struct tool_args *args, int option, struct tool_groups *groups);
/* Fills what the options left open, for a world; false after an error line. */
_Bool tool_group_settle(struct tool_args *args, uint32_t world, struct tool_groups *groups);

#endif
