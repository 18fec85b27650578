/* Copies and comparisons of a few bytes, as names, properties and small bodies are: a call would
   take longer than they do. */
#ifndef LEVERET_SHORT_COPY_H
#define LEVERET_SHORT_COPY_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void short_copy(uint8_t *to, const uint8_t *from, size_t length) {
    if (length > 32) {
        memcpy(to, from, length);
    } else if (length >= 16) {
        memcpy(to, from, 16);
        memcpy(to + length - 16, from + length - 16, 16);
    } else if (length >= 8) {
        memcpy(to, from, 8);
        memcpy(to + length - 8, from + length - 8, 8);
    } else if (length >= 4) {
        memcpy(to, from, 4);
        memcpy(to + length - 4, from + length - 4, 4);
    } else if (length) {
        to[0] = from[0];
        to[length / 2] = from[length / 2];
        to[length - 1] = from[length - 1];
    }
}

static inline int short_equal(const uint8_t *a, const uint8_t *b, size_t length) {
    uint64_t x, y;
    if (length < 8) {
        while (length--) if (*a++ != *b++) return 0;
        return 1;
    }
    for (size_t i = 0; i + 8 < length; i += 8) {
        memcpy(&x, a + i, 8);
        memcpy(&y, b + i, 8);
        if (x != y) return 0;
    }
    memcpy(&x, a + length - 8, 8);
    memcpy(&y, b + length - 8, 8);
    return x == y;
}
#endif
