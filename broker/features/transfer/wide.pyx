# cython: language_level=3
"""A message that a transfer hands over to very many queues.

First they are found, and each is asked whether it has room, while the message stays where it is.
Then it is given to them. Those that have no room any more by then get it later, they alone.
"""

from libc.stdint cimport uint32_t

from broker.features.transfer.taking cimport has_room, receive_returned
from broker.kernel cimport clock
from broker.kernel.contracts cimport Queue, REJECTED, STORED
from broker.kernel.message cimport BODY_IS_REFERENCE, Message, WAS_DELIVERED
from broker.kernel.reached cimport Reached
from broker.queues.classic cimport ClassicQueue
from broker.store.bodies.wide_message cimport WideMessage
from broker.store.bodies.store cimport BodyStore

from broker.kernel.steps import first_step

# Each may have to be read from memory, or makes its store first if its length is limited.
cdef enum:
    ASKED_A_STEP = 64


cdef class WideTransfer(WideMessage):
    """`source` is None for a message of a stream."""

    cdef int ask_for(self, Message* letter, ClassicQueue source, found) except -1:
        """Copies the letter, which these queues get, or those that these steps find."""
        self.source = source
        self.timestamp = letter.timestamp
        self.keep(letter)
        return self.note(found)

    cdef bint ask(self) except -1:
        """Finds further queues, or asks the next ones. Whether all are asked; `refusal` if one has
        no room."""
        cdef Queue queue
        cdef Py_ssize_t until
        if self.steps is not None:
            self.note(first_step(self.steps))
            return False
        until = min(self.asked + ASKED_A_STEP, self.count)
        while self.asked < until:
            queue = self.queue_at(self.asked)
            self.asked += 1
            if queue.is_deleted():
                continue
            if not queue.shares:
                self.needs_body = True
            if not self.asks_for_room(queue):
                return False
        return self.asked == self.count

    cdef bint asks_for_room(self, Queue queue) except -1:
        """Whether the queue would take it; if not, `refusal` says so."""
        if not isinstance(queue, ClassicQueue) or has_room(
                <ClassicQueue> queue, &self.message, queue is not self.source):
            return True
        self.refusal = f"queue '{queue.name}' is full and refuses more messages"
        return False

    cdef int begin(self, Message* message, BodyStore bodies, uint32_t returns) except -1:
        """All have room. `bodies` are those of their vhost, `message` is that of the source, which
        came back so often."""
        self.flags = message.flags
        self.message.flags |= message.flags & WAS_DELIVERED
        self.returns = returns
        self.has_begun = True
        if self.message.flags & BODY_IS_REFERENCE:
            # A consumer may settle the message while it is being copied.
            self.hold(bodies)
        elif bodies is not None and (self.message.body_length >= bodies.embed_below
                                     or self.message.large != NULL):
            self.share(bodies)
        return 0

    cdef bint go_further(self, bint has_origin) except -1:
        """Gives it to the next ones; `held` are those of these that answer later. Whether all were
        offered it."""
        self.held = 0
        return self.give(has_origin)

    cdef bint is_refused(self) except -1:
        """When all were offered it: whether some did not take it, which then are the only ones that
        are still to get it."""
        if self.refused is None:
            return False
        if self.is_kept and self.all_of_them is None:
            self.all_of_them = self.queues()
        self.targets, self.reached, self.refused = None, self.refused, None
        self.count, self.at = self.reached.count, 0
        return True

    cdef int offer(self, Queue queue, bint confirm) except -1:
        cdef bint is_classic = isinstance(queue, ClassicQueue)
        cdef int answer = REJECTED
        # It is not offered to a full one, which might dead-letter what it refuses.
        if self.asks_for_room(queue):
            # A stream and a delaying exchange go by the time at which they get a message.
            self.message.timestamp = self.timestamp if is_classic else clock.now_ms
            if is_classic and self.returns:
                answer = receive_returned(
                    <ClassicQueue> queue, &self.message, self.returns, confirm)
            else:
                answer = queue.receive(&self.message, confirm)
            if answer == REJECTED:
                self.refusal = f"queue '{getattr(queue, 'name', '')}' refused the message"
        if answer == REJECTED:
            if self.refused is None:
                self.refused = Reached()
            self.refused.add(queue)
            return STORED
        self.is_given = True
        return answer

    cdef tuple queues(self):
        return self.all_of_them if self.all_of_them is not None else WideMessage.queues(self)
