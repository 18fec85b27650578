from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.mixing cimport mixed


# Where a shared body lies, under its id: one entry of a location index (docs/formats/bodies.md).
cdef packed struct Location:
    uint8_t id[16]
    uint32_t file                # number of the body file, from 1
    uint32_t offset              # of the record
    uint32_t length              # of the whole record
    uint32_t references


cdef inline uint64_t hash_of(const uint8_t* id, uint64_t seed) noexcept nogil:
    """A hash of a 16-byte id that is the same in every process."""
    cdef uint64_t parts[2]
    memcpy(parts, id, 16)
    return mixed(mixed(parts[0] ^ seed) ^ parts[1])
