# cython: language_level=3
"""Confirm on ack (x-confirm-on): the publisher's confirm waits for consumers.

A record carries its origin. The queue remembers the origins of delivered messages until each
message is settled, so that every publisher gets exactly one confirm. Lean mode remembers nothing:
the place of a delivery, in segment 0, is its origin.
"""

from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.contracts cimport NEEDS_SYNC, Origins, REJECTED
from broker.kernel.message cimport HAS_ORIGIN, Message, Origin, Place
from broker.store.log.contracts cimport FOUND, LEVELS, MessageStore
from broker.store.log.shared_refs cimport place_key


cdef void put_lean_place(Origin* origin, bint is_known, Place* place) noexcept:
    """The place of a delivery of lean mode."""
    place.segment = 0
    place.position = origin.channel if is_known else 0
    place.length = <uint32_t> origin.tag
    place.body_length = <uint32_t> (origin.tag >> 32)


cdef AckConfirms _unused = None


cdef AckConfirms unused_confirms(Origins origins):
    """What the queues have for whose consumers no publisher has waited yet: one for all of them,
    since 80 bytes of each are a tenth of an empty queue."""
    global _unused
    if _unused is None or _unused.origins is not origins:
        _unused = AckConfirms(origins)
        _unused.is_unused = True
    return _unused


cdef class AckConfirms:
    """The publishers that wait for a queue's consumers."""

    def __init__(self, Origins origins):
        self.origins = origins

    cdef bint is_ours(self, Origin* origin) noexcept:
        """An origin of an earlier start of the broker is ignored."""
        return origin.boot == self.origins.boot

    cdef bint is_awaited(self, Message* message) noexcept:
        """Whether a publisher of this start waits for the message."""
        return message.flags & HAS_ORIGIN and self.is_ours(&message.origin)

    cdef void begin(self, Message* message) noexcept:
        """The message is stored with its origin."""
        self.holds = True
        message.origin.boot = self.origins.boot
        message.flags |= HAS_ORIGIN

    cdef object oldest(self, MessageStore store):
        """When the oldest message was published (ms) that a publisher of this start waits for, of
        those that come next and the first one that was taken; None if there is none, or the disk
        would have to be asked. What lean mode has delivered is not known."""
        cdef Message message
        cdef Place place
        cdef int level
        cdef uint64_t key
        oldest = None
        if not self.holds or store is None:
            return None
        level = store.next_level(LEVELS)
        while level >= 0:
            if (store.look_at(level, &message) == FOUND and self.is_awaited(&message)
                    and (oldest is None or message.timestamp < oldest)):
                oldest = message.timestamp
            level = store.next_level(level)
        if self.taken:
            key = next(iter(self.taken))
            place.segment = <uint32_t> (key >> 32)
            place.position = <uint32_t> key
            if (store.read(&place, &message) == FOUND
                    and (oldest is None or message.timestamp < oldest)):
                oldest = message.timestamp
        return oldest

    # -- deliveries --------------------------------------------------------------------------------

    cdef int note_delivery(self, Message* message, Place* place, bint no_ack) except -1:
        """A message with an origin is delivered."""
        if no_ack:
            return self.resolve_message(message, place, True)
        return self.note_origin(message, place)

    cdef int note_origin(self, Message* message, Place* place) except -1:
        """A message is delivered and its record stays: its origin is remembered."""
        if not self.is_awaited(message):
            return 0
        self.holds = True
        if self.taken is None:
            self.taken = {}
        self.taken[place_key(place)] = (message.origin.channel, message.origin.tag)
        return 0

    cdef int forget(self, Place* place) except -1:
        """The message of this place is answered for elsewhere."""
        if self.taken is not None:
            self.taken.pop(place_key(place), None)
        return 0

    # -- answers -----------------------------------------------------------------------------------

    cdef int resolve_message(self, Message* message, Place* place, bint acked) except -1:
        """A message is settled. It may have been delivered and requeued before."""
        self.forget(place)
        if not self.is_awaited(message):
            return 0
        return self.origins.resolve(message.origin.channel, message.origin.tag, acked)

    cdef int resolve_place(self, Place* place, bint acked) except -1:
        """The delivered message of this place is settled."""
        return self.resolve_key(place_key(place), acked)

    cdef int resolve_key(self, uint64_t key, bint acked) except -1:
        if self.taken is not None:
            origin = self.taken.pop(key, None)
            if origin is not None:
                self.origins.resolve(origin[0], origin[1], acked)
        return 0

    cdef int resolve_lost(self, MessageStore store) except -1:
        """Requeued messages that the store cannot read any more."""
        lost, store.lost = store.lost, None
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

    cdef int pass_origin(self, Message* message, Place* place, int result, int parts) except -1:
        """A dead letter's origin waits for whatever the queues that took it wait for: `parts` of
        them answer later; NOWHERE, no queue has it."""
        if parts == NOWHERE:
            return self.resolve_message(message, place, False)
        if not self.is_awaited(message):
            return 0
        if result == REJECTED:
            # One part stays for the queues that still refuse it.
            return self.origins.more(message.origin.channel, message.origin.tag, parts)
        if result == NEEDS_SYNC:
            parts += 1
            self.note_origin(message, place)
        elif parts == 0:
            return self.resolve_message(message, place, True)
        else:
            # The queues that took it answer now.
            self.forget(place)
        if parts > 1:
            self.origins.more(message.origin.channel, message.origin.tag, parts - 1)
        return 0

    cdef int settle_lean(self, Place* place, bint acked) except -1:
        """A delivery of lean mode ends; its message is nowhere else."""
        self.lean_unacked -= 1
        if place.position == 0:
            return 0
        return self.origins.resolve(
            place.position, <uint64_t> place.body_length << 32 | place.length, acked)
