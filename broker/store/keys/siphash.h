/* SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash, so that a publisher who does not know
   the key cannot choose messages that share a slot. */
#ifndef LEVERET_SIPHASH_H
#define LEVERET_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SIP_TURNED(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define SIP_ROUND \
    do { \
        v0 += v1; v1 = SIP_TURNED(v1, 13); v1 ^= v0; v0 = SIP_TURNED(v0, 32); \
        v2 += v3; v3 = SIP_TURNED(v3, 16); v3 ^= v2; \
        v0 += v3; v3 = SIP_TURNED(v3, 21); v3 ^= v0; \
        v2 += v1; v1 = SIP_TURNED(v1, 17); v1 ^= v2; v2 = SIP_TURNED(v2, 32); \
    } while (0)

static uint64_t siphash(uint64_t k0, uint64_t k1, const uint8_t *data, size_t length)
{
    uint64_t v0 = k0 ^ 0x736f6d6570736575ULL, v1 = k1 ^ 0x646f72616e646f6dULL;
    uint64_t v2 = k0 ^ 0x6c7967656e657261ULL, v3 = k1 ^ 0x7465646279746573ULL;
    uint64_t word, last = (uint64_t)length << 56;
    size_t i, left = length & 7;
    const uint8_t *end = data + (length - left);
    for (; data != end; data += 8) {
        memcpy(&word, data, 8);
        v3 ^= word;
        SIP_ROUND;
        SIP_ROUND;
        v0 ^= word;
    }
    for (i = 0; i < left; i++)
        last |= (uint64_t)data[i] << (8 * i);
    v3 ^= last;
    SIP_ROUND;
    SIP_ROUND;
    v0 ^= last;
    v2 ^= 0xff;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    return v0 ^ v1 ^ v2 ^ v3;
}

#endif
