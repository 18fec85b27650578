# cython: language_level=3
"""Damage in a queue's segments: found when it is read, copied to quarantine, and skipped.

A delivered or requeued message has a known place and is lost alone. At the cursor only the next
sound record shows where the damage ends; a thread looks for it, and the cursor continues behind it.
Both kinds are settled, so that no later start finds them again.
"""

import functools

cimport cython
from libc.stdint cimport uint8_t, uint32_t

from broker.store.files.record cimport RECORD_FIXED, RecordHead
from broker.store.files.sound_search import set_aside
from broker.store.log.segments cimport Segments


@cython.final
cdef class Damage:
    """What is known of the damage in one store's segments."""

    def __init__(self, Segments segments):
        self.segments = segments

    cdef int keep(self, uint32_t number, uint32_t position, uint8_t* start, size_t have,
                  size_t length) except -1:
        """Copies the damaged record of a known place to quarantine: `length` bytes, of which as
        many as `have` were read."""
        cdef Segments segments = self.segments
        segments.persister.quarantine.take(
            segments.folder.incarnation, number, position, (<char*> start)[:have], length,
            segments.persister.background)
        return 0

    cdef int search(self, uint32_t number, uint32_t position, uint32_t limit, uint32_t end,
                    then) except -1:
        """Lets a thread look for what is sound behind damage, up to `limit`, and copy the bytes
        before it to quarantine; the file is surely written up to `end`. Calls `then(number,
        position, result, error)`, which passes a result on to `found`."""
        cdef Segments segments = self.segments
        quarantine = segments.persister.quarantine
        segments.persister.collecting.submit(
            functools.partial(
                set_aside, quarantine, quarantine.name_of(segments.folder.incarnation),
                f"{segments.folder.path}/msgs.{number:010d}", segments.folder.incarnation, number,
                position, limit, end),
            functools.partial(then, number, position))
        return 0

    def found(self, uint32_t number, uint32_t position, result):
        """The thread found where the damage at a place ends."""
        length, head, entry = result
        self.gap = (number, position, length, head)
        if entry is not None:
            self.segments.persister.quarantine.note(entry)

    cdef bint is_found(self, uint32_t number, uint32_t position) except? True:
        """Whether the damage at a place was searched."""
        return self.gap is not None and self.gap[:2] == (number, position)

    cdef uint32_t take(self, uint32_t* body) except? 0:
        """The length of the damage that was found last, 0 if it was sound when it was read again;
        and how long the body of its first record seems to have been."""
        cdef uint32_t length = self.gap[2]
        cdef bytes begin = self.gap[3]
        cdef const RecordHead* head = <const RecordHead*> <const char*> begin
        self.gap = None
        body[0] = 0
        if len(begin) == RECORD_FIXED and head.length + 4 == length and head.body_length < length:
            body[0] = head.body_length
        return length
