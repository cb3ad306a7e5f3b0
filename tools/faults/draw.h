/* draw.h: which faults a seed gets, where nobody says otherwise. */
#ifndef SL_FAULTS_DRAW_H
#define SL_FAULTS_DRAW_H

#include <stdint.h>

/* Most seeds get two kinds of fault, every eighth none, every eighth all. */
uint32_t faults_of_world(uint64_t seed); /* enum world_fault */
uint32_t faults_of_job(uint64_t seed);   /* enum job_fault */

#endif
