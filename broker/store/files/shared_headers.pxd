from libc.stdint cimport uint16_t, uint32_t, uint64_t, uint8_t

from broker.kernel.buffer cimport Buffer, load16, load64
from broker.kernel.message cimport Message
from broker.store.files.record cimport (
    MARK, OFFSET_BYTES, SHARES, SHARING_BYTES,
)


# What a stream's record has before its properties. `shared` bytes of fields of the record that
# begins `back` bytes before this one belong in front of the message's headers; 0: none.
cdef struct Front:
    uint64_t offset
    uint16_t back
    uint16_t shared


cdef inline bint take_front(Message* message, Front* front) noexcept nogil:
    """Takes what stands before the properties of a stream's record, as `record_view` shows it, off
    them. False: the record is no message."""
    cdef uint32_t size = OFFSET_BYTES
    front.back = front.shared = 0
    if message.flags & SHARES:
        size += SHARING_BYTES
    if message.flags & MARK or message.properties_length < size + 2:
        return False
    front.offset = load64(message.properties)
    if message.flags & SHARES:
        front.back = load16(message.properties + OFFSET_BYTES)
        front.shared = load16(message.properties + OFFSET_BYTES + 2)
        message.flags &= ~SHARES
    message.properties += size
    message.properties_length -= size
    return True


# The fields that were looked for last: those of the record at `position`, as long as the bytes that
# were read stay where they are. NULL: none.
cdef struct Known:
    const uint8_t* fields
    uint32_t position
    uint16_t length


cdef const uint8_t* shared_fields(Known* known, const uint8_t* record, const Front* front,
                                  uint64_t incarnation, uint32_t segment,
                                  uint32_t position) noexcept nogil
cdef int join(Buffer out, Message* message, const uint8_t* fields, uint32_t length) except -1
