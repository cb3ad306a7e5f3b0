/*
 * Opening a checkpoint.
 *
 * Invariants: a tensor's bytes lie inside its mapped file; names are unique over all files; with an index,
 * index and files name exactly the same tensors in the same places.
 */
#include "checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "scheduler/safetensors.h"

enum { PATH_BYTES = 4096, FILES_MAX = 4096 };

struct checkpoint_file {
    char *path;
    const char *name; /* the last part of the path */
    struct sl_map map;
    struct sl_tensors tensors;
};

static sluice_status open_file(struct checkpoint *checkpoint, const char *path)
{
    struct checkpoint_file *file = &checkpoint->files[checkpoint->file_count];
    file->path = sl_strdup(checkpoint->mem, path);
    if (file->path == NULL)
        return SLUICE_NOMEM;
    checkpoint->file_count++;
    const char *slash = strrchr(file->path, '/');
    file->name = slash != NULL ? slash + 1 : file->path;
    sluice_status status = sl_map_open(path, &file->map);
    if (status == SLUICE_OK)
        status = sl_tensors_read(file->map.data, file->map.bytes, path, checkpoint->mem, &file->tensors);
    return status;
}

static sluice_status add_tensors(struct checkpoint *checkpoint)
{
    size_t count = 0;
    for (size_t f = 0; f < checkpoint->file_count; f++)
        count += checkpoint->files[f].tensors.count;
    checkpoint->tensors = sl_new_array(checkpoint->mem, count, sizeof *checkpoint->tensors, "tensors of a checkpoint");
    if (checkpoint->tensors == NULL)
        return SLUICE_NOMEM;
    for (size_t f = 0; f < checkpoint->file_count; f++) {
        const struct checkpoint_file *file = &checkpoint->files[f];
        for (size_t i = 0; i < file->tensors.count; i++) {
            const struct sl_tensor *from = &file->tensors.list[i];
            struct checkpoint_tensor *to = &checkpoint->tensors[checkpoint->count++];
            *to = (struct checkpoint_tensor){.name = from->name,
                                             .data = file->map.data + from->offset,
                                             .dims = from->dims,
                                             .dtype = from->dtype,
                                             .bytes = from->bytes};
            memcpy(to->shape, from->shape, sizeof from->shape);
        }
    }
    return SLUICE_OK;
}

/* --- several files --- */

/* A tensor by name, and the file that has it. */
struct place {
    const char *name;
    const struct checkpoint_file *file;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct place *)a)->name, ((const struct place *)b)->name);
}

static sluice_status list_places(const struct checkpoint *checkpoint, const char *index, struct place *places,
                                 size_t *ret_count)
{
    size_t count = 0;
    for (size_t f = 0; f < checkpoint->file_count; f++)
        for (size_t i = 0; i < checkpoint->files[f].tensors.count; i++)
            places[count++] = (struct place){checkpoint->files[f].tensors.list[i].name, &checkpoint->files[f]};
    if (count > 0)
        qsort(places, count, sizeof *places, by_name);
    for (size_t i = 1; i < count; i++)
        if (strcmp(places[i].name, places[i - 1].name) == 0)
            return sl_fail(SLUICE_PARSE, "checkpoint", "%s: tensor '%.200s' is in %s and in %s", index, places[i].name,
                           places[i - 1].file->name, places[i].file->name);
    *ret_count = count;
    return SLUICE_OK;
}

/* The index and the files must say the same. */
static sluice_status compare(const struct checkpoint *checkpoint, const char *index, const json_t *map)
{
    size_t most = 0, count = 0;
    for (size_t f = 0; f < checkpoint->file_count; f++)
        most += checkpoint->files[f].tensors.count;
    struct place *places = sl_new_array(checkpoint->mem, most, sizeof *places, "tensors of a checkpoint");
    if (places == NULL)
        return SLUICE_NOMEM;
    sluice_status status = list_places(checkpoint, index, places, &count);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, name, value)
    {
        if (status != SLUICE_OK)
            break;
        struct place *found = bsearch(&(struct place){.name = name}, places, count, sizeof *places, by_name);
        if (found == NULL || strcmp(found->file->name, json_string_value(value)) != 0)
            status = sl_fail(SLUICE_PARSE, "checkpoint", "%s: tensor '%.200s' is not in %.200s", index, name,
                             json_string_value(value));
    }
    for (size_t i = 0; i < count && status == SLUICE_OK; i++)
        if (json_object_get(map, places[i].name) == NULL)
            status = sl_fail(SLUICE_PARSE, "checkpoint", "%s: tensor '%.200s' of %s is not in the index", index,
                             places[i].name, places[i].file->name);
    sl_free(checkpoint->mem, places);
    return status;
}

static _Bool is_open(const struct checkpoint *checkpoint, const char *name)
{
    for (size_t f = 0; f < checkpoint->file_count; f++)
        if (strcmp(checkpoint->files[f].name, name) == 0)
            return 1;
    return 0;
}

static sluice_status open_listed(struct checkpoint *checkpoint, const char *index, const json_t *map)
{
    const char *slash = strrchr(index, '/');
    int folder = slash != NULL ? (int)(slash - index) + 1 : 0;
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, value)
    {
        char path[PATH_BYTES];
        const char *name = json_string_value(value);
        if (name == NULL || name[0] == '\0' || strchr(name, '/') != NULL)
            return sl_fail(SLUICE_PARSE, "checkpoint",
                           "%s: weight_map['%.200s']: want the name of a file in the same directory", index, tensor);
        if (is_open(checkpoint, name))
            continue;
        if (checkpoint->file_count == FILES_MAX)
            return sl_fail(SLUICE_LIMIT, "checkpoint", "%s: more than %d files", index, FILES_MAX);
        if (snprintf(path, sizeof path, "%.*s%s", folder, index, name) >= (int)sizeof path)
            return sl_fail(SLUICE_LIMIT, "checkpoint", "%s: the path of %.200s is too long", index, name);
        sluice_status status = open_file(checkpoint, path);
        if (status != SLUICE_OK)
            return status;
    }
    return SLUICE_OK;
}

static sluice_status open_index(struct checkpoint *checkpoint, const char *path)
{
    struct sl_map map;
    json_t *root = NULL;
    sluice_status status = sl_map_open(path, &map);
    if (status != SLUICE_OK)
        return status;
    status = sl_json_parse((const char *)map.data, map.bytes, path, &root);
    sl_map_close(&map);
    if (status != SLUICE_OK)
        return status;
    const json_t *names = json_object_get(root, "weight_map");
    if (!json_is_object(names) || json_object_size(names) == 0)
        status = sl_fail(SLUICE_PARSE, "checkpoint", "%s: want an object 'weight_map' from tensors to files", path);
    if (status == SLUICE_OK)
        status = open_listed(checkpoint, path, names);
    if (status == SLUICE_OK)
        status = compare(checkpoint, path, names);
    json_decref(root);
    return status;
}

/* --- the whole --- */

static _Bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static _Bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

/* The file to open for what the user named. */
static sluice_status find(const char *path, char *ret, size_t capacity)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        if (snprintf(ret, capacity, "%s", path) < (int)capacity)
            return SLUICE_OK;
        return sl_fail(SLUICE_LIMIT, "checkpoint", "the path is too long");
    }
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors"};
    for (size_t i = 0; i < SL_COUNT(names); i++)
        if (snprintf(ret, capacity, "%s/%s", path, names[i]) < (int)capacity && exists(ret))
            return SLUICE_OK;
    return sl_fail(SLUICE_NOT_FOUND, "checkpoint",
                   "%s: the directory has neither model.safetensors nor model.safetensors.index.json", path);
}

sluice_status checkpoint_open(const char *path, struct checkpoint *ret)
{
    struct checkpoint checkpoint = {.mem = sl_mem_default()};
    char file[PATH_BYTES];
    sluice_status status = find(path, file, sizeof file);
    if (status != SLUICE_OK)
        return status;
    checkpoint.files = sl_new_array(checkpoint.mem, FILES_MAX, sizeof *checkpoint.files, "files of a checkpoint");
    if (checkpoint.files == NULL)
        return SLUICE_NOMEM;
    status = ends_with(file, ".json") ? open_index(&checkpoint, file) : open_file(&checkpoint, file);
    if (status == SLUICE_OK)
        status = add_tensors(&checkpoint);
    if (status != SLUICE_OK) {
        checkpoint_close(&checkpoint);
        return status;
    }
    *ret = checkpoint;
    return SLUICE_OK;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (checkpoint->mem == NULL)
        return;
    for (size_t f = 0; f < checkpoint->file_count; f++) {
        sl_tensors_drop(&checkpoint->files[f].tensors);
        sl_map_close(&checkpoint->files[f].map);
        sl_free(checkpoint->mem, checkpoint->files[f].path);
    }
    sl_free(checkpoint->mem, checkpoint->files);
    sl_free(checkpoint->mem, checkpoint->tensors);
    *checkpoint = (struct checkpoint){0};
}
