# cython: language_level=3
"""A sorted run of the timing index: in memory until its file is written, then a few entries at a
time."""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from broker.features.delayed.entry cimport ENTRY_BYTES, Entry, RUN_HEADER_BYTES
from broker.store.files.disk cimport file_free, read_now
from broker.store.files.file_list cimport is_open

cdef class Run:
    """`at` walks from the first entry to the last."""

    def __init__(self, uint32_t number, uint32_t count):
        self.number = number
        self.count = count

    def __dealloc__(self):
        free(self.array)
        free(self.buffer)
        file_free(self.file)

    cdef int head(self, Entry* entry) except -1:
        """The next entry. LATER: the disk has to be asked for it."""
        cdef int found
        if self.at >= self.count:
            return NONE
        if self.array != NULL:
            while self.array[self.at].length == 0:
                # It was cancelled.
                self.at += 1
                if self.at == self.count:
                    return NONE
            entry[0] = self.array[self.at]
            return THERE
        if not self.buffer_from <= self.at < self.buffer_from + self.buffer_count:
            found = self.load(self.at, BUFFERED)
            if found != THERE:
                return found
        entry[0] = self.buffer[self.at - self.buffer_from]
        return THERE

    cdef int load(self, uint32_t index, uint32_t count) except -1:
        """Fills the buffer from the page cache."""
        cdef ssize_t wanted, got
        if count > self.count - index:
            count = self.count - index
        if self.buffer == NULL:
            self.buffer = <Entry*> malloc(BUFFERED * ENTRY_BYTES)
            if self.buffer == NULL:
                raise MemoryError("no memory for the timing index")
        self.buffer_count = 0
        if not is_open(self.file):
            return LATER
        wanted = <ssize_t> count * ENTRY_BYTES
        got = read_now(
            self.file.fd, self.buffer, wanted,
            RUN_HEADER_BYTES + <uint64_t> index * ENTRY_BYTES)
        if got != wanted:
            return LATER
        self.buffer_from = index
        self.buffer_count = count
        return THERE

    cdef void compact(self) noexcept:
        """Leaves out of the array what was taken or cancelled."""
        cdef uint32_t at
        cdef uint32_t kept = 0
        for at in range(self.at, self.count):
            if self.array[at].length:
                self.array[kept] = self.array[at]
                kept += 1
        self.at = 0
        self.count = kept

    def drop_array(self) -> None:
        """The entries are in the file: they need no memory any more."""
        free(self.array)
        self.array = NULL
