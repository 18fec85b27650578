# cython: language_level=3
"""Confirm on ack (x-confirm-on): the publisher's confirm waits for consumers.

A record carries its origin. The queue remembers the origins of delivered messages until each
message is settled, so that every publisher gets exactly one confirm. Lean mode remembers nothing:
the place of a delivery, in segment 0, is its origin.
"""

from libc.stdint cimport uint32_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.contracts cimport Consumer, HELD, NEEDS_SYNC, REJECTED, STORED
from broker.kernel.message cimport HAS_ORIGIN, Message, Origin, Place, WAS_DELIVERED
from broker.queues.consumed cimport ConsumedQueue
from broker.store.log.queue_bodies cimport place_key
from broker.store.log.queue_store cimport FOUND, LEVELS, QueueStore

cdef enum:
    TURN_DRAINED = 4096          # messages of a purge in one turn of the loop


cdef class ConfirmingQueue(ConsumedQueue):
    """With publishers that wait for its consumers."""

    cdef bint is_ours(self, Origin* origin) noexcept:
        """An origin of an earlier start of the broker is ignored."""
        return origin.boot == self.persister.origins.boot

    @property
    def oldest_unconfirmed(self):
        """When the oldest message was published (ms) that a publisher of this start waits for, of
        those that come next and the first one that was taken; None if there is none, or the disk
        would have to be asked. What lean mode has delivered is not known."""
        cdef Message message
        cdef Place place
        cdef int level
        cdef uint64_t key
        oldest = None
        if not self.holds or self.store is None:
            return None
        level = self.store.next_level(LEVELS)
        while level >= 0:
            if (self.store.look_at(level, &message) == FOUND
                    and message.flags & HAS_ORIGIN and self.is_ours(&message.origin)
                    and (oldest is None or message.timestamp < oldest)):
                oldest = message.timestamp
            level = self.store.next_level(level)
        if self.taken:
            key = next(iter(self.taken))
            place.segment = <uint32_t> (key >> 32)
            place.position = <uint32_t> key
            if (self.store.read(&place, &message) == FOUND
                    and (oldest is None or message.timestamp < oldest)):
                oldest = message.timestamp
        return oldest

    cdef int note_delivery(self, Message* message, Place* place, bint no_ack) except -1:
        """A message with an origin is delivered."""
        if no_ack:
            return self.resolve_message(message, place, True)
        return self.note_origin(message, place)

    cdef int note_origin(self, Message* message, Place* place) except -1:
        """A message is delivered and its record stays: its origin is remembered."""
        if not message.flags & HAS_ORIGIN or not self.is_ours(&message.origin):
            return 0
        self.holds = True
        if self.taken is None:
            self.taken = {}
        self.taken[place_key(place)] = (message.origin.channel, message.origin.tag)
        return 0

    cdef int resolve_message(self, Message* message, Place* place, bint acked) except -1:
        """A message is settled. It may have been delivered and requeued before."""
        if self.taken is not None:
            self.taken.pop(place_key(place), None)
        if not message.flags & HAS_ORIGIN or not self.is_ours(&message.origin):
            return 0
        return self.persister.origins.resolve(message.origin.channel, message.origin.tag, acked)

    cdef int resolve_place(self, Place* place, bint acked) except -1:
        """The delivered message of this place is settled."""
        return self.resolve_key(place_key(place), acked)

    cdef int resolve_key(self, uint64_t key, bint acked) except -1:
        if self.taken is not None:
            origin = self.taken.pop(key, None)
            if origin is not None:
                self.persister.origins.resolve(origin[0], origin[1], acked)
        return 0

    cdef int resolve_lost(self) except -1:
        """Requeued messages that the store cannot read any more."""
        lost, self.store.lost = self.store.lost, None
        for key in lost:
            self.resolve_key(key, False)
        return 0

    cdef int refuse_taken(self) except -1:
        """The queue is deleted: publishers that still wait get a negative confirm."""
        if self.taken is not None:
            for key in list(self.taken):
                self.resolve_key(key, False)
            self.taken = None
        return 0

    cdef int pass_origin(self, Message* message, Place* place, int result) except -1:
        """A dead letter's origin waits for whatever the queues that took it wait for."""
        cdef int parts = self.held_letters
        if parts == NOWHERE:
            return self.resolve_message(message, place, False)
        if not message.flags & HAS_ORIGIN or not self.is_ours(&message.origin):
            return 0
        if result == REJECTED:
            # One part stays for the queues that still refuse it.
            return self.persister.origins.more(message.origin.channel, message.origin.tag, parts)
        if result == NEEDS_SYNC:
            parts += 1
            self.note_origin(message, place)
        elif parts == 0:
            return self.resolve_message(message, place, True)
        elif self.taken is not None:
            # The queues that took it answer now.
            self.taken.pop(place_key(place), None)
        if parts > 1:
            self.persister.origins.more(message.origin.channel, message.origin.tag, parts - 1)
        return 0

    cdef bint drain(self) except -1:
        """Removes the ready messages before the mark of a purge, with a negative confirm for each.
        False while some must be read from disk first or are left for the next turn."""
        cdef QueueStore store = self.store
        cdef Message message
        cdef Place place
        cdef uint32_t count = 0
        cdef int level
        level = store.next_level(LEVELS)
        while level >= 0:
            while store.next_level(level + 1) == level:
                if store.peek_at(level, &message, &place) != FOUND:
                    return False
                if store.is_behind(&place, self.drain_to):
                    break
                if count == TURN_DRAINED:
                    self.turn.touch_queue(self)
                    return False
                count += 1
                self.resolve_message(&message, &place, False)
                store.advance(&place)
                store.settle(&place)
            level = store.next_level(level)
        self.drain_to = 0
        if self.deleted:
            self.refuse_taken()
            store.delete()
        return True

    # -- lean mode ---------------------------------------------------------------------------------

    cdef int lean_place(self, Origin* origin, bint is_known, Place* place) noexcept:
        place.segment = 0
        place.position = origin.channel if is_known else 0
        place.length = <uint32_t> origin.tag
        place.body_length = <uint32_t> (origin.tag >> 32)
        return 0

    cdef int deliver_unstored(self, Message* message, bint confirm) except -2:
        """Lean mode with no ready message: delivers directly to a consumer. Returns what publish
        returns, or -1 if no consumer can take it."""
        cdef Consumer consumer = self.next_consumer()
        cdef Place place
        if consumer is None:
            return -1
        self.lean_place(&message.origin, confirm, &place)
        place.redelivered = (message.flags & WAS_DELIVERED) != 0
        consumer.channel.deliver(consumer, message, &place)
        self.published += 1
        self.confirmed += confirm
        self.bytes_in += message.body_length
        self.bytes_out += message.body_length
        self.note_latency(message.timestamp, 1)
        if consumer.no_ack:
            self.delivered_no_ack += 1
            self.no_ack_bytes += message.body_length
            return STORED
        if clock.now_ms > self.held_at:
            self.note_held(self.now())
        self.delivered += 1
        self.lean_unacked += 1
        return HELD if confirm else STORED

    cdef int deliver_lean(self, Consumer consumer, Message* message, Place* place) except -1:
        """Lean mode: a message that had to wait leaves the store with its delivery."""
        cdef Place lean
        cdef bint is_known = message.flags & HAS_ORIGIN and self.is_ours(&message.origin)
        self.lean_place(&message.origin, is_known, &lean)
        lean.redelivered = place.redelivered
        consumer.channel.deliver(consumer, message, &lean)
        if place.redelivered:
            self.redelivered += 1
            self.redelivered_bytes += message.body_length
        else:
            self.note_latency(message.timestamp, 1)
        if consumer.no_ack:
            self.delivered_no_ack += 1
            self.resolve_message(message, place, True)
        else:
            self.delivered += 1
            self.lean_unacked += 1
            if self.taken is not None:
                # It was taken while the queue's mode was another one.
                self.taken.pop(place_key(place), None)
        self.store.advance(place)
        return self.store.settle(place)

    cdef int settle_lean(self, Place* place, bint acked) except -1:
        """A delivery of lean mode ends; its message is nowhere else, and the bytes of its body are
        not known any more."""
        if clock.now_ms > self.held_at:
            self.note_held(self.now())
        self.lean_unacked -= 1
        if acked:
            self.acked += 1
        else:
            self.rejected += 1
        if place.position == 0:
            return 0
        return self.persister.origins.resolve(
            place.position, <uint64_t> place.body_length << 32 | place.length, acked)
