/* `sluice bench`: what runs without a GPU, and what is said where one is missing. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/command.h"

#define SLUICE SLUICE_TEST_BIN "/sluice"

Test(bench, refit_prints_a_line_for_one_rank_and_for_two_on_the_host_backend)
{
    const char *words[] = {SLUICE, "bench",    "refit", "--backend", "host", "--bytes",
                           "4Mi",  "--refits", "2",     "--json",    NULL};
    struct command_result result = command_run(words);
    cr_assert_eq(result.status, 0, "%s", result.err);
    cr_expect_eq(command_lines(result.out), 3, "%s", result.out);
    cr_expect_not_null(strstr(result.out, "{\"ranks\": 1, \"bytes\": 4194304, \"refits\": 2, \"commit_ms\": "), "%s",
                       result.out);
    cr_expect_not_null(strstr(result.out, "{\"ranks\": 2, \"bytes\": 4194304, \"refits\": 1, "), "%s", result.out);
    cr_expect_not_null(strstr(result.out, "{\"ranks\": 2, \"bytes\": 65536, \"refits\": 2, "), "%s", result.out);
    command_drop(&result);
}

Test(bench, refit_refuses_less_than_it_can_cut)
{
    const char *words[] = {SLUICE, "bench", "refit", "--bytes", "1Ki", NULL};
    struct command_result result = command_run(words);
    cr_expect_eq(result.status, 2);
    cr_expect_not_null(strstr(result.err, "--bytes 1Ki is below 64Ki"), "%s", result.err);
    command_drop(&result);
}

Test(bench, overlap_refuses_to_move_nothing)
{
    const char *words[] = {SLUICE, "bench", "overlap", "--bytes", "0", NULL};
    struct command_result result = command_run(words);
    cr_expect_eq(result.status, 2);
    cr_expect_not_null(strstr(result.err, "--bytes 0 is not within 1 and 256Gi"), "%s", result.err);
    command_drop(&result);
}
