# cython: language_level=3
"""What a channel sends to its publisher: confirms, numbered and sent when the messages are safe,
and returned messages."""

from collections import deque

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.buffer cimport Buffer, store16, store32, store64
from broker.kernel.message cimport Message
from broker.store.files.observer cimport marked, observer
from broker.store.files.planted cimport planted
from broker.wire.delivering cimport DeliveringChannel, FRAME_END, put_names
from broker.wire.held_confirms cimport HeldConfirms


cdef class ConfirmingChannel(DeliveringChannel):
    """With confirms. The sequence numbers are those of its publishes."""

    @property
    def confirm(self):
        return self.confirm_mode

    @property
    def messages_unconfirmed(self):
        if self.held_confirms is not None:
            return self.held_confirms.open
        if not self.confirm_mode:
            return 0
        nacked = sum([last - first + 1 for first, last in self.nacked or ()])
        return self.sequence - self.told_sequence - nacked

    @property
    def oldest_unconfirmed(self):
        """The tag of the oldest unconfirmed message; 0 if there is none, or it is not known."""
        if self.held_confirms is not None:
            return self.held_confirms.oldest()
        return self.told_sequence + 1 if self.messages_unconfirmed else 0

    def select_confirms(self):
        if not self.confirm_mode:
            self.confirm_mode = True
            self.serial = self.persister.origins.enter(self)

    cdef int hold_confirm(self, int held, bint waits, bint rejected) except -1:
        """The publish at hand, or one before it, is confirmed by its consumers: from here on
        confirms do not come in order."""
        if self.held_confirms is None:
            self.write_confirm()
            self.held_confirms = HeldConfirms(self.told_sequence)
            since = self.told_sequence + 1
            for first, last in self.nacked or ():
                self.held_confirms.wait(since, first - 1)
                self.held_confirms.pass_over(first, last)
                since = last + 1
            self.nacked = None
            self.held_confirms.wait(since, self.sequence - 1)
        self.held_confirms.publish(self.sequence, held, waits, rejected)
        if self.early is not None:
            early, self.early = self.early, None
            for acked in early:
                self.held_confirms.resolve(self.sequence, acked)
        if waits:
            self.wanted = self.sequence
            self.persister.want_confirm(self)
        return self.output.touch_confirm(self)

    cdef int refuse(self) except -1:
        """The publish at hand is nacked now and out of the way; acks of earlier ones may still
        have to come."""
        self.refused += 1
        self.write_confirm()
        self.connection.send_nack(self, self.sequence)
        if self.told_sequence == self.sequence - 1:
            self.told_sequence = self.settled_sequence = self.sequence
            return 0
        if self.nacked is None:
            self.nacked = deque()
        newest = self.nacked[len(self.nacked) - 1] if self.nacked else None
        if newest is not None and newest[1] == self.sequence - 1:
            newest[1] = self.sequence
        else:
            self.nacked.append([self.sequence, self.sequence])
        return 0

    cdef uint64_t take_nacked(self, uint64_t last) except? 0:
        """Forgets the nacked ones up to a publish that was not; returns how many those were."""
        cdef uint64_t count = 0
        while self.nacked and self.nacked[0][0] <= last:
            first, end = self.nacked.popleft()
            count += end - first + 1
        return count

    cdef int resolve(self, uint64_t tag, bint acked) except -1:
        if tag > self.sequence:
            # A queue is done with it while it is still being published to others.
            if self.early is None:
                self.early = []
            self.early.append(acked)
        elif self.held_confirms is not None:
            self.held_confirms.resolve(tag, acked)
            self.output.touch_confirm(self)
        return 0

    cdef int more_parts(self, uint64_t tag, int parts) except -1:
        if self.held_confirms is not None:
            self.held_confirms.more(tag, parts)
        return 0

    cdef int write_held(self) except -1:
        self.refused += len(self.held_confirms.refused)
        self.confirmed += self.held_confirms.write(self.output.out, self.number)
        if self.held_confirms.open == 0:
            # All confirms are sent: further ones are sent in order again.
            self.held_confirms = None
            self.told_sequence = self.settled_sequence = self.sequence
        return 0

    cdef int write_return(self, Message* message) except -1:
        """basic.return 312 NO_ROUTE with the content; it stands before the confirm."""
        cdef Buffer out = self.output.out
        cdef uint32_t payload = (4 + 2 + 9 + 1 + message.exchange_length
                                 + 1 + message.routing_key_length)
        cdef uint8_t* p = out.room(payload + 8 + self.content_room(message))
        p[0] = 1
        store16(p + 1, self.number)
        store32(p + 3, payload)
        store16(p + 7, 60)
        store16(p + 9, 50)
        store16(p + 11, 312)
        p[13] = 8
        memcpy(p + 14, b"NO_ROUTE", 8)
        put_names(p + 22, message)
        out.length += payload + 8
        self.write_content(message)
        return self.output.touch()

    cdef int confirm(self) except -1:
        if self.held_confirms is not None:
            self.held_confirms.synced(self.flying)
            return self.output.touch_confirm(self)
        if self.flying > self.settled_sequence:
            self.settled_sequence = self.flying
            self.output.touch_confirm(self)
        return 0

    cdef int write_confirm(self) except -1:
        """basic.ack of all confirms that are not sent yet."""
        cdef uint8_t* p
        cdef uint64_t count = self.settled_sequence - self.told_sequence
        cdef uint64_t told = self.settled_sequence + planted(b"confirm one more")
        if self.closing:
            return 0
        if self.held_confirms is not None:
            return self.write_held()
        if count == 0:
            return 0
        p = self.output.out.room(21)
        p[0] = 1
        store16(p + 1, self.number)
        store32(p + 3, 13)
        store16(p + 7, 60)
        store16(p + 9, 80)
        store64(p + 11, told)
        p[19] = 1 if count > 1 else 0
        p[20] = FRAME_END
        self.output.out.length += 21
        self.confirmed += count
        self.told_sequence = self.settled_sequence
        if self.nacked is not None:
            self.confirmed -= self.take_nacked(self.told_sequence)
            if self.nacked and self.nacked[0][0] == self.told_sequence + 1:
                self.told_sequence = self.settled_sequence = self.nacked.popleft()[1]
            self.nacked = self.nacked or None
        if observer != NULL:
            marked(b"confirm", told)
        return 0
