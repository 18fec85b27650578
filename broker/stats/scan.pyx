# cython: language_level=3
"""Samples many objects: which of them changed since the last sample, and what all hold together.

Objects are read in C and compared with the newest row of their gauge. An object without traffic
costs that comparison, and one that never had any costs a comparison of zeros. No Python object is
made for either. Nothing is added on a message's way: the counters are there anyway.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from broker.kernel.contracts cimport Exchange
from broker.queues.counters cimport ACK, BYTES, READY, REJECT, UNACKED
from broker.queues.declared cimport DeclaredQueue
from broker.stats.ahead cimport look_ahead, look_ahead_at_rest
from broker.stats.gauge cimport Gauge, SIGNS, WIDTH_MAX
from broker.wire.channel cimport Channel
from broker.wire.frame_parser cimport FrameParser, RUNNING
from broker.wire.deliveries cimport Deliveries

from broker.stats.gauges import KINDS

cdef enum:
    # Histories that one call of `scan` brings up to now after a rest, up to 34 us each.
    RESTED_MAX = 12
    LONG_REST = 10               # steps of a history
    CHANNELS_MAX = 64
    REST_LOOKS = 8
    LOOKS_MAX = 500
    BEAT = 8                     # octets of a heartbeat; what changes a channel has more

# The kinds, in the order of KINDS.
cdef enum:
    QUEUE, EXCHANGE, CHANNEL, CONNECTION

cdef enum:
    RESTED = 2                   # what `visit` may return

# The columns that the functions below read, in their order.
_READ = {
    "queue": (
        "publish", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "ack",
        "redeliver", "reject", "confirm", "messages_ready", "messages_unacknowledged",
        "message_bytes"),
    "exchange": ("publish_in", "publish_out"),
    "channel": (
        "publish", "confirm", "return_unroutable", "drop_unroutable", "deliver", "deliver_no_ack",
        "get", "get_no_ack", "get_empty", "ack", "redeliver", "reject"),
    "connection": ("recv_oct", "send_oct", "recv_cnt", "send_cnt"),
}
for _kind, (_counters, _levels) in KINDS.items():
    if _READ[_kind] != (*_counters, *_levels):
        raise ImportError(f"broker.stats.scan does not read {_kind} as KINDS lists it")

if tuple(KINDS) != ("queue", "exchange", "channel", "connection"):
    raise ImportError("broker.stats.scan does not have the kinds in the order of KINDS")

cdef int CHANNEL_ACK = _READ["channel"].index("ack")
cdef int CHANNEL_REJECT = _READ["channel"].index("reject")
cdef tuple _NAMES = tuple(KINDS)
cdef dict _NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
cdef int[4] COUNTERS             # columns of each kind that count
cdef int[4] WIDTHS               # all columns of it
for _number, (_counters, _levels) in enumerate(KINDS.values()):
    COUNTERS[_number] = <int> len(_counters)
    WIDTHS[_number] = <int> len(_counters) + <int> len(_levels)


cdef Gauge _ended(str kind):
    cdef Gauge gauge = Gauge(kind)
    gauge.ended = True
    return gauge


# What things that ended before a row was taken of them have in common.
cdef dict _ENDED = {kind: _ended(kind) for kind in KINDS}


cdef class Sums:
    """What one scan added up: `messages_ready`, `messages_unacknowledged`, `message_bytes` and
    `consumers` of the queues, and how much each counter rose (`rises`, in the order of a row)."""

    @property
    def held(self) -> tuple:
        """Ready and unacknowledged messages, and their bytes."""
        return (self.levels[0], self.levels[1], self.levels[2])

    cpdef bint has_risen(self) noexcept:
        """Whether a counter rose."""
        cdef int place
        for place in range(WIDTH_MAX):
            if self.risen[place]:
                return True
        return False

    cpdef dict rises(self, str kind, wanted):
        """By those counters that are wanted, how much it rose over all objects, without zeros.
        Starts over."""
        cdef int place
        cdef dict found = {}
        for place, name in enumerate(KINDS[kind][0]):
            if self.risen[place] and name in wanted:
                found[name] = self.risen[place]
        memset(self.risen, 0, sizeof(self.risen))
        return found


cdef int read_queue(DeclaredQueue queue, double* row, double* signs) except -1:
    memset(row, 0, WIDTH_MAX * sizeof(double))
    return queue.sample(row, signs)


cdef void count_channel(Channel channel, double* row) noexcept:
    """The counters of a channel."""
    cdef Deliveries deliveries = channel.deliveries
    row[0] = channel.published
    row[1] = channel.confirms.acked if channel.confirms is not None else 0
    row[2] = channel.returned
    row[3] = channel.dropped
    row[4] = deliveries.delivered
    row[5] = deliveries.delivered_no_ack
    row[6] = deliveries.got
    row[7] = deliveries.got_no_ack
    row[8] = deliveries.got_empty
    row[9] = deliveries.acked
    row[10] = deliveries.redelivered
    row[11] = deliveries.rejected


cdef int read_channel(Channel channel, double* row, double* signs) except -1:
    count_channel(channel, row)
    signs[0] = channel.deliveries.ledger.count
    signs[1] = len(channel.deliveries.consumers)
    signs[2] = channel.oldest_unconfirmed
    signs[3] = 0
    return 0


cdef void read_exchange(Exchange exchange, double* row) noexcept:
    row[0] = exchange.publish_in
    row[1] = exchange.publish_out


cdef void read_connection(FrameParser connection, double* row) noexcept:
    row[0] = connection.recv_oct
    row[1] = connection.output.send_oct
    row[2] = connection.recv_cnt
    row[3] = connection.output.send_cnt


cdef bint has_only_beaten(FrameParser connection) except -1:
    """Whether no more than a heartbeat came and went since the newest row."""
    cdef Gauge gauge
    cdef double* newest
    if connection.gauge is None:
        return False
    gauge = <Gauge> connection.gauge
    if not gauge.count:
        return False
    newest = gauge.row(gauge.count - 1)
    return (connection.recv_oct - newest[0] <= BEAT
            and connection.output.send_oct - newest[1] <= BEAT)


cdef int number_of(str kind) except -1:
    return _NUMBERS[kind]


cdef int read(int kind, object thing, double* row, double* signs) except -1:
    if kind == QUEUE:
        return read_queue(<DeclaredQueue> thing, row, signs)
    if kind == CHANNEL:
        return read_channel(<Channel> thing, row, signs)
    memset(signs, 0, SIGNS * sizeof(double))
    if kind == EXCHANGE:
        read_exchange(<Exchange> thing, row)
    else:
        read_connection(<FrameParser> thing, row)
    return 0


cdef inline Gauge gauge_of(int kind, object thing):
    if kind == QUEUE:
        return <Gauge> (<DeclaredQueue> thing).gauge
    if kind == CHANNEL:
        return <Gauge> (<Channel> thing).gauge
    if kind == EXCHANGE:
        return <Gauge> (<Exchange> thing).gauge
    return <Gauge> (<FrameParser> thing).gauge


cdef inline int keep_gauge(int kind, object thing, Gauge gauge) except -1:
    if kind == QUEUE:
        (<DeclaredQueue> thing).gauge = gauge
    elif kind == CHANNEL:
        (<Channel> thing).gauge = gauge
    elif kind == EXCHANGE:
        (<Exchange> thing).gauge = gauge
    else:
        (<FrameParser> thing).gauge = gauge
    return 0


cdef int visit(int kind, object thing, int64_t at, int64_t before, Sums sums, bint anew) except -1:
    """One object; `anew`: a gauge is made whatever it holds. Returns 0 if it had nothing to add to
    its gauge, and RESTED if its history had a long rest to add."""
    cdef double row[WIDTH_MAX]
    cdef double signs[SIGNS]
    cdef double marks[WIDTH_MAX]
    cdef double* newest
    cdef int place
    cdef int width = WIDTHS[kind]
    cdef int change
    cdef bint is_new = False
    cdef Gauge gauge = gauge_of(kind, thing)
    if gauge is not None and gauge.ended:
        return 0
    read(kind, thing, row, signs)
    sums.looked += 1
    if kind == QUEUE:
        sums.levels[0] += row[READY]
        sums.levels[1] += row[UNACKED]
        sums.levels[2] += row[BYTES]
        sums.consumers += <uint64_t> signs[0]
    if gauge is None:
        if not anew:
            for place in range(width):
                if row[place]:
                    break
            else:
                return 0
        gauge = Gauge(_NAMES[kind], at)
        keep_gauge(kind, thing, gauge)
        is_new = True
        # What is counted began with it; what it holds may be older than this start.
        memset(marks, 0, sizeof(marks))
        if kind == QUEUE and not before:
            memcpy(marks + READY, row + READY, 3 * sizeof(double))
        gauge.mark(marks)
    newest = gauge.row(gauge.count - 1) if gauge.count else NULL
    if (not is_new and not gauge.active and newest != NULL
            and memcmp(newest, row, width * sizeof(double)) == 0
            and memcmp(gauge.signs, signs, SIGNS * sizeof(double)) == 0):
        return 0
    sums.changed += 1
    for place in range(COUNTERS[kind]):
        sums.risen[place] += row[place] - (newest[place] if newest != NULL else 0)
    if newest != NULL and not (newest[UNACKED] if kind == QUEUE else gauge.signs[0]):
        # Nothing waited for an acknowledgement until the look before, however long ago it changed.
        gauge.acked_at = at
    change = RESTED if gauge.rested(at, LONG_REST) else 1
    gauge.take(at, before, row, signs)
    if kind == QUEUE:
        gauge.judge(at, row[UNACKED] != 0, <int> signs[0], ACK, REJECT)
        gauge.grow(READY)
    elif kind == CHANNEL:
        gauge.judge(at, signs[0] != 0, <int> signs[1], CHANNEL_ACK, CHANNEL_REJECT)
        if <int64_t> signs[2] != gauge.oldest_unconfirmed:
            gauge.oldest_unconfirmed = <int64_t> signs[2]
            gauge.unconfirmed_since = at
    gauge.active = not gauge.still() or gauge.growth != 0
    if gauge.history is not None:
        gauge.note(at)
    if not gauge.active:
        gauge.settle_down()
    return change


def scan(str kind, list things, Py_ssize_t start, int64_t at, int64_t before, Sums sums,
         list lively=None, list touched=None) -> int:
    """Looks at things from `start` on, all of one kind, and returns where to continue: before the
    end where the histories of several have a long rest to add. `at` is now, `before` the time of
    the look before (0: none). Those with rates that have no history yet go to `lively`, those that
    changed for the first time since the last step of the long history to `touched`.

    What ended meanwhile is passed over: `finish` took its last counts.
    """
    cdef Py_ssize_t place = start
    cdef int number = number_of(kind)
    cdef int rested = 0
    cdef int change
    cdef Gauge gauge
    while place < len(things) and rested < RESTED_MAX:
        look_ahead(things, place)
        thing = things[place]
        place += 1
        change = visit(number, thing, at, before, sums, False)
        if not change:
            continue
        rested += change == RESTED
        gauge = gauge_of(number, thing)
        if gauge.history is None and lively is not None and gauge.active:
            lively.append(thing)
        if touched is not None and not gauge.touched:
            gauge.touched = True
            touched.append(thing)
    return place


def scan_connections(list connections, Py_ssize_t start, vhost, int64_t at, int64_t before,
                     Sums sums, Sums of_channels) -> tuple:
    """Looks at open connections of one vhost and at their channels, from `start` on, and returns
    where to go on and how many channels there were. That is before a connection of another vhost,
    one with more than `CHANNELS_MAX` channels or one that is ending, and after `LOOKS_MAX` objects.

    Where nothing came or went, nothing happened on a channel either, but that a queue was deleted:
    then the channels are looked at in one of `REST_LOOKS` samples."""
    cdef Py_ssize_t place = start
    cdef uint64_t looked = 0
    cdef uint64_t channels = 0
    cdef FrameParser connection
    cdef Channel channel
    cdef Py_ssize_t turn = at // 1000 % REST_LOOKS
    cdef bint is_lively
    while place < len(connections) and looked < LOOKS_MAX:
        look_ahead_at_rest(connections, place)
        connection = <FrameParser?> connections[place]
        if (connection.channel_count > CHANNELS_MAX or connection.phase != RUNNING
                or connection.vhost is not vhost):
            break
        looked += 1
        channels += connection.channel_count
        if connection.stirs:
            if not has_only_beaten(connection):
                connection.channels_stir = True
            is_lively = (
                visit(CONNECTION, connection, at, before, sums, False)
                or connection.gauge is None or (<Gauge> connection.gauge).active)
            # Its rates have to come to rest, too.
            connection.stirs = is_lively
            if not is_lively:
                connection.channels_stir = False
        else:
            # Most of very many: `visit` would find it as it was.
            sums.looked += 1
        if connection.channels_stir or place % REST_LOOKS == turn:
            looked += connection.channel_count
            for channel in connection.slots:
                if channel is not None:
                    visit(CHANNEL, channel, at, before, of_channels, False)
            # Not looked at above: for most, that would be a wait for memory.
            if connection.numbered_high:
                for channel in connection.numbered_high.values():
                    visit(CHANNEL, channel, at, before, of_channels, False)
        place += 1
    return place, channels


def watch(str kind, thing, int64_t at, Sums sums) -> Gauge:
    """The gauge of an object, made now if there was none; what it counted so far goes to `sums`."""
    if thing.gauge is None:
        visit(number_of(kind), thing, at, 0, sums, True)
    elif thing.gauge is _ENDED[kind]:
        thing.gauge = _ended(kind)    # one of its own
    return thing.gauge


cpdef int finish(str kind, thing, Sums sums) except -1:
    """The object ends: what its counters rose since the last look goes to `sums`."""
    cdef double row[WIDTH_MAX]
    cdef double signs[SIGNS]
    cdef double* newest = NULL
    cdef int number = number_of(kind)
    cdef Gauge gauge = gauge_of(number, thing)
    cdef int place
    if gauge is None:
        # Nothing is known of it, and nothing more will be.
        keep_gauge(number, thing, <Gauge> _ENDED[kind])
    elif gauge.ended:
        return 0
    else:
        gauge.ended = True
    read(number, thing, row, signs)
    if gauge is not None and gauge.count:
        newest = gauge.row(gauge.count - 1)
    for place in range(COUNTERS[number]):
        sums.risen[place] += row[place] - (newest[place] if newest != NULL else 0)
    return 0
