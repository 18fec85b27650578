# cython: language_level=3
"""Damage in a queue's segment: found when it is read, copied to quarantine, and skipped.

A delivered or requeued message has a known place and is lost alone. At the cursor only the next
sound record shows where the damage ends; a thread looks for it, and the cursor continues behind it.
Both kinds are settled, so that no later start finds them again.
"""

import functools

from libc.stdint cimport uint8_t, uint32_t

from broker.kernel.message cimport Place
from broker.store.files.record cimport ACK_VALUE_MASK, RECORD_FIXED, RecordHead
from broker.store.files.sound_search import set_aside
from broker.store.log.queue_bodies cimport QueueBodies, place_key
from broker.store.log.requeued cimport Requeued
from broker.store.log.segments cimport Block, Segment


cdef class QueueDamage(QueueBodies):
    """The part of a queue's store that passes over damage, and the counters that it corrects."""

    def __init__(self, persister, str parent, incarnation, bint durable, touch):
        QueueBodies.__init__(self, persister, parent, incarnation, durable, touch)
        self.requeued = Requeued()

    cdef int settle(self, Place* place) except -1:
        """One message is done with."""
        raise NotImplementedError

    cdef int pass_over(self, Segment* segment, uint32_t position, uint8_t* record,
                       size_t have) except -1:
        """The record at a position is damaged. If it was delivered or requeued, it is lost; damage
        at the cursor is copied to quarantine up to the next sound record, and is settled."""
        cdef Place place
        if self.at_taken:
            self.damaged = True
            if have >= RECORD_FIXED and <size_t> (<RecordHead*> record).length + 4 < have:
                have = <size_t> (<RecordHead*> record).length + 4
            self.persister.quarantine.take(
                self.incarnation, segment.number, position, (<char*> record)[:have], have,
                self.persister)
            return 0
        if not self.requeued.first_is(segment.number, position):
            if self.gap is None or self.gap[:2] != (segment.number, position):
                return self.search_behind(segment, position)
            return self.pass_gap(segment, position)
        segment.damaged = True
        self.requeued.first(&place)
        self.requeued.pop()
        self.ready -= 1
        self.ready_bytes -= place.body_length
        if self.lost is None:
            self.lost = []
        self.lost.append(place_key(&place))
        self.persister.quarantine.take(
            self.incarnation, segment.number, position,
            (<char*> record)[:place.length if place.length < have else have], place.length,
            self.persister)
        self.settle(&place)
        self.owner_touch()
        return 0

    cdef int search_behind(self, Segment* segment, uint32_t position) except -1:
        """Lets a thread look for what is sound behind damage at the cursor, before what is settled
        or in memory; the owner is touched when it has."""
        cdef uint32_t end = self.written_end(segment, position)
        cdef uint32_t limit = end
        if (self.cursor_skip < segment.skip_count
                and segment.skips[self.cursor_skip].position < limit):
            limit = segment.skips[self.cursor_skip].position
        quarantine = self.persister.quarantine
        self.reading = True
        self.persister.collecting.submit(
            functools.partial(
                set_aside, quarantine, quarantine.name_of(self.incarnation),
                f"{self.directory}/msgs.{segment.number:010d}", self.incarnation, segment.number,
                position, limit, end),
            functools.partial(self.searched, segment.number, position))
        return 0

    def searched(self, uint32_t number, uint32_t position, result, error):
        """The thread of `search_behind` is done."""
        self.reading = False
        if error is None:
            length, head, entry = result
            self.gap = (number, position, length, head)
            if entry is not None:
                self.persister.quarantine.note(entry)
        elif self.find(number) != NULL:
            self.persister.failed_reads.add(
                f"messages in {self.directory}", str(error), self.owner_touch)
        self.remove_waiting()
        if self.deleted:
            self.finish_delete()
        elif error is None:
            self.owner_touch()

    cdef int pass_gap(self, Segment* segment, uint32_t position) except -1:
        """The cursor continues behind the searched part."""
        cdef uint32_t body = 0
        cdef uint32_t length = self.gap[2]
        cdef bytes begin = self.gap[3]
        cdef const RecordHead* head = <const RecordHead*> <const char*> begin
        self.gap = None
        self.owner_touch()
        if length == 0:
            # It was sound when it was read again.
            self.read_segment = NULL
            return 0
        segment.damaged = True
        self.cursor_position = position + length
        segment.settled_bytes += length
        if segment.references:
            self.bodies.doubt()
        if self.durable:
            self.note(segment, position, length & ACK_VALUE_MASK)
        # One record at least began here. Others are found missing at the segment's end.
        if len(begin) == RECORD_FIXED and head.length + 4 == length and head.body_length < length:
            body = head.body_length
        segment.count -= 1
        self.ready -= 1
        self.total -= 1
        self.ready_bytes -= body if body < self.ready_bytes else self.ready_bytes
        self.total_bytes -= body if body < self.total_bytes else self.total_bytes
        return 0

    cdef int count_lost(self, Segment* segment) except -1:
        """The cursor is at the end of a segment. Records that it did not come by lay in stretches
        that could not be read: they are no longer counted."""
        cdef uint32_t lost = 0
        if segment.passed < segment.count:
            lost = segment.count - segment.passed
        elif not segment.damaged:
            return 0
        segment.count -= lost
        self.ready -= lost if lost < self.ready else self.ready
        self.total -= lost if lost < self.total else self.total
        if self.ready == 0:
            self.total_bytes -= self.ready_bytes
            self.ready_bytes = 0
        if segment.sealed and segment.settled == segment.count:
            self.drop_segment(segment)
        return 0

    cdef uint32_t written_end(self, Segment* segment, uint32_t position) noexcept:
        """Where what is surely in the file ends, behind `position`: the start of what is still in
        memory."""
        cdef uint32_t end = segment.length
        cdef Block* block = self.first_block
        while block != NULL:
            if block.segment == segment and position <= block.start < end:
                end = block.start
            block = block.next
        return end
