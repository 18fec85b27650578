from libc.stdint cimport uint8_t, uint64_t


# The key of a hash: 16 random bytes of a series of index files.
cdef struct Secret:
    uint64_t low
    uint64_t high


cdef Secret secret_of(bytes data)
cdef Secret secret_for(Secret secret, bytes name)
cdef uint64_t hashed(Secret secret, const uint8_t* value, size_t length) noexcept nogil
