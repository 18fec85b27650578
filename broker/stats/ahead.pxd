"""Objects of a long list are fetched into the processor's cache before they are read: they lie all
over the memory, and waiting for them is most of the work of a loop over 10,000 queues."""

from cpython.object cimport Py_TYPE, PyObject, PyTypeObject

from broker.kernel.fetching cimport fetch_line
from broker.queues.classic cimport ClassicQueue
from broker.queues.counters cimport DeliveryCounters, QueueCounters
from broker.store.log.contracts cimport MessageStore
from broker.store.log.queue_store cimport QueueStore
from broker.store.log.segments cimport Segments
from broker.wire.frame_parser cimport FrameParser

cdef extern from *:
    """
    #define LINE 64
    static inline void fetch(PyObject *thing, Py_ssize_t size) {
        const char *at = (const char *) thing;
        const char *end = at + size;
        for (; at < end; at += LINE) __builtin_prefetch(at);
    }
    """
    void fetch(PyObject *thing, Py_ssize_t size) noexcept nogil

cdef enum:
    PAIRED = 256                 # octets of the second of a pair that are fetched
    AHEAD = 3                    # objects between two steps of `look_ahead`


cdef inline void fetch_parts(ClassicQueue queue) noexcept:
    """What a row is read from, besides the queue and its store."""
    fetch(<PyObject*> queue.deliveries, (<PyTypeObject*> DeliveryCounters).tp_basicsize)
    fetch(<PyObject*> queue.counts, (<PyTypeObject*> QueueCounters).tp_basicsize)
    fetch_line(<PyObject*> queue.consumers)
    fetch_line(<PyObject*> queue.confirms)


cdef inline void look_ahead_at_rest(list connections, Py_ssize_t place) noexcept:
    """The same for connections, most of which are at rest: a few octets tell."""
    cdef FrameParser connection
    if place + 4 * AHEAD >= len(connections):
        return
    connection = <FrameParser> connections[place + 4 * AHEAD]
    fetch_line(&connection.stirs)
    fetch_line(&connection.phase)
    fetch_line(&connection.channel_count)
    # Its vhost, the last attribute.
    fetch_line(<char*> <PyObject*> connection + Py_TYPE(connection).tp_basicsize - sizeof(void*))


cdef inline void look_ahead(list things, Py_ssize_t place) noexcept:
    """Called before `things[place]` is read. A queue that comes later is fetched first, then its
    parts and the store it points to, then the segments of that, then what these point to."""
    cdef MessageStore store
    cdef Segments segments
    if place + 4 * AHEAD >= len(things):
        return
    fetch(<PyObject*> things[place + 4 * AHEAD], Py_TYPE(things[place]).tp_basicsize)
    thing = things[place + 3 * AHEAD]
    if isinstance(thing, tuple) and len(<tuple> thing) == 2:
        # An exchange or a binding, with its vhost.
        fetch(<PyObject*> (<tuple> thing)[1], PAIRED)
    if isinstance(thing, ClassicQueue):
        fetch_parts(<ClassicQueue> thing)
        fetch(<PyObject*> (<ClassicQueue> thing).store, (<PyTypeObject*> QueueStore).tp_basicsize)
    thing = things[place + 2 * AHEAD]
    if isinstance(thing, ClassicQueue):
        store = (<ClassicQueue> thing).store
        if type(store) is QueueStore:
            fetch(<PyObject*> (<QueueStore> store).segments,
                  (<PyTypeObject*> Segments).tp_basicsize)
    thing = things[place + AHEAD]
    if isinstance(thing, ClassicQueue):
        store = (<ClassicQueue> thing).store
        if type(store) is QueueStore:
            segments = (<QueueStore> store).segments
            fetch_line(segments.first_block)
            fetch_line(segments.head)
