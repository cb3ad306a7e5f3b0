/* Plan files on disk: the form follows first byte and name, and a failure leaves nothing behind. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/core/plan_io.h"
#include "support/plan_maker.h"

static char folder[] = "/tmp/sluice-plan-io-XXXXXX";
static char path[128];

static void setup(void)
{
    cr_assert_not_null(mkdtemp(folder));
}

static void teardown(void)
{
    unlink(path);
    rmdir(folder);
}

TestSuite(plan_io, .init = setup, .fini = teardown);

static const char *in_folder(const char *name)
{
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static int first_byte(const char *file)
{
    FILE *stream = fopen(file, "r");
    int byte = fgetc(stream);
    fclose(stream);
    return byte;
}

static int entries(void)
{
    DIR *open = opendir(folder);
    int count = 0;
    for (struct dirent *entry = readdir(open); entry != NULL; entry = readdir(open))
        count += entry->d_name[0] != '.';
    closedir(open);
    return count;
}

static void round_trip(const char *name, int byte)
{
    struct sl_plan plan, back;
    struct sl_map map;
    maker_random(&plan, 5, 40);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    cr_assert_eq(sl_plan_store(&plan, in_folder(name)), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(first_byte(path), byte);
    cr_assert_eq(sl_plan_open(path, &back, &map), SLUICE_OK, "%s", sluice_last_error()->text);
    cr_assert_eq(back.task_count, 40);
    cr_assert_eq(memcmp(back.tasks, plan.tasks, 40 * sizeof(*plan.tasks)), 0);
    cr_assert_eq(back.borrowed, byte == 0x89);
    cr_assert_eq(map.data != NULL, byte == 0x89);
    sl_plan_drop(&plan);
    sl_plan_drop(&back);
    sl_map_close(&map);
}

Test(plan_io, any_name_is_the_binary_form)
{
    round_trip("a.plan", 0x89);
}

Test(plan_io, a_name_ending_in_json_is_the_json_form)
{
    round_trip("a.json", '{');
}

Test(plan_io, the_form_of_a_file_is_told_by_its_first_byte)
{
    struct sl_plan plan, back;
    struct sl_map map;
    maker_random(&plan, 6, 3);
    cr_assert_eq(sl_plan_validate(&plan), SLUICE_OK);
    FILE *stream = fopen(in_folder("b.json"), "w");
    cr_assert_eq(sl_plan_write_binary(&plan, stream), SLUICE_OK);
    fclose(stream);
    cr_assert_eq(sl_plan_open(path, &back, &map), SLUICE_OK);
    sl_plan_drop(&plan);
    sl_plan_drop(&back);
    sl_map_close(&map);
}

Test(plan_io, a_refused_plan_leaves_no_file)
{
    struct sl_plan plan;
    maker_open(&plan, 2, 1);
    cr_assert_eq(sl_plan_store(&plan, in_folder("c.plan")), SLUICE_STATE);
    cr_assert_eq(entries(), 0);
    sl_plan_drop(&plan);
}

Test(plan_io, a_file_that_does_not_exist_is_named)
{
    struct sl_plan plan;
    struct sl_map map;
    cr_assert_eq(sl_plan_open(in_folder("none.plan"), &plan, &map), SLUICE_IO);
    cr_assert_not_null(strstr(sluice_last_error()->text, "none.plan"));
}

Test(plan_io, an_empty_file_is_malformed)
{
    struct sl_plan plan;
    struct sl_map map;
    fclose(fopen(in_folder("empty.plan"), "w"));
    cr_assert_eq(sl_plan_open(path, &plan, &map), SLUICE_PARSE);
    cr_assert_not_null(strstr(sluice_last_error()->text, "empty.plan"));
}
