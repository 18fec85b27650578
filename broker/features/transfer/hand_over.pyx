# cython: language_level=3
"""Hands single messages of a source over, to one queue or to many.

One for very many queues is given to them in several slices: its source looks at no other meanwhile.
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from broker.features.transfer.taking cimport has_room, receive_returned
from broker.features.transfer.wide cimport WideTransfer
from broker.kernel cimport clock
from broker.kernel.buffer cimport load16
from broker.kernel.contracts cimport HELD, NEEDS_SYNC, Queue, REJECTED, STORED
from broker.kernel.large_body cimport body_of, set_body
from broker.kernel.message cimport (
    BODY_IS_REFERENCE, EXPIRES, Message, PERSISTENT, WAS_DELIVERED, set_parts,
)
from broker.kernel.reached cimport is_wide
from broker.queues.classic cimport ClassicQueue
from broker.store.bodies.store cimport BodyStore
from broker.store.files.body_record cimport REFERENCE_BYTES
from broker.store.log.contracts cimport FOUND, WAIT

cdef enum:
    LET_GO_A_STEP = 4096         # queues of a message that is over


cdef class HandOver:
    """Gives messages to the queues that `route(routing key, properties)` names, as (queues,
    exchange or None for that of the message), or (no queues, the reason). `refusal` says why one
    was not taken. `same_bodies`: a shared body can be referred to where the message goes, `bodies`
    are those of its vhost. `allowed` is for those who take messages out of a source: they ask it
    first."""

    def __init__(self, route, bint same_bodies, uint64_t handed=0, uint64_t handed_bytes=0,
                 BodyStore bodies=None):
        self.route = route
        self.same_bodies = same_bodies
        self.bodies = bodies
        self.handed = handed
        self.handed_bytes = handed_bytes
        self.allowed = UINT64_MAX

    def give_row(self, bytes exchange, bytes routing_key, bytes properties, body,
                 int64_t timestamp, bint persistent, bint doubtful) -> int:
        """Hands a message of a stream over. 0 if it was, FULL or UNROUTED if not; PART if it goes
        to very many queues (`give_more_rows`)."""
        cdef Message message
        cdef int refused
        set_parts(&message, exchange, routing_key, properties, b"")
        set_body(&message, body)
        message.flags = PERSISTENT if persistent else 0
        if load16(message.properties) >> 8 & 1:
            message.flags |= EXPIRES
        if doubtful:
            message.flags |= WAS_DELIVERED
        message.timestamp = timestamp
        clock.refresh()
        refused = self.ask(None, &message)
        if refused or self.give(&message, 0, False) == FULL:
            return refused or FULL
        return 0

    cdef int ask(self, ClassicQueue source, Message* message) except -1:
        """Before a message is taken (`source` is None for one of a stream): finds its queues and
        its body. 0 if each of them would take it, else FULL, UNROUTED, READING or LOST. PART if
        these are very many: the caller asks again for the same message, and if `wide` is there then
        it gives it with `begin_giving`."""
        cdef Queue target
        cdef int found
        cdef bint by_reference = message.flags & BODY_IS_REFERENCE and self.same_bodies
        if self.wide is not None:
            return self.ask_more(source, message)
        self.targets, told = self.route(
            message.routing_key[:message.routing_key_length],
            message.properties[:message.properties_length])
        if is_wide(self.targets):
            ways, self.targets = self.targets, ()
            return self.begin_asking(source, message, ways, told)
        if not self.targets:
            self.refusal = told
            return UNROUTED
        self.exchange = message.exchange[:message.exchange_length] if told is None else told
        for target in self.targets:
            if not target.shares:
                by_reference = False
            if isinstance(target, ClassicQueue) and not has_room(
                    <ClassicQueue> target, message, target is not source):
                self.refusal = f"queue '{target.name}' is full and refuses more messages"
                return FULL
        self.body = None
        if by_reference:
            return 0
        found = self.find_body(source, message)
        if found == 0:
            self.body = body_of(message)
        return found

    cdef int find_body(self, ClassicQueue source, Message* message) except -1:
        """0 if it is there, READING or LOST."""
        cdef int found
        if message.body != NULL:
            return 0
        found = source.store.find_body(message)
        return 0 if found == FOUND else READING if found == WAIT else LOST

    cdef int give(self, Message* message, uint32_t returns, bint has_origin) except -1:
        """Publishes what was `ask`ed for: STORED or NEEDS_SYNC, or FULL if a queue refuses it after
        all (`is_given`: others have it)."""
        cdef Message letter
        cdef bytes reference
        cdef bytes routing_key = message.routing_key[:message.routing_key_length]
        cdef bytes properties = message.properties[:message.properties_length]
        cdef Queue target
        cdef int result = STORED
        cdef int answer
        self.held = 0
        self.is_given = False
        # A target may be the source, or dead-letter to it: its buffers move when it stores one.
        set_parts(&letter, self.exchange, routing_key, properties, b"")
        if self.body is not None:
            set_body(&letter, self.body)
        letter.flags = message.flags & (PERSISTENT | EXPIRES | WAS_DELIVERED)
        if self.body is None:
            letter.flags |= BODY_IS_REFERENCE
            letter.body = NULL
            letter.body_length = message.body_length
            reference = message.reference[:REFERENCE_BYTES]
            letter.reference = <const uint8_t*> <char*> reference
        letter.origin = message.origin
        timestamp = message.timestamp
        for target in self.targets:
            # A stream and a delaying exchange go by the time at which they get a message.
            is_classic = isinstance(target, ClassicQueue)
            letter.timestamp = timestamp if is_classic else clock.now_ms
            if is_classic and returns:
                answer = receive_returned(<ClassicQueue> target, &letter, returns, has_origin)
            else:
                answer = target.receive(&letter, has_origin)
            if answer == REJECTED:
                self.refusal = f"queue '{getattr(target, 'name', '')}' refused the message"
                return FULL
            self.is_given = True
            result |= answer & NEEDS_SYNC
            self.held += answer == HELD
        self.handed += 1
        self.handed_bytes += letter.body_length
        return result

    # -- to very many queues -----------------------------------------------------------------------

    @property
    def is_wide(self):
        """Whether the message at hand goes to very many queues."""
        return self.wide is not None

    @property
    def is_halfway(self):
        """Whether some of very many queues have the message at hand, and others not."""
        return self.wide is not None and self.wide.is_given

    cdef int begin_asking(self, ClassicQueue source, Message* message, found,
                          bytes exchange) except -1:
        """As `ask`, for these queues or those that these steps find."""
        cdef Message letter = message[0]
        cdef int result
        cdef WideTransfer wide
        if exchange is not None:
            letter.exchange = <const uint8_t*> <char*> exchange
            letter.exchange_length = <uint8_t> len(exchange)
        letter.flags = message.flags & (PERSISTENT | EXPIRES | WAS_DELIVERED)
        if message.flags & BODY_IS_REFERENCE and self.same_bodies:
            letter.flags |= BODY_IS_REFERENCE
            letter.body = NULL
            letter.large = NULL
        else:
            result = self.find_body(source, message)
            if result:
                return result
            letter.body, letter.large = message.body, message.large
        wide = WideTransfer()
        wide.ask_for(&letter, source, found)
        self.wide = wide
        return PART

    cdef int ask_more(self, ClassicQueue source, Message* message) except -1:
        """As `ask`, for the next of very many; only a body that is a reference may still be needed
        of `message`."""
        cdef WideTransfer wide = self.wide
        cdef int found
        if self.gone is not None and not self.gone.let_some_go(LET_GO_A_STEP):
            self.gone = None
        if wide.ask():
            if wide.count and wide.needs_body and wide.body is None:
                found = self.find_body(source, message)
                if found:
                    return found
                wide.body = body_of(message)
                set_body(&wide.message, wide.body)
            if wide.count:
                return 0
            self.refusal = self.route.nowhere(wide.routing_key)
            self.forget()
            return UNROUTED
        if wide.refusal is None:
            return PART
        self.refusal = wide.refusal
        self.forget()
        return FULL

    cdef int begin_giving(self, Message* message, uint32_t returns) except -1:
        """All have room for the message, which came back so often in its source."""
        self.wide.is_kept = self.is_kept
        return self.wide.begin(message, self.bodies, returns)

    cdef int give_more(self, bint has_origin) except -1:
        """As `give`, for the next of very many; also PART, and UNROUTED if all were deleted
        meanwhile. FULL: those that have it do not get it again."""
        cdef WideTransfer wide = self.wide
        cdef bint is_over = wide.go_further(has_origin)
        self.held = wide.held
        self.is_given = wide.is_given
        if not is_over:
            return PART
        if wide.is_refused():
            self.refusal = wide.refusal
            return FULL
        if not wide.is_given:
            self.refusal = self.route.nowhere(wide.routing_key)
            return UNROUTED
        self.handed += 1
        self.handed_bytes += wide.message.body_length
        self.targets = wide.queues()
        self.exchange = wide.exchange
        return wide.result & NEEDS_SYNC

    def give_more_rows(self, int64_t nanoseconds) -> int:
        """Gives a message of a stream to further queues for a time: as `give_row`."""
        cdef int64_t until = clock.monotonic_ns() + nanoseconds
        cdef Message message
        cdef int result = PART
        memset(&message, 0, sizeof(Message))
        clock.refresh()
        while result == PART and clock.monotonic_ns() < until:
            if self.wide.has_begun:
                result = self.give_more(False)
            else:
                result = self.ask_more(None, NULL)
                if result == 0:
                    self.begin_giving(&message, 0)
                    result = PART
        if result == PART or result == FULL:
            return result
        self.forget()
        return result if result == UNROUTED else 0

    cpdef int forget(self) except -1:
        """No further queue gets the message at hand."""
        wide, self.wide = self.wide, None
        if wide is not None:
            if (<WideTransfer> wide).reached is not None:
                # All at once would take a long turn.
                self.gone = (<WideTransfer> wide).reached
            (<WideTransfer> wide).end()
        return 0
