# cython: language_level=3
"""A channel's confirms: publishes are numbered, and acked when they are safe, or nacked."""

from collections import deque

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from broker.kernel.contracts cimport Confirmer, NEEDS_SYNC, REJECTED
from broker.store.commit.persister cimport Persister
from broker.store.files.observer cimport marked, observer
from broker.store.files.planted cimport planted
from broker.wire.held_confirms cimport ACK, HeldConfirms, NACK, write_answer
from broker.wire.output cimport Output


cdef class Confirms(Confirmer):
    """Of a channel in confirm mode. The sequence numbers are those of its publishes."""

    def __init__(self, Persister persister, Output output, uint16_t number):
        self.persister = persister
        self.output = output
        self.number = number
        self.serial = persister.origins.enter(self)

    @property
    def unconfirmed(self):
        """How many messages are not confirmed yet."""
        if self.held is not None:
            return self.held.open
        nacked = sum([last - first + 1 for first, last in self.nacked_runs or ()])
        return self.sequence - self.told - nacked

    @property
    def oldest(self):
        """The tag of the oldest unconfirmed message; 0 if there is none, or it is not known."""
        if self.held is not None:
            return self.held.oldest()
        return self.told + 1 if self.unconfirmed else 0

    cdef int publish(self, int held, int answer) except -1:
        """A message was given to its queues: `held` of them answer later, and `answer` is what they
        answered together."""
        self.sequence += 1
        if held or self.held is not None:
            return self.hold(held, answer & NEEDS_SYNC, answer & REJECTED)
        if answer & REJECTED:
            return self.nack()
        if answer & NEEDS_SYNC or self.wanted > self.settled:
            self.wanted = self.sequence
            if not self.confirming:
                self.persister.want_confirm(self)
            return 0
        self.settled = self.sequence
        return self.output.touch_confirm(self)

    cdef int publish_run(self, uint32_t count, int answer) except -1:
        """As many messages were given to their queues, which answered STORED or NEEDS_SYNC."""
        cdef uint32_t _each
        if self.held is not None:
            for _each in range(count):
                self.publish(0, answer)
            return 0
        # What holds for the last one holds for those before it.
        self.sequence += count - 1
        return self.publish(0, answer)

    cdef int hold(self, int held, bint waits, bint rejected) except -1:
        """The publish at hand, or one before it, is confirmed by its consumers: from here on
        confirms do not come in order."""
        if self.held is None:
            self.write_confirm()
            self.held = HeldConfirms(self.told)
            since = self.told + 1
            for first, last in self.nacked_runs or ():
                self.held.wait(since, first - 1)
                self.held.pass_over(first, last)
                since = last + 1
            self.nacked_runs = None
            self.held.wait(since, self.sequence - 1)
        self.held.publish(self.sequence, held + self.early_parts, waits, rejected)
        self.early_parts = 0
        if self.early is not None:
            early, self.early = self.early, None
            for acked in early:
                self.held.resolve(self.sequence, acked)
        if waits:
            self.wanted = self.sequence
            self.persister.want_confirm(self)
        return self.output.touch_confirm(self)

    cdef int nack(self) except -1:
        """The publish at hand is nacked now, out of order: acks of earlier ones may still have to
        come."""
        self.nacked += 1
        self.write_confirm()
        write_answer(self.output.out, self.number, NACK, self.sequence, False)
        self.output.touch()
        if self.told == self.sequence - 1:
            self.told = self.settled = self.sequence
            return 0
        if self.nacked_runs is None:
            self.nacked_runs = deque()
        newest = self.nacked_runs[len(self.nacked_runs) - 1] if self.nacked_runs else None
        if newest is not None and newest[1] == self.sequence - 1:
            newest[1] = self.sequence
        else:
            self.nacked_runs.append([self.sequence, self.sequence])
        return 0

    cdef uint64_t take_nacked(self, uint64_t last) except? 0:
        """Forgets the nacked ones up to a publish that was not; returns how many those were."""
        cdef uint64_t count = 0
        while self.nacked_runs and self.nacked_runs[0][0] <= last:
            first, end = self.nacked_runs.popleft()
            count += end - first + 1
        return count

    cdef int resolve(self, uint64_t tag, bint acked) except -1:
        if tag > self.sequence:
            # A queue is done with it while it is still being published to others.
            if self.early is None:
                self.early = []
            self.early.append(acked)
        elif self.held is not None:
            self.held.resolve(tag, acked)
            self.output.touch_confirm(self)
        return 0

    cdef int more_parts(self, uint64_t tag, int parts) except -1:
        if tag > self.sequence:
            self.early_parts += parts
        elif self.held is not None:
            self.held.more(tag, parts)
        return 0

    cdef int confirm(self) except -1:
        if self.held is not None:
            self.held.synced(self.flying)
            return self.output.touch_confirm(self)
        if self.flying > self.settled:
            self.settled = self.flying
            self.output.touch_confirm(self)
        return 0

    cdef int write_confirm(self) except -1:
        """basic.ack of all confirms that are not sent yet."""
        cdef uint64_t count = self.settled - self.told
        cdef uint64_t told = self.settled + planted(b"confirm one more")
        if self.ended:
            return 0
        if self.held is not None:
            return self.write_held()
        if count == 0:
            return 0
        write_answer(self.output.out, self.number, ACK, told, count > 1)
        self.acked += count
        self.told = self.settled
        if self.nacked_runs is not None:
            self.acked -= self.take_nacked(self.told)
            if self.nacked_runs and self.nacked_runs[0][0] == self.told + 1:
                self.told = self.settled = self.nacked_runs.popleft()[1]
            self.nacked_runs = self.nacked_runs or None
        if observer != NULL:
            marked(b"confirm", told)
        return 0

    cdef int write_held(self) except -1:
        self.nacked += len(self.held.refused)
        self.acked += self.held.write(self.output.out, self.number)
        if self.held.open == 0:
            # All confirms are sent: further ones are sent in order again.
            self.held = None
            self.told = self.settled = self.sequence
        return 0

    def stop(self):
        """The channel is closing: what is settled is confirmed before that, and nothing behind."""
        self.write_confirm()
        self.ended = True

    def end(self):
        """The channel has ended: queues no longer resolve its messages."""
        self.persister.origins.leave(self.serial)
