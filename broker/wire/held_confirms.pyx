# cython: language_level=3
"""A channel's confirms once some of them wait for consumers: they no longer come in order.

A tag has a part for every queue that answers for it later (x-confirm-on) and one for the disk, if
any queue wants that. It is acked when its last part is done and nacked once with the first that
fails. A tag with one part costs no memory, so that a backlog of unconfirmed messages costs none.
"""

from collections import deque

from libc.stdint cimport uint8_t, uint16_t, uint64_t

from broker.kernel.buffer cimport Buffer, store16, store32, store64

cdef enum:
    FRAME_END = 0xCE
    AHEAD_MAX = 8192             # tags told out of order that are remembered


cdef int write_answer(Buffer out, uint16_t channel, int method, uint64_t tag,
                      bint multiple) except -1:
    """basic.ack or basic.nack."""
    cdef uint8_t* p = out.room(21)
    p[0] = 1
    store16(p + 1, channel)
    store32(p + 3, 13)
    store16(p + 7, 60)
    store16(p + 9, method)
    store64(p + 11, tag)
    p[19] = 1 if multiple else 0
    p[20] = FRAME_END
    out.length += 21
    return 0


cdef class HeldConfirms:
    """Every tag up to `low` is confirmed already."""

    def __init__(self, uint64_t low):
        self.low = low
        self.parts = {}
        self.ahead = set()
        self.unsynced = deque()
        self.resolved = []
        self.refused = []

    cdef uint64_t oldest(self) noexcept:
        """The first tag with something still to come; 0 if there is none, or it is not known."""
        return self.low + 1 if self.open and not self.forgot else 0

    cdef int publish(self, uint64_t tag, int held, bint waits, bint rejected) except -1:
        """A message was published: to `held` queues that answer later; `waits`: for the disk, too.
        """
        cdef int parts = held + waits
        if parts == 0:
            (self.refused if rejected else self.resolved).append(tag)
            return 0
        self.open += 1
        if rejected:
            self.refused.append(tag)
            self.parts[tag] = -parts
        elif parts > 1:
            self.parts[tag] = parts
        if waits:
            self.note_unsynced(tag, tag)
        return 0

    cdef int wait(self, uint64_t first, uint64_t last) except -1:
        """Earlier tags that wait for the disk alone."""
        if first <= last:
            self.open += last - first + 1
            self.note_unsynced(first, last)
        return 0

    def pass_over(self, uint64_t first, uint64_t last):
        """Earlier tags whose nack was sent."""
        if last - first < AHEAD_MAX:
            self.ahead.update(range(first, last + 1))
        else:
            self.forgot = True

    def note_unsynced(self, uint64_t first, uint64_t last):
        newest = self.unsynced[len(self.unsynced) - 1] if self.unsynced else None
        if newest is not None and newest[1] + 1 == first:
            newest[1] = last
        else:
            self.unsynced.append([first, last])

    cdef int synced(self, uint64_t last) except -1:
        """What was published up to `last` is on disk."""
        cdef uint64_t tag, first, end
        while self.unsynced and self.unsynced[0][0] <= last:
            first, end = self.unsynced[0]
            if end <= last:
                self.unsynced.popleft()
            else:
                self.unsynced[0][0] = last + 1
                end = last
            for tag in range(first, end + 1):
                self.resolve(tag, True)
        return 0

    cdef int more(self, uint64_t tag, int parts) except -1:
        """One part of a tag has become `parts` more."""
        left = self.parts.get(tag, 1)
        self.parts[tag] = left + parts if left > 0 else left - parts
        return 0

    cdef int resolve(self, uint64_t tag, bint acked) except -1:
        """One part of a tag is done."""
        if self.parts and tag in self.parts:
            left = self.parts[tag]
            if left < 0:
                # Its nack was sent already: no other confirm follows.
                if left == -1:
                    del self.parts[tag]
                    self.open -= 1
                else:
                    self.parts[tag] = left + 1
                return 0
            if left > 1:
                if acked:
                    self.parts[tag] = left - 1
                else:
                    self.refused.append(tag)
                    self.parts[tag] = 1 - left
                return 0
            del self.parts[tag]
        self.open -= 1
        (self.resolved if acked else self.refused).append(tag)
        return 0

    cdef int write(self, Buffer out, uint16_t channel) except -1:
        """Writes the confirms that can be sent now. Returns how many tags were acked. Only tags
        without a gap below them are sent as multiple."""
        cdef uint64_t top = self.low
        cdef uint64_t highest = 0
        cdef uint64_t tag
        cdef set ahead = self.ahead
        cdef set told
        cdef list resolved = self.resolved
        cdef int count = <int> len(resolved)
        for tag in self.refused:
            write_answer(out, channel, NACK, tag, False)
            ahead.add(tag)
        self.refused = []
        if resolved:
            self.resolved = []
            told = set(resolved)
            while True:
                tag = top + 1
                if tag in told:
                    highest = tag
                elif tag not in ahead:
                    break
                top = tag
            if highest:
                write_answer(out, channel, ACK, highest, highest > self.low + 1)
            if <uint64_t> max(told) > top:
                for tag in sorted(told):
                    if tag > top:
                        write_answer(out, channel, ACK, tag, False)
                        ahead.add(tag)
        else:
            while top + 1 in ahead:
                top += 1
        if ahead:
            for tag in range(self.low + 1, top + 1):
                ahead.discard(tag)
            if len(ahead) > AHEAD_MAX:
                # From here on every tag is confirmed alone, until none is open.
                ahead.clear()
                self.forgot = True
        self.low = top
        return count
