# cython: language_level=3
"""Messages that were received, as runs of bytes beside a table of entries.

A chunk from the socket brings many deliveries. They are copied here once, without an object for
each; `message(index)` makes an object.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from broker.client.message import Message
from broker.kernel.buffer cimport Buffer

cdef enum:
    FIRST_ROOM = 64


cdef class Batch:
    """Whole messages [0, count), and at the end perhaps one that is still being received."""

    def __cinit__(self):
        self.bytes = Buffer()
        self.entries = NULL
        self.room = 0
        self.count = 0
        self.is_open = False

    def __dealloc__(self):
        free(self.entries)

    def __len__(self):
        return self.count

    cdef Entry* begin(self) except NULL:
        """The next entry, to be filled by the caller; its strings go to `bytes`."""
        cdef size_t room
        cdef void* grown
        if self.count == self.room:
            room = self.room * 2 if self.room else FIRST_ROOM
            grown = realloc(self.entries, room * sizeof(Entry))
            if grown == NULL:
                raise MemoryError(f"no memory for {room} deliveries")
            self.entries = <Entry*> grown
            self.room = room
        self.entries[self.count].start = self.bytes.length
        self.entries[self.count].code = 0
        self.is_open = True
        return &self.entries[self.count]

    cdef int properties(self, const uint8_t* data, uint32_t length, uint64_t body) except -1:
        """The content header of the open entry: its property flags and list."""
        cdef Entry* entry = &self.entries[self.count]
        entry.properties_length = length
        entry.body_length = body
        self.bytes.add(data, length)
        self.missing = body
        if body == 0:
            self.is_open = False
            self.count += 1
        return 0

    cdef int body(self, const uint8_t* data, size_t length) except -1:
        """A part of the body of the open entry; the caller has checked that it is not too long."""
        self.bytes.add(data, length)
        self.missing -= length
        if self.missing == 0:
            self.is_open = False
            self.count += 1
        return 0

    cdef void abandon(self) noexcept:
        """Drops the entry that is being received."""
        if self.is_open:
            self.bytes.length = self.entries[self.count].start
            self.is_open = False

    cdef void clear(self) noexcept:
        """Drops the whole messages; one that is being received stays."""
        cdef size_t start
        if self.is_open:
            start = self.entries[self.count].start
            memmove(self.entries, &self.entries[self.count], sizeof(Entry))
            self.entries[0].start = 0
            self.bytes.drop(start)
        else:
            self.bytes.drop(self.bytes.length)
        self.count = 0

    cdef void drop_first(self, size_t number) noexcept:
        """Drops the first `number` whole messages."""
        cdef size_t start, index
        cdef size_t left = self.count - number + self.is_open
        if not left:
            self.clear()
            return
        start = self.entries[number].start
        memmove(self.entries, &self.entries[number], left * sizeof(Entry))
        for index in range(left):
            self.entries[index].start -= start
        self.bytes.drop(start)
        self.count -= number

    cdef const uint8_t* body_of(self, size_t index) noexcept:
        cdef Entry* entry = &self.entries[index]
        return (self.bytes.data + entry.start + entry.exchange_length + entry.key_length
                + entry.properties_length)

    def drop(self):
        """Drops the whole messages; the owner of the batch calls it when done."""
        self.clear()

    @property
    def last_tag(self) -> int:
        """The delivery tag of the last whole message; 0 if there is none."""
        return self.entries[self.count - 1].tag if self.count else 0

    @property
    def body_bytes(self) -> int:
        """Bytes of all whole bodies."""
        cdef uint64_t total = 0
        cdef size_t index
        for index in range(self.count):
            total += self.entries[index].body_length
        return total

    def message(self, size_t index):
        """One message as an object. Raises IndexError."""
        if index >= self.count:
            raise IndexError(f"message {index} of {self.count}")
        cdef Entry* entry = &self.entries[index]
        cdef char* at = <char*> self.bytes.data + entry.start
        exchange = at[:entry.exchange_length]
        at += entry.exchange_length
        key = at[:entry.key_length]
        at += entry.key_length
        properties = at[:entry.properties_length]
        at += entry.properties_length
        body = PyBytes_FromStringAndSize(at, entry.body_length)
        return Message(entry.tag, bool(entry.redelivered), exchange, key, properties, body,
                       entry.code)

    def messages(self) -> list:
        """All whole messages as objects."""
        return [self.message(index) for index in range(self.count)]
