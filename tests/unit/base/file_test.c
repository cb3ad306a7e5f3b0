/* Mapping files, and writing them whole or not at all. */
#include "runtime/base/file.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "tests/support/memory.h"

static char folder[] = "/tmp/sluice-file-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[300];
    SL_IGNORE(snprintf(path, sizeof path, "%s/%s", folder, name));
    return path;
}

static void make_folder(void)
{
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        SL_IGNORE(unlinkat(dirfd(dir), entry->d_name, 0));
    closedir(dir);
    SL_IGNORE(rmdir(folder));
}

TestSuite(file, .init = make_folder, .fini = remove_folder);

static int count_files(void)
{
    int count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void write_text(const char *path, const char *text)
{
    struct sl_out out;
    cr_assert_eq(sl_out_open(path, &out), SLUICE_OK);
    cr_assert(fputs(text, out.file) >= 0);
    cr_assert_eq(sl_out_commit(&out), SLUICE_OK);
}

static void assert_content(const char *path, const char *text)
{
    struct sl_map map;
    cr_assert_eq(sl_map_open(path, &map), SLUICE_OK);
    cr_assert_eq(map.bytes, strlen(text));
    cr_assert(map.bytes == 0 || memcmp(map.data, text, map.bytes) == 0);
    sl_map_close(&map);
}

Test(file, committed_content_is_read_back)
{
    write_text(in_folder("a"), "weights");
    assert_content(in_folder("a"), "weights");
    cr_assert_eq(count_files(), 1);
}

Test(file, empty_file_maps_to_nothing)
{
    write_text(in_folder("a"), "");
    struct sl_map map;
    cr_assert_eq(sl_map_open(in_folder("a"), &map), SLUICE_OK);
    cr_assert_null(map.data);
    cr_assert_eq(map.bytes, 0);
    sl_map_close(&map);
}

Test(file, target_keeps_its_content_until_the_commit)
{
    write_text(in_folder("a"), "old");
    struct sl_out out;
    cr_assert_eq(sl_out_open(in_folder("a"), &out), SLUICE_OK);
    cr_assert(fputs("new", out.file) >= 0);
    cr_assert_eq(fflush(out.file), 0);
    assert_content(in_folder("a"), "old");
    cr_assert_eq(sl_out_commit(&out), SLUICE_OK);
    assert_content(in_folder("a"), "new");
    sl_out_drop(&out);
}

Test(file, dropped_file_never_was)
{
    struct sl_out out;
    cr_assert_eq(sl_out_open(in_folder("a"), &out), SLUICE_OK);
    cr_assert(fputs("half", out.file) >= 0);
    sl_out_drop(&out);
    sl_out_drop(&out);
    cr_assert_eq(count_files(), 0);
}

Test(file, process_that_is_killed_leaves_nothing)
{
    int fd = open(folder, O_TMPFILE | O_WRONLY, 0600);
    if (fd < 0)
        cr_skip_test("%s has no files without a name", folder);
    SL_IGNORE(close(fd));
    pid_t child = fork();
    if (child == 0) {
        struct sl_out out;
        if (sl_out_open(in_folder("a"), &out) == SLUICE_OK && fputs("half", out.file) >= 0 && fflush(out.file) == 0)
            raise(SIGKILL);
        _exit(1);
    }
    int state = 0;
    cr_assert_eq(waitpid(child, &state, 0), child);
    cr_assert(WIFSIGNALED(state));
    cr_assert_eq(count_files(), 0);
}

Test(file, new_file_has_the_mode_that_the_mask_leaves)
{
    struct stat info;
    SL_IGNORE(umask(027));
    write_text(in_folder("a"), "x");
    cr_assert_eq(stat(in_folder("a"), &info), 0);
    cr_assert_eq(info.st_mode & 0777, 0640);
}

Test(file, two_writers_of_one_target_do_not_meet)
{
    struct sl_out first;
    struct sl_out second;
    cr_assert_eq(sl_out_open(in_folder("a"), &first), SLUICE_OK);
    cr_assert_eq(sl_out_open(in_folder("a"), &second), SLUICE_OK);
    cr_assert(fputs("first", first.file) >= 0 && fputs("second", second.file) >= 0);
    cr_assert_eq(sl_out_commit(&second), SLUICE_OK);
    cr_assert_eq(sl_out_commit(&first), SLUICE_OK);
    assert_content(in_folder("a"), "first");
    cr_assert_eq(count_files(), 1);
}

/* The file-size limit stands for the full disk: the write fails half way through. */
Test(file, write_that_fails_half_way_leaves_nothing)
{
    write_text(in_folder("a"), "old");
    SL_IGNORE(signal(SIGXFSZ, SIG_IGN) == SIG_ERR);
    struct sl_out out;
    cr_assert_eq(sl_out_open(in_folder("a"), &out), SLUICE_OK);
    struct rlimit limit = {.rlim_cur = 10000, .rlim_max = RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 20000; i++)
        SL_IGNORE(fputc('x', out.file));
    sluice_status status = sl_out_commit(&out);
    limit.rlim_cur = RLIM_INFINITY;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(status, SLUICE_IO);
    cr_assert_eq(sluice_last_error()->native, EFBIG);
    cr_assert_not_null(strstr(sluice_last_error()->text, in_folder("a")));
    cr_assert_eq(count_files(), 1);
    assert_content(in_folder("a"), "old");
}

Test(file, full_device_is_told)
{
    struct sl_out out;
    cr_assert_eq(sl_out_open("/dev/full", &out), SLUICE_OK);
    cr_assert(fputs("x", out.file) >= 0);
    cr_assert_eq(sl_out_commit(&out), SLUICE_IO);
    cr_assert_str_eq(sluice_last_error()->text, "cannot write /dev/full: No space left on device");
    struct stat info;
    cr_assert_eq(stat("/dev/full", &info), 0);
    cr_assert(S_ISCHR(info.st_mode));
}

Test(file, device_is_written_in_place)
{
    write_text("/dev/null", "gone");
    struct stat info;
    cr_assert_eq(stat("/dev/null", &info), 0);
    cr_assert(S_ISCHR(info.st_mode));
}

Test(file, link_stays_and_its_file_is_replaced)
{
    char target[300];
    strcpy(target, in_folder("a"));
    write_text(target, "old");
    cr_assert_eq(symlink(target, in_folder("link")), 0);
    write_text(in_folder("link"), "new");
    assert_content(target, "new");
    struct stat info;
    cr_assert_eq(lstat(in_folder("link"), &info), 0);
    cr_assert(S_ISLNK(info.st_mode));
}

Test(file, what_cannot_be_read_is_named)
{
    struct sl_map map;
    cr_assert_eq(sl_map_open(in_folder("missing"), &map), SLUICE_IO);
    cr_assert_not_null(strstr(sluice_last_error()->text, "/missing: No such file"));
    cr_assert_eq(sl_map_open(folder, &map), SLUICE_IO);
    cr_assert_not_null(strstr(sluice_last_error()->text, "not a regular file"));
    cr_assert_eq(mkfifo(in_folder("pipe"), 0600), 0);
    cr_assert_eq(sl_map_open(in_folder("pipe"), &map), SLUICE_IO);
    cr_assert_eq(sl_map_open("", &map), SLUICE_IO);
}

Test(file, what_cannot_be_written_is_named)
{
    struct sl_out out;
    cr_assert_eq(sl_out_open(in_folder("no/such/a"), &out), SLUICE_IO);
    cr_assert_not_null(strstr(sluice_last_error()->text, "no/such/a: No such file"));
    cr_assert_eq(sl_out_open(folder, &out), SLUICE_IO);
    cr_assert_eq(sl_out_open("", &out), SLUICE_IO);
    cr_assert_eq(count_files(), 0);
}

Test(file, out_of_memory_leaves_nothing)
{
    struct test_memory memory;
    test_memory_install(&memory);
    for (uint64_t n = 1;; n++) {
        test_memory_fail_at(&memory, n);
        struct sl_out out;
        sluice_status status = sl_out_open(in_folder("a"), &out);
        if (status == SLUICE_OK)
            status = sl_out_commit(&out);
        cr_assert_eq(memory.live, 0);
        if (status == SLUICE_OK) {
            cr_assert_gt(n, 2);
            break;
        }
        cr_assert_eq(memory.failed, 1);
        cr_assert_eq(count_files(), 0);
    }
    cr_assert_eq(count_files(), 1);
}
