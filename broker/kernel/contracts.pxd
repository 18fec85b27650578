from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.kernel.message cimport Message, Place
from broker.kernel.turn cimport Task


cdef class Topology:
    cdef public uint64_t version


cdef class Origins:
    cdef public uint32_t boot      # number of this start of the broker
    cdef readonly dict confirmers  # serial -> Confirmer
    cdef uint32_t last

    cdef int resolve(self, uint32_t serial, uint64_t tag, bint acked) except -1
    cdef int more(self, uint32_t serial, uint64_t tag, int parts) except -1


cdef class Confirmer:
    cdef bint confirming           # listed with the persister for the round being gathered
    cdef uint64_t wanted           # highest publish sequence number that waits for a round
    cdef uint64_t flying           # highest one that the round in flight covers

    cdef int confirm(self) except -1
    cdef int write_confirm(self) except -1
    cdef int resolve(self, uint64_t tag, bint acked) except -1
    cdef int more_parts(self, uint64_t tag, int parts) except -1


# What Queue.publish tells the channel.
cpdef enum:
    STORED = 0
    NEEDS_SYNC = 1
    REJECTED = 2
    HELD = 4                       # the queue resolves the message's origin later


cdef class Queue(Task):
    cdef readonly bint durable
    cdef bint shares               # takes references to shared bodies

    cdef int receive(self, Message* message, bint confirm) except -1
    cdef int publish(self, Message* message, bint confirm) except -1
    cdef bint takes_runs(self) noexcept
    cdef int publish_run(self, Message* messages, uint32_t count, bint confirm) except -1
    cdef bint is_deleted(self) noexcept
    cdef int settle(self, Place* place, bint acked) except -1
    cdef int ack_run(self, Place* places, uint32_t count) except -1
    cdef int requeue(self, Place* place) except -1
    cdef int touch(self) except -1
    cpdef int deliver_pending(self) except -1


cdef class Exchange:
    cdef readonly str name
    cdef readonly bint durable
    cdef readonly bint auto_delete
    cdef readonly bint internal
    cdef readonly dict arguments
    cdef public uint64_t publish_in
    cdef public uint64_t publish_out
    cdef public uint64_t bytes_in        # bodies of `publish_in`, and so on
    cdef public uint64_t bytes_out
    cdef public uint64_t returned        # without a queue to go to
    cdef public uint64_t bytes_returned
    cdef public uint64_t dropped
    cdef public uint64_t bytes_dropped
    cdef public uint64_t refused         # by a queue that was full
    cdef public uint64_t bytes_refused
    cdef public object gauge
    cdef dict __dict__


cdef class Channel:
    cdef bint can_take(self, Consumer consumer) noexcept
    cdef int deliver(self, Consumer consumer, Message* message, Place* place) except -1
    cdef int deliver_run(self, Consumer consumer, Message* messages, Place* places,
                         uint32_t count) except -1


cdef class Consumer:
    cdef readonly Queue queue
    cdef readonly Channel channel
    cdef readonly str tag
    cdef bytes wire_tag            # short string: length byte and tag
    cdef readonly bint no_ack
    cdef readonly bint exclusive
    cdef readonly bint active      # False for a get and after cancel
    cdef readonly uint32_t prefetch_count
    cdef readonly uint32_t unacked
    cdef readonly int64_t priority
    cdef uint32_t next_turn        # the first of equals: how far behind it the next turn is
    cdef bint waits                # for room under the limit of its channel
    cdef object _arguments
    cdef public uint64_t delivered
    cdef public uint64_t acked
