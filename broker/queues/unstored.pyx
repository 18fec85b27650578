# cython: language_level=3
"""Messages of a queue that were never stored, and whose dead letters wait in memory to go to very
many queues: a full queue refused them, and their publishers know it."""

import logging
from collections import deque

from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.message cimport Message
from broker.kernel.turn cimport Turn
from broker.queues.declared cimport DeclaredQueue
from broker.store.bodies.wide_message cimport WideMessage

log = logging.getLogger("leveret.queue")

cdef enum:
    KEPT_BYTES = 512             # of each, beside its own


cdef class Unstored:
    """At most `most` of one queue; those of all queues take `bytes_most` together, but one may
    always wait."""

    def __init__(self, Turn turn, uint32_t most, uint64_t bytes_most):
        self.turn = turn
        self.most = most
        self.bytes_most = bytes_most
        self.waiting = deque()

    cdef bint are_any(self) noexcept:
        return len(self.waiting) > 0

    cdef bint add(self, DeclaredQueue queue, Message* message, int reason) except -1:
        """Copies a message. Whether there was room; the log says once that there was none."""
        cdef uint64_t size = KEPT_BYTES + message.properties_length
        cdef WideMessage kept
        if message.body != NULL:
            size += message.body_length
        if len(self.waiting) >= self.most or (
                self.turn.kept_bytes and self.turn.kept_bytes + size > self.bytes_most):
            if not self.is_told:
                self.is_told = True
                log.warning("queue '%s' in vhost '%s' gives up dead letters of messages that it "
                            "refuses: too many wait for very many queues to get them",
                            queue.name, queue.vhost_name)
            return False
        kept = WideMessage()
        kept.keep(message)
        kept.hold(queue.bodies)
        self.waiting.append((kept, reason, size))
        self.turn.kept_bytes += size
        return True

    cdef WideMessage first(self):
        return <WideMessage> self.waiting[0][0]

    cdef int reason(self) except -1:
        """Why the first one died."""
        return self.waiting[0][1]

    cdef int drop_first(self) except -1:
        """Its dead letter is where it is to be, or nowhere."""
        cdef WideMessage kept
        kept, _, size = self.waiting.popleft()
        self.turn.kept_bytes -= <uint64_t> size
        if not self.waiting:
            self.is_told = False
        return kept.end()
