/*
 * model_file.c: where models lie.
 *
 * - Folders, in this order: share/sluice/models beside the program's folder, the installation's, the
 *   source tree's. The first that exists is the only one that counts, so a list and a look-up agree.
 */
#include "runtime/core/model_file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

#define PATH_BYTES  4096
#define MODEL_BYTES (UINT64_C(16) << 20) /* of one file */

static const char suffix[] = ".json";

static _Bool is_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (folder)
        SL_IGNORE(closedir(folder));
    return folder != NULL;
}

/* PROGRAM/../share/sluice/models; false when the program's place is not known. */
static _Bool beside_program(char *path)
{
    static const char tail[] = "/../share/sluice/models";
    ssize_t length = readlink("/proc/self/exe", path, PATH_BYTES - sizeof tail);
    if (length <= 0)
        return 0;
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash)
        return 0;
    memcpy(slash, tail, sizeof tail);
    return is_folder(path);
}

static sluice_status find_folder(char *path)
{
    static const char *const folders[] = {SLUICE_MODELS_INSTALLED, SLUICE_MODELS_SOURCE};
    if (beside_program(path))
        return SLUICE_OK;
    for (size_t i = 0; i < SL_COUNT(folders); i++)
        if (is_folder(folders[i])) {
            SL_IGNORE(snprintf(path, PATH_BYTES, "%s", folders[i]));
            return SLUICE_OK;
        }
    return sl_fail(SLUICE_NOT_FOUND, "model", "no models are installed (%s); give a file", SLUICE_MODELS_INSTALLED);
}

static _Bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length > tail && strcmp(text + length - tail, end) == 0;
}

/* The path of a model given by name or path. */
static sluice_status find_model(const char *model, char *path)
{
    char folder[PATH_BYTES];
    if (strlen(model) >= PATH_BYTES)
        return sl_fail(SLUICE_INVALID, "model", "the model's name is too long");
    memcpy(path, model, strlen(model) + 1);
    if (strchr(model, '/') || ends_with(model, suffix))
        return SLUICE_OK;
    if (find_folder(folder) == SLUICE_OK) {
        int length = snprintf(path, PATH_BYTES, "%s/%s%s", folder, model, suffix);
        if (length > 0 && length < PATH_BYTES && access(path, R_OK) == 0)
            return SLUICE_OK;
        memcpy(path, model, strlen(model) + 1);
    }
    if (*model && access(model, R_OK) == 0)
        return SLUICE_OK;
    return sl_fail(SLUICE_NOT_FOUND, "model", "no model '%s' ('sluice plan --list-models' shows their names)", model);
}

sluice_status sl_model_open(const char *model, struct sl_mem *mem, struct sl_model *ret)
{
    char path[PATH_BYTES];
    struct sl_map map;
    sluice_status status = find_model(model, path);
    if (status == SLUICE_OK)
        status = sl_map_open(path, &map);
    if (status != SLUICE_OK)
        return status;
    if (map.bytes > MODEL_BYTES)
        status = sl_fail(SLUICE_LIMIT, "model", "%s: larger than 16 MiB", path);
    else
        status = sl_model_read((const char *)map.data, map.bytes, path, mem, ret);
    sl_map_close(&map);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static sluice_status add_name(struct sl_model_names *names, const char *file)
{
    if (file[0] == '.' || !ends_with(file, suffix))
        return SLUICE_OK;
    sluice_status status =
        sl_grow(names->mem, &names->names, &names->capacity, names->count + 1, sizeof *names->names, "model names");
    if (status != SLUICE_OK)
        return status;
    char *name = sl_strdup(names->mem, file);
    if (!name)
        return SLUICE_NOMEM;
    name[strlen(name) - strlen(suffix)] = '\0';
    names->names[names->count++] = name;
    return SLUICE_OK;
}

sluice_status sl_model_names(struct sl_mem *mem, struct sl_model_names *ret)
{
    char path[PATH_BYTES];
    struct sl_model_names names = {.mem = mem};
    sluice_status status = find_folder(path);
    if (status != SLUICE_OK)
        return status;
    DIR *folder = opendir(path);
    if (!folder)
        return sl_fail(SLUICE_NOT_FOUND, "model", "cannot read %s", path);
    struct dirent *entry;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this call's own, so readdir is safe */
    while (status == SLUICE_OK && (entry = readdir(folder)) != NULL)
        status = add_name(&names, entry->d_name);
    SL_IGNORE(closedir(folder));
    if (status != SLUICE_OK) {
        sl_model_names_drop(&names);
        return status;
    }
    if (names.count > 0)
        qsort(names.names, names.count, sizeof *names.names, by_name);
    *ret = names;
    return SLUICE_OK;
}

void sl_model_names_drop(struct sl_model_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        sl_free(names->mem, names->names[i]);
    if (names->mem)
        sl_free(names->mem, names->names);
    *names = (struct sl_model_names){0};
}
