/* Faults that the crash tests plant in the broker, so that what looks for faults can be seen to
 * find them. Only a build with -DLEVERET_PLANTED=1 holds them (tests/crash/planted_build.py);
 * there the environment variable PLANTED_FAULT names the one that is planted. In the product
 * `planted` is 0 and the compiler leaves out what depends on it, the name included. */
#ifndef LEVERET_PLANTED_H
#define LEVERET_PLANTED_H

#ifdef LEVERET_PLANTED
#include <stdlib.h>
#include <string.h>

static inline int planted(const char *fault) {
    const char *chosen = getenv("PLANTED_FAULT");
    return chosen != NULL && strcmp(chosen, fault) == 0;
}
#else
#define planted(fault) ((void)(fault), 0)
#endif

#endif
