# cython: language_level=3
"""Which of many come first: figures of queues, channels and consumers read in C, and the first so
many by a figure.

A list of 10,000 queues is put in order without building a row or a Python object for each.
"""

from array import array

from cpython.long cimport PyLong_AsDouble
from cpython.object cimport Py_GT, Py_LT, PyObject_RichCompareBool
from libc.math cimport INFINITY
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from broker.kernel.octets cimport Octets, octets, writable_octets
from broker.queues.counters cimport BYTES, DELIVER, GET_NO_ACK, READY, UNACKED
from broker.queues.declared cimport DeclaredQueue, Levels
from broker.stats.ahead cimport look_ahead
from broker.stats.gauge cimport Gauge, SIGNS, WIDTH_MAX, thousandths
from broker.stats.scan cimport count_channel, read_queue
from broker.stats.trouble cimport MESSAGES_MOST, order_of, word_of, word_of_consumer

from broker.stats.gauges import KINDS

cdef enum:
    CONSUMERS = 100              # what is no column of the row
    MESSAGES = 101
    GROWTH = 102
    DELIVERED = 103
    RATES = 1000                 # rate of the column behind it
    DELIVERIES = 2000
    MESSAGES_RATE = 2001
    IDLE_SINCE = 2002

_COLUMNS = {
    "messages": MESSAGES,
    "messages_ready": READY,
    "messages_unacknowledged": UNACKED,
    "message_bytes": BYTES,
    "consumers": CONSUMERS,
    "net_rate": GROWTH,
    "idle_since": IDLE_SINCE,
    "message_stats.deliver_get": DELIVERED,
    "message_stats.deliver_get_details.rate": DELIVERIES,
    "messages_details.rate": MESSAGES_RATE,
    "messages_ready_details.rate": RATES + READY,
    "messages_unacknowledged_details.rate": RATES + UNACKED,
}
for _place, _name in enumerate(KINDS["queue"][0]):
    _COLUMNS[f"message_stats.{_name}"] = _place
    _COLUMNS[f"message_stats.{_name}_details.rate"] = RATES + _place

FIGURES = frozenset(_COLUMNS)
"""Fields of a queue's row that `figures` knows."""

_CHANNEL_COLUMNS = {
    "idle_since": IDLE_SINCE,
    "message_stats.deliver_get": DELIVERED,
    "message_stats.deliver_get_details.rate": DELIVERIES,
}
_CHANNEL_COUNTERS = KINDS["channel"][0]
for _place, _name in enumerate(_CHANNEL_COUNTERS):
    _CHANNEL_COLUMNS[f"message_stats.{_name}"] = _place
    _CHANNEL_COLUMNS[f"message_stats.{_name}_details.rate"] = RATES + _place

CHANNEL_FIGURES = frozenset(_CHANNEL_COLUMNS)
"""Fields of a channel's row that `channel_figures` knows."""

cdef int CHANNEL_DELIVER = _CHANNEL_COUNTERS.index("deliver")
cdef int CHANNEL_GET_NO_ACK = _CHANNEL_COUNTERS.index("get_no_ack")


cdef double level(const Levels* held, int column) noexcept:
    """What a queue holds, by its column."""
    if column == READY:
        return held.ready
    if column == UNACKED:
        return held.unacked
    if column == BYTES:
        return held.bytes
    return held.consumers if column == CONSUMERS else held.ready + held.unacked


def figures(list queues, str field, Py_ssize_t start, Py_ssize_t stop, found) -> None:
    """Puts the figure of each queue of `queues[start:stop]` at its place of `found`. Raises
    KeyError for a field that is not in `FIGURES`."""
    cdef Octets memory = writable_octets(found)
    cdef double* places = <double*> memory.data
    cdef int column = _COLUMNS[field]
    cdef double row[WIDTH_MAX]
    cdef double signs[SIGNS]
    cdef Levels held
    cdef Py_ssize_t place
    cdef int each
    cdef Gauge gauge
    cdef double value
    for place in range(start, min(stop, len(queues))):
        look_ahead(queues, place)
        queue = queues[place]
        gauge = <Gauge> queue.gauge
        if column == IDLE_SINCE:
            value = idle_since(gauge, queue.used_at)
        elif column >= RATES:
            value = 0.0
            if gauge is None:
                pass
            elif column == DELIVERIES:
                for each in range(DELIVER, GET_NO_ACK + 1):
                    value += gauge.shown_rate(each)
                value = thousandths(value)
            elif column == MESSAGES_RATE:
                value = thousandths(gauge.shown_rate(READY) + gauge.shown_rate(UNACKED))
            else:
                value = gauge.shown_rate(column - RATES)
        elif column == GROWTH:
            value = thousandths(gauge.growth) if gauge is not None else 0.0
        elif READY <= column <= MESSAGES:
            (<DeclaredQueue> queue).levels(&held)
            value = level(&held, column)
        else:
            read_queue(queue, row, signs)
            if column == DELIVERED:
                value = 0.0
                for each in range(DELIVER, GET_NO_ACK + 1):
                    value += row[each]
            else:
                value = row[column]
        places[place] = value


def channel_figures(list channels, str field, Py_ssize_t start, Py_ssize_t stop,
                    found) -> None:
    """Like `figures`, of channels. Raises KeyError for a field that is not in `CHANNEL_FIGURES`."""
    cdef Octets memory = writable_octets(found)
    cdef double* places = <double*> memory.data
    cdef int column = _CHANNEL_COLUMNS[field]
    cdef double row[WIDTH_MAX]
    cdef Py_ssize_t place
    cdef int each
    cdef Gauge gauge
    cdef double value
    for place in range(start, min(stop, len(channels))):
        look_ahead(channels, place)
        channel = channels[place]
        value = 0.0
        if column == IDLE_SINCE:
            value = idle_since(<Gauge> channel.gauge, channel.opened_at)
        elif column >= RATES:
            gauge = <Gauge> channel.gauge
            if gauge is None:
                pass
            elif column == DELIVERIES:
                for each in range(CHANNEL_DELIVER, CHANNEL_GET_NO_ACK + 1):
                    value += gauge.shown_rate(each)
                value = thousandths(value)
            else:
                value = gauge.shown_rate(column - RATES)
        else:
            count_channel(channel, row)
            if column == DELIVERED:
                for each in range(CHANNEL_DELIVER, CHANNEL_GET_NO_ACK + 1):
                    value += row[each]
            else:
                value = row[column]
        places[place] = value


cdef double idle_since(Gauge gauge, int64_t used_at):
    """Since when a queue is idle, ms since 1970; one in use comes before all others."""
    if gauge is None:
        return used_at
    if not gauge.still():
        return -INFINITY
    # Not one expression with INFINITY, which is a float: times would lose two minutes in it.
    return max(gauge.changed_at, used_at)


def numbers(list things, read, Py_ssize_t start, Py_ssize_t stop, found) -> bool:
    """Puts what `read` says of each of `things[start:stop]` at its place of `found`; None comes
    before all numbers. False if one is no number."""
    cdef Octets memory = writable_octets(found)
    cdef double* places = <double*> memory.data
    cdef Py_ssize_t place
    for place in range(start, min(stop, len(things))):
        look_ahead(things, place)
        value = read(things[place])
        if value is None:
            places[place] = -INFINITY
        elif isinstance(value, int):
            try:
                places[place] = PyLong_AsDouble(value)
            except OverflowError:
                return False
        elif isinstance(value, float):
            places[place] = value
        else:
            return False
    return True


def texts(list things, read, Py_ssize_t start, Py_ssize_t stop) -> list:
    """What `read` says of each of `things[start:stop]`, as text; nothing and what is empty are an
    empty one."""
    cdef Py_ssize_t place
    cdef list found = []
    for place in range(start, min(stop, len(things))):
        look_ahead(things, place)
        value = read(things[place])
        found.append(str(value) if value else "")
    return found


def places_before(list keys, last, Py_ssize_t start, Py_ssize_t stop, bint reverse) -> list:
    """The places of those of `keys[start:stop]` that come before `last`; with `reverse`, behind."""
    cdef Py_ssize_t place
    cdef int order = Py_GT if reverse else Py_LT
    return [place for place in range(start, min(stop, len(keys)))
            if PyObject_RichCompareBool(keys[place], last, order)]


def by_trouble(list queues, dict ranks, int64_t now, double stuck_after, Py_ssize_t start,
               Py_ssize_t stop, found) -> None:
    """Like `figures`: the queue with the lowest rank of its word comes first, then the one with the
    most messages. `ranks` has a number for every word; `now` and `stuck_after` are those of
    `broker.stats.trouble.of_queue`."""
    cdef Octets memory = writable_octets(found)
    cdef double* places = <double*> memory.data
    cdef Levels held
    cdef Py_ssize_t place
    cdef DeclaredQueue queue
    for place in range(start, min(stop, len(queues))):
        look_ahead(queues, place)
        queue = <DeclaredQueue> queues[place]
        queue.levels(&held)
        word = word_of(queue, <Gauge> queue.gauge, &held, now, stuck_after)
        places[place] = order_of(<double> ranks[word], &held)


def consumers_by_trouble(list consumers, dict ranks, int64_t now, double stuck_after,
                         Py_ssize_t start, Py_ssize_t stop, found) -> None:
    """Like `by_trouble`, of consumers: then the one with the most unacknowledged messages."""
    cdef Octets memory = writable_octets(found)
    cdef double* places = <double*> memory.data
    cdef Py_ssize_t place
    for place in range(start, min(stop, len(consumers))):
        look_ahead(consumers, place)
        consumer = consumers[place]
        word = word_of_consumer(consumer, <Gauge> consumer.channel.gauge, now, stuck_after)
        places[place] = <double> ranks[word] * MESSAGES_MOST - <double> consumer.unacked


def consumer_timeouts(list consumers, double usual, other, Py_ssize_t start, Py_ssize_t stop,
                      found) -> None:
    """Like `figures`: the timeouts of consumers in ms. `usual` is that of queues without one of
    their own; `other` says it of another queue."""
    cdef Octets memory = writable_octets(found)
    cdef double* places = <double*> memory.data
    cdef Py_ssize_t place
    for place in range(start, min(stop, len(consumers))):
        look_ahead(consumers, place)
        queue = consumers[place].queue
        limits = queue.limits
        if (limits is None or limits.consumer_timeout < 0) and queue.type != "stream":
            places[place] = usual
        else:
            places[place] = other(queue)


cdef struct Entry:
    double key
    Py_ssize_t place


cdef inline bint is_after(Entry* one, Entry* other) noexcept nogil:
    return one.key > other.key or (one.key == other.key and one.place > other.place)


cdef void sink(Entry* heap, Py_ssize_t at, Py_ssize_t count) noexcept nogil:
    """Puts the entry at `at` where it belongs below: the last in order is on top."""
    cdef Entry moved = heap[at]
    cdef Py_ssize_t child
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and is_after(&heap[child + 1], &heap[child]):
            child += 1
        if not is_after(&heap[child], &moved):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = moved


def first_places(keys, Py_ssize_t wanted, bint reverse=False) -> array:
    """The places of the first `wanted` keys in ascending order (descending with `reverse`); equals
    stay in the order of their places. NaN comes last. Very many take a long turn: 250,000 50 ms,
    for which a thread does not need the interpreter."""
    cdef Octets read = octets(keys)
    cdef object found
    cdef Octets written
    cdef const double* key_of = <const double*> read.data
    cdef Py_ssize_t count = len(keys)
    cdef Py_ssize_t held = 0
    cdef Py_ssize_t place, each
    cdef Entry entry
    cdef Entry* heap
    cdef int64_t* places
    wanted = min(wanted, count)
    if wanted <= 0:
        return array("q")
    found = array("q", bytes(8 * wanted))
    written = writable_octets(found)
    places = <int64_t*> written.data
    heap = <Entry*> malloc(wanted * sizeof(Entry))
    if heap == NULL:
        raise MemoryError
    try:
        with nogil:
            for place in range(count):
                entry.key = -key_of[place] if reverse else key_of[place]
                if entry.key != entry.key:
                    entry.key = INFINITY
                entry.place = place
                if held < wanted:
                    heap[held] = entry
                    held += 1
                    if held == wanted:
                        for each in range(wanted // 2 - 1, -1, -1):
                            sink(heap, each, wanted)
                elif is_after(&heap[0], &entry):
                    heap[0] = entry
                    sink(heap, 0, wanted)
            for each in range(wanted - 1, 0, -1):
                entry = heap[0]
                heap[0] = heap[each]
                heap[each] = entry
                sink(heap, 0, each)
            for each in range(wanted):
                places[each] = heap[each].place
        return found
    finally:
        free(heap)
