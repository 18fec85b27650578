# cython: language_level=3
"""A channel's replies that have to wait, in their order.

A reply waits for all syncs that were requested before it: each request is a ticket, and a reply has
the number of the last one. A place can be reserved for a reply that is not known yet, a basic.get
whose message has to be read from disk; later replies wait behind it.
"""

import collections
import functools

from broker.store.commit.persister cimport Persister
from broker.wire.output cimport Output


cdef class HeldReply:
    """One reply: whole frames, and what is called when they are written."""


cdef class HeldReplies:
    """Empty only for a moment: a channel without held replies has none of these."""

    def __init__(self, Persister persister, Output output):
        self.persister = persister
        self.output = output
        self.replies = collections.deque()

    cdef int wait(self, release, bint sync, bint records) except -1:
        """Replies from now on wait until all that was asked for so far is written (and synced);
        with `records` also the messages, which wait in memory while the disk is full. Then
        `release(ticket)` is called."""
        self.records = self.records or records
        self.ticket += 1
        self.round = self.persister.after_round(
            functools.partial(release, self.ticket), sync, self.records)
        self.removals = self.persister.background.removals
        return 0

    cdef bint covers_now(self) noexcept:
        """Whether the last request waits for the same sync as one made now."""
        return (self.round == self.persister.gathering
                and self.removals == self.persister.background.removals)

    cdef HeldReply add(self, bytes data, then):
        cdef HeldReply reply = HeldReply()
        reply.ticket = self.ticket
        reply.data = data
        reply.then = then
        self.replies.append(reply)
        self.output.held_replies += 1
        return reply

    cdef HeldReply reserve(self):
        """Keeps a place for a reply that `fill` will bring."""
        cdef HeldReply reply = self.add(b"", None)
        reply.is_open = True
        return reply

    cdef int fill(self, HeldReply reply, bytes data, then, bint waits) except -1:
        """Brings the reply of a place; with `waits` it waits for what was asked for since."""
        if waits:
            reply.ticket = self.ticket
        reply.data = data
        reply.then = then
        reply.is_open = False
        return 0

    cdef bint send(self) except -1:
        """Sends the replies that need not wait any more. Returns whether no reply waits."""
        cdef HeldReply reply
        while self.replies:
            reply = self.replies[0]
            if reply.is_open or reply.ticket > self.over:
                break
            self.replies.popleft()
            self.output.held_replies -= 1
            self.output.send(reply.data)
            if reply.then is not None:
                reply.then()
        self.output.owner.answered()
        return not self.replies and self.ticket <= self.over

    cdef int forget(self) except -1:
        """None is sent any more."""
        self.output.held_replies -= <uint64_t> len(self.replies)
        self.replies.clear()
        return 0
