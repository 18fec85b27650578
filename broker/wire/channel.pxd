from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.kernel.buffer cimport Buffer
from broker.kernel.contracts cimport Exchange, Topology
from broker.kernel.message cimport Message
from broker.kernel.recording cimport Recorder, Recording
from broker.store.bodies.store cimport BodyStore
from broker.wire.collecting cimport CollectingChannel


cdef class WireChannel(CollectingChannel):
    cdef BodyStore bodies
    cdef uint32_t share_from             # bodies of this length on are shared by several queues
    cdef Topology topology
    cdef public Recorder recorder        # of the vhost
    cdef Recording recording             # once it records
    # content
    cdef const uint8_t* method           # payload of basic.publish behind class and method id
    cdef uint32_t method_length
    cdef const uint8_t* properties
    cdef uint32_t properties_length
    cdef Buffer kept                     # method, properties and body once they outlive their chunk
    cdef bint is_kept
    cdef bint body_kept
    cdef uint64_t max_message_size
    cdef public bytes replaced           # properties that `special` rewrote for the message at hand
    # route memo
    cdef Buffer memo
    cdef uint64_t memo_version
    cdef Exchange memo_exchange
    cdef tuple memo_targets
    cdef tuple memo_route                # both together, as they were looked up
    cdef uint64_t memo_since             # `published` when the memo began
    cdef dict flows                      # route -> messages that went there before
    cdef public str last_queue
    cdef public str reply_name           # this channel's direct reply-to queue
    cdef readonly uint64_t published
    cdef readonly uint64_t returned
    cdef readonly uint64_t dropped
    cdef uint64_t not_taken              # a queue of the route refused it
    cdef uint64_t astray                 # of `published`: an error, or a commit that did not come
    cdef uint64_t published_bytes        # bodies of `published`, and so on
    cdef uint64_t returned_bytes
    cdef uint64_t dropped_bytes
    cdef uint64_t not_taken_bytes
    cdef uint64_t astray_bytes
    cdef readonly int64_t opened_at      # ms of our clock
    cdef public object gauge

    cdef int on_publish(self, const uint8_t* payload, uint32_t length) except -1
    cdef int on_header(self, const uint8_t* payload, uint32_t length) except -1
    cdef int on_body(self, const uint8_t* payload, uint32_t length) except -1
    cdef int keep(self) except -1
    cdef int end_memo(self, uint64_t published) except -1
    cdef int note_flow(self, tuple route, uint64_t count) except -1
    cdef int route(self, Message* message, bint mandatory) except -1
    cdef int record(self, Message* message, Exchange exchange, tuple targets,
                    int answer) except -1
    cdef int trace_publish(self, Message* message, tuple targets) except -1
    cdef int publish_shared(self, Message* message, tuple targets, int* held) except -1
