/* main.c: the smallest program of a user. */
#include <sluice/plan.h>
#include <sluice/runtime.h>
#include <sluice/transfer.h>
#include <string.h>

int main(void)
{
    if (sluice_abi_version() != SLUICE_ABI_VERSION)
        return 1;
    return strcmp(sluice_status_name(SLUICE_TIMEOUT), "SLUICE_TIMEOUT") != 0;
}
