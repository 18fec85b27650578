# cython: language_level=3
"""Reads the keys of messages out of a stream's segments, into an index, without Python objects; and
reads single messages again, to compare them with a key.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from broker.kernel.buffer cimport load16, load32, load64
from broker.kernel.headers cimport find_field, find_header
from broker.kernel.message cimport Message
from broker.store.files.record cimport (
    HEADER_BYTES, RECORD_FIXED, RecordHead, SHARED_WITHIN, record_check, record_fits, record_view,
)
from broker.store.files.shared_headers cimport Front, Known, shared_fields, take_front
from broker.store.keys.hashing cimport Secret, hashed, secret_for
from broker.store.keys.unsealed cimport Unsealed

from broker.schema.message_history import PREFIX


cdef extern from "<stdio.h>" nogil:
    int snprintf(char* text, size_t size, const char* form, ...)


cdef bytes SHARED_KEYS = f"header:{PREFIX}".encode()

cdef enum:
    STATE_READ_ALL = 0
    STATE_FULL = 1
    STATE_MORE = 2
    STATE_DAMAGED = 3
    LARGE_RECORD = 4 << 20
    NUMBER_BYTES = 24
    CORRELATION_ID = 1 << 10
    MESSAGE_ID = 1 << 7

HEADER = HEADER_BYTES
"""Bytes of a segment before its first record."""
LARGE = LARGE_RECORD
"""Of a longer record only the beginning is read, and its checksum not compared."""

BACK = SHARED_WITHIN
"""Bytes before a record in which the headers stand that it shares."""

READ_ALL, FULL, MORE, DAMAGED = STATE_READ_ALL, STATE_FULL, STATE_MORE, STATE_DAMAGED
"""What `KeyReader.read` ended with."""


# What a key is read from: a property by its flag, or a header by its name.
cdef struct Key:
    uint16_t flag
    const uint8_t* name
    uint8_t length
    bint may_be_shared
    Secret secret


# A value as text: where it stands, or its digits.
cdef struct Value:
    const uint8_t* data
    size_t length
    char digits[NUMBER_BYTES]


cdef bint property_of(const uint8_t* properties, uint32_t length, uint16_t wanted,
                      Value* value) noexcept nogil:
    """A short string among the properties, by its flag."""
    cdef const uint8_t* p = properties + 2
    cdef const uint8_t* end = properties + length
    cdef uint16_t flags, flag
    cdef int bit
    cdef size_t size
    if length < 2:
        return False
    flags = load16(properties)
    if not flags & wanted:
        return False
    for bit in range(15, 6, -1):
        flag = <uint16_t> (1 << bit)
        if not flags & flag:
            continue
        if p >= end:
            return False
        if bit == 13:
            if end - p < 4:
                return False
            size = <size_t> 4 + load32(p)
        elif bit == 12 or bit == 11:
            size = 1
        else:
            size = <size_t> 1 + p[0]
        if size > <size_t> (end - p):
            return False
        if flag == wanted:
            value.data = p + 1
            value.length = size - 1
            return True
        p += size
    return False


cdef bint text_of(const uint8_t* field, Value* value) noexcept nogil:
    """A header's value, at its type octet, as a key: strings as they are, integers in decimal
    digits, true and false. False: no other type is a key."""
    cdef const uint8_t* p = field + 1
    cdef int64_t number
    if field[0] in (b"S", b"x"):
        value.data = p + 4
        value.length = load32(p)
        return True
    if field[0] == b"t":
        value.data = <const uint8_t*> (b"true" if p[0] else b"false")
        value.length = 4 if p[0] else 5
        return True
    if field[0] == b"b":
        number = <int8_t> p[0]
    elif field[0] == b"B":
        number = p[0]
    elif field[0] == b"s":
        number = <int16_t> load16(p)
    elif field[0] == b"u":
        number = load16(p)
    elif field[0] == b"I":
        number = <int32_t> load32(p)
    elif field[0] == b"i":
        number = load32(p)
    elif field[0] in (b"l", b"L", b"T"):
        number = <int64_t> load64(p)
    else:
        return False
    value.length = <size_t> snprintf(value.digits, NUMBER_BYTES, b"%lld", <long long> number)
    value.data = <const uint8_t*> value.digits
    return True


cdef bint value_of(const Key* key, const uint8_t* properties, uint32_t length,
                   Value* value) noexcept nogil:
    """What a message has under a key; of several headers of one name, the first."""
    cdef uint32_t size = 0
    cdef const uint8_t* field
    if key.flag:
        return property_of(properties, length, key.flag, value)
    field = find_header(properties, length, key.name, key.length, &size)
    return field != NULL and text_of(field, value)


cdef bint shared_value_of(const Key* key, const uint8_t* fields, uint32_t length,
                          Value* value) noexcept nogil:
    """The same among the headers that it shares."""
    cdef uint32_t size = 0
    cdef const uint8_t* field = find_field(fields, fields + length, key.name, key.length, &size)
    return field != NULL and text_of(field, value)


cdef void key_of(bytes name, Key* key) noexcept:
    """Which property or header a name means; `name` has to live on."""
    key.may_be_shared = False
    if name == b"message_id":
        key.flag = MESSAGE_ID
    elif name == b"correlation_id":
        key.flag = CORRELATION_ID
    else:
        key.name = <const uint8_t*> <const char*> name + 7
        key.length = <uint8_t> (len(name) - 7)
        key.may_be_shared = is_of_history(name)


cdef bint is_of_history(bytes name):
    """Whether a key is a header that records of a history may share. No others are shared."""
    return name.startswith(SHARED_KEYS)


cdef class KeyReader:
    """Reads the messages of one stream for these keys. After `read`: `position` is where it ended,
    `needed` how many bytes a record there has, `items` and `time` what was added and the time of
    the last message."""

    cdef Key* keys
    cdef uint32_t count
    cdef list names
    cdef readonly bint looks_back    # a key may be a header that is shared
    cdef uint32_t before             # bytes of the data in front of the first record
    cdef Known known
    cdef const uint8_t* fields       # that the message at hand shares, or NULL
    cdef uint32_t fields_length
    cdef readonly uint32_t position
    cdef readonly uint64_t needed
    cdef readonly uint64_t items
    cdef readonly int64_t time

    def __init__(self, tuple names):
        cdef uint32_t i
        self.names = [each.encode("utf-8", "surrogateescape") for each in names]
        self.count = <uint32_t> len(self.names)
        self.keys = <Key*> calloc(self.count + 1, sizeof(Key))
        if self.keys == NULL:
            raise MemoryError("no memory for the keys of a stream")
        for i in range(self.count):
            key_of(self.names[i], &self.keys[i])
            if self.keys[i].may_be_shared:
                self.looks_back = True

    def __dealloc__(self):
        free(self.keys)

    def read(self, Unsealed file, uint32_t row, bytes data, uint64_t incarnation, uint32_t segment,
             uint32_t position, uint32_t before=0) -> int:
        """Adds the keys of the messages in `data`, which stands at a position of a segment, and
        begins with `before` bytes that were read already: with `looks_back`, `BACK` are needed,
        where there are as many. The caller says how far the stream is indexed by that. Returns
        `READ_ALL`, `FULL` (the file has no room for the next message), `MORE` (the next record is
        longer than what is left of the data) or `DAMAGED` (no sound record stands there)."""
        cdef const uint8_t* start = <const uint8_t*> <const char*> data + before
        cdef size_t length = len(data) - before
        cdef uint32_t i
        cdef int state
        for i in range(self.count):
            self.keys[i].secret = secret_for(file.key, self.names[i])
        self.position = position
        self.before = before
        self.known.fields = NULL
        self.items = 0
        with nogil:
            state = self.go_through(file, row, start, length, incarnation, segment)
            file.link()
        return state

    cdef int go_through(self, Unsealed file, uint32_t row, const uint8_t* data, size_t length,
                        uint64_t incarnation, uint32_t segment) noexcept nogil:
        cdef const RecordHead* head
        cdef uint32_t first = self.position
        cdef size_t at = 0
        cdef size_t size
        cdef Message message
        cdef Front front
        while at < length:
            head = <const RecordHead*> (data + at)
            self.needed = RECORD_FIXED if length - at < RECORD_FIXED else (
                <uint64_t> head.length + 4)
            if self.needed > length - at and (
                    self.needed <= LARGE_RECORD or length - at < LARGE_RECORD):
                return STATE_MORE
            size = <size_t> self.needed
            if not record_fits(data + at, size) or size <= LARGE_RECORD and (
                    record_check(data + at, incarnation, segment, first + <uint32_t> at)
                    != head.check):
                return STATE_DAMAGED
            record_view(data + at, &message)
            if size > LARGE_RECORD and (
                    message.properties + message.properties_length > data + length):
                return STATE_DAMAGED
            if take_front(&message, &front):
                if file.capacity - file.count < self.count:
                    return STATE_FULL
                self.fields, self.fields_length = NULL, front.shared
                if front.back and self.looks_back and front.back <= self.before + at:
                    self.fields = shared_fields(
                        &self.known, data + at - front.back, &front, incarnation, segment,
                        first + <uint32_t> at - front.back)
                self.take(file, row, &message, segment, first + <uint32_t> at, <uint32_t> size)
            self.time = message.timestamp
            at += size
            self.position = first + <uint32_t> at
        return STATE_READ_ALL

    cdef void take(self, Unsealed file, uint32_t row, const Message* message, uint32_t segment,
                   uint32_t position, uint32_t size) noexcept nogil:
        """Adds what one message has of the keys."""
        cdef Value value
        cdef uint32_t i
        for i in range(self.count):
            if value_of(&self.keys[i], message.properties, message.properties_length, &value) or (
                    self.fields != NULL and self.keys[i].may_be_shared and shared_value_of(
                        &self.keys[i], self.fields, self.fields_length, &value)):
                self.items += file.add(hashed(self.keys[i].secret, value.data, value.length), row,
                                       segment, position, size, message.timestamp)


def record_of(bytes data, uint64_t incarnation, uint32_t segment, uint32_t position, uint32_t size):
    """(offset, ms since 1970, properties, bytes back, bytes shared) of a stream's record of `size`
    bytes, of which `data` is the beginning; how many bytes of it are needed where these are too
    few; 0 where no message of this stream stands there. The checksum is compared where the record
    is whole. The last two say which headers it shares; 0: none."""
    cdef const uint8_t* start = data
    cdef size_t length = len(data)
    cdef Message message
    cdef Front front
    cdef size_t end
    if (length < RECORD_FIXED or (<const RecordHead*> start).length + <uint64_t> 4 != size
            or not record_fits(start, size)):
        return 0
    record_view(start, &message)
    end = <size_t> (message.properties - start) + message.properties_length
    if end > length:
        return end
    if length >= size and (
            record_check(start, incarnation, segment, position) != (<RecordHead*> start).check):
        return 0
    if not take_front(&message, &front):
        return 0
    return (front.offset, message.timestamp, message.properties[:message.properties_length],
            front.back, front.shared)


def shared_by(bytes data, uint64_t incarnation, uint32_t segment, uint32_t position,
              uint16_t shared):
    """The fields that a record shares, which begins behind `data`; that is what was read from the
    record at `position` on, whose headers begin with them. None: it does not have them."""
    cdef Front front
    cdef Known known
    cdef const uint8_t* fields
    known.fields = NULL
    front.back, front.shared = <uint16_t> len(data), shared
    fields = shared_fields(&known, data, &front, incarnation, segment, position)
    return None if fields == NULL else fields[:shared]


def value_in(bytes properties, str name, bytes fields=b""):
    """What a message has under a key's name, as text, or what it shares; None: nothing that could
    be a key."""
    cdef bytes encoded = name.encode("utf-8", "surrogateescape")
    cdef Key key
    cdef Value value
    key.flag = 0
    key_of(encoded, &key)
    if value_of(&key, properties, <uint32_t> len(properties), &value) or (
            key.may_be_shared and shared_value_of(&key, fields, <uint32_t> len(fields), &value)):
        return value.data[:value.length]
    return None


def may_share(str name) -> bool:
    """Whether a key is a header that messages may share."""
    return is_of_history(name.encode("utf-8", "surrogateescape"))
