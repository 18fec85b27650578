/* Copies for a device: this processor does not read them again. Past its caches they take a fifth
   of the time, since a copy there has to fetch what it overwrites, and drives out what is used. */
#ifndef LEVERET_STREAMING_COPY_H
#define LEVERET_STREAMING_COPY_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { STREAMING_LINE = 64, STREAMING_LEAST = 4096 };

static inline void streaming_copy(uint8_t *to, const uint8_t *from, size_t length) {
#ifdef __SSE2__
    if (length >= STREAMING_LEAST) {
        size_t head = (size_t)-(uintptr_t)to % STREAMING_LINE;
        memcpy(to, from, head);
        to += head, from += head, length -= head;
        for (; length >= STREAMING_LINE; length -= STREAMING_LINE) {
            __m128i a = _mm_loadu_si128((const __m128i *)from);
            __m128i b = _mm_loadu_si128((const __m128i *)(from + 16));
            __m128i c = _mm_loadu_si128((const __m128i *)(from + 32));
            __m128i d = _mm_loadu_si128((const __m128i *)(from + 48));
            /* Whole lines, one behind the other: the processor writes each at once. */
            _mm_stream_si128((__m128i *)to, a);
            _mm_stream_si128((__m128i *)(to + 16), b);
            _mm_stream_si128((__m128i *)(to + 32), c);
            _mm_stream_si128((__m128i *)(to + 48), d);
            to += STREAMING_LINE, from += STREAMING_LINE;
        }
        /* Other stores, as of the call that begins the write, must not overtake these. */
        _mm_sfence();
    }
#endif
    memcpy(to, from, length);
}
#endif
