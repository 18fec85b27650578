# cython: language_level=3
"""A channel's replies, in the order of the requests; those that depend on the disk wait for it."""

import functools

from libc.stdint cimport uint64_t

from broker.kernel.contracts cimport Channel
from broker.wire.held_replies cimport HeldReplies, HeldReply


cdef class ReplyingChannel(Channel):
    """With replies. `output` is the writing half of its `connection`."""

    def hold(self, bint sync=True, bint records=False):
        """Replies from now on wait until all that was asked for so far is written (and synced);
        with `records` also the messages, which wait in memory while the disk is full."""
        if self.held is None:
            self.held = HeldReplies(self.persister, self.output)
        self.held.wait(functools.partial(self.release, self.held), sync, records)
        self.acks_unwritten = False

    def reply(self, bytes data, then=None):
        """Sends frames in the order of replies; `then()` is called when they are written. A reply
        waits for the acks before it."""
        self.hold_for_acks()
        if self.held is not None:
            self.held.add(data, then)
            return
        self.output.send(data)
        if then is not None:
            then()

    @property
    def holds_replies(self):
        """Whether a reply would have to wait."""
        return self.held is not None or self.acks_unwritten

    def reserve_reply(self):
        """Keeps the place of a reply that is not known yet: `fill_reply` brings it."""
        self.hold_for_acks()
        if self.held is None:
            self.held = HeldReplies(self.persister, self.output)
        return self.held.reserve()

    def fill_reply(self, HeldReply reply, bytes data, then=None, bint waits=False):
        """As `reply`, at the place that was kept. `waits`: for the acks up to now, not only for
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
        """A round is over: lets go of the replies that waited for it."""
        held.over = ticket
        self.send_held(held)

    cdef int send_held(self, HeldReplies held) except -1:
        if self.held is held and held.send() and self.held is held:
            self.held = None
        return 0

    def last_word(self, bytes data):
        """Sends frames behind the replies that are held."""
        if self.held is not None:
            self.held.add(data, None)
        else:
            self.output.send(data)

    def forget_replies(self):
        """The connection ends: no reply is sent any more."""
        self.held = None

    def next_turn(self, callback):
        """Calls `callback()` when the others had their turn."""
        self.output.turn.wait_in_line(callback)

    @property
    def is_full(self):
        """Whether the connection has too much to write: basic.get waits."""
        return self.output.is_full()
