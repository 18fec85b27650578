from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from broker.kernel.message cimport Message, RUN_MAX


# Publishes that go one way together: each whole in a chunk, behind each other.
cdef struct Run:
    # what they have in common
    uint16_t channel
    uint32_t frame_max
    uint64_t below                 # bodies are shorter than this
    # what was found
    uint32_t count
    uint32_t frames
    uint64_t body_bytes
    size_t length                  # of their frames
    Message messages[RUN_MAX]


cdef void gather(Run* run, const uint8_t* data, size_t length) noexcept nogil
