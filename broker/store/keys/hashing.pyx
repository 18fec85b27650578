# cython: language_level=3
"""What a key is in an index: 64 bits of its name and its value.

The hash is SipHash-2-4 of the value, with the secret of the series of files; the hash of the name
is taken into the secret first, so that equal values of two names have nothing in common.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy


cdef extern from "broker/store/keys/siphash.h" nogil:
    uint64_t siphash(uint64_t k0, uint64_t k1, const uint8_t* data, size_t length)


cdef Secret secret_of(bytes data):
    """16 bytes as they stand in the head of a file."""
    cdef Secret secret
    if len(data) != 16:
        raise ValueError(f"a secret has 16 bytes, not {len(data)}")
    memcpy(&secret, <const char*> data, 16)
    return secret


cdef Secret secret_for(Secret secret, bytes name):
    """What the values of one name are hashed with."""
    secret.low ^= hashed(secret, name, len(name))
    return secret


cdef uint64_t hashed(Secret secret, const uint8_t* value, size_t length) noexcept nogil:
    return siphash(secret.low, secret.high, value, length)


def siphash_of(bytes secret, bytes data) -> int:
    """SipHash-2-4 of some bytes."""
    return hashed(secret_of(secret), data, len(data))


def hash_of(bytes secret, bytes name, bytes value) -> int:
    """The hash of a key by its name (`message_id`, `correlation_id`, `header:NAME`) and value."""
    return hashed(secret_for(secret_of(secret), name), value, len(value))
