# cython: language_level=3
"""The word of trouble of a queue or a consumer, one of `control_schema.TROUBLE`, from figures read
in C.

Lists and the overview ask for the words of 10,000 queues; `tests/oracles/troubles.py` says the same
slowly.
"""

from libc.stdint cimport int64_t

from broker.queues.classic cimport ClassicQueue
from broker.queues.counters cimport PUBLISH, REDELIVER
from broker.queues.declared cimport DeclaredQueue, Levels
from broker.queues.limits cimport Limits, PAUSED
from broker.stats.ahead cimport look_ahead
from broker.stats.gauge cimport Gauge

cdef double _NEAR_LIMIT = 0.9
cdef double _GROWTH_MIN = 0.5
NEAR_LIMIT = _NEAR_LIMIT
"""So much of a limit is near it."""
GROWTH_MIN = _GROWTH_MIN
"""Messages a second; less is noise."""
cdef double RATE_MIN = 0.0005    # less is shown as 0
# More than a queue holds: words of trouble weigh more than messages.
cdef double MESSAGES_MOST = <double> (<int64_t> 1 << 44)


def of_queue(queue, Gauge gauge, int64_t now, double stuck_after) -> str:
    """The word for a queue; `stuck_after` is the setting, in seconds. A stream has few: no user has
    to take anything out of it."""
    cdef Levels held
    (<DeclaredQueue> queue).levels(&held)
    return word_of(queue, gauge, &held, now, stuck_after)


def having_word(list queues, dict wanted, Py_ssize_t start, Py_ssize_t stop, int64_t now,
                double stuck_after, list keys) -> list:
    """Those of `queues[start:stop]` that have one of the wanted words. Their keys of the order by
    trouble, with the rank that `wanted` gives each word, are appended to `keys`."""
    cdef Levels held
    cdef Py_ssize_t place
    cdef DeclaredQueue queue
    cdef list found = []
    for place in range(start, min(stop, len(queues))):
        look_ahead(queues, place)
        queue = <DeclaredQueue> queues[place]
        queue.levels(&held)
        rank = wanted.get(word_of(queue, <Gauge> queue.gauge, &held, now, stuck_after))
        if rank is not None:
            found.append(queue)
            keys.append(order_of(<double> rank, &held))
    return found


cdef double order_of(double rank, const Levels* held) noexcept:
    """The number that orders by trouble: the lowest rank comes first, then the most messages."""
    return rank * MESSAGES_MOST - held.ready - held.unacked


def of_consumer(consumer, Gauge gauge, int64_t now, double stuck_after) -> str:
    """The word for a consumer; `gauge` is its channel's."""
    return word_of_consumer(consumer, gauge, now, stuck_after)


cdef str word_of_consumer(object consumer, Gauge gauge, int64_t now, double stuck_after):
    cdef int64_t unacked = consumer.unacked
    cdef int64_t prefetch_count
    if unacked:
        if gauge is not None and now - gauge.acked_at > stuck_after * 1000:
            return "stuck"
        prefetch_count = consumer.prefetch_count
        return "full" if prefetch_count and unacked >= prefetch_count else "fine"
    return "idle" if gauge is None or gauge.still() else "fine"


cdef str word_of(DeclaredQueue queue, Gauge gauge, const Levels* held, int64_t now,
                 double stuck_after):
    cdef bint is_paused, is_stream
    cdef double share
    cdef bint is_full
    cdef double least
    if isinstance(queue, ClassicQueue):
        refusals = (<ClassicQueue> queue).refusals
        is_paused = (<ClassicQueue> queue).features & PAUSED
        is_stream = False
    else:
        refusals = queue.refusals
        is_paused = queue.paused
        is_stream = queue.type == "stream"
    if refusals is not None and refusals.is_going_on:
        return "refusing"
    if is_paused:
        return "paused"
    if is_stream:
        return "idle" if gauge is None or gauge.still() else "fine"
    if not held.ready and not held.unacked and gauge is None:
        return "idle"
    if held.ready and not held.consumers:
        return "not served"
    if gauge is None:
        return "fine"
    if held.unacked and now - gauge.acked_at > stuck_after * 1000:
        return "stuck"
    limits = queue.limits
    if limits is not None:
        share = share_of(queue, <Limits> limits, held.ready)
        is_full = share >= _NEAR_LIMIT
        if is_full:
            return "at a limit"
    if held.ready:
        least = 0.05 * gauge.rate_at(PUBLISH)
        if gauge.growth > (least if least > _GROWTH_MIN else _GROWTH_MIN):
            return "growing"
    if gauge.rate_at(REDELIVER) >= RATE_MIN:
        return "redelivering"
    return "idle" if not held.ready and not held.unacked and gauge.still() else "fine"


cdef double share_of(object queue, Limits limits, double ready) except -2:
    """How full the queue is against its nearest limit, from 0 to 1; -1 without a limit."""
    cdef double share = -1, other
    if limits.max_length > 0:
        share = ready / limits.max_length
    if limits.max_length_bytes > 0:
        other = <double> queue.message_bytes_ready / limits.max_length_bytes
        if other > share:
            share = other
    return share


def limit_share(queue) -> float | None:
    """How full the queue is against its nearest limit, from 0 to 1; None without a limit."""
    cdef double share
    limits = queue.limits
    if limits is None:
        return None
    share = share_of(queue, <Limits> limits, queue.messages_ready)
    return share if share >= 0 else None
