cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.buffer cimport Buffer
from broker.kernel.message cimport Message
from broker.store.commit.content_file cimport ContentFile


# Which frame has to come next.
cdef enum:
    EXPECT_METHOD = 0
    EXPECT_HEADER = 1
    EXPECT_BODY = 2


cdef int plain_delivery_mode(const uint8_t* p, uint32_t length) noexcept nogil


cdef class Upload:
    cdef int expect
    cdef uint64_t size_max               # of a body
    cdef uint64_t in_memory              # a larger body that comes in parts is collected in a file
    cdef const uint8_t* method           # payload of basic.publish behind its ticket
    cdef uint32_t method_length
    cdef const uint8_t* properties
    cdef uint32_t properties_length
    cdef const uint8_t* body             # once all of it is there
    cdef uint64_t body_length
    cdef uint64_t received
    cdef Buffer kept                     # method, properties and body once they outlive their chunk
    cdef bint is_kept
    cdef bint body_kept
    cdef ContentFile file                # or the file that the body is collected in

    cdef bint header(self, const uint8_t* payload, uint32_t length) except -1
    cdef int check_part(self, uint32_t length) except -1
    cdef bint is_long(self) noexcept
    cdef bint needs_file(self) noexcept
    cdef bint add(self, const uint8_t* payload, uint32_t length) except -1
    cdef bint has_to_wait(self) except -1
    cdef bint take_file(self) except -1
    cdef int keep(self) except -1
    cdef bint view(self, Message* message) except -1
    cdef int drop_file(self) except -1
    cdef int end(self) except -1

    @cython.final
    cdef inline void begin(self, const uint8_t* method, uint32_t length) noexcept:
        """A basic.publish came: its content follows."""
        self.method = method
        self.method_length = length
        self.expect = EXPECT_HEADER
        self.is_kept = False
        self.body_kept = False

    @cython.final
    cdef inline bint is_whole_body(self, const uint8_t* payload, uint32_t length) noexcept:
        """Whether a frame has the whole body, as most do; then it is read where it lies."""
        if self.expect != EXPECT_BODY or length != self.body_length or self.body_kept:
            return False
        self.body = payload
        return True

    @cython.final
    cdef inline void routed(self) noexcept:
        """The message was routed: its copy, if there is one, is not needed any more."""
        if self.is_kept:
            self.kept.drop(self.kept.length)
