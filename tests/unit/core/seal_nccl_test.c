/* What NCCL's group rule asks of a seal: when pieces may be messages of their own. */
#include <criterion/criterion.h>

#include "runtime/core/seal_nccl.h"
#include "support/taskplan.h"

enum { MIB = 1 << 20 };

/* Whether rank 0, which sends to `peers` ranks, wants everything packed. */
static _Bool packed(uint32_t version, uint32_t channels, enum sluice_policy policy, uint32_t peers, uint64_t window,
                    uint64_t direct_min)
{
    const struct sluice_backend_info info = {.size = sizeof info, .version = version, .channels = channels};
    struct sl_seal_terms terms = {.policy = policy, .window_bytes = window, .direct_min = direct_min};
    struct sl_plan plan;
    struct sl_half half;
    taskplan_open(&plan, peers + 1, 1);
    for (uint32_t peer = 1; peer <= peers; peer++)
        taskplan_add(&plan, peer, 0, 0, peer, 64 * MIB);
    cr_assert_eq(sl_half_build(&plan, 0, sl_mem_default(), &half), SLUICE_OK);
    cr_assert_eq(sl_seal_nccl_terms(&info, &half, sl_mem_default(), &terms), SLUICE_OK);
    sl_half_drop(&half);
    taskplan_drop(&plan);
    return terms.want_packed;
}

Test(seal_nccl, an_old_nccl_takes_single_messages_while_no_window_can_have_more_than_one_plan_holds)
{
    /* 254 headers of a plan: 7 messages of at most 32 channels, 15 of 16. */
    cr_expect_not(packed(22809, 32, SLUICE_POLICY_BALANCED, 1, 256 * MIB, 64 * MIB), "4 pieces and 1 packed");
    cr_expect(packed(22809, 32, SLUICE_POLICY_BALANCED, 1, 256 * MIB, 32 * MIB), "8 pieces and 1 packed");
    cr_expect_not(packed(22809, 16, SLUICE_POLICY_BALANCED, 1, 256 * MIB, 32 * MIB));
    cr_expect_not(packed(22809, 32, SLUICE_POLICY_BALANCED, 3, 256 * MIB, 64 * MIB));
    cr_expect(packed(22809, 32, SLUICE_POLICY_BALANCED, 4, 256 * MIB, 64 * MIB));
}

Test(seal_nccl, windows_that_parameters_may_stretch_are_packed_on_an_old_nccl)
{
    cr_expect(packed(22809, 32, SLUICE_POLICY_ORDERED, 1, 256 * MIB, 64 * MIB));
}

Test(seal_nccl, a_newer_nccl_takes_any_cut)
{
    cr_expect_not(packed(22907, 32, SLUICE_POLICY_BALANCED, 4, 256 * MIB, 1 * MIB));
}
