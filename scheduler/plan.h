/*
 * plan.h: the plan as data. Pure: no I/O, clock or thread.
 *
 * Invariants: parameter ids are dense; tasks of a validated plan are sorted by (id, part) and unique in
 * it; both known ends of a task hold the same number of bytes; every region lies in its buffer; no two
 * destinations of a rank overlap. Task records may be borrowed from a mapped file.
 */
#ifndef SL_SCHEDULER_PLAN_H
#define SL_SCHEDULER_PLAN_H

#include <stdio.h>

#include "runtime/base/error.h"
#include "runtime/base/memory.h"
#include "sluice/plan.h"

/* The record of parameters in memory and in the binary file: 32 bytes. */
struct sl_param {
    uint64_t bytes;
    uint64_t row_bytes;   /* 0: one row */
    uint32_t name_offset; /* into names */
    uint32_t id;
    uint8_t dtype;
    uint8_t reserved[7];
};

/* The size of one buffer: 24 bytes; sorted by (rank, role, param). */
struct sl_buffer {
    uint64_t bytes;
    uint32_t rank;
    uint32_t param;
    uint8_t role;
    uint8_t reserved[7];
};

struct sl_plan {
    struct sl_mem *mem;
    uint32_t world;
    _Bool partial; /* halves of one rank (add_send, add_recv) */
    _Bool validated;
    struct sl_param *params;
    size_t param_count, param_capacity;
    char *names; /* all names, each terminated */
    size_t names_bytes, names_capacity;
    struct sl_buffer *buffers;
    size_t buffer_count, buffer_capacity;
    const struct sluice_task *tasks; /* = own_tasks, or inside a mapped file */
    struct sluice_task *own_tasks;
    size_t task_count, task_capacity;
    _Bool borrowed; /* params, names, buffers and tasks point into memory of the owner */
    uint32_t self;  /* partial plans: SL_RANK_SELF until sl_plan_set_rank */
};

/* Limits beside those of sluice/base.h: no region ends beyond 2^63-1. */
#define SL_OFFSET_MAX ((uint64_t)INT64_MAX)
#define SL_PARAMS_MAX (1u << 24)
#define SL_TASKS_MAX  (UINT32_MAX - 1)

void sl_plan_init(struct sl_plan *plan, struct sl_mem *mem, uint32_t world);
void sl_plan_drop(struct sl_plan *plan);

sluice_status sl_plan_add_param(struct sl_plan *plan, const struct sluice_param *param);
sluice_status sl_plan_add_buffer(struct sl_plan *plan, uint32_t param, uint32_t rank, enum sluice_role role,
                                 uint64_t bytes);
sluice_status sl_plan_add_task(struct sl_plan *plan, const struct sluice_task *task);
/* Halves: `self` is SL_RANK_SELF until the seal knows the rank; sl_plan_set_rank replaces it and joins local halves. */
#define SL_RANK_SELF UINT32_MAX
sluice_status sl_plan_add_half(struct sl_plan *plan, uint64_t id, uint32_t param, uint8_t dtype, uint32_t peer,
                               _Bool receive, const struct sluice_region *region);
sluice_status sl_plan_set_rank(struct sl_plan *plan, uint32_t rank, uint32_t world);

/*
 * The plan for some of its ranks: rank i of the new one was rank origin[i]; tasks with others are left out. Not
 * validated. PLAN (a rank that the plan does not have; halves of a rank that is left out), NOMEM.
 */
sluice_status sl_plan_among(const struct sl_plan *plan, const uint32_t *origin, uint32_t world, struct sl_plan *ret);

/* Sorts tasks by (id, part) where needed and checks everything. PLAN names the task or tasks. */
sluice_status sl_plan_validate(struct sl_plan *plan);

/* Bytes of a region; UINT64_MAX when it overflows 2^62. */
uint64_t sl_region_bytes(const struct sluice_region *region);
/* One past the last byte that a region touches in its buffer; UINT64_MAX on wrap-around. */
uint64_t sl_region_end(const struct sluice_region *region);
_Bool sl_region_contiguous(const struct sluice_region *region);
/* Bytes of a task, from whichever end is known. */
uint64_t sl_task_bytes(const struct sluice_task *task);
const char *sl_param_name(const struct sl_plan *plan, uint32_t param);
/* The buffer's size, or UINT64_MAX when the plan does not say. */
uint64_t sl_buffer_bytes(const struct sl_plan *plan, uint32_t rank, enum sluice_role role, uint32_t param);

/* --- file forms, over memory (plan_binary.c, plan_json.c) --- */
/* Borrows from `data`, which must stay mapped and be 8-aligned. PARSE with offset; PLAN. */
sluice_status sl_plan_read_binary(const uint8_t *data, size_t bytes, const char *what, struct sl_plan *ret);
sluice_status sl_plan_read_json(const char *data, size_t bytes, const char *what, struct sl_plan *ret);
_Bool sl_plan_is_binary(const uint8_t *data, size_t bytes);
/* Writes to an open file; IO. Byte-identical for equal plans. */
sluice_status sl_plan_write_binary(const struct sl_plan *plan, FILE *file);
sluice_status sl_plan_write_json(const struct sl_plan *plan, FILE *file);

#endif
