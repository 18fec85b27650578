/* CRC-32C (Castagnoli, reflected 0x82F63B78): the processor's instruction where it has one, a table
   elsewhere. */
#ifndef LEVERET_CRC32C_H
#define LEVERET_CRC32C_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t crc32c_table[256];
static int crc32c_hardware = 0;

static uint32_t crc32c_by_table(uint32_t crc, const uint8_t *data, size_t length) {
    while (length--) crc = crc32c_table[(crc ^ *data++) & 0xff] ^ (crc >> 8);
    return crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
__attribute__((target("sse4.2")))
static uint32_t crc32c_by_instruction(uint32_t crc, const uint8_t *data, size_t length) {
    uint64_t wide = crc;
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        wide = _mm_crc32_u64(wide, word);
        data += 8;
        length -= 8;
    }
    crc = (uint32_t)wide;
    while (length--) crc = _mm_crc32_u8(crc, *data++);
    return crc;
}
static int crc32c_detect(void) { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
static uint32_t crc32c_by_instruction(uint32_t crc, const uint8_t *data, size_t length) {
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        crc = __crc32cd(crc, word);
        data += 8;
        length -= 8;
    }
    while (length--) crc = __crc32cb(crc, *data++);
    return crc;
}
static int crc32c_detect(void) { return 1; }
#else
static uint32_t crc32c_by_instruction(uint32_t crc, const uint8_t *data, size_t length) {
    return crc32c_by_table(crc, data, length);
}
static int crc32c_detect(void) { return 0; }
#endif

/* Called once at import, before any thread starts. */
static void crc32c_prepare(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) value = (value >> 1) ^ ((value & 1) ? 0x82F63B78u : 0);
        crc32c_table[i] = value;
    }
    crc32c_hardware = crc32c_detect();
}

/* Continues a running CRC; both ends are in the usual inverted form, so results chain. */
static inline uint32_t crc32c_extend(uint32_t crc, const uint8_t *data, size_t length) {
    crc = ~crc;
    crc = crc32c_hardware ? crc32c_by_instruction(crc, data, length)
                          : crc32c_by_table(crc, data, length);
    return ~crc;
}
#endif
