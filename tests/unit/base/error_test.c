/* The thread's last error and the words of status values. */
#include "runtime/base/error.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

Test(error, fail_returns_the_status_and_fills_the_detail)
{
    cr_assert_eq(sl_fail(SLUICE_PLAN, "plan", "task %d: %s", 7, "no receiver"), SLUICE_PLAN);
    const struct sluice_error *error = sluice_last_error();
    cr_assert_eq(error->status, SLUICE_PLAN);
    cr_assert_eq(error->domain, SLUICE_DOMAIN_SLUICE);
    cr_assert_eq(error->native, 0);
    cr_assert_str_eq(error->where, "plan");
    cr_assert_str_eq(error->text, "task 7: no receiver");
}

Test(error, native_system_code_is_told_in_words)
{
    cr_assert_eq(sl_fail_native(SLUICE_IO, SLUICE_DOMAIN_SYSTEM, ENOENT, "file", "cannot open x"), SLUICE_IO);
    cr_assert_eq(sluice_last_error()->native, ENOENT);
    cr_assert_str_eq(sluice_last_error()->text, "cannot open x: No such file or directory");
}

Test(error, text_is_one_line_and_cut_to_its_room)
{
    char text[2000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    text[3] = '\n';
    cr_assert_eq(sl_fail(SLUICE_PARSE, "json", "%s", text), SLUICE_PARSE);
    cr_assert_eq(strlen(sluice_last_error()->text), SLUICE_ERROR_TEXT_MAX - 1);
    cr_assert_null(strchr(sluice_last_error()->text, '\n'));
}

Test(error, old_text_may_be_quoted_by_the_new_one)
{
    cr_assert_eq(sl_fail(SLUICE_IO, "file", "first"), SLUICE_IO);
    cr_assert_eq(sl_fail(SLUICE_PLAN, "plan", "because: %s", sluice_last_error()->text), SLUICE_PLAN);
    cr_assert_str_eq(sluice_last_error()->text, "because: first");
}

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    SL_IGNORE(sl_fail(SLUICE_IO, "other", "other thread"));
    return NULL;
}

Test(error, last_error_belongs_to_its_thread)
{
    cr_assert_eq(sl_fail(SLUICE_LIMIT, "here", "mine"), SLUICE_LIMIT);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_str_eq(sluice_last_error()->text, "mine");
}

Test(error, an_error_travels_with_its_object)
{
    struct sluice_error error;
    cr_assert_eq(sl_fail(SLUICE_LIMIT, "here", "untouched"), SLUICE_LIMIT);
    cr_assert_eq(sl_error_set(&error, SLUICE_TIMEOUT, "seal", "rank %u", 3u), SLUICE_TIMEOUT);
    cr_assert_str_eq(sluice_last_error()->text, "untouched");
    cr_assert_eq(sl_fail_copy(&error), SLUICE_TIMEOUT);
    cr_assert_str_eq(sluice_last_error()->text, "rank 3");
    struct sluice_error taken;
    sl_error_take(&taken);
    cr_assert_eq(memcmp(&taken, &error, sizeof error), 0);
}

Test(error, every_errno_has_words)
{
    cr_assert_str_eq(sl_errno_words(ENOSPC), "No space left on device");
    cr_assert_str_eq(sl_errno_words(99999), "unknown error");
}

Test(status, every_value_has_name_and_words)
{
    cr_assert_str_eq(sluice_status_name(SLUICE_OK), "SLUICE_OK");
    cr_assert_str_eq(sluice_status_name(SLUICE_TIMEOUT), "SLUICE_TIMEOUT");
    cr_assert_str_eq(sluice_status_words(SLUICE_TIMEOUT), "deadline passed");
    cr_assert_str_eq(sluice_status_name((sluice_status)12345), "SLUICE_UNKNOWN");
}

Test(status, dtypes_have_name_and_size)
{
    cr_assert_str_eq(sluice_dtype_name(SLUICE_DTYPE_BF16), "bf16");
    cr_assert_eq(sluice_dtype_bytes(SLUICE_DTYPE_BF16), 2);
    cr_assert_str_eq(sluice_dtype_name(0), "none");
    cr_assert_eq(sluice_dtype_bytes(200), 0);
    cr_assert_eq(sluice_version_number(), 0x000100);
    cr_assert_eq(sluice_abi_version(), 1);
}
