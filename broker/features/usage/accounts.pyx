# cython: language_level=3
"""What each object had counted when its last line was written, and the lines of what changed since.

Objects are read in C and compared with what they were; one that stands still costs the comparison,
and no Python object is made for it.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from broker.kernel.contracts cimport Exchange
from broker.kernel.wide_dict cimport WideDict
from broker.queues.counters cimport QUEUE_USES
from broker.queues.declared cimport DeclaredQueue
from broker.queues.latencies cimport LATENCY_BUCKETS, Latencies
from broker.stats.ahead cimport look_ahead
from broker.stats.gauge cimport SIGNS, WIDTH_MAX
from broker.wire.frame_parser cimport FrameParser, RUNNING
from broker.wire.uses cimport CHANNEL_USES, CONNECTION_USES

from broker.features.usage import records
from broker.queues import counters
from broker.wire import uses

cdef enum:
    LOOKS = 400                  # at queues in one step; one without a change takes 0.2 us
    LINES = 40                   # of one step, 4 us each
    CONNECTION_LOOKS = 200       # the same for connections, 0.4 us each
    CHANNELS_PER_LOOK = 10       # more of them count as further looks
    EXCHANGE_USES = 10
    LEVELS = 3
    # The last two of a queue's row rise while it only holds what it has.
    MOVING_USES = QUEUE_USES - 2


def names_of(module, int count):
    """The columns that a module's row has, in its order."""
    found = {value: name for name, value in vars(module).items() if name.startswith("USE_")}
    return tuple([found[place][len("USE_"):].lower() for place in range(count)])


QUEUE = names_of(counters, QUEUE_USES)
CONNECTION = names_of(uses, CONNECTION_USES)
EXCHANGE = (
    "publish_in", "publish_in_bytes", "publish_out", "publish_out_bytes", "return_unroutable",
    "return_unroutable_bytes", "drop_unroutable", "drop_unroutable_bytes", "refused",
    "refused_bytes")
LEVEL = ("messages", "message_bytes", "consumers")
LATENCY = tuple([records.latency_column(bucket) for bucket in range(LATENCY_BUCKETS)])
_OTHER = ("messages_peak", "oldest_ms", "latency_ms", "latency_max")

for _kind, _written in (
    ("queue", {*QUEUE, *LEVEL, *LATENCY, *_OTHER}),
    ("exchange", set(EXCHANGE)),
    ("connection", {*CONNECTION, "connection_ms"}),
    ("user", {*CONNECTION, "connection_ms", "connections"}),
):
    if _written != {column.name for column in records.columns_of(_kind)}:
        raise ImportError(f"the lines of {_kind} do not have the columns of the usage feed's table")


cdef class Account:
    """One object's counts as they were at its last line, and, of a connection, as they were added
    to its user's sum last."""

    cdef uint64_t* row
    cdef uint64_t* summed
    cdef uint64_t levels[LEVELS]
    cdef int64_t since           # when the last line ended, ms
    cdef int64_t summed_at
    cdef tuple key               # of its sum, from when the connection is open; else None

    def __cinit__(self, int width, bint is_summed=False):
        self.row = <uint64_t*> calloc(width, sizeof(uint64_t))
        if is_summed:
            self.summed = <uint64_t*> calloc(width, sizeof(uint64_t))
        if self.row == NULL or (is_summed and self.summed == NULL):
            raise MemoryError("no memory for the usage feed")

    def __dealloc__(self):
        free(self.row)
        free(self.summed)


cdef class Sum:
    """What the connections of one user to one vhost with one client library did in a round."""

    cdef uint64_t row[CONNECTION_USES]
    cdef int64_t connection_ms
    cdef int connections

    def add(self, counts) -> None:
        """Adds counts by column."""
        for name, count in counts.items():
            self.row[CONNECTION.index(name)] += count

    def columns(self) -> dict:
        """The columns of its line that are not zero."""
        found = {}
        fill(found, CONNECTION, self.row, NULL, CONNECTION_USES)
        if self.connections:
            found["connections"] = self.connections
        if self.connection_ms:
            found["connection_ms"] = self.connection_ms
        return found


cdef class Round:
    """What the connections of a round, which ends at `now`, are added up to: the sums of their
    users by key, in `sums` or from `sum_of(sums, key)`. `stands`: a connection has a line of its
    own also if octets moved only, `always`: in any case."""

    cdef dict sums
    cdef object sum_of
    cdef int64_t now
    cdef bint stands
    cdef bint always

    def __init__(self, dict sums, sum_of, int64_t now, bint stands=False, bint always=False):
        self.sums = sums
        self.sum_of = sum_of
        self.now = now
        self.stands = stands
        self.always = always


cdef int fill(dict line, tuple names, const uint64_t* row, const uint64_t* before,
              int width) except -1:
    """Adds to a line what each counter rose by."""
    cdef int place
    cdef uint64_t risen
    for place in range(width):
        risen = row[place] - (before[place] if before != NULL else 0)
        if risen:
            line[names[place]] = risen
    return 0


cdef bint is_zero(const uint64_t* row, int width) noexcept:
    cdef int place
    for place in range(width):
        if row[place]:
            return False
    return True


cdef int read_queue(DeclaredQueue queue, int64_t now, uint64_t* row, uint64_t* levels) except -1:
    cdef double figures[WIDTH_MAX]
    cdef double signs[SIGNS]
    memset(row, 0, QUEUE_USES * sizeof(uint64_t))
    queue.use(now, row)
    queue.held(&levels[0], &levels[1])
    memset(figures, 0, sizeof(figures))
    queue.sample(figures, signs)
    levels[2] = <uint64_t> signs[0]
    return 0


cdef void read_exchange(Exchange exchange, uint64_t* row) noexcept:
    row[0] = exchange.publish_in
    row[1] = exchange.bytes_in
    row[2] = exchange.publish_out
    row[3] = exchange.bytes_out
    row[4] = exchange.returned
    row[5] = exchange.bytes_returned
    row[6] = exchange.dropped
    row[7] = exchange.bytes_dropped
    row[8] = exchange.refused
    row[9] = exchange.bytes_refused


cdef void read_connection(FrameParser connection, uint64_t* row) noexcept:
    memset(row, 0, CONNECTION_USES * sizeof(uint64_t))
    connection.use(row)


def key_of(connection) -> tuple:
    """Whose sum a connection belongs to: vhost, user, client library, and the version of that."""
    user, vhost = connection.user, connection.vhost
    return (
        getattr(vhost, "name", vhost) or "", getattr(user, "name", user) or "",
        connection.client, connection.client_version)


def identity(tuple key) -> dict:
    """The columns that tell whose a line is."""
    return {"vhost": key[0], "user": key[1], "client": key[2], "client_version": key[3]}


cdef class Accounts:
    """The accounts of all objects that counted anything. `head`: what every line begins with; the
    rest is added to a copy. Times are UTC ms."""

    cdef WideDict all
    cdef public dict head

    def __init__(self):
        self.all = WideDict()
        self.head = {}

    def __len__(self):
        return len(self.all)

    # -- queues ------------------------------------------------------------------------------------

    def begin(self, queue, int64_t now) -> None:
        """A queue that was there before the feed began: what it counted until now is in no line."""
        cdef uint64_t row[QUEUE_USES]
        cdef uint64_t levels[LEVELS]
        cdef Account account
        read_queue(queue, now, row, levels)
        if not is_zero(row, QUEUE_USES) or levels[0]:
            account = Account(QUEUE_USES)
            memcpy(account.row, row, sizeof(row))
            account.since = now
            self.all[queue] = account

    def queues(self, list queues, Py_ssize_t start, ended, int64_t since, int64_t now,
               bint stands, list lines) -> int:
        """Adds the lines of queues to `lines`, from `queues[start]` on, without those that have
        `ended`; returns where to continue. It looks at a bounded number and writes fewer."""
        cdef Py_ssize_t place = start
        cdef Py_ssize_t end = min(len(queues), start + LOOKS)
        while place < end and len(lines) < LINES:
            queue = queues[place]
            place += 1
            if ended and queue in ended:
                continue
            line = self.queue(queue, since, now, stands, False)
            if line is not None:
                lines.append(line)
        return place

    cpdef queue(self, queue, int64_t since, int64_t now, bint stands, bint ends):
        """The line of a queue, or None if there is nothing to write. `since`: when the round before
        ended. `stands`: one that stands still and holds something is written too. `ends`: it is
        deleted."""
        cdef uint64_t row[QUEUE_USES]
        cdef uint64_t levels[LEVELS]
        cdef Account account
        cdef dict line
        cdef bint is_new
        cdef int place
        if ends:
            account = self.all.pop(queue, None)
        else:
            account = self.all.get(queue)
        read_queue(queue, now, row, levels)
        if ends:
            memset(levels, 0, sizeof(levels))
        is_new = account is None
        if is_new:
            if is_zero(row, QUEUE_USES) and is_zero(levels, LEVELS):
                return None
            account = Account(QUEUE_USES)
        elif (memcmp(row, account.row, MOVING_USES * sizeof(uint64_t)) == 0
                and memcmp(levels, account.levels, sizeof(levels)) == 0
                and not ((stands or ends) and row[MOVING_USES] != account.row[MOVING_USES])):
            return None
        line = self.head.copy()
        line["kind"] = "queue"
        line["since"] = account.since if account.levels[0] and account.since < since else since
        line["until"] = now
        line["vhost"] = queue.vhost_name
        line["name"] = queue.name
        fill(line, QUEUE, row, account.row, QUEUE_USES)
        for place in range(LEVELS):
            if levels[place]:
                line[LEVEL[place]] = levels[place]
        most = queue.take_most()
        if most:
            line["messages_peak"] = most
        add_times(line, queue, now)
        if not ends:
            memcpy(account.row, row, sizeof(row))
            memcpy(account.levels, levels, sizeof(levels))
            account.since = now
            if is_new:
                self.all[queue] = account
        return line

    # -- exchanges ---------------------------------------------------------------------------------

    def exchange(self, str vhost, exchange, int64_t since, int64_t now, bint ends):
        """The line of an exchange, or None if nothing was counted."""
        cdef uint64_t row[EXCHANGE_USES]
        cdef Account account
        cdef dict line
        account = self.all.pop(exchange, None) if ends else self.all.get(exchange)
        read_exchange(exchange, row)
        if account is None:
            if is_zero(row, EXCHANGE_USES):
                return None
            account = Account(EXCHANGE_USES)
            if not ends:
                self.all[exchange] = account
        elif memcmp(row, account.row, sizeof(row)) == 0:
            return None
        line = self.head.copy()
        line["kind"] = "exchange"
        line["since"] = since
        line["until"] = now
        line["vhost"] = vhost
        line["name"] = exchange.name
        fill(line, EXCHANGE, row, account.row, EXCHANGE_USES)
        memcpy(account.row, row, sizeof(row))
        return line

    # -- connections -------------------------------------------------------------------------------

    def connections(self, list connections, Py_ssize_t start, ended, Round round,
                    list lines) -> int:
        """The lines of connections, as `queues`; the rest as `connection`."""
        cdef Py_ssize_t place = start
        cdef Py_ssize_t looks = 0
        while place < len(connections) and looks < CONNECTION_LOOKS and len(lines) < LINES:
            look_ahead(connections, place)
            connection = connections[place]
            place += 1
            if ended and connection in ended:
                continue
            looks += 1 + <Py_ssize_t> connection.channel_count // CHANNELS_PER_LOOK
            line = self.connection(connection, round, False)
            if line is not None:
                lines.append(line)
        return place

    cpdef connection(self, FrameParser connection, Round round, bint ends):
        """Adds what a connection did since the last round to the sum of its user. Its own line, or
        None if no message moved and the round asks for none; `ends`: it is closed."""
        cdef uint64_t row[CONNECTION_USES]
        cdef Account account
        cdef Sum total
        cdef tuple key
        cdef int64_t now = round.now
        cdef dict line
        cdef int place
        account = self.all.pop(connection, None) if ends else self.all.get(connection)
        read_connection(connection, row)
        if account is None:
            account = Account(CONNECTION_USES, True)
            account.since = account.summed_at = connection.connected_at_ms
            if not ends:
                self.all[connection] = account
        key = account.key
        if key is None:
            key = key_of(connection)
            if connection.phase == RUNNING:
                account.key = key
        total = round.sums.get(key)
        if total is None:
            total = <Sum?> round.sum_of(round.sums, key)
        for place in range(CONNECTION_USES):
            total.row[place] += row[place] - account.summed[place]
        memcpy(account.summed, row, sizeof(row))
        total.connection_ms += max(0, now - account.summed_at)
        total.connections += not ends
        account.summed_at = now
        if not (ends or round.always
                or memcmp(row, account.row, CHANNEL_USES * sizeof(uint64_t))
                or round.stands and memcmp(row, account.row, sizeof(row))):
            return None
        line = self.head.copy()
        line["kind"] = "connection"
        line["since"] = account.since
        line["until"] = now
        line.update(identity(key))
        line["name"] = connection.name
        line["id"] = f"{self.head['run']}-{connection.id}"
        fill(line, CONNECTION, row, account.row, CONNECTION_USES)
        if now > account.since:
            line["connection_ms"] = now - account.since
        if ends:
            line["closed"] = True
        memcpy(account.row, row, sizeof(row))
        account.since = now
        return line


cdef int add_times(dict line, DeclaredQueue queue, int64_t now) except -1:
    """The age of what a queue holds, and how long its deliveries took."""
    cdef Latencies latencies = queue.latencies
    cdef int64_t oldest = -1 if queue.deleted else queue.oldest()
    cdef int bucket
    if 0 <= oldest < now:
        line["oldest_ms"] = now - oldest
    if latencies is None or latencies.count == 0:
        return 0
    for bucket in range(LATENCY_BUCKETS):
        if latencies.buckets[bucket]:
            line[LATENCY[bucket]] = latencies.buckets[bucket]
    if latencies.total:
        line["latency_ms"] = latencies.total
    if latencies.most:
        line["latency_max"] = latencies.most
    latencies.forget()
    return 0
