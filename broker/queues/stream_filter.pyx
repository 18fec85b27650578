# cython: language_level=3
"""Which messages of a stream a consumer wants: by their header x-stream-filter-value, for which
segments keep a Bloom filter, and by other headers, for which every record is read.

A message is read once, however many values a consumer asks for: each part of its filter value, and
each name of a header, is looked up among the wanted values. The look-up is a binary search and not
a hash table, because clients could choose texts with equal hashes.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp

from broker.kernel.buffer cimport load16, load32, load64
from broker.kernel.message cimport Message
from broker.queues.stream_headers cimport Fields, Header, begin_fields, header, next_field
from broker.store.streams.summary cimport Summary, hash_of


cdef class WantedTexts:
    """Texts to be found among those of a message."""

    def __init__(self, texts):
        cdef Py_ssize_t place
        self.texts = sorted(set(texts), key=lambda text: (len(text), text))
        self.count = len(self.texts)
        self.rows = <Wanted*> malloc((self.count + 1) * sizeof(Wanted))
        if self.rows == NULL:
            raise MemoryError("no memory for a stream's filter")
        for place in range(self.count):
            self.rows[place].text = <const uint8_t*> <char*> <bytes> self.texts[place]
            self.rows[place].length = len(<bytes> self.texts[place])
            self.rows[place].seen_in = 0

    def __dealloc__(self):
        free(self.rows)

    cdef Py_ssize_t place_of(self, const uint8_t* text, size_t length) noexcept:
        """Its place in the order, -1 if it is not asked for."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.count
        cdef Py_ssize_t middle
        cdef Wanted* row
        cdef int order
        while low < high:
            middle = (low + high) // 2
            row = &self.rows[middle]
            self.looks += 1
            if row.length != length:
                order = -1 if row.length < length else 1
            else:
                order = memcmp(row.text, text, length)
            if order == 0:
                return middle
            if order < 0:
                low = middle + 1
            else:
                high = middle
        return -1


cdef class StreamFilter:
    """`values`: filter values; `headers`: (name, value as text) pairs. `match_unfiltered` lets
    messages without a filter value through."""

    def __init__(self, list values, list headers, bint match_unfiltered, int match):
        self.values = values
        self.headers = headers
        self.match_unfiltered = match_unfiltered
        self.match = match
        self.wanted_values = WantedTexts(values)
        self.wanted_names = WantedTexts([name for name, _ in headers])
        self.conditions = [[value for name, value in headers if name == wanted]
                           for wanted in self.wanted_names.texts]
        self.hashes = [hash_of(<const uint8_t*> <char*> <bytes> value, len(value))
                       for value in self.wanted_values.texts]

    cdef bint takes(self, Message* message) except -1:
        """Whether the consumer wants this message."""
        cdef Header found
        cdef bint has_value = header(
            message.properties, message.properties_length, b"x-stream-filter-value", 21, &found
        ) and found.kind == b"S"
        cdef bint wants_all = self.match != ANY
        if not has_value and self.match_unfiltered:
            return True
        self.number += 1
        if self.values:
            if has_value and self.has_values(&found):
                if not wants_all:
                    return True
            elif wants_all:
                return False
        return self.has_headers(message) if self.headers else wants_all

    cdef bint has_values(self, Header* found) noexcept:
        """Whether a message's filter value, or the parts of it between commas, are what is asked
        for: all that is asked for, or one of it."""
        cdef WantedTexts wanted = self.wanted_values
        cdef const uint8_t* part = found.value
        cdef const uint8_t* end = part + found.length
        cdef const uint8_t* comma
        cdef Py_ssize_t place
        cdef Py_ssize_t missing = wanted.count if self.match == ALL else 1
        while True:
            comma = <const uint8_t*> memchr(part, b",", end - part)
            place = wanted.place_of(part, (end if comma == NULL else comma) - part)
            if place >= 0 and wanted.rows[place].seen_in != self.number:
                wanted.rows[place].seen_in = self.number
                missing -= 1
                if missing == 0:
                    return True
            if comma == NULL:
                return False
            part = comma + 1

    cdef bint has_headers(self, Message* message) except -1:
        """Whether a message has the headers that are asked for, with their values compared as text:
        all of them, or one."""
        cdef WantedTexts wanted = self.wanted_names
        cdef Fields fields
        cdef Header found
        cdef Py_ssize_t place
        cdef Py_ssize_t missing = len(self.headers) if self.match != ANY else 1
        begin_fields(&fields, message.properties, message.properties_length)
        while next_field(&fields, &found):
            place = wanted.place_of(found.start + 1, found.start[0])
            # Of several headers with one name the first counts.
            if place < 0 or wanted.rows[place].seen_in == self.number:
                continue
            wanted.rows[place].seen_in = self.number
            for value in <list> self.conditions[place]:
                if is_value(&found, <bytes> value):
                    missing -= 1
                    if missing == 0:
                        return True
        return False

    cdef bint may_take(self, Summary segment) except -1:
        """False: no message of the segment is wanted, so it need not be read."""
        cdef uint32_t hits = 0
        if not self.values or self.match == ANY and self.headers:
            return True
        if self.match_unfiltered and segment.unfiltered:
            return True
        for hash in self.hashes:
            hits += segment.may_hold(<uint64_t> hash)
        return hits == <uint32_t> len(self.hashes) if self.match == ALL else hits > 0


cdef bint is_value(Header* found, bytes value) except -1:
    """Whether a header has this value, compared as text."""
    if found.kind in (b"S", b"x"):
        return <size_t> found.length == <size_t> len(value) and memcmp(
            found.value, <char*> value, found.length) == 0
    return text_of(found) == value


cdef bytes text_of(Header* found):
    """A boolean or an integer as text; None for other types."""
    cdef const uint8_t* p = found.value
    cdef int64_t number
    if found.kind == b"t":
        return b"true" if p[0] else b"false"
    if found.kind == b"b":
        number = <signed char> p[0]
    elif found.kind == b"B":
        number = p[0]
    elif found.kind in (b"s", b"U"):
        number = <short> load16(p)
    elif found.kind == b"u":
        number = load16(p)
    elif found.kind == b"I":
        number = <int> load32(p)
    elif found.kind == b"i":
        number = load32(p)
    elif found.kind in (b"l", b"L", b"T"):
        number = <int64_t> load64(p)
    else:
        return None
    return str(number).encode()
