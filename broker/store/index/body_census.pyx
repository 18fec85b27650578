# cython: language_level=3
"""Counts the references to each body, before there is an index on disk.

When an index is rebuilt, the bodies come from their files and the references from the queues, one
at a time and in the order of each queue. A database would need a read and a write for each of them.
Here the bodies of each file are rows in the order of their ids, in an unnamed file; the queues'
references come mostly in that order too, so nearly all of them are found in the row behind the last
one. Bodies with references are added to the index in one pass at the end.

Memory does not grow with the number of bodies: a few pages of the file are held, and a line for
each body file. Where the disk has no room for the file, the rows are in memory.
"""

import os

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memset

from broker.kernel.buffer cimport Buffer
from broker.store.files.body_record cimport TocEntry
from broker.store.files.disk cimport file_close, file_free, file_new, run_op
from broker.store.files.operation cimport OP_READ, OP_WRITE_CONTENT, Op
from broker.store.files.space cimport is_full
from broker.store.index.location cimport Location

cdef enum:
    PAGE_ROWS = 512              # 16 KiB
    PAGES = 256                  # 4 MiB in memory
    AT_ONCE = 4096               # survivors that are reported in one go


cdef int by_id(const void* one, const void* other) noexcept nogil:
    return memcmp((<const Location*> one).id, (<const Location*> other).id, 16)


cdef int by_first(const void* one, const void* other) noexcept nogil:
    return memcmp((<const Part*> one).first, (<const Part*> other).first, 16)


class CannotCount(ValueError):
    """The references counted so far are lost: the start must be repeated. Not an OSError, which
    would be taken for an error of the queue that has the reference."""


cdef class ReferenceCounter:
    """Gets every body, then every reference, while an index is rebuilt."""

    def expect(self, uint64_t bodies) -> None:
        """The expected number of bodies."""

    def add_file(self, uint32_t number, bytes rows) -> None:
        """The bodies of a file: its table of contents (`TOC_ROW`). Files come in the order of their
        numbers."""
        raise NotImplementedError

    cdef int count_reference(self, const uint8_t* id) except -1:
        """One reference more to a body; 0 if there is no such body."""
        raise NotImplementedError


cdef class FileSums:
    """How many bytes live in each file."""

    def __dealloc__(self):
        free(self.numbers)
        free(self.sums)

    cdef int add(self, uint32_t number) except -1:
        """A file, behind all that were added."""
        cdef size_t room = 2 * self.count + 2
        cdef void* grown
        if self.count & (self.count + 1) == 0:
            grown = realloc(self.numbers, room * sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError("no memory for the sums of body files")
            self.numbers = <uint32_t*> grown
            grown = realloc(self.sums, room * sizeof(uint64_t))
            if grown == NULL:
                raise MemoryError("no memory for the sums of body files")
            self.sums = <uint64_t*> grown
        self.numbers[self.count] = number
        self.sums[self.count] = 0
        self.count += 1
        return 0

    cdef void lives(self, uint32_t number, uint64_t length) noexcept:
        """A record of a file that was added."""
        cdef size_t low = 0
        cdef size_t high = self.count
        cdef size_t middle
        if self.numbers[self.last] != number:
            while low < high:
                middle = (low + high) // 2
                if self.numbers[middle] < number:
                    low = middle + 1
                else:
                    high = middle
            self.last = low
        self.sums[self.last] += length

    def of_files(self) -> dict:
        """Number of the file -> bytes."""
        cdef size_t i
        return {self.numbers[i]: self.sums[i] for i in range(self.count)}


cdef class BodyCensus(ReferenceCounter):
    """`directory` is where the file without a name is. Raises CannotCount where it cannot be read
    or written; a full disk is no error."""

    def __cinit__(self, str directory):
        self.file = file_new(directory)
        self.sums = FileSums()
        self.pages = <Page*> calloc(PAGES, sizeof(Page))
        if self.pages == NULL:
            raise MemoryError("no memory to count references")

    def __dealloc__(self):
        cdef int i
        if self.pages != NULL:
            for i in range(PAGES):
                free(self.pages[i].rows)
        free(self.pages)
        free(self.parts)
        free(self.memory)
        file_free(self.file)

    @property
    def in_memory(self) -> bool:
        """Whether the disk had no room."""
        return self.memory != NULL

    def failed(self, int error) -> CannotCount:
        what = os.strerror(error) if error else "a part of it is missing"
        return CannotCount(
            "references cannot be counted in a file without a name in "
            f"{os.fsdecode(<bytes> self.file.path)}: {what}")

    # -- what there is -----------------------------------------------------------------------------

    def add_file(self, uint32_t number, bytes rows) -> None:
        cdef const TocEntry* entries = <const TocEntry*> <const char*> rows
        cdef size_t count = <size_t> len(rows) // sizeof(TocEntry)
        cdef size_t i
        cdef bint sorted_already = True
        cdef Location* made
        cdef Part* part
        self.sums.add(number)
        if count == 0:
            return
        made = <Location*> malloc(count * sizeof(Location))
        if made == NULL:
            raise MemoryError("no memory to count references")
        try:
            for i in range(count):
                memcpy(made[i].id, entries[i].id, 16)
                made[i].file = number
                made[i].offset = entries[i].offset
                made[i].length = entries[i].length
                made[i].references = 0
                if i and memcmp(made[i - 1].id, made[i].id, 16) > 0:
                    sorted_already = False
            if not sorted_already:
                qsort(made, count, sizeof(Location), by_id)
            self.store(made, count)
            if self.part_count & (self.part_count - 1) == 0:
                part = <Part*> realloc(
                    self.parts, (2 * self.part_count + 1) * sizeof(Part))
                if part == NULL:
                    raise MemoryError("no memory to count references")
                self.parts = part
            part = &self.parts[self.part_count]
            memcpy(part.first, made[0].id, 16)
            memcpy(part.last, made[count - 1].id, 16)
            part.start = self.rows
            part.rows = count
            self.part_count += 1
            self.rows += count
            self.in_order = False
        finally:
            free(made)

    cdef int store(self, Location* rows, size_t count) except -1:
        """Adds rows at the end."""
        cdef Op op
        cdef Location* grown
        if self.memory == NULL:
            memset(&op, 0, sizeof(Op))
            op.kind = OP_WRITE_CONTENT
            op.file = self.file
            op.data = <uint8_t*> rows
            op.length = count * sizeof(Location)
            op.offset = self.rows * sizeof(Location)
            with nogil:
                run_op(&op)
            if op.error == 0:
                return 0
            if not is_full(op.error):
                raise self.failed(op.error)
            self.to_memory()
        grown = <Location*> realloc(self.memory, (self.rows + count) * sizeof(Location))
        if grown == NULL:
            raise MemoryError("no memory to count references, and no space on the disk")
        self.memory = grown
        memcpy(grown + self.rows, rows, count * sizeof(Location))
        return 0

    cdef int to_memory(self) except -1:
        """The disk is full: the rows are in memory from now on."""
        cdef Op op
        cdef Page* page
        cdef uint64_t first, count
        cdef int i
        # One more: there may be none yet.
        cdef Location* memory = <Location*> malloc((self.rows + 1) * sizeof(Location))
        if memory == NULL:
            raise MemoryError("no memory to count references, and no space on the disk")
        if self.rows:
            memset(&op, 0, sizeof(Op))
            op.kind = OP_READ
            op.file = self.file
            op.data = <uint8_t*> memory
            op.length = self.rows * sizeof(Location)
            with nogil:
                run_op(&op)
            if op.error or op.done != op.length:
                free(memory)
                raise self.failed(op.error)
        for i in range(PAGES):
            page = &self.pages[i]
            if page.number and page.changed:
                first = (page.number - 1) * PAGE_ROWS
                count = min(<uint64_t> PAGE_ROWS, self.rows - first)
                memcpy(memory + first, page.rows, count * sizeof(Location))
        file_close(self.file)
        self.memory = memory
        return 0

    # -- rows --------------------------------------------------------------------------------------

    cdef Location* row(self, uint64_t index, bint change) except NULL:
        """A row, until the next call."""
        cdef Page* page
        cdef uint64_t number = index // PAGE_ROWS + 1
        if self.memory == NULL:
            page = &self.pages[number % PAGES]
            if page.number != number:
                self.load(page, number)
        if self.memory != NULL:
            return &self.memory[index]
        if change:
            page.changed = True
        return &page.rows[index % PAGE_ROWS]

    cdef int load(self, Page* page, uint64_t number) except -1:
        """Takes a page of the file in the place of another one, which is written if it has to be.
        """
        cdef Op op
        memset(&op, 0, sizeof(Op))
        op.file = self.file
        if page.rows == NULL:
            page.rows = <Location*> malloc(PAGE_ROWS * sizeof(Location))
            if page.rows == NULL:
                raise MemoryError("no memory to count references")
        op.data = <uint8_t*> page.rows
        if page.number and page.changed:
            op.kind = OP_WRITE_CONTENT
            op.offset = (page.number - 1) * PAGE_ROWS * sizeof(Location)
            op.length = min(PAGE_ROWS * sizeof(Location),
                            self.rows * sizeof(Location) - op.offset)
            run_op(&op)
            if op.error:
                if is_full(op.error):
                    return self.to_memory()
                raise self.failed(op.error)
        page.number = 0
        page.changed = False
        op.kind = OP_READ
        op.offset = (number - 1) * PAGE_ROWS * sizeof(Location)
        op.length = PAGE_ROWS * sizeof(Location)
        run_op(&op)
        if op.error or op.done < min(op.length, self.rows * sizeof(Location) - op.offset):
            raise self.failed(op.error)
        page.number = number
        return 0

    # -- references --------------------------------------------------------------------------------

    cdef int count_reference(self, const uint8_t* id) except -1:
        cdef Location* row
        if self.following >= self.rows or memcmp(self.row(self.following, False).id, id, 16) != 0:
            if not self.search(id):
                return 0
        row = self.row(self.following, True)
        row.references += 1
        self.following += 1
        return 1

    cdef bint search(self, const uint8_t* id) except? True:
        """Whether there is a row of an id: `following`."""
        cdef size_t low = 0
        cdef size_t high, middle
        if not self.in_order:
            self.put_parts_in_order()
        high = self.part_count
        while low < high:
            middle = (low + high) // 2
            if memcmp(self.parts[middle].first, id, 16) <= 0:
                low = middle + 1
            else:
                high = middle
        # Mostly only the last one that begins before the id can hold it.
        while low and memcmp(self.parts[low - 1].highest, id, 16) >= 0:
            low -= 1
            if (memcmp(self.parts[low].last, id, 16) >= 0
                    and self.search_part(&self.parts[low], id)):
                return True
        return False

    cdef bint search_part(self, Part* part, const uint8_t* id) except? True:
        cdef uint64_t low = part.start
        cdef uint64_t high = part.start + part.rows
        cdef uint64_t middle
        while low < high:
            middle = (low + high) // 2
            if memcmp(self.row(middle, False).id, id, 16) < 0:
                low = middle + 1
            else:
                high = middle
        if low == part.start + part.rows or memcmp(self.row(low, False).id, id, 16) != 0:
            return False
        self.following = low
        return True

    cdef int put_parts_in_order(self) except -1:
        cdef size_t i
        cdef Part* part
        qsort(self.parts, self.part_count, sizeof(Part), by_first)
        for i in range(self.part_count):
            part = &self.parts[i]
            if i and memcmp(self.parts[i - 1].highest, part.last, 16) > 0:
                memcpy(part.highest, self.parts[i - 1].highest, 16)
            else:
                memcpy(part.highest, part.last, 16)
        self.in_order = True
        return 0

    def survivors(self, bint keeps_all):
        """Bodies with references, as `Location` rows, many at a time; in the order of the ids
        except where body files overlap. `keeps_all`: all bodies, with one reference more than was
        counted, which is never given back."""
        cdef Buffer kept = Buffer()
        cdef Location row
        cdef size_t i
        cdef uint64_t at
        if not self.in_order:
            self.put_parts_in_order()
        for i in range(self.part_count):
            for at in range(self.parts[i].start, self.parts[i].start + self.parts[i].rows):
                row = self.row(at, False)[0]
                row.references += keeps_all
                if row.references == 0:
                    continue
                self.sums.lives(row.file, row.length)
                kept.add(&row, sizeof(Location))
                if kept.length == AT_ONCE * sizeof(Location):
                    yield (<const char*> kept.data)[:kept.length]
                    kept.drop(kept.length)
        if kept.length:
            yield (<const char*> kept.data)[:kept.length]

    def living_bytes(self) -> dict:
        """After `survivors`: number of each file -> bytes of records with references."""
        return self.sums.of_files()
