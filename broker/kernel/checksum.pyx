# cython: language_level=3
"""CRC-32C with a seed that names the place a record was written for.

A record checked with the seed of its place cannot pass for another one: not in another queue,
segment or position, and not as a stale page of a file that stood there before.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.octets cimport Octets, octets


cdef extern from "broker/kernel/crc32c.h" nogil:
    void crc32c_prepare()
    uint32_t crc32c_extend(uint32_t crc, const uint8_t* data, size_t length)
    uint32_t crc32c_between(uint32_t crc, const uint8_t* data, const uint32_t* marks, size_t every,
                            size_t start, uint32_t length)


crc32c_prepare()


cdef uint32_t crc32c_of(uint32_t seed, const uint8_t* data, size_t length) noexcept nogil:
    return crc32c_extend(seed, data, length)


cdef void crc32c_marks(const uint8_t* data, size_t length, uint32_t* marks) noexcept nogil:
    """Notes sums of `data` for `crc32c_stretch`: `length // MARK_EVERY + 1` marks."""
    cdef size_t i
    marks[0] = ~<uint32_t> 0
    for i in range(length // MARK_EVERY):
        marks[i + 1] = crc32c_extend(marks[i], data + i * MARK_EVERY, MARK_EVERY)


cdef uint32_t crc32c_stretch(uint32_t seed, const uint8_t* data, const uint32_t* marks,
                             size_t start, uint32_t length) noexcept nogil:
    """`crc32c_of` a stretch of `data`, in the same short time however long it is."""
    return crc32c_between(seed, data, marks, MARK_EVERY, start, length)


cdef uint32_t place_seed(uint64_t incarnation, uint32_t segment, uint32_t position) noexcept nogil:
    """The seed of one record's place: the CRC of incarnation, segment and position,
    little-endian."""
    cdef uint32_t place[4]
    place[0] = <uint32_t> incarnation
    place[1] = <uint32_t> (incarnation >> 32)
    place[2] = segment
    place[3] = position
    return crc32c_extend(0, <const uint8_t*> place, 16)


def crc32c(data, uint32_t seed=0) -> int:
    """CRC-32C of `data`, continuing `seed`."""
    cdef Octets summed = octets(data)
    return crc32c_extend(seed, summed.data, summed.length) if summed.length else seed


def seed_of(uint64_t incarnation, uint32_t segment, uint32_t position) -> int:
    """`place_seed`, for what is not on a message's way."""
    return place_seed(incarnation, segment, position)
