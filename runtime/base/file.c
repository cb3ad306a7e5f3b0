/*
 * file.c: files that are read whole by mapping, and files that appear whole or not at all.
 *
 * - Until sl_out_commit the target keeps its old content; the new one grows in the same folder: without a name
 *   where the file system can do that, so that a killed process leaves nothing, else under a temporary name.
 * - A target that is no regular file (a terminal, a pipe, /dev/null) is written in place: a rename
 *   would replace the device.
 */
#include "runtime/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/memory.h"

static sluice_status io_error(const char *verb, const char *path)
{
    return sl_fail_native(SLUICE_IO, SLUICE_DOMAIN_SYSTEM, errno, "file", "cannot %s %s", verb, path);
}

static sluice_status map_fd(int fd, const char *path, struct sl_map *ret)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return io_error("read", path);
    if (!S_ISREG(info.st_mode))
        return sl_fail(SLUICE_IO, "file", "cannot read %s: not a regular file", path);
    struct sl_map map = {.data = NULL, .bytes = (size_t)info.st_size};
    if (map.bytes > 0) {
        void *data = mmap(NULL, map.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            return io_error("map", path);
        map.data = data;
    }
    *ret = map;
    return SLUICE_OK;
}

sluice_status sl_map_open(const char *path, struct sl_map *ret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not wait for a writer */
    if (fd < 0)
        return io_error("open", path);
    sluice_status status = map_fd(fd, path, ret);
    SL_IGNORE(close(fd));
    return status;
}

void sl_map_close(struct sl_map *map)
{
    if (map->data) {
        int failed = munmap((void *)(uintptr_t)map->data, map->bytes);
        SL_ASSERT(failed == 0);
    }
    *map = (struct sl_map){0};
}

static void folder_of(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash - path) + 1 : 1;
    SL_IGNORE(snprintf(folder, PATH_MAX, "%.*s", length, slash ? path : "."));
}

/* The way to a name for a file that has none. */
static void link_to(int fd, char link[32])
{
    SL_IGNORE(snprintf(link, 32, "/proc/self/fd/%d", fd));
}

/* A file without a name, which goes with the process; -1 where there is no such thing or no way to name it later. */
static int create_unnamed(const char *path, mode_t mode)
{
    char folder[PATH_MAX], link[32];
    folder_of(path, folder);
    int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
    if (fd < 0)
        return -1;
    link_to(fd, link);
    if (access(link, F_OK) == 0)
        return fd;
    SL_IGNORE(close(fd));
    return -1;
}

/* Gives the name to the file without one, or with -1 to a new one. */
static int claim(const char *name, int unnamed, mode_t mode)
{
    char link[32];
    if (unnamed < 0)
        return open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    link_to(unnamed, link);
    return linkat(AT_FDCWD, link, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0 ? unnamed : -1;
}

/* A temporary name beside `path`, which nobody else has, for `unnamed` or a new file. The name goes to `ret_name`. */
static int create_temporary(const char *path, int unnamed, mode_t mode, char **ret_name)
{
    static _Atomic unsigned counter;
    size_t capacity = strlen(path) + 32;
    char *name = sl_new(sl_mem_default(), capacity, "file name");
    int fd = -1;
    errno = ENOMEM;
    for (int attempt = 0; name && fd < 0 && attempt < 100; attempt++) {
        unsigned number = atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed);
        SL_IGNORE(snprintf(name, capacity, "%s.%d-%u.tmp", path, (int)getpid(), number));
        fd = claim(name, unnamed, mode);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0) {
        sl_free(sl_mem_default(), name);
        return -1;
    }
    *ret_name = name;
    return fd;
}

static int create(struct sl_out *out, mode_t mode)
{
    int fd = create_unnamed(out->path, mode);
    out->unnamed = fd >= 0;
    return fd >= 0 ? fd : create_temporary(out->path, -1, mode, &out->temporary);
}

/* Opens what will hold the content: the target itself, a file without a name or one with a temporary name. */
static int open_content(struct sl_out *out)
{
    struct stat info;
    if (stat(out->path, &info) != 0)
        return *out->path == '\0' ? -1 : create(out, 0666);
    if (!S_ISREG(info.st_mode))
        return open(out->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (access(out->path, W_OK) != 0)
        return -1;
    return create(out, info.st_mode & 0777);
}

static void forget(struct sl_out *out)
{
    sl_free(sl_mem_default(), out->temporary);
    sl_free(sl_mem_default(), out->path);
    *out = (struct sl_out){0};
}

sluice_status sl_out_open(const char *path, struct sl_out *ret)
{
    char real[PATH_MAX]; /* the file behind a link is replaced, not the link */
    struct sl_out out = {.path = sl_strdup(sl_mem_default(), realpath(path, real) ? real : path)};
    if (!out.path)
        return SLUICE_NOMEM;
    int fd = open_content(&out);
    if (fd >= 0)
        out.file = fdopen(fd, "w");
    if (out.file) {
        *ret = out;
        return SLUICE_OK;
    }
    sluice_status status = io_error("write", path);
    if (fd >= 0)
        SL_IGNORE(close(fd));
    if (out.temporary)
        SL_IGNORE(unlink(out.temporary));
    forget(&out);
    return status;
}

/* Why an earlier write failed: the stream has forgotten, but the next one fails alike. */
static int reason_again(FILE *file)
{
    clearerr(file);
    return putc(0, file) == EOF || fflush(file) != 0 ? errno : EIO;
}

/* 0, or -1 with errno. */
static int finish_content(struct sl_out *out)
{
    int failed = fflush(out->file) != 0 ? errno : 0;
    if (!failed && ferror(out->file))
        failed = reason_again(out->file);
    if (!failed && (out->unnamed || out->temporary) && fsync(fileno(out->file)) != 0)
        failed = errno;
    if (!failed && out->unnamed && create_temporary(out->path, fileno(out->file), 0, &out->temporary) < 0)
        failed = errno;
    if (fclose(out->file) != 0 && !failed)
        failed = errno;
    out->file = NULL;
    errno = failed;
    return failed ? -1 : 0;
}

/* Makes the new name itself survive a crash. */
static int sync_folder(const char *path)
{
    char folder[PATH_MAX];
    folder_of(path, folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int failed = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
    SL_IGNORE(close(fd));
    errno = failed;
    return failed ? -1 : 0;
}

sluice_status sl_out_commit(struct sl_out *out)
{
    _Bool failed = finish_content(out) != 0;
    if (!failed && out->temporary)
        failed = rename(out->temporary, out->path) != 0 || sync_folder(out->path) != 0;
    if (!failed) {
        forget(out);
        return SLUICE_OK;
    }
    sluice_status status = io_error("write", out->path);
    sl_out_drop(out);
    return status;
}

sluice_status sl_out_end(struct sl_out *out, sluice_status written)
{
    if (written == SLUICE_OK)
        return sl_out_commit(out);
    if (written == SLUICE_IO) {
        if (finish_content(out) == 0)
            errno = EIO;
        SL_IGNORE(io_error("write", out->path));
    }
    sl_out_drop(out);
    return written;
}

void sl_out_drop(struct sl_out *out)
{
    if (out->file)
        SL_IGNORE(fclose(out->file));
    if (out->temporary)
        SL_IGNORE(unlink(out->temporary));
    forget(out);
}
