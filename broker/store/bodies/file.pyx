# cython: language_level=3
"""One file of shared bodies: its name, its header, its records and its table of contents.

A name `first-last.generation.bdy` says which files it stands for: collecting writes the living
records of a run of files into one of the next generation, and the rename to this name is what makes
it valid. Layout: docs/formats/bodies.md.
"""

import struct

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.buffer cimport Buffer
from broker.kernel.checksum cimport place_seed
from broker.kernel.checksum import crc32c
from broker.store.files.body_record cimport (
    BODIES_MAGIC, BODIES_VERSION, BODY_HEAD, BodyHead, FILE_HEADER, FileHead, TocEntry,
    body_check,
)
from broker.store.files.disk cimport file_free, file_new
from broker.store.files.sound_search cimport SoundSearch

HEADER_BYTES = FILE_HEADER
RECORD_OVERHEAD = BODY_HEAD
HEAD = struct.Struct("<IIII")
TOC_ROW = struct.Struct("<16sII")


cdef class BodyFile:
    """A body file of a store; of its content only the sums are known here."""

    def __cinit__(self, str directory, uint32_t first, uint32_t last, uint32_t generation):
        self.first = first
        self.last = last
        self.generation = generation
        self.path = f"{directory}/{first:010d}-{last:010d}.{generation}.bdy"
        self.file = file_new(self.path)
        self.toc = Buffer()

    def __dealloc__(self):
        file_free(self.file)

    @property
    def toc_path(self) -> str:
        return self.path.removesuffix("bdy") + "toc"

    @property
    def garbage(self) -> int:
        """Bytes of records without references."""
        cdef uint64_t content = self.size - FILE_HEADER if self.size > FILE_HEADER else 0
        return content - self.valid if content > self.valid else 0


def header(uint32_t first, uint32_t last) -> bytes:
    return HEAD.pack(BODIES_MAGIC, BODIES_VERSION, first, last)


def toc_bytes(bytes rows, uint64_t incarnation, uint32_t first) -> bytes:
    """A table of contents: rows of `TOC_ROW` and a CRC."""
    return rows + struct.pack("<I", crc32c(rows, place_seed(incarnation, first, 0)))


def read_toc(bytes data, uint64_t incarnation, uint32_t first, uint64_t size):
    """The rows of a table of contents (`TOC_ROW`: id, offset, length of the record); None if its
    checksum is wrong or a row lies outside the file."""
    cdef const TocEntry* entries
    cdef size_t i
    end = len(data) - 4
    if end < 0 or end % TOC_ROW.size:
        return None
    if struct.unpack_from("<I", data, end)[0] != crc32c(
            data[:end], place_seed(incarnation, first, 0)):
        return None
    entries = <const TocEntry*> <const char*> data
    for i in range(<size_t> end // sizeof(TocEntry)):
        if <uint64_t> entries[i].offset + entries[i].length > size:
            return None
    return data[:end]


cdef class BodySearch(SoundSearch):
    """For bodies in a file."""

    cdef uint64_t incarnation

    cdef int64_t claim(self, size_t at, uint32_t* seed) noexcept nogil:
        cdef const BodyHead* head = <const BodyHead*> (self.data + at)
        # An id begins with 1 to 3 from 2004 to 2109 (48 bits of milliseconds): most bytes that are
        # no record fail here and cost no CRC.
        if (self.length - at < BODY_HEAD or not 1 <= head.id[0] <= 3
                or head.length > self.length - at - BODY_HEAD):
            return -1
        seed[0] = place_seed(self.incarnation, head.length, 0)
        return <int64_t> head.length + 16


def scan(bytes data, uint64_t incarnation):
    """(rows as `read_toc`, (position, length) of stretches between them that are no record,
    sentences about what else was wrong) of a whole body file, which has lost its table of contents.
    Raises ValueError for a file of another version, without one record that checks."""
    cdef BodySearch search = BodySearch(data)
    cdef size_t length = search.length
    cdef size_t at = FILE_HEADER
    cdef size_t end, following
    cdef const BodyHead* head
    cdef const FileHead* begin = <const FileHead*> search.data
    cdef TocEntry entry
    cdef Buffer rows = Buffer()
    gaps = []
    problems = []
    if length < FILE_HEADER:
        return b"", gaps, (["it has no header"] if length else [])
    search.incarnation = incarnation
    # Behind it no head has room.
    end = length - BODY_HEAD + 1 if length >= BODY_HEAD else 0
    while at < end:
        following = search.next(at, end)
        if following == end:
            break
        if following > at:
            gaps.append((at, following - at))
            at = following
        head = <const BodyHead*> (search.data + at)
        memcpy(entry.id, head.id, 16)
        entry.offset = <uint32_t> at
        entry.length = head.length + BODY_HEAD
        rows.add(&entry, sizeof(TocEntry))
        at += head.length + BODY_HEAD
    if begin.magic != BODIES_MAGIC or begin.version != BODIES_VERSION:
        # A power cut may leave a part of the header; what checks is of this version all the same.
        if begin.magic == BODIES_MAGIC and begin.version and not rows.length:
            raise ValueError(
                f"a body file has format version {begin.version}; this program reads version "
                f"{<int> BODIES_VERSION}")
        found = rows.length // sizeof(TocEntry)
        problems.append(f"its header is damaged; {found} bodies were found in it")
    return (<const char*> rows.data)[:rows.length] if rows.length else b"", gaps, problems


def is_sound(bytes record, uint64_t incarnation) -> bool:
    """Whether these bytes are one whole record with the right check."""
    cdef const BodyHead* head = <const BodyHead*> <const char*> record
    return (len(record) >= BODY_HEAD and head.length + BODY_HEAD == len(record)
            and head.check == body_check(head, incarnation))
