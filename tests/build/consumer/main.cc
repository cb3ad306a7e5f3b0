// main.cc: the same from C++: every public header, and what begins a struct with a size.
#include <sluice/backend.h>
#include <sluice/cuda.h>
#include <sluice/layout.h>
#include <sluice/plan.h>
#include <sluice/runtime.h>
#include <sluice/transfer.h>

int main()
{
    const sluice_runtime_options runtime = SLUICE_RUNTIME_OPTIONS_INIT;
    const sluice_layout_options layout = SLUICE_LAYOUT_OPTIONS_INIT;
    const sluice_seal_options seal = SLUICE_SEAL_OPTIONS_INIT;
    const sluice_transfer_options transfer = SLUICE_TRANSFER_OPTIONS_INIT;
    const sluice_progress progress = SLUICE_PROGRESS_INIT;
    const bool sized = runtime.size == sizeof runtime && layout.size == sizeof layout && seal.size == sizeof seal &&
                       transfer.size == sizeof transfer && progress.size == sizeof progress;
    return sized && sluice_abi_version() == SLUICE_ABI_VERSION ? 0 : 1;
}
