from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from broker.kernel cimport contracts
from broker.kernel.contracts cimport Consumer, Exchange, Topology
from broker.kernel.message cimport Message
from broker.kernel.recording cimport Recorder, Recording
from broker.store.bodies.store cimport BodyStore
from broker.store.commit.persister cimport Persister
from broker.wire.confirms cimport Confirms
from broker.wire.deliveries cimport Deliveries
from broker.wire.fan_out cimport FanOut
from broker.wire.output cimport Output, OutputOwner
from broker.wire.publish_run cimport Run
from broker.wire.replies cimport Replies
from broker.wire.route_memo cimport KnownRoutes, RouteMemo
from broker.wire.upload cimport Upload


# What a channel asks of its connection, which defines all of it.
cdef class ChannelHost(OutputOwner):
    cdef KnownRoutes routes              # of publishes; None until there was one

    cpdef tuple resolve(self, channel, bytes exchange, bytes routing_key)
    cpdef special(self, channel, exchange, targets, bytes routing_key, bytes listed,
                  bint mandatory)
    cpdef check_properties(self, channel, exchange, bytes listed)
    cpdef refused(self, exchange, bytes listed)
    cpdef trace_publish(self, channel, bytes exchange, bytes routing_key, bytes listed, bytes body,
                        queues)
    cpdef trace_delivery(self, channel, bytes exchange, bytes routing_key, bytes listed, bytes body,
                         queue, bint redelivered)
    cpdef await_collected(self, channel)
    cpdef collected(self, channel)
    cpdef route_collected(self, channel)
    cpdef publish_in_slices(self, steps)
    cpdef bint may_wait(self) except -1
    cpdef settle_in_slices(self, channel, uint64_t last, int how)
    cpdef count_work(self, uint64_t more)
    cpdef has_ack_timeout(self, queue)


cdef class Channel(contracts.Channel):
    cdef readonly Output output
    cdef readonly ChannelHost connection
    cdef readonly uint16_t number
    cdef Persister persister
    cdef Topology topology
    cdef BodyStore bodies
    cdef uint32_t share_from             # bodies of this length on are shared by several queues
    # parts
    cdef readonly Replies replies
    cdef readonly Deliveries deliveries
    cdef readonly Confirms confirms      # None until confirm.select
    cdef Upload upload
    cdef RouteMemo memo
    cdef FanOut fan_out                  # a message to very many queues, to be given to them
    cdef public object gets              # None until a basic.get
    cdef public object transaction       # None until tx.select: publishes and acks are put aside
    cdef readonly object ack_timeouts    # None until a delivery could become overdue
    cdef public Recorder recorder        # of the vhost
    cdef Recording recording             # once it records
    # state
    cdef public bint traced              # what it publishes and gets goes to the firehose, too
    cdef readonly bint closing           # channel.close is sent; everything but close-ok is ignored
    cdef public str last_queue
    cdef public str reply_name           # this channel's direct reply-to queue
    cdef bytes replaced                  # properties that replace those of the message at hand
    cdef readonly uint64_t published
    cdef readonly uint64_t returned
    cdef readonly uint64_t dropped
    cdef uint64_t refused                # by a queue of the route
    cdef uint64_t unrouted               # of `published`: an error, or a commit that did not come
    cdef uint64_t published_bytes        # bodies of `published`, and so on
    cdef uint64_t returned_bytes
    cdef uint64_t dropped_bytes
    cdef uint64_t refused_bytes
    cdef uint64_t unrouted_bytes
    cdef readonly int64_t opened_at      # ms of our clock
    cdef public object gauge

    cdef int on_publish(self, const uint8_t* payload, uint32_t length) except -1
    cdef int on_body_part(self, const uint8_t* payload, uint32_t length) except -1
    cdef int content(self) except -1
    cdef int put_aside(self, Message* message, bint mandatory) except -1
    cdef int route(self, Message* message, const uint8_t* method, uint32_t length,
                   bint mandatory) except -1
    cdef uint64_t run_below(self, const uint8_t* method, uint32_t length) noexcept
    cdef int route_run(self, Run* run) except -1
    cdef Exchange target_of(self, Message* message)
    cdef object look_up(self, Message* message, const uint8_t* method, uint32_t length)
    cdef object find_route(self, uint64_t version, const uint8_t* method, uint32_t length)
    cdef KnownRoutes known_routes(self)
    cdef object inspect(self, Message* message, Exchange exchange, targets, bint mandatory)
    cdef int put_off(self, Message* message, Exchange exchange, found, bint mandatory) except -1
    cdef int publish_shared(self, Message* message, tuple targets, int* held) except -1
    cdef int unroutable(self, Message* message, Exchange exchange, bint mandatory) except -1
    cdef int count_refused(self, Message* message, Exchange exchange,
                           bint is_looked_at) except -1
    cdef Recording my_recording(self)
    cdef int trace_publish(self, Message* message, tuple targets) except -1
    cdef int trace_delivery(self, Consumer consumer, Message* message, bint redelivered) except -1
    cdef int settle(self, uint64_t tag, bint multiple, int how) except -1
    cdef bint has_nothing(self) noexcept
    cdef int settle_up_to(self, uint64_t last, int how) except -1
