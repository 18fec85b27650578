# cython: language_level=3
"""A channel's replies, in the order of the requests; those that depend on the disk wait for it."""

import functools

from libc.stdint cimport uint64_t

from broker.store.commit.persister cimport Persister
from broker.wire.held_replies cimport HeldReplies, HeldReply
from broker.wire.output cimport Output


cdef class Replies:
    """What a channel replies through the `output` of its connection."""

    def __init__(self, Persister persister, Output output):
        self.persister = persister
        self.output = output

    def hold(self, bint sync=True, bint records=False):
        """Replies from now on wait until all that was asked for so far is written (and synced);
        with `records` also the messages, which wait in memory while the disk is full."""
        if self.held is None:
            self.held = HeldReplies(self.persister, self.output)
        self.held.wait(functools.partial(self.release, self.held), sync, records)
        self.acks_unwritten = False

    def await_ack(self):
        """Something was acknowledged that is on disk: later replies wait until that is written."""
        self.note_ack()

    def send(self, bytes data, then=None):
        """Sends frames in the order of replies; `then()` is called when they are written. A reply
        waits for the acks before it."""
        self.hold_for_acks()
        if self.held is not None:
            self.held.add(data, then)
            return
        self.output.send(data)
        if then is not None:
            then()

    def send_last(self, bytes data):
        """Sends frames behind the replies that are held."""
        if self.held is not None:
            self.held.add(data, None)
        else:
            self.output.send(data)

    @property
    def are_held(self):
        """Whether a reply would have to wait."""
        return self.held is not None or self.acks_unwritten

    def reserve(self):
        """Keeps the place of a reply that is not known yet; `fill` sends it there."""
        self.hold_for_acks()
        if self.held is None:
            self.held = HeldReplies(self.persister, self.output)
        return self.held.reserve()

    def fill(self, HeldReply reply, bytes data, then=None, bint waits=False):
        """As `send`, at the place that was kept. `waits`: for the acks up to now, not only for
        those before the place."""
        cdef HeldReplies held = self.held
        if held is not None:
            if waits:
                self.hold_for_acks()
            held.fill(reply, data, then, waits)
            self.send_held(held)

    cdef int hold_for_acks(self) except -1:
        if self.acks_unwritten and (self.held is None or not self.held.covers_now()):
            self.hold(False)
        return 0

    def release(self, HeldReplies held, uint64_t ticket):
        """A round is over: sends the replies that waited for it."""
        held.over = ticket
        self.send_held(held)

    cdef int send_held(self, HeldReplies held) except -1:
        if self.held is held and held.send() and self.held is held:
            self.held = None
        return 0

    def forget(self):
        """The connection ends: no reply is sent any more."""
        if self.held is not None:
            self.held.forget()
        self.held = None
