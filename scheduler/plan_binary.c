/*
 * The binary form of a plan (docs/plan-file.md): a header and four sections of fixed little-endian records,
 * which are the records in memory, so that a mapped file is a plan.
 *
 * Invariants:
 * - there is one legal file for a plan: sections follow each other without gaps, names in parameter order,
 *   records sorted, reserved bytes zero. Whatever differs is refused with the offset where it does.
 * - no count, length or offset is used before it was compared with the file's size.
 * - checksums find damage, not malice: the records are checked as if there were none.
 */
#include <endian.h>
#include <string.h>

#include "runtime/base/hash.h"
#include "scheduler/plan_internal.h"

static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "records are used in place");

#define MAGIC       "\x89SLPLAN\n"
#define MAGIC_BYTES 8
#define VERSION     1u
#define ENDIAN_MARK 0x01020304u

struct section {
    uint64_t count;
    uint64_t offset;
};

struct header {
    uint8_t magic[MAGIC_BYTES];
    uint32_t version;
    uint32_t endian;
    uint64_t file_bytes;
    uint32_t world;
    uint32_t reserved;
    struct section params, names, buffers, tasks;
    uint64_t reserved_too[2];
    uint64_t content_hash; /* XXH3 of everything behind the header */
    uint64_t header_hash;  /* XXH3 of everything before it */
};
static_assert(sizeof(struct header) == 128, "header of the plan file");
#define AT(member) offsetof(struct header, member)

struct input {
    const uint8_t *data;
    size_t bytes;
    const char *what;
};

#define BAD(input, offset, ...) bad((input), (uint64_t)(offset), __VA_ARGS__)

static sluice_status bad(const struct input *in, uint64_t offset, const char *format, ...) SLUICE_PRINTF(3, 4);
static sluice_status bad(const struct input *in, uint64_t offset, const char *format, ...)
{
    char text[SLUICE_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return sl_fail(SLUICE_PARSE, "plan", "%.300s: offset %" PRIu64 ": %s", in->what, offset, text);
}

_Bool sl_plan_is_binary(const uint8_t *data, size_t bytes)
{
    return bytes > 0 && data[0] == (uint8_t)MAGIC[0];
}

/* --- header and sections --- */

static sluice_status check_header(const struct input *in, const struct header *header)
{
    if (header->endian != ENDIAN_MARK)
        return BAD(in, AT(endian), "byte order mark %08x, want %08x", header->endian, ENDIAN_MARK);
    if (header->header_hash != sl_hash64(in->data, AT(header_hash), 0))
        return BAD(in, AT(header_hash), "bad checksum of the header");
    if (header->file_bytes != in->bytes)
        return BAD(in, header->file_bytes < in->bytes ? header->file_bytes : in->bytes,
                   "%s: the header says %" PRIu64 " bytes, the file has %zu",
                   header->file_bytes < in->bytes ? "trailing bytes" : "truncated", header->file_bytes, in->bytes);
    if (header->content_hash != sl_hash64(in->data + sizeof(*header), in->bytes - sizeof(*header), 0))
        return BAD(in, AT(content_hash), "bad checksum of the content");
    if (header->world < 1 || header->world > SLUICE_WORLD_MAX)
        return BAD(in, AT(world), "a world of %u ranks, want 1 to %u", header->world, SLUICE_WORLD_MAX);
    if (header->reserved != 0 || header->reserved_too[0] != 0 || header->reserved_too[1] != 0)
        return BAD(in, AT(reserved), "reserved bytes are not zero");
    return SLUICE_OK;
}

static sluice_status read_header(const struct input *in, struct header *ret)
{
    if (in->bytes < MAGIC_BYTES || memcmp(in->data, MAGIC, MAGIC_BYTES) != 0)
        return BAD(in, 0, "not a plan file");
    if (in->bytes < sizeof(*ret))
        return BAD(in, in->bytes, "truncated: the header has %zu bytes", sizeof(*ret));
    memcpy(ret, in->data, sizeof(*ret));
    if (ret->version != VERSION)
        return BAD(in, AT(version), "version %u, this library reads version %u", ret->version, VERSION);
    return check_header(in, ret);
}

/* One section at *cursor; `at` is the offset of its entry in the header. */
static sluice_status take_section(const struct input *in, const struct section *section, size_t at, size_t record,
                                  uint64_t count_max, uint64_t *cursor)
{
    if (section->count > count_max || section->count > (in->bytes - *cursor) / record)
        return BAD(in, at, "%" PRIu64 " records of %zu bytes do not fit the file or the limit of %" PRIu64,
                   section->count, record, count_max);
    if (section->offset != *cursor)
        return BAD(in, at + offsetof(struct section, offset), "section offset %" PRIu64 ", want %" PRIu64,
                   section->offset, *cursor);
    uint64_t end = *cursor + section->count * record;
    uint64_t padded = (end + 7) & ~UINT64_C(7);
    if (padded > in->bytes)
        return BAD(in, in->bytes, "truncated inside a section");
    for (uint64_t i = end; i < padded; i++)
        if (in->data[i] != 0)
            return BAD(in, i, "padding is not zero");
    *cursor = padded;
    return SLUICE_OK;
}

static sluice_status take_sections(const struct input *in, const struct header *header)
{
    uint64_t cursor = sizeof(*header);
    sluice_status status =
        take_section(in, &header->params, AT(params), sizeof(struct sl_param), SL_PARAMS_MAX, &cursor);
    if (status == SLUICE_OK)
        status = take_section(in, &header->names, AT(names), 1, UINT32_MAX, &cursor);
    if (status == SLUICE_OK)
        status = take_section(in, &header->buffers, AT(buffers), sizeof(struct sl_buffer), SL_TASKS_MAX, &cursor);
    if (status == SLUICE_OK)
        status = take_section(in, &header->tasks, AT(tasks), sizeof(struct sluice_task), SL_TASKS_MAX, &cursor);
    if (status == SLUICE_OK && cursor != in->bytes)
        return BAD(in, cursor, "trailing bytes behind the last section");
    return status;
}

/* --- records --- */

static _Bool zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != 0)
            return 0;
    return 1;
}

static sluice_status check_params(const struct input *in, const struct sl_plan *plan)
{
    uint64_t name = 0;
    size_t names_at = (size_t)((const uint8_t *)plan->names - in->data);
    if (plan->names_bytes > 0 && plan->names[plan->names_bytes - 1] != '\0')
        return BAD(in, names_at + plan->names_bytes - 1, "the last name is not terminated");
    for (size_t i = 0; i < plan->param_count; i++) {
        const struct sl_param *param = &plan->params[i];
        size_t at = (size_t)((const uint8_t *)param - in->data);
        if (param->id != i)
            return BAD(in, at + offsetof(struct sl_param, id), "parameter id %u, want %zu", param->id, i);
        if (sluice_dtype_bytes(param->dtype) == 0)
            return BAD(in, at + offsetof(struct sl_param, dtype), "unknown dtype %u", param->dtype);
        if (param->bytes > SLUICE_BYTES_MAX || param->row_bytes > SLUICE_BYTES_MAX)
            return BAD(in, at, "parameter %zu has more than 2^62 bytes", i);
        if (!zero(param->reserved, sizeof(param->reserved)))
            return BAD(in, at + offsetof(struct sl_param, reserved), "reserved bytes are not zero");
        if (param->name_offset != name || name >= plan->names_bytes)
            return BAD(in, at + offsetof(struct sl_param, name_offset), "name offset %u, want %" PRIu64,
                       param->name_offset, name);
        const char *fault = sl_name_fault(plan->names + name);
        if (fault != NULL)
            return BAD(in, names_at + name, "the name of parameter %zu %s", i, fault);
        name += strlen(plan->names + name) + 1;
    }
    if (name != plan->names_bytes)
        return BAD(in, names_at + name, "names without a parameter");
    return SLUICE_OK;
}

static sluice_status check_buffers(const struct input *in, const struct sl_plan *plan)
{
    for (size_t i = 0; i < plan->buffer_count; i++) {
        const struct sl_buffer *buffer = &plan->buffers[i];
        size_t at = (size_t)((const uint8_t *)buffer - in->data);
        if (buffer->bytes > SL_OFFSET_MAX)
            return BAD(in, at, "a buffer of more than 2^63-1 bytes");
        if (buffer->rank >= plan->world)
            return BAD(in, at + offsetof(struct sl_buffer, rank), "rank %u is outside the world of %u", buffer->rank,
                       plan->world);
        if (buffer->role > SLUICE_ROLE_DESTINATION)
            return BAD(in, at + offsetof(struct sl_buffer, role), "unknown role %u", buffer->role);
        if (!zero(buffer->reserved, sizeof(buffer->reserved)))
            return BAD(in, at + offsetof(struct sl_buffer, reserved), "reserved bytes are not zero");
        if (i > 0 && sl_buffer_compare(buffer - 1, buffer) > 0)
            return BAD(in, at, "buffers are not sorted by rank, role and parameter");
    }
    return SLUICE_OK;
}

/* Only the order: everything else about tasks is the validation's business. */
static sluice_status check_tasks(const struct input *in, const struct sl_plan *plan)
{
    for (size_t i = 1; i < plan->task_count; i++)
        if (plan->tasks[i - 1].id > plan->tasks[i].id)
            return BAD(in, (size_t)((const uint8_t *)&plan->tasks[i] - in->data),
                       "tasks are not sorted: id %" PRIu64 " after %" PRIu64, plan->tasks[i].id, plan->tasks[i - 1].id);
    return SLUICE_OK;
}

/* The mapped bytes as records; nothing writes to a borrowed plan. */
static void *borrow(const struct input *in, const struct section *section)
{
    return (void *)(uintptr_t)(in->data + section->offset);
}

sluice_status sl_plan_read_binary(const uint8_t *data, size_t bytes, const char *what, struct sl_plan *ret)
{
    const struct input in = {data, bytes, what};
    struct header header = {0};
    SL_ASSERT(((uintptr_t)data & 7) == 0);
    sluice_status status = read_header(&in, &header);
    if (status == SLUICE_OK)
        status = take_sections(&in, &header);
    if (status != SLUICE_OK)
        return status;
    struct sl_plan plan;
    sl_plan_init(&plan, sl_mem_default(), header.world);
    plan.borrowed = 1;
    plan.params = borrow(&in, &header.params);
    plan.param_count = header.params.count;
    plan.names = borrow(&in, &header.names);
    plan.names_bytes = header.names.count;
    plan.buffers = borrow(&in, &header.buffers);
    plan.buffer_count = header.buffers.count;
    plan.tasks = borrow(&in, &header.tasks);
    plan.task_count = header.tasks.count;
    status = check_params(&in, &plan);
    if (status == SLUICE_OK)
        status = check_buffers(&in, &plan);
    if (status == SLUICE_OK)
        status = check_tasks(&in, &plan);
    if (status == SLUICE_OK)
        status = sl_plan_validate(&plan);
    if (status == SLUICE_OK)
        *ret = plan;
    return status;
}

/* --- writing --- */

/* A section's bytes with their padding, to the file and the hash alike. */
struct output {
    FILE *file; /* NULL: only hash */
    struct sl_hash *hash;
    uint64_t offset;
};

static void emit(struct output *out, const void *data, size_t bytes)
{
    static const uint8_t padding[8];
    size_t gap = (8 - bytes % 8) % 8;
    if (out->hash != NULL) {
        sl_hash_add(out->hash, data, bytes);
        sl_hash_add(out->hash, padding, gap);
    }
    if (out->file != NULL && bytes > 0) { /* errors stay in the stream: ferror asks once */
        SL_IGNORE(fwrite(data, 1, bytes, out->file));
        SL_IGNORE(fwrite(padding, 1, gap, out->file));
    }
    out->offset += bytes + gap;
}

static struct section emit_section(struct output *out, const void *data, size_t count, size_t record)
{
    struct section section = {.count = count, .offset = out->offset};
    emit(out, data, count * record);
    return section;
}

static void emit_sections(struct output *out, const struct sl_plan *plan, struct header *header)
{
    header->params = emit_section(out, plan->params, plan->param_count, sizeof(*plan->params));
    header->names = emit_section(out, plan->names, plan->names_bytes, 1);
    header->buffers = emit_section(out, plan->buffers, plan->buffer_count, sizeof(*plan->buffers));
    header->tasks = emit_section(out, plan->tasks, plan->task_count, sizeof(*plan->tasks));
}

sluice_status sl_plan_check_writable(const struct sl_plan *plan)
{
    if (plan->partial)
        return sl_fail(SLUICE_STATE, "plan", "a plan of halves can't be written: it is one rank's view");
    if (!plan->validated)
        return sl_fail(SLUICE_STATE, "plan", "a plan is validated before it is written");
    return SLUICE_OK;
}

sluice_status sl_plan_write_binary(const struct sl_plan *plan, FILE *file)
{
    sluice_status status = sl_plan_check_writable(plan);
    if (status != SLUICE_OK)
        return status;
    struct header header = {.version = VERSION, .endian = ENDIAN_MARK, .world = plan->world};
    memcpy(header.magic, MAGIC, MAGIC_BYTES);
    struct output dry = {.hash = sl_hash_open(0), .offset = sizeof(header)};
    if (dry.hash == NULL)
        return SLUICE_NOMEM;
    emit_sections(&dry, plan, &header);
    header.file_bytes = dry.offset;
    header.content_hash = sl_hash_value(dry.hash);
    sl_hash_close(dry.hash);
    header.header_hash = sl_hash64(&header, AT(header_hash), 0);
    struct output out = {.file = file};
    emit(&out, &header, sizeof(header));
    emit_sections(&out, plan, &header);
    return ferror(file) ? sl_fail(SLUICE_IO, "plan", "cannot write the plan") : SLUICE_OK;
}
