/* names.h: one line that makes a Criterion suite run once for every backend that is built. */
#ifndef TESTS_CONFORMANCE_NAMES_H
#define TESTS_CONFORMANCE_NAMES_H

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "support/rig.h"

#define CONFORMANCE(suite, test)                                                                                       \
    ParameterizedTestParameters(suite, test)                                                                           \
    {                                                                                                                  \
        static struct rig_name names[8];                                                                               \
        return cr_make_param_array(struct rig_name, names, rig_names(names, 8));                                       \
    }                                                                                                                  \
    ParameterizedTest(struct rig_name *backend, suite, test)

#endif
