from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.contracts cimport Consumer, Queue
from broker.kernel.message cimport Message, Origin, Place
from broker.kernel.turn cimport Turn
from broker.queues.dying cimport Dying
from broker.queues.limits cimport Limits
from broker.store.bodies cimport BodyStore
from broker.store.persister cimport Persister
from broker.store.queue_store cimport QueueStore


cdef class ClassicQueue(Queue):
    cdef readonly str name
    cdef readonly str vhost_name
    cdef readonly bint exclusive
    cdef readonly bint auto_delete
    cdef object _arguments
    cdef readonly uint64_t incarnation
    cdef public object owner
    cdef public object unused            # called when an auto-delete queue's last consumer has left
    cdef public object policy            # the policies it is under (`broker.policies`), or None
    cdef readonly bint deleted
    cdef uint32_t features               # zero: the fast path
    cdef readonly Limits limits          # None without any
    cdef public object later             # later(seconds, callback) -> timer with .cancel()
    cdef object expiry_timer
    cdef int64_t expiry_at               # deadline that the timer waits for, ms of our clock
    cdef public int64_t used_at          # last cancel, get or declare, ms of our clock
    cdef readonly uint64_t expired
    cdef readonly uint64_t dropped
    cdef object _duplicates              # remembered message ids (a feature), or None
    cdef public object dead_letter       # (queue, reason, exchange, routing key, properties) -> ...
    cdef Dying dying                     # None until the first one dies
    cdef list refusing                   # queues that still have to take the oldest dead letter
    cdef int buried_result               # of the queues that took it before
    cdef int held_letters                # queues that answer for the last letter later
    cdef bint holds                      # an origin was stored or handed out
    cdef dict taken                      # place -> (channel, tag) of what was taken
    cdef readonly uint64_t lean_unacked  # deliveries of lean mode
    cdef uint64_t drain_to               # place behind the last message of a purge; 0 = none
    cdef readonly uint64_t dead_lettered
    cdef bytes shown                     # properties of the delivery at hand, where they changed
    cdef Turn turn
    cdef Persister persister
    cdef public BodyStore bodies         # of the vhost; None: every body is embedded
    cdef str parent
    cdef readonly QueueStore store
    cdef uint32_t next_segment     # the number to go on with when there is no store
    cdef list _consumers                 # highest priority first; equals in the order they came
    cdef list expected                   # consumers whose clients are not told yet, or None
    cdef list getters
    cdef double idle_since
    cdef uint64_t moved
    cdef readonly uint64_t published
    cdef readonly uint64_t confirmed
    cdef readonly uint64_t delivered
    cdef readonly uint64_t delivered_no_ack
    cdef readonly uint64_t got
    cdef readonly uint64_t got_no_ack
    cdef readonly uint64_t got_empty
    cdef readonly uint64_t acked
    cdef readonly uint64_t redelivered
    cdef readonly uint64_t rejected
    cdef readonly uint64_t bytes_in
    cdef readonly uint64_t bytes_out
    cdef public object gauge             # what stats.py keeps for a queue with traffic

    cdef bint is_served(self) noexcept
    cdef Consumer next_consumer(self)
    cdef int hand_turn_on(self, Py_ssize_t at) except -1
    cdef int serve_getters(self) except -1
    cdef int hand_over(self, getter, Message* message, Place* place) except -1
    cdef bint is_full(self, Message* message) noexcept
    cdef int make_room(self, Message* message) except -1
    cdef int drop_heads(self) except -1
    cdef int shed(self) except -1
    cdef bint is_expired(self, Message* message) noexcept
    cdef int expire(self) except -1
    cdef int expire_at_once(self, Message* message) except -1
    cdef int drop(self, Place* place, int reason) except -1
    cdef bint is_choked(self) noexcept
    cdef bint may_drop(self) except -1
    cdef int bury(self) except -1
    cdef int bury_unstored(self, Message* message, int reason) except -1
    cdef int bury_message(self, Message* message, int reason) except -1
    cdef bint is_ours(self, Origin* origin) noexcept
    cdef int note_delivery(self, Message* message, Place* place, bint no_ack) except -1
    cdef int resolve_place(self, Place* place, bint acked) except -1
    cdef int pass_origin(self, Message* message, Place* place, int result) except -1
    cdef int lean_place(self, Origin* origin, bint is_known, Place* place) noexcept
    cdef int deliver_unstored(self, Message* message, bint confirm) except -2
    cdef int deliver_lean(self, Consumer consumer, Message* message, Place* place) except -1
    cdef int settle_lean(self, Place* place, bint acked) except -1
    cdef bint drain(self) except -1
    cdef int show_returns(self, Message* message, Place* place) except -1
    cdef int64_t expire_level(self, int level) except -1
    cdef int64_t message_ttl(self) noexcept
