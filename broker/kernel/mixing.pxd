from libc.stdint cimport uint64_t


cdef inline uint64_t mixed(uint64_t key) noexcept nogil:
    """A permutation of 64 bits (the finaliser of SplitMix64): each bit of the input changes about
    half of the output's, so neighbours land far from each other."""
    key ^= key >> 30
    key *= <uint64_t> 0xBF58476D1CE4E5B9
    key ^= key >> 27
    key *= <uint64_t> 0x94D049BB133111EB
    return key ^ (key >> 31)
