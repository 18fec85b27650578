from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.kernel.contracts cimport Consumer
from broker.kernel.message cimport Message, Place
from broker.queues.ack_confirms cimport AckConfirms
from broker.queues.consumers cimport Consumers
from broker.queues.counters cimport DeliveryCounters
from broker.queues.dead_letters cimport DeadLetters
from broker.queues.declared cimport DeclaredQueue
from broker.queues.limits cimport Expiry, Limits
from broker.queues.refusals cimport Refusals
from broker.store.commit.persister cimport Persister
from broker.store.log.contracts cimport MessageStore
from broker.store.log.figures cimport Head


cdef class ClassicQueue(DeclaredQueue):
    cdef uint32_t features               # zero: the fast path
    cdef readonly MessageStore store       # None while there is nothing in it
    cdef readonly Consumers consumers    # see `own_consumers`
    cdef readonly DeliveryCounters deliveries  # see `count_deliveries`
    cdef AckConfirms confirms            # see `own_confirms`
    cdef DeadLetters dead_letters        # None until a message dies
    cdef readonly Limits limits          # None without any
    cdef Expiry expiry                   # None until a message may expire
    cdef readonly Refusals refusals      # None until a publish was refused
    cdef object _duplicates              # remembered message ids (a feature), or None
    cdef object getters                  # in the order they asked; None without any
    cdef uint32_t held_back              # long operations that requeue messages in slices
    cdef uint64_t drain_to               # place behind the last message of a purge; 0 = none
    cdef bytes shown                     # properties of the delivery at hand, where they changed
    cdef Persister persister
    cdef str parent
    cdef bint had_store                  # it may have left a directory
    cdef uint32_t next_segment           # number of the next segment while there is no store
    cdef double idle_since
    cdef uint64_t moved
    cdef Head head                       # None until its first message is read

    cdef bint is_full(self, Message* message) noexcept
    cdef int make_room(self, Message* message) except -1
    cdef int drop_heads(self) except -1
    cdef int shed(self) except -1
    cdef bint may_pass_on(self) noexcept
    cdef bint expires_unstored(self, Message* message, bint confirm) noexcept
    cdef int expire_at_once(self, Message* message) except -1
    cdef int deliver_unstored(self, Message* message, bint confirm) except -2
    cdef bint is_served(self) noexcept
    cdef bint serve_consumers(self) except -1
    cdef bint deliver_run(self, Consumer consumer, uint32_t* count, uint64_t* size) except -1
    cdef int examine(self, MessageStore store, Message* message, Place* place) except -1
    cdef int note_turn(self, uint32_t count) except -1
    cdef int deliver_lean(self, Consumer consumer, Message* message, Place* place) except -1
    cdef int note_taken(self, Message* message, Place* place, who, int event) except -1
    cdef int show_returns(self, Message* message, Place* place) except -1
    cdef int count_deliveries(self) except -1
    cdef int own_consumers(self) except -1
    cdef int own_confirms(self) except -1
    cdef int serve_getters(self) except -1
    cdef tuple told(self, Message* message, Place* place)
    cdef int settle_lean(self, Place* place, bint acked) except -1
    cdef int drop(self, Message* message, Place* place, int reason) except -1
    cdef DeadLetters letters(self)
    cdef bint is_choked(self) noexcept
    cdef bint may_drop(self) except -1
    cdef int64_t message_ttl(self) noexcept
    cdef bint is_expired(self, Message* message) noexcept
    cdef bint expires_next(self, Message* message) noexcept
    cdef int expire(self) except -1
    cdef int64_t expire_level(self, int level) except -1
    cdef bint drain(self) except -1
    cdef int set_limits(self, effective) except -1
    cdef int persistent_share(self) noexcept
    cdef object among_resident(self, uint64_t figure)
