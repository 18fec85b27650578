# cython: language_level=3
"""Finds the next sound record behind bytes that are none: one search for all files of the store.

Every record begins with its length and its checksum (u32 each), and after a damaged record the next
one may begin at any byte. Clients choose these bytes: a body full of plausible headers, each with a
length up to the end, would cost a checksum of the rest at every byte. So, once damage is found, the
checksums of all prefixes of the content are computed; whether a header's claim is true then follows
from two of them, in constant time. This only selects candidates: each is then verified byte by
byte, so the time is linear in the content's length, and no record is accepted that would not be
accepted at its own place.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from broker.kernel.checksum cimport MARK_EVERY, crc32c_marks, crc32c_of, crc32c_stretch, place_seed
from broker.store.files import disk
from broker.store.files.record cimport RECORD_FIXED, RecordHead, record_fits

cdef enum:
    CHECK_AT = 4                 # in every record: behind its length
    CHECKED_FROM = 8
    SHORT = 512                  # bytes that are summed up as quickly as judged by the marks


cdef class SoundSearch:
    """Over the content of one file, or of a part of it; a format says what its heads claim."""

    def __init__(self, bytes content):
        self.content = content
        self.data = content
        self.length = len(content)

    def __dealloc__(self):
        free(self.marks)

    cdef int64_t claim(self, size_t at, uint32_t* seed) noexcept nogil:
        """How many bytes from `CHECKED_FROM` on the check of the record at a position covers, all
        within the content, and what it is seeded with; -1 where no head stands that fits."""
        return -1

    cdef size_t next(self, size_t at, size_t end) except? 0:
        """The first position from `at` on and below `end` with a sound record, or `end`. Raises
        MemoryError."""
        if at >= end:
            return end
        if self.marks == NULL:
            if self.is_sound(at):
                return at
            at += 1
            self.marks = <uint32_t*> malloc((self.length // MARK_EVERY + 1) * sizeof(uint32_t))
            if self.marks == NULL:
                raise MemoryError("no memory for a search behind damage")
            with nogil:
                crc32c_marks(self.data, self.length, self.marks)
        with nogil:
            while at < end and not (self.may_be_sound(at) and self.is_sound(at)):
                at += 1
        return at if at < end else end

    cdef bint is_sound(self, size_t at) noexcept nogil:
        """Whether a sound record begins there, by summing it up."""
        cdef uint32_t seed = 0
        cdef int64_t covered = self.claim(at, &seed)
        return covered >= 0 and (
            (<const uint32_t*> (self.data + at + CHECK_AT))[0]
            == crc32c_of(seed, self.data + at + CHECKED_FROM, <size_t> covered))

    cdef bint may_be_sound(self, size_t at) noexcept nogil:
        """The same by the marks."""
        cdef uint32_t seed = 0
        cdef int64_t covered = self.claim(at, &seed)
        if covered <= SHORT:
            return covered >= 0
        return (<const uint32_t*> (self.data + at + CHECK_AT))[0] == crc32c_stretch(
            seed, self.data, self.marks, at + CHECKED_FROM, <uint32_t> covered)


cdef class RecordSearch(SoundSearch):
    """For messages in a segment of a queue or a stream; the content begins at position `first`."""

    def __init__(self, bytes content, uint64_t incarnation, uint32_t segment, uint32_t first=0):
        SoundSearch.__init__(self, content)
        self.incarnation = incarnation
        self.segment = segment
        self.first = first

    cdef int64_t claim(self, size_t at, uint32_t* seed) noexcept nogil:
        if not record_fits(self.data + at, self.length - at):
            return -1
        seed[0] = place_seed(self.incarnation, self.segment, self.first + <uint32_t> at)
        return <int64_t> (<const RecordHead*> (self.data + at)).length - 4


def damaged_stretch(str path, uint64_t incarnation, uint32_t segment, uint32_t position,
                    uint32_t limit, uint32_t end):
    """(length, content) of what is no record in a segment's file from `position` on: up to the next
    sound one or, without one, to `limit`. The file was written up to `end`; the content is shorter
    where the file is. A length of 0: read once more, the record is sound. Raises OSError. For a
    thread: it takes its time."""
    cdef bytes content = disk.read_part(path, position, end - position)
    cdef RecordSearch search = RecordSearch(content, incarnation, segment, position)
    cdef size_t most = limit - position
    cdef size_t found = search.next(0, min(most, search.length))
    if found == search.length:
        found = most
    return found, content[:found]


def set_aside(quarantine, tuple owner, str path, uint64_t incarnation, uint32_t segment,
              uint32_t position, uint32_t limit, uint32_t end):
    """`damaged_stretch`, copied to quarantine: (length, its first bytes, what the quarantine has to
    `note` on the loop, or None). Raises OSError, also if the copy cannot be written.
    """
    length, content = damaged_stretch(path, incarnation, segment, position, limit, end)
    entry = None
    if length:
        entry = quarantine.keep(owner, incarnation, segment, position, content)
    return length, content[:RECORD_FIXED], entry
