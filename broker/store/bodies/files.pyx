# cython: language_level=3
"""The files of a body store: in order, with their sums, and which of them are worth collecting.

No operation here takes longer with more files, except `sum_up` at a start: sums are kept with every
change. A run of files that frees at least as much as it copies always contains a file of which half
or more is dead, so the choice begins at those, some at a time, and adds their neighbours.
"""

import collections

from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.store.bodies.file cimport BodyFile
from broker.store.files.body_record cimport FILE_HEADER

cdef enum:
    LOOKS = 1024                 # files that one choice looks at
    RUN_MAX = 64                 # files of a run
    FILES_LEAST = 3              # before they are collected for what is dead in all of them


cdef inline uint64_t garbage_of(BodyFile file) noexcept:
    cdef uint64_t content = file.size - FILE_HEADER if file.size > FILE_HEADER else 0
    return content - file.valid if content > file.valid else 0


cdef inline BodyFile neighbour(void* file):
    return None if file == NULL else <BodyFile> file


cdef inline bint is_half_dead(BodyFile file) noexcept:
    return file.valid > 0 and garbage_of(file) >= file.valid


cdef inline bint is_free(BodyFile file, double now) noexcept:
    """Whether the file is neither written nor being collected, and can be collected as far as is
    known."""
    return (file.sealed and not file.flying and not file.collecting
            and file.spared_until <= now)


cdef inline bint is_due(BodyFile file, double now, double quiet) noexcept:
    """Whether a file is worth collecting by itself."""
    return garbage_of(file) * 2 > file.size and now - file.dropped_at >= quiet


cdef class BodyFiles:
    """Iterates in the order of the numbers. A file is in the table until `remove`; the caller
    keeps replaced files until then."""

    def __init__(self, files=()):
        self.by_number = {}
        self.half_dead = collections.deque()
        for file in files:
            self.append(file)
        self.sum_up()

    def __len__(self):
        return len(self.by_number)

    def __iter__(self):
        cdef void* at = self.first
        files = []
        while at != NULL:
            files.append(<BodyFile> at)
            at = (<BodyFile> at).after
        return iter(files)

    def __getitem__(self, number):
        return self.by_number[number]

    @property
    def garbage(self) -> int:
        """Bytes of records without references."""
        cdef uint64_t content = self.size - FILE_HEADER * len(self.by_number)
        return content - self.valid if content > self.valid else 0

    def append(self, BodyFile file) -> None:
        """A file behind all others."""
        self.add(file)

    def sum_up(self) -> None:
        """Computes the sums again from the files' own."""
        cdef BodyFile file
        self.size = self.valid = 0
        for file in self:
            self.size += file.size
            self.valid += file.valid
            self.look(file)

    cdef BodyFile get(self, uint32_t number):
        return self.by_number.get(number)

    cdef int add(self, BodyFile file) except -1:
        """A file behind all others, or one in the place of those with its numbers, which are still
        there."""
        cdef BodyFile at = self.by_number.get(file.first)
        if at is None:
            file.before = self.last
        else:
            file.before = at.before
            file.after = <void*> at
            at.before = <void*> file
        if file.before == NULL:
            self.first = <void*> file
        else:
            (<BodyFile> file.before).after = <void*> file
        if file.after == NULL:
            self.last = <void*> file
        self.by_number[file.first] = file
        self.size += file.size
        self.valid += file.valid
        return self.look(file)

    cdef int remove(self, BodyFile file) except -1:
        """One that is not there is fine."""
        if file.before == NULL and file.after == NULL and self.first != <void*> file:
            return 0
        if file.before == NULL:
            self.first = file.after
        else:
            (<BodyFile> file.before).after = file.after
        if file.after == NULL:
            self.last = file.before
        else:
            (<BodyFile> file.after).before = file.before
        file.before = file.after = NULL
        self.size -= file.size
        self.valid -= file.valid
        if self.by_number.get(file.first) is file:
            del self.by_number[file.first]
        return 0

    cdef void grew(self, BodyFile file, uint64_t size) noexcept:
        file.size += size
        self.size += size

    cdef void lives(self, BodyFile file, uint64_t size) noexcept:
        """A record with references was written."""
        file.valid += size
        self.valid += size

    cdef int died(self, BodyFile file, uint64_t size) except -1:
        """A record lost its last reference."""
        file.valid -= size
        self.valid -= size
        return self.look(file)

    cdef int look(self, BodyFile file) except -1:
        """Something about the file changed: it may be worth collecting from now on."""
        if not file.half_dead and is_half_dead(file):
            file.half_dead = True
            self.half_dead.append(file)
        return 0

    def choose(self, double now, uint64_t limit, double quiet):
        """The run of neighbours to collect now, in order, so that what lives in it has at most
        `limit` bytes; empty if none is worth it. Files that are asked for before `quiet` seconds
        have passed since something in them died are spared, unless half of everything is dead."""
        cdef bint everywhere = len(self.by_number) >= FILES_LEAST and self.garbage * 2 > self.size
        cdef BodyFile file
        cdef list run
        cdef list best = []
        cdef int64_t gain
        cdef int64_t best_gain = 0
        cdef int looks = LOOKS
        cdef Py_ssize_t left = len(self.half_dead)
        while left > 0 and looks > 0:
            left -= 1
            looks -= 1
            file = self.half_dead.popleft()
            if self.by_number.get(file.first) is not file or not is_half_dead(file):
                file.half_dead = False
                continue
            self.half_dead.append(file)
            if not is_free(file, now) or file.valid > limit - FILE_HEADER:
                continue
            if not everywhere and not is_due(file, now, quiet):
                continue
            run = [file]
            gain = self.widen(run, limit - FILE_HEADER, now, &looks)
            if not best or (len(run) > 1, gain) > (len(best) > 1, best_gain):
                best = run
                best_gain = gain
        return best

    cdef int64_t widen(self, list run, uint64_t limit, double now, int* looks) except -1:
        """Takes neighbours into a run while it gives back what it copies. Returns how much is
        dead in it."""
        cdef BodyFile taken = run[0]
        cdef BodyFile left = neighbour(taken.before)
        cdef BodyFile right = neighbour(taken.after)
        cdef uint64_t valid = (<BodyFile> run[0]).valid
        cdef uint64_t dead = garbage_of(run[0])
        while len(run) < RUN_MAX and looks[0] > 0:
            looks[0] -= 1
            if left is not None and not (
                    is_free(left, now) and valid + left.valid <= limit
                    and dead + garbage_of(left) >= valid + left.valid):
                left = None
            if right is not None and not (
                    is_free(right, now) and valid + right.valid <= limit
                    and dead + garbage_of(right) >= valid + right.valid):
                right = None
            if left is None and right is None:
                break
            if right is None or (left is not None and (
                    <int64_t> garbage_of(left) - <int64_t> left.valid
                    >= <int64_t> garbage_of(right) - <int64_t> right.valid)):
                taken = left
                left = neighbour(left.before)
                run.insert(0, taken)
            else:
                taken = right
                right = neighbour(right.after)
                run.append(taken)
            valid += taken.valid
            dead += garbage_of(taken)
        return dead
