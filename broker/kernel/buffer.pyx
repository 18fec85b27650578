# cython: language_level=3
"""A growing run of bytes outside Python's heap, and big-endian loads and stores."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from broker.kernel.octets cimport Octets, octets

# A buffer that once held a burst gives its memory back when it empties above this size.
cdef enum:
    KEEP = 65536
    SPARE_MOST = 1 << 20         # of the memory that the next burst gets

# Each turn with much to write would otherwise begin with a small buffer and double it. One is
# enough: connections write one after the other. Buffers belong to the loop's thread.
cdef uint8_t* spare = NULL
cdef size_t spare_capacity = 0


cdef bint lend(Buffer buffer, size_t wanted) noexcept:
    """Gives a buffer that grows the memory of an earlier burst, if that is there and large
    enough."""
    global spare
    if spare == NULL or wanted <= KEEP or wanted > spare_capacity:
        return False
    if buffer.length:
        memcpy(spare, buffer.data, buffer.length)
    free(buffer.data)
    buffer.data = spare
    buffer.capacity = spare_capacity
    spare = NULL
    return True


cdef class Buffer:
    """Bytes that grow at the end and are taken from the front. Owns no memory until the first
    byte."""

    def __cinit__(self):
        self.data = NULL
        self.length = 0
        self.capacity = 0

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.length

    cdef uint8_t* room(self, size_t more) except NULL:
        """Where the next `more` bytes go; the caller writes them and raises `length` itself."""
        cdef size_t wanted = self.length + more
        cdef size_t capacity = self.capacity
        cdef uint8_t* grown
        if wanted > capacity and not lend(self, wanted):
            capacity = capacity * 2 if capacity else 256
            while capacity < wanted:
                capacity *= 2
            grown = <uint8_t*> realloc(self.data, capacity)
            if grown == NULL:
                raise MemoryError(f"no memory for a buffer of {capacity} bytes")
            self.data = grown
            self.capacity = capacity
        return self.data + self.length

    cdef int add(self, const void* source, size_t length) except -1:
        cdef uint8_t* place
        if length:
            place = self.room(length)
            memcpy(place, source, length)
            self.length += length
        return 0

    cdef void drop(self, size_t count) noexcept:
        """Takes `count` bytes from the front."""
        if count >= self.length:
            self.length = 0
            if self.capacity > KEEP:
                self.release()
            return
        memmove(self.data, self.data + count, self.length - count)
        self.length -= count

    cdef void release(self) noexcept:
        global spare, spare_capacity
        if spare == NULL and KEEP < self.capacity <= SPARE_MOST:
            spare = self.data
            spare_capacity = self.capacity
        else:
            free(self.data)
        self.data = NULL
        self.length = 0
        self.capacity = 0

    def append(self, data):
        """Adds the bytes of any object with a buffer."""
        cdef Octets added = octets(data)
        self.add(added.data, added.length)

    def take(self) -> bytes:
        """All bytes; the buffer is empty afterwards."""
        cdef bytes whole = PyBytes_FromStringAndSize(<char*> self.data, self.length)
        self.drop(self.length)
        return whole
