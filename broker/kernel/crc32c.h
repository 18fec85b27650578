/* CRC-32C (Castagnoli, reflected 0x82F63B78): the processor's instruction where it has one, a table
   elsewhere. */
#ifndef LEVERET_CRC32C_H
#define LEVERET_CRC32C_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC32C_DIGIT 11  /* bits of a count of zero bytes that one table of powers answers for */

static uint32_t crc32c_table[256];
/* x to the power of 8 * i * 2^(CRC32C_DIGIT * digit), which is what i zero bytes multiply with */
static uint32_t crc32c_powers[3][1 << CRC32C_DIGIT];
static int crc32c_hardware = 0;

#define CRC32C_LANE 64  /* bytes of each of the three sums that the processor forms at once */
#define CRC32C_WIDE_LANE 256
/* Below that, one sum: those of the records that follow are formed beside it anyway. */
#define CRC32C_LONG (2 * 3 * CRC32C_LANE)
/* what a state becomes behind a lane of zero bytes, by each of its octets */
static uint32_t crc32c_lane[4][256];
static uint32_t crc32c_wide_lane[4][256];

static inline uint32_t crc32c_over(uint32_t lane[4][256], uint32_t state) {
    return lane[0][state & 0xff] ^ lane[1][state >> 8 & 0xff] ^ lane[2][state >> 16 & 0xff]
        ^ lane[3][state >> 24];
}

static uint32_t crc32c_by_table(uint32_t crc, const uint8_t *data, size_t length) {
    while (length--) crc = crc32c_table[(crc ^ *data++) & 0xff] ^ (crc >> 8);
    return crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
__attribute__((target("sse4.2"), noinline))
static uint32_t crc32c_by_lanes(uint32_t crc, const uint8_t *data, size_t lane, size_t times,
                                uint32_t table[4][256]) {
    /* An instruction waits for the one before it, but three sums beside each other do not. */
    while (times--) {
        uint64_t a = crc, b = 0, c = 0;
        for (size_t i = 0; i < lane; i += 8) {
            uint64_t words[3];
            memcpy(words, data + i, 8);
            memcpy(words + 1, data + lane + i, 8);
            memcpy(words + 2, data + 2 * lane + i, 8);
            a = _mm_crc32_u64(a, words[0]);
            b = _mm_crc32_u64(b, words[1]);
            c = _mm_crc32_u64(c, words[2]);
        }
        crc = crc32c_over(table, crc32c_over(table, (uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
        data += 3 * lane;
    }
    return crc;
}

__attribute__((target("sse4.2")))
static uint32_t crc32c_by_instruction(uint32_t crc, const uint8_t *data, size_t length) {
    if (length >= CRC32C_LONG) {
        size_t wide = length / (3 * CRC32C_WIDE_LANE), narrow;
        if (wide) crc = crc32c_by_lanes(crc, data, CRC32C_WIDE_LANE, wide, crc32c_wide_lane);
        data += wide * 3 * CRC32C_WIDE_LANE;
        length -= wide * 3 * CRC32C_WIDE_LANE;
        narrow = length / (3 * CRC32C_LANE);
        crc = crc32c_by_lanes(crc, data, CRC32C_LANE, narrow, crc32c_lane);
        data += narrow * 3 * CRC32C_LANE;
        length -= narrow * 3 * CRC32C_LANE;
    }
    uint64_t wide = crc;
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        wide = _mm_crc32_u64(wide, word);
        data += 8;
        length -= 8;
    }
    crc = (uint32_t)wide;
    if (length & 4) {
        uint32_t word;
        memcpy(&word, data, 4);
        crc = _mm_crc32_u32(crc, word);
        data += 4;
    }
    if (length & 2) {
        uint16_t word;
        memcpy(&word, data, 2);
        crc = _mm_crc32_u16(crc, word);
        data += 2;
    }
    return length & 1 ? _mm_crc32_u8(crc, *data) : crc;
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
    if (length & 4) {
        uint32_t word;
        memcpy(&word, data, 4);
        crc = __crc32cw(crc, word);
        data += 4;
    }
    if (length & 2) {
        uint16_t word;
        memcpy(&word, data, 2);
        crc = __crc32ch(crc, word);
        data += 2;
    }
    return length & 1 ? __crc32cb(crc, *data) : crc;
}
static int crc32c_detect(void) { return 1; }
#else
static uint32_t crc32c_by_instruction(uint32_t crc, const uint8_t *data, size_t length) {
    return crc32c_by_table(crc, data, length);
}
static int crc32c_detect(void) { return 0; }
#endif

/* The product of two polynomials modulo the CRC's, the top bit being x^0. */
static uint32_t crc32c_product(uint32_t a, uint32_t b) {
    uint32_t multiples[16], product = 0;
    multiples[0] = 0;
    multiples[8] = b;
    for (int bit = 4; bit; bit >>= 1)
        multiples[bit] = (multiples[bit * 2] >> 1) ^ (multiples[bit * 2] & 1 ? 0x82F63B78u : 0);
    for (int i = 3; i < 16; i++) multiples[i] = multiples[i & (i - 1)] ^ multiples[i & -i];
    for (int i = 0; i < 8; i++, a >>= 4)
        product = (product >> 4) ^ crc32c_table[(product & 15) << 4] ^ multiples[a & 15];
    return product;
}

/* What the state of a CRC, not inverted, becomes behind that number of zero bytes. */
static inline uint32_t crc32c_shift(uint32_t state, uint32_t zeros) {
    for (int digit = 0; zeros; digit++, zeros >>= CRC32C_DIGIT)
        if (zeros & ((1 << CRC32C_DIGIT) - 1))
            state = crc32c_product(
                crc32c_powers[digit][zeros & ((1 << CRC32C_DIGIT) - 1)], state);
    return state;
}

/* Called once at import, before any thread starts. */
static void crc32c_prepare(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) value = (value >> 1) ^ ((value & 1) ? 0x82F63B78u : 0);
        crc32c_table[i] = value;
    }
    for (int digit = 0; digit < 3; digit++) {
        uint32_t *powers = crc32c_powers[digit];
        uint32_t step = digit == 0
            ? 0x00800000u /* x^8 */
            : crc32c_product(crc32c_powers[digit - 1][(1 << CRC32C_DIGIT) - 1],
                             crc32c_powers[digit - 1][1]);
        powers[0] = 0x80000000u;
        for (int i = 1; i < 1 << CRC32C_DIGIT; i++) powers[i] = crc32c_product(powers[i - 1], step);
    }
    for (int octet = 0; octet < 4; octet++)
        for (uint32_t i = 0; i < 256; i++) {
            crc32c_lane[octet][i] = crc32c_shift(i << 8 * octet, CRC32C_LANE);
            crc32c_wide_lane[octet][i] = crc32c_shift(i << 8 * octet, CRC32C_WIDE_LANE);
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

/* The CRC of data[start, start + length) in bounded time, whatever the length: `marks` are the CRCs
   of data[0, i * every), seeded with ~0, so that their complements are states that began as 0. */
static inline uint32_t crc32c_between(uint32_t crc, const uint8_t *data, const uint32_t *marks,
                                      size_t every, size_t start, uint32_t length) {
    size_t end = start + length;
    uint32_t before = ~crc32c_extend(
        marks[start / every], data + start / every * every, start % every);
    uint32_t behind = ~crc32c_extend(marks[end / every], data + end / every * every, end % every);
    return ~(crc32c_shift(~crc ^ before, length) ^ behind);
}
#endif
