/* sim_faults.h: sluice sim --faults. */
#ifndef SL_TOOL_SIM_FAULTS_H
#define SL_TOOL_SIM_FAULTS_H

#include <stdint.h>

/* Runs `count` seeds from `first` on; prints a tally, or the first that fails with what it waits for. Exit status. */
int sim_faults(uint64_t first, uint64_t count);

#endif
