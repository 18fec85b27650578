"""The verbs of the control socket: one table for the broker, the web process, the documentation
and the tests.

A request names a verb, carries its arguments, and says on whose behalf it is made. Each class under
`Verbs` is the structure of one verb's arguments; its decorator says who may call it and what it
answers. `NOUNS` holds what `list` and `item` show, `EVENTS` what is pushed, `ERRORS` how a request
can fail.

Answers are the JSON shapes of RabbitMQ's HTTP API as plain maps (bodies are bytes), and so are the
permission rules. Imports nothing but msgspec and what is beside it: both sides of the process
border read this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from broker.schema.file_steps import Step

RABBITMQ_VERSION = "3.13.7"
"""The version whose HTTP API this is; tools choose by it."""

Size = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""Bytes."""

FRAME_MAX = 192 * 1024 * 1024
"""Longest control frame in bytes, either way: a message of the largest size still fits."""

Tag = Literal["appliance", "anyone", "management", "policymaker", "monitoring", "administrator"]
"""Who may call. `appliance`: only the appliance's own processes (no user). `anyone`: also users
without a tag. `management`: any of the four tags. `policymaker`, `monitoring`: that tag or
administrator."""

Scope = Literal["node", "own", "vhost", "objects"]
"""What is checked besides the tag. `node`: nothing. `own`: what belongs to others is hidden or
refused, unless the user is monitoring (reading) or administrator (changing). `vhost`: the vhost
exists, and the user has a permission row for it or is administrator. `objects`: as `vhost`, and
then the configure, write and read patterns as over AMQP."""

Shown = Literal["node", "vhost", "vhost name", "connection", "user"]
"""Which things of a noun a user with the tag sees; `broker.schema.sight` decides. `node`: all.
`vhost`: those of vhosts that the user may look into. `vhost name`: these vhosts themselves; all as
monitoring. `connection`: those of the user's own connections; all as monitoring. `user`: the user's
own; all as administrator. What is not seen is answered as what does not exist."""

Ages = dict[str, tuple[int, int]]
"""Samples wanted: `msg_rates`, `lengths`, `data_rates` or `node_stats` to (age, increment), both in
seconds."""


class Arguments(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Arguments of one request; an unknown or missing one is refused by name."""


class Verb(NamedTuple):
    """One verb. `changes`: it alters something, so its answer waits until that is on disk, and its
    arguments are as long as a row of definitions at most, if it is not `long`."""

    name: str
    arguments: type[Arguments]
    tag: Tag
    scope: Scope
    changes: bool
    long: bool
    answers: str

    @property
    def doc(self) -> str:
        return " ".join((self.arguments.__doc__ or "").split())


class Noun(NamedTuple):
    """One kind of listed object. `key`: the fields of a row that name it, in a row key's order, and
    what `item` needs. `list_tag`, `item_tag`: who may list, who may see one; `scope`: which."""

    name: str
    key: tuple[str, ...]
    list_tag: Tag
    item_tag: Tag
    scope: Shown
    doc: str


class Failure(NamedTuple):
    """One way to fail: HTTP status, the `error` word, and when."""

    status: int
    error: str
    doc: str


VERBS: dict[str, Verb] = {}


def verb(
    name: str, tag: Tag, scope: Scope, answers: str, *, changes: bool = False, long: bool = False
) -> Callable[[type[Arguments]], type[Arguments]]:
    """Enters a class of arguments into the table of verbs."""

    def enter(arguments: type[Arguments]) -> type[Arguments]:
        VERBS[name] = Verb(name, arguments, tag, scope, changes, long, answers)
        return arguments

    return enter


# Sign-in. The web process asks these for itself.


@verb("authenticate", "appliance", "node", "{name, tags, epoch}")
class Authenticate(Arguments):
    """Checks a password. `peer`: the address the person's socket comes from, without port. `again`:
    the same connection was let in with both before; it does not wait for passwords of others.
    `login`: a number of the caller's for `authenticate.leave`."""

    user: str
    password: str
    peer: str
    protocol: Literal["http", "websocket", "amqp"] = "http"
    again: bool = False
    login: int | None = None


@verb("authenticate.leave", "appliance", "node", "{}")
class AuthenticateLeave(Arguments):
    """The client of a login has gone: its password need no longer be checked. `login`: the
    number that was given with it on this control connection."""

    login: int


@verb("session.valid", "appliance", "node", "{valid, tags}")
class SessionValid(Arguments):
    """Says whether a session stands: the user exists, has the same epoch, and did not sign out."""

    user: str
    epoch: int
    session_id: str


@verb("session.end", "appliance", "node", "{}", changes=True)
class SessionEnd(Arguments):
    """Ends a session. Its id is kept until `expires_at` (ms since 1970), when its cookie would have
    expired anyway; event session.ended tells every process."""

    session_id: str
    expires_at: int


@verb("ticket.issue", "anyone", "node", "{ticket, expires_at}")
class TicketIssue(Arguments):
    """Makes a password that is good for one AMQP login of this user within 30 seconds, and not
    after the end of the session of this id, if one is given."""

    session_id: str = ""


@verb("request.leave", "appliance", "node", "{}")
class RequestLeave(Arguments):
    """No one waits for the answer to a request of this control connection any more. If its verb
    only looks (`LEFT_EARLY`), it ends without an answer, else nothing happens. `request`: its
    id."""

    request: int


# What there is.


@verb("whoami", "management", "node", "{name, tags}")
class Whoami(Arguments):
    """Names the calling user."""


@verb("types", "management", "node", "{exchange, queue}")
class Types(Arguments):
    """Names the exchange types and queue types that this broker carries out, by kind."""


@verb(
    "overview",
    "management",
    "node",
    "RabbitMQ's overview, and {health, problems, top_queues, top_publishers, durability, at}",
)
class Overview(Arguments):
    """Shows the whole node, or one vhost, as the user may see it. `disable_stats` leaves the
    figures out."""

    vhost: str | None = None
    ages: Ages = {}
    disable_stats: bool = False


@verb(
    "problems",
    "management",
    "node",
    "{health, items: [{severity, kind, trouble, vhost, name, text, since, count}], problem_count, "
    "item_count, filtered_count, total_count, page, page_count, page_size}",
)
class Problems(Arguments):
    """Lists what needs attention, as far as the user may see it, the heaviest first: by depth, age
    and growth. Alike problems of one vhost are one item with a `count` and the first `names`;
    `problem_count` counts each. `since` is ms since 1970. A state is listed when it has lasted for
    `problem_grace`; refusing, paused and stuck at once."""

    vhost: str | None = None
    page: int = 1
    page_size: int = 100


@verb(
    "queue.refusals",
    "management",
    "vhost",
    "{is_refusing, rate, refused, since, limits: [{argument, value, used, source, source_name}], "
    "publishers: [{connection, user, user_provided_name, refused}], others}",
)
class QueueRefusals(Arguments):
    """Says which publishes a full queue refuses: how many a second, how many since the spell began,
    which limit is reached and where it was set, and whose publishes they are. `others`: publishers
    that the user may not see. A spell ends when 30 seconds have passed without a refusal."""

    vhost: str
    name: str


@verb("nodes", "monitoring", "node", "[node]")
class Nodes(Arguments):
    """Shows the one node, as RabbitMQ lists nodes. `disable_stats` leaves the figures out."""

    ages: Ages = {}
    disable_stats: bool = False


@verb(
    "list",
    "anyone",
    "own",
    "{items, item_count, filtered_count, total_count, page, page_count, page_size, more}",
)
class List(Arguments):
    """Lists one noun: filtered, sorted and paged in the broker. The table of nouns says who may.

    `user`, `connection`, `channel`, `queue` (with `vhost`), `source`, `destination`, `component`
    keep only rows of that; `user` of vhosts those that the user may look into, of queues those that
    the user declared, as far as that is known. `state` keeps rows
    whose `trouble` is that word; `trouble` keeps all but fine and idle. `name` is a part of the
    name, with `use_regex` an RE2 expression, both without regard to case. Without `page` all rows
    come at once. `sort` is a key, dotted for inner ones; an unknown one is ignored;
    `trouble` puts first what needs a person. `columns` are keys too. `secrets`, for administrators:
    values of parameters with the passwords in their URIs. `slices` is a number of the caller's
    choice: of a list without pages that is longer than 500 rows the first ones come, with `more`
    true, and `list.more` gives the next ones under that number. Rows are built when asked for.
    """

    noun: str
    vhost: str | None = None
    user: str | None = None
    connection: str | None = None
    channel: str | None = None
    queue: str | None = None
    source: str | None = None
    destination: str | None = None
    destination_type: Literal["queue", "exchange"] | None = None
    component: str | None = None
    without_permissions: bool = False
    state: str | None = None
    name: str | None = None
    use_regex: bool = False
    page: int | None = None
    page_size: int = 100
    sort: str | None = None
    sort_reverse: bool = False
    columns: list[str] | None = None
    ages: Ages = {}
    disable_stats: bool = False
    enable_queue_totals: bool = False
    secrets: bool = False
    slices: int | None = None


@verb("list.more", "anyone", "own", "{items, more}")
class ListMore(Arguments):
    """The next rows of a list that was asked for with `slices`. With `more` false it is over."""

    list: int


@verb("list.end", "anyone", "own", "{}")
class ListEnd(Arguments):
    """Ends such a list before its last row, or before its first answer."""

    list: int


@verb("item", "anyone", "own", "one row, with details")
class Item(Arguments):
    """Shows one object, named by the fields of its noun's key; 404 if it does not exist. `flows`
    false leaves out who publishes and consumes, which of a queue may be thousands."""

    noun: str
    vhost: str | None = None
    name: str | None = None
    user: str | None = None
    exchange: str | None = None
    source: str | None = None
    destination: str | None = None
    destination_type: Literal["queue", "exchange"] | None = None
    properties_key: str | None = None
    component: str | None = None
    ages: Ages = {}
    secrets: bool = False
    disable_stats: bool = False
    enable_queue_totals: bool = False
    flows: bool = True


@verb("history", "management", "own", "{step_ms, times: [ms], series: {name: [number|nil]}}")
class History(Arguments):
    """Gives chart data, oldest first. Rates are averages per second over each step, levels the last
    value in it; nil is a gap. `key` is a row key (`[vhost, name]` for a queue). What is older
    than memory comes from disk: a day by the minute, 31 days by ten minutes, a year by the hour.
    Then the answer also has `begins`, ms since 1970, before which nothing is known, and `left_out`:
    how often an object had no record because others were busier."""

    what: Literal["overview", "vhost", "queue", "exchange", "connection"]
    key: list[str] = []
    from_ms: int | None = None
    to_ms: int | None = None
    series: list[str] | None = None


@verb("subscribe", "management", "own", "{sub}")
class Subscribe(Arguments):
    """Starts pushes: one `start` with the whole state, then at most one `delta` a second with what
    changed, under dotted keys (`queue_totals.messages_ready`).

    `overview` (of one `vhost` or all) and `item` (a `noun` and its row `key`) start with `{state,
    history}`, where history is as in the verb of that name over `history_s` seconds, and continue
    with `{state: {dotted: value}, point: {series: number}}`. `rows` follows the `keys` of a noun:
    `{rows: [[key, {dotted: value}]]}`, and `[key, nil]` when a row is gone. `events` pushes what
    `EVENTS` names, as it happens.
    """

    topic: Literal["overview", "rows", "item", "events"]
    noun: str | None = None
    keys: list[list[str]] | None = None
    key: list[str] | None = None
    vhost: str | None = None
    history_s: int = 900


@verb("unsubscribe", "anyone", "node", "{}")
class Unsubscribe(Arguments):
    """Stops the pushes of one subscription."""

    sub: int


@verb("health", "management", "node", "{status: ok} or {status: failed, reason, ...}")
class Health(Arguments):
    """Runs one of RabbitMQ's health checks. `argument`: port, protocol, vhost, node, or a number
    and a unit, as `2 months`."""

    check: Literal[
        "alarms",
        "local-alarms",
        "node",
        "virtual-hosts",
        "port-listener",
        "protocol-listener",
        "is-in-service",
        "ready-to-serve-clients",
        "below-node-connection-limit",
        "node-is-quorum-critical",
        "node-is-mirror-sync-critical",
        "reached-target-cluster-size",
        "metadata-store-initialized",
        "metadata-store-initialized-with-data",
        "certificate-expiration",
        "aliveness",
    ]
    argument: str | None = None


@verb(
    "auth.attempts",
    "monitoring",
    "node",
    "[{protocol, auth_attempts, auth_attempts_failed, auth_attempts_succeeded}]",
)
class AuthAttempts(Arguments):
    """Counts logins by protocol; with `by_source` by protocol, user and address."""

    by_source: bool = False


@verb("auth.attempts.reset", "administrator", "node", "{}")
class AuthAttemptsReset(Arguments):
    """Starts those counts anew."""


@verb("auth.attempts.track", "administrator", "node", "{}")
class AuthAttemptsTrack(Arguments):
    """Says whether logins are counted by user and address, as they are from the start on, or by
    protocol alone; until the next start."""

    sources: bool


@verb("statistics.reset", "administrator", "node", "{}")
class StatisticsReset(Arguments):
    """Starts the totals and the histories of the node and its virtual hosts anew. The
    counters of single objects stay."""


@verb("listeners.suspend", "administrator", "node", "{changed}")
class ListenersSuspend(Arguments):
    """No further client can connect, over AMQP, WebSocket or Unix socket; who is connected stays.
    The control socket, the pages, the API and the metrics answer. It ends with the process, as what
    the next five do."""


@verb("listeners.resume", "administrator", "node", "{changed}")
class ListenersResume(Arguments):
    """Lets clients connect again. 400 while the application is stopped, or if an address is taken
    now."""


@verb("node.drain", "administrator", "node", "{closed}")
class NodeDrain(Arguments):
    """Puts the node into maintenance: suspends the listeners and closes every client's connection
    with 320. The node counts as `being_drained` then."""


@verb("node.revive", "administrator", "node", "{changed}")
class NodeRevive(Arguments):
    """Ends the maintenance and resumes the listeners; 400 as `listeners.resume`."""


@verb("app.stop", "administrator", "node", "{closed}")
class AppStop(Arguments):
    """Suspends the listeners and closes every client's connection with 320. The node counts as not
    `running` then. Messages, timers and what runs inside the broker go on."""


@verb("app.start", "administrator", "node", "{changed}")
class AppStart(Arguments):
    """Serves clients again: ends what `app.stop`, `node.drain` and `listeners.suspend` did."""


@verb("setting.put", "administrator", "node", "{name, value, configured}")
class SettingPut(Arguments):
    """Changes a setting until the next start, whatever the settings say that are read on SIGHUP.
    `value` is written as in the INI file."""

    name: Literal["memory_high_watermark", "disk_free_limit", "log_level"]
    value: str


@verb("memory", "monitoring", "node", "{total, strategy, parts: {name: bytes}}")
class Memory(Arguments):
    """Says what the memory is used for, as far as it is known, under RabbitMQ's names. `total` is
    the resident memory, as at the last look."""


@verb("memory.release", "administrator", "node", "{garbage, before, after}")
class MemoryRelease(Arguments):
    """Collects what is garbage in circles, and gives freed memory back to the system; bytes of
    resident memory before and after. What Python's collector has set aside for good is not walked
    over: clients would have to wait for it."""


@verb("process", "administrator", "node", "{python, command_line, environment, log, threads, tls}")
class Process(Arguments):
    """Shows the broker's process: interpreter, command line and variables (`LEVERET_*`, without
    secrets), where its log goes, each thread with its CPU seconds, and what its TLS offers."""


@verb(
    "certificates",
    "administrator",
    "node",
    "[{file, subject, issuer, names, not_before, not_after, serial}]",
)
class CertificatesShow(Arguments):
    """Lists the certificates of the broker's listeners. `names` are the host names and addresses
    that each is for."""


@verb(
    "feature-flags",
    "management",
    "node",
    "[{name, desc, doc_url, state, stability, provided_by}]",
)
class FeatureFlags(Arguments):
    """Says which of RabbitMQ's feature flags stand for something that this broker does."""


@verb("feature-flag.enable", "administrator", "node", "{}")
class FeatureFlagEnable(Arguments):
    """Does nothing for a flag that is enabled, and refuses another."""

    name: str


@verb("settings", "administrator", "node", "{name: value}")
class Settings(Arguments):
    """Shows every setting of the broker as it counts now; secrets are left out."""


@verb("log", "monitoring", "node", "{entries: [[id, time, level, source, text]], newest, epoch}")
class Log(Arguments):
    """Shows the broker's log: the newest `count` of the kept lines behind the id `after`, of this
    `level` and worse ones. If there is none, waits up to `wait_s` seconds for one. With the `epoch`
    of an earlier answer it is refused once the user has another password."""

    after: int = 0
    level: Literal["debug", "info", "warning", "error"] = "debug"
    count: int = 1000
    wait_s: float = 0
    epoch: int | None = None


@verb("metrics", "monitoring", "node", "{body, content_type}")
class Metrics(Arguments):
    """Gives a page of Prometheus metrics: /metrics, /metrics/per-object, /metrics/detailed with a
    query, or /metrics/memory-breakdown."""

    path: str = "/metrics"
    query: str = ""


@verb("backup.begin", "appliance", "node", "{directory, files, bytes, still_s}")
class BackupBegin(Arguments):
    """Takes a snapshot of the data directory, as hard links in `directory`, for a copy. It goes
    when the connection ends."""


@verb("files.carry", "appliance", "node", "{errno, reason, path}")
class FilesCarry(Arguments):
    """Brings finished files of the reports process from `run/` into `usage/` and `reports/`, or
    removes what is there, in the order of `steps`: maps with `type` bring or link (`source`,
    `target`), write (`target`, `data`) or remove (`target`). Paths are relative to the data
    directory. `errno` is 0 if all is done and on disk, else the error that ended it at `path`."""

    steps: list[Step]


# Messaging.


@verb("queue.declare", "management", "objects", "{created}", changes=True)
class QueueDeclare(Arguments):
    """Declares a queue."""

    vhost: str
    name: str
    durable: bool = False
    auto_delete: bool = False
    exclusive: bool = False
    arguments: dict[str, Any] = {}


@verb("queue.delete", "management", "objects", "{messages}", changes=True)
class QueueDelete(Arguments):
    """Deletes a queue."""

    vhost: str
    name: str
    if_unused: bool = False
    if_empty: bool = False


@verb("queue.purge", "management", "objects", "{messages}", changes=True)
class QueuePurge(Arguments):
    """Drops the ready messages of a queue."""

    vhost: str
    name: str


@verb("queue.pause", "management", "objects", "{changed}", changes=True)
class QueuePause(Arguments):
    """Stops deliveries, to consumers and to basic.get; publishing continues. It holds over restarts
    if the queue is durable."""

    vhost: str
    name: str


@verb("queue.restart", "management", "objects", "{}", changes=True)
class QueueRestart(Arguments):
    """Lets a queue try at once what it waits for after the disk failed a read; needs configure
    permission. 400 if the queue waits for nothing."""

    vhost: str
    name: str


@verb(
    "queue.unacked",
    "management",
    "vhost",
    "{items: [{delivery_tag, consumer_tag, unacked_for_seconds, channel_name, ...}], complete}",
)
class QueueUnacked(Arguments):
    """Shows what consumers of a queue hold, up to `count`, by channel and delivery tag.
    `unacked_for_seconds` is at least so long, and nil where it is not known. `channel_name` and
    `channel_details` are nil for connections that the user may not see."""

    vhost: str
    name: str
    count: int = 1000


@verb("queue.resume", "management", "objects", "{changed}", changes=True)
class QueueResume(Arguments):
    """Resumes the deliveries of a paused queue."""

    vhost: str
    name: str


@verb(
    "queue.get",
    "management",
    "objects",
    "[{payload, payload_bytes, properties, exchange, routing_key, redelivered, message_count}]",
)
class QueueGet(Arguments):
    """Takes messages from the head, of a paused queue too; the two `requeue_true` modes put them
    back. `truncate` cuts each body to that number of bytes; `payload_bytes` is its whole length all
    the same. Bodies of an answer have `bytes_max` bytes together at most: a message that is larger
    by itself is refused, and goes back. The API gives the setting `get_bytes_max`."""

    vhost: str
    name: str
    count: int = 1
    ackmode: Literal[
        "ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"
    ] = "ack_requeue_true"
    truncate: int | None = None
    bytes_max: Size = 134_217_728


@verb(
    "queue.peek",
    "management",
    "objects",
    "[{payload, payload_bytes, properties, exchange, routing_key, redelivered}]",
)
class QueuePeek(Arguments):
    """Shows ready messages, the next to be delivered first, of a paused queue too, and changes
    nothing: none is taken, marked as redelivered, counted as delivered or moved. Needs read
    permission. `count` is 1,000 at most; `truncate` and `bytes_max` as in `queue.get`."""

    vhost: str
    name: str
    count: int = 1
    truncate: int | None = None
    bytes_max: Size = 134_217_728


@verb(
    "stream.read",
    "management",
    "objects",
    "[{offset, timestamp, payload, payload_bytes, properties, exchange, routing_key, redelivered}]",
)
class StreamRead(Arguments):
    """Shows messages of a stream without taking them. `offset` is what a consumer's x-stream-offset
    may be: `first`, `last`, `next`, a number (below 0: before the end) or an interval such as `1h`.
    `timestamp` is ms since 1970; `truncate` and `bytes_max` as in `queue.get`."""

    vhost: str
    name: str
    offset: int | str = "first"
    count: int = 1
    truncate: int | None = None
    bytes_max: Size = 134_217_728


@verb(
    "stream.search",
    "management",
    "objects",
    "{messages: [as of stream.read], complete, reasons, whole_from, files, searched, skipped, left,"
    " fetched, read}",
)
class StreamSearch(Arguments):
    """Finds the newest messages of a stream that have a key, by the stream's index
    (`x-stream-index`). `key` is one of the index, or the name of a header without `header:`; left
    out where the stream has one key only. `first` and `last` are times in ms since 1970, both
    included; `max` messages at most. `complete` is false where something may be missing, for the
    `reasons`; `whole_from` is the time (ms) from which on the stream is indexed by this key, null:
    from its beginning. The figures: index files that the range meets, were searched, were skipped
    by their filters, were not needed (`left`); requests to an object store; messages read.
    `octets` come before `value`, for what is no text. `truncate` and `bytes_max` as in
    `queue.get`. Needs read permission."""

    vhost: str
    name: str
    value: str
    octets: bytes | None = None
    key: str | None = None
    first: int | None = None
    last: int | None = None
    max: int = 10
    truncate: int | None = None
    bytes_max: Size = 134_217_728


@verb(
    "history.life",
    "management",
    "objects",
    "{record: as of stream.read, events: [{event, timestamp, offset, queue, place, user,"
    " connection, consumer_tag, exchange, routing_key, queues}], places: [{queue, state, since}],"
    " kept, complete, reasons}",
)
class HistoryLife(Arguments):
    """Tells the life of a message by the history of its virtual host: `offset` is that of its
    record there. The events come in the order of time, the publish first; `places` says of each
    queue that got the message, or that it was passed on to, what happened to it there last.
    `kept` is false where no events are kept of the queues that it reached (policy
    `history-events`). `complete` is false where something may be missing, for the `reasons`.
    The record's body is cut to `truncate` bytes, and to `get_bytes_max` in any case. Needs read
    permission on the history."""

    vhost: str
    offset: int
    truncate: int | None = None


@verb("exchange.declare", "management", "objects", "{created}", changes=True)
class ExchangeDeclare(Arguments):
    """Declares an exchange."""

    vhost: str
    name: str
    type: str = "direct"
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


@verb("exchange.delete", "management", "objects", "{}", changes=True)
class ExchangeDelete(Arguments):
    """Deletes an exchange."""

    vhost: str
    name: str
    if_unused: bool = False


@verb(
    "exchange.delayed",
    "management",
    "objects",
    "{items: [{id, due, routing_key, payload_bytes, properties}], searched, next}",
)
class ExchangeDelayed(Arguments):
    """Shows messages that an exchange holds back, soonest first; needs read permission.
    `routing_key`: a part of it; `due_from` and `due_until`: ms since 1970. `after` is the `next` of
    the answer before; it is null when there is no more. One request looks at 5,000 messages at
    most, so that a page may be short and yet have a `next`."""

    vhost: str
    name: str
    routing_key: str = ""
    due_from: int | None = None
    due_until: int | None = None
    after: str | None = None
    count: int = 100


@verb("exchange.delayed.cancel", "management", "objects", "{}", changes=True)
class ExchangeDelayedCancel(Arguments):
    """Drops a message that an exchange holds back; needs configure permission, as deleting the
    exchange does. It is gone for good when the answer comes."""

    vhost: str
    name: str
    id: str


@verb("transfer.start", "management", "objects", "{id, state, ...}", changes=True)
class TransferStart(Arguments):
    """Moves or copies the ready messages of a queue, or copies those of a stream, to a queue or an
    exchange, which may be in another vhost. Needs read permission on the source and write
    permission on the target; messages that arrive later are not touched. `routing_key` is a
    pattern, `header` and `value` say what a header reads; `older_than` and `newer_than` are seconds
    since the publish, `limit` is how many messages are handed over at most, `rate` how many a
    second. A transfer is kept over restarts."""

    vhost: str
    name: str
    mode: Literal["move", "copy"]
    target: str
    target_vhost: str | None = None
    target_type: Literal["queue", "exchange"] = "queue"
    routing_key: str | None = None
    header: str | None = None
    value: str | None = None
    older_than: int | None = None
    newer_than: int | None = None
    limit: int | None = None
    rate: int | None = None


@verb(
    "transfer.replay",
    "management",
    "objects",
    "{id, state, complete, reasons, ...}",
    changes=True,
)
class TransferReplay(Arguments):
    """Hands messages of a stream over once more, to a queue or an exchange, as a transfer; each has
    headers that say that it is a replay. All from `first_offset` to `last_offset`, both included,
    or from the time `first` to the time `last` (ms since 1970): left out, from the oldest to the
    newest message there is now. With `value`, those that `stream.search` finds by `key` and `value`
    in that range, the newest `max` of them, in the order of their offsets; `complete` is false
    where some may be missing, for the `reasons`. `routing_key` is a pattern, `header` and
    `header_value` say what a header reads; `limit` is how many messages are handed over at most,
    `rate` how many a second. `offsets` names the messages one by one instead. `record`: it goes
    into the history of the target, too. Needs read permission on the stream and write permission
    on the target."""

    vhost: str
    name: str
    target: str
    target_vhost: str | None = None
    target_type: Literal["queue", "exchange"] = "queue"
    first_offset: int | None = None
    last_offset: int | None = None
    first: int | None = None
    last: int | None = None
    key: str | None = None
    value: str | None = None
    max: int | None = None
    offsets: list[int] | None = None
    routing_key: str | None = None
    header: str | None = None
    header_value: str | None = None
    limit: int | None = None
    rate: int | None = None
    record: bool = False


@verb("transfer.preview", "management", "objects", "{looked, matched, ready}")
class TransferPreview(Arguments):
    """Counts how many of the first `count` messages, 10,000 at most, `transfer.start` with this
    filter would take. Changes nothing; needs read permission."""

    vhost: str
    name: str
    routing_key: str | None = None
    header: str | None = None
    value: str | None = None
    older_than: int | None = None
    newer_than: int | None = None
    count: int = 1000


@verb(
    "transfer.list",
    "management",
    "own",
    "[{id, mode, source_vhost, source, target_vhost, target, state, reason, total, looked, matched,"
    " handed_over, refused, left, ...}]",
)
class TransferList(Arguments):
    """Shows transfers under way and those that are over, newest first: those between vhosts that
    the user may look into, and the user's own. `vhost` and `name` limit the list to a source."""

    vhost: str | None = None
    name: str | None = None


@verb("transfer.pause", "management", "own", "{state}", changes=True)
class TransferPause(Arguments):
    """Lets a transfer stay where it is, over restarts, too, until it is resumed. Only who started
    it may do so, or an administrator."""

    id: int


@verb("transfer.resume", "management", "own", "{state}", changes=True)
class TransferResume(Arguments):
    """Lets a transfer go on that was paused; `rate`, in messages a second, replaces the rate of one
    that is paused or runs, 0 is no limit. Only who started it may do so, or an administrator."""

    id: int
    rate: int | None = None


@verb("transfer.delete", "management", "own", "{state}", changes=True)
class TransferDelete(Arguments):
    """Stops a transfer under way; what was handed over stays where it is. A message that very many
    queues are getting goes to all of them first, and `state` is not `stopped` before. One that is
    over is taken off the list. Only who started it may do so, or an administrator."""

    id: int


@verb(
    "tiers",
    "monitoring",
    "node",
    "{store, state, problem, appliance, owner, streams, objects, pending_segments, ...}",
)
class TiersShow(Arguments):
    """Shows the object store that segments of streams go to: its state (`unused`, `fine`, `away`,
    `foreign`), what waits, what was put, fetched and deleted since the start, and what it cost."""


@verb("tiers.adopt", "administrator", "node", "{store, state, owner, ...}", changes=True)
class TiersAdopt(Arguments):
    """Makes the prefix in the object store this appliance's: for the copy of a backup whose
    original is no more. From then on it puts segments there and deletes what is not needed."""


@verb("exchange.publish", "management", "objects", "{routed}")
class ExchangePublish(Arguments):
    """Publishes one message; a persistent one is on disk when the answer comes. 400 if a full queue
    refuses it. The default exchange is `amq.default`."""

    vhost: str
    name: str
    routing_key: str
    payload: bytes
    properties: dict[str, Any] = {}


@verb("binding.create", "management", "objects", "{created, properties_key}", changes=True)
class BindingCreate(Arguments):
    """Binds a queue or an exchange to an exchange."""

    vhost: str
    source: str
    destination: str
    destination_type: Literal["queue", "exchange"]
    routing_key: str = ""
    arguments: dict[str, Any] = {}


@verb("binding.delete", "management", "objects", "{}", changes=True)
class BindingDelete(Arguments):
    """Removes one binding. `properties_key` is the routing key, `key~hash` where there are
    arguments, `~` for an empty key."""

    vhost: str
    source: str
    destination: str
    destination_type: Literal["queue", "exchange"]
    properties_key: str


@verb("connection.close", "management", "own", "{}", changes=True)
class ConnectionClose(Arguments):
    """Closes a connection with 320 and the reason: one's own, or any as administrator."""

    name: str
    reason: str = "Closed via management plugin"


@verb("connection.close_user", "management", "own", "{closed}", changes=True)
class ConnectionCloseUser(Arguments):
    """Closes every connection of a user: one's own, or any as administrator."""

    user: str
    reason: str = "Closed via management plugin"


@verb("consumer.cancel", "management", "own", "{}", changes=True)
class ConsumerCancel(Arguments):
    """Cancels a consumer, of one's own connection or as administrator; the client gets a notice if
    it can understand it. What it holds stays with its channel until it is settled."""

    vhost: str
    connection: str
    channel: int
    consumer_tag: str


@verb("channel.prefetch", "management", "own", "{}")
class ChannelPrefetch(Arguments):
    """Changes the prefetch of a channel's consumers while they run, and of those to come; of one's
    own connection or as administrator. 0 is no limit."""

    name: str
    prefetch: int


# Administration.


@verb("vhost.put", "administrator", "node", "{created}", changes=True)
class VHostPut(Arguments):
    """Creates or changes a virtual host. Its creator gets full permissions in it.
    `default_queue_type` (classic, quorum or stream) is the type of new durable queues, neither
    exclusive nor auto-delete, that name none. `tracing` turns the firehose on or off, until the
    next start."""

    name: str
    description: str | None = None
    tags: list[str] | str | None = None
    default_queue_type: str | None = None
    protected_from_deletion: bool | None = None
    tracing: bool | None = None


@verb("vhost.delete", "administrator", "node", "{}", changes=True)
class VHostDelete(Arguments):
    """Deletes a virtual host and all that is in it; 412 if it is protected from deletion."""

    name: str


@verb("vhost.protect", "administrator", "node", "{}", changes=True)
class VHostProtect(Arguments):
    """Protects a virtual host from deletion, or ends that."""

    name: str
    protected: bool


@verb("traces", "administrator", "node", "[{vhost, name, pattern, queue}]")
class Traces(Arguments):
    """Lists what is traced to queues, in all virtual hosts or one."""

    vhost: str | None = None


@verb("trace.put", "administrator", "vhost", "{created}", changes=True)
class TracePut(Arguments):
    """Turns the firehose of a virtual host on and binds a queue to it. `pattern` is a topic's:
    `publish.<exchange>` and `deliver.<queue>` are the keys. Without `queue` one is declared that
    keeps the newest 10,000 messages and goes with the trace."""

    vhost: str
    name: str
    pattern: str = "#"
    queue: str | None = None


@verb("trace.delete", "administrator", "vhost", "{}", changes=True)
class TraceDelete(Arguments):
    """Ends a trace; the last one of a virtual host turns the firehose off."""

    vhost: str
    name: str


@verb("user.put", "administrator", "node", "{created}", changes=True)
class UserPut(Arguments):
    """Creates or changes a user. One with neither password nor hash cannot log in by password."""

    name: str
    tags: list[str] | str
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str | None = None
    limits: dict[str, int] | None = None


@verb("user.delete", "administrator", "node", "{}", changes=True)
class UserDelete(Arguments):
    """Deletes a user with its permissions and closes its connections."""

    name: str


@verb("users.delete", "administrator", "node", "{deleted}", changes=True)
class UsersDelete(Arguments):
    """Deletes several users; none of them if one does not exist."""

    names: list[str]


@verb("permission.put", "administrator", "node", "{created}", changes=True)
class PermissionPut(Arguments):
    """Sets the three patterns (RE2, found anywhere in a name) of a user in a virtual host."""

    vhost: str
    user: str
    configure: str
    write: str
    read: str


@verb("permission.delete", "administrator", "node", "{}", changes=True)
class PermissionDelete(Arguments):
    """Takes a virtual host away from a user."""

    vhost: str
    user: str


@verb("topic-permission.put", "administrator", "node", "{created}", changes=True)
class TopicPermissionPut(Arguments):
    """Sets the routing key patterns of a user on one topic exchange."""

    vhost: str
    user: str
    exchange: str
    write: str
    read: str


@verb("topic-permission.delete", "administrator", "node", "{}", changes=True)
class TopicPermissionDelete(Arguments):
    """Removes those patterns, for one exchange or for all."""

    vhost: str
    user: str
    exchange: str | None = None


VHostLimit = Literal["max-connections", "max-queues"]
UserLimit = Literal["max-connections", "max-channels"]


@verb("vhost-limit.put", "administrator", "node", "{}", changes=True)
class VHostLimitPut(Arguments):
    """Sets a limit of a virtual host; a negative value is none."""

    vhost: str
    name: VHostLimit
    value: int


@verb("vhost-limit.delete", "administrator", "node", "{}", changes=True)
class VHostLimitDelete(Arguments):
    """Removes a limit of a virtual host."""

    vhost: str
    name: VHostLimit


@verb("user-limit.put", "administrator", "node", "{}", changes=True)
class UserLimitPut(Arguments):
    """Sets a limit of a user; a negative value is none."""

    user: str
    name: UserLimit
    value: int


@verb("user-limit.delete", "administrator", "node", "{}", changes=True)
class UserLimitDelete(Arguments):
    """Removes a limit of a user."""

    user: str
    name: UserLimit


class _PolicyArguments(Arguments):
    vhost: str
    name: str
    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = "all"


@verb("policy.put", "policymaker", "vhost", "{created, is_applied}", changes=True)
class PolicyPut(_PolicyArguments):
    """Sets a policy: what its definition says holds for the queues and exchanges in whose names the
    pattern (RE2) is found. The answer comes when it has reached all of them (`is_applied`), after
    ten seconds in any case: for very many queues and policies it may take minutes."""


@verb("policy.delete", "policymaker", "vhost", "{is_applied}", changes=True)
class PolicyDelete(Arguments):
    """Removes a policy."""

    vhost: str
    name: str


@verb("operator-policy.put", "administrator", "vhost", "{created, is_applied}", changes=True)
class OperatorPolicyPut(_PolicyArguments):
    """Sets an operator policy, which bounds what policies and arguments may set."""


@verb("operator-policy.delete", "administrator", "vhost", "{is_applied}", changes=True)
class OperatorPolicyDelete(Arguments):
    """Removes an operator policy."""

    vhost: str
    name: str


@verb(
    "policy.keys",
    "management",
    "node",
    "[{name, argument, owner, kind, choices, least, most, unit, text, operator}]",
)
class PolicyKeys(Arguments):
    """Lists what a definition may set. `argument` is the x-argument that a key stands for, nil for
    one that is kept and does nothing here."""


@verb(
    "policy.preview",
    "management",
    "vhost",
    "{queues, queue_names, exchanges, exchange_names}",
)
class PolicyPreview(Arguments):
    """Counts what a policy with this pattern could apply to, with the first of their names in
    order."""

    vhost: str
    pattern: str
    apply_to: str = "all"


@verb("parameter.put", "policymaker", "vhost", "{created}", changes=True)
class ParameterPut(Arguments):
    """Sets a parameter of a component: `limits` of `vhost-limits`, for which it takes an
    administrator; or a shovel, a federation-upstream or a federation-upstream-set, which run in the
    name of the caller."""

    component: str
    vhost: str
    name: str
    value: Any


@verb(
    "shovel.list",
    "management",
    "own",
    "[{vhost, name, state, reason, src_uri, dest_uri, rate, message_count, counts, history, ...}]",
)
class ShovelList(Arguments):
    """Shows shovels with their states, without secrets: those of vhosts that the user may look
    into. Takes a policymaker or monitoring."""

    vhost: str | None = None
    name: str | None = None


@verb("shovel.pause", "policymaker", "vhost", "{state}", changes=True)
class ShovelPause(Arguments):
    """Stops a shovel until `shovel.resume`, over restarts, too."""

    vhost: str
    name: str


@verb("shovel.resume", "policymaker", "vhost", "{state}", changes=True)
class ShovelResume(Arguments):
    """Lets a paused shovel run again."""

    vhost: str
    name: str


@verb("shovel.restart", "policymaker", "vhost", "{state}")
class ShovelRestart(Arguments):
    """Closes the connections of a shovel and begins anew, without waiting for its next try."""

    vhost: str
    name: str


@verb("shovel.test", "policymaker", "vhost", "[{step, is_fine, text}]")
class ShovelTest(Arguments):
    """Tries both ends of a definition, stored or not: name, address, TLS, login, vhost, queue or
    exchange. Nothing is declared, moved or stored. `***` is the password that the stored shovel of
    this name has."""

    vhost: str
    name: str
    value: dict[str, Any]


@verb("bridges.follow", "appliance", "node", "{version, is_whole, more, shovels, tests}")
class BridgesFollow(Arguments):
    """What has changed since a version, for the process that runs shovels: definitions, and what is
    to be tried. At once where something has, else when something does, or after `wait_s`."""

    version: int
    wait_s: float = 30.0


class ShovelReport(Arguments):
    """State of one shovel, and what is new since the last report: counts, changes of state. Times
    are ms since 1970."""

    vhost: str
    name: str
    generation: int
    state: Literal["starting", "running", "blocked", "paused", "error", "stopped", "terminated"]
    reason: str
    since: int
    next_try: int | None = None
    last_error: str = ""
    src_uri: str = ""
    dest_uri: str = ""
    in_flight: int = 0
    held: int = 0
    remaining: int | None = None
    rate: float = 0.0
    is_over: bool = False
    counts: dict[str, int] = {}
    history: list[dict[str, str | int]] = []


class TrialStep(Arguments):
    """One step of a trial."""

    step: str
    is_fine: bool
    text: str


@verb("bridges.report", "appliance", "node", "{}")
class BridgesReport(Arguments):
    """States and new counts of shovels."""

    shovels: list[ShovelReport]


@verb("bridges.tested", "appliance", "node", "{}")
class BridgesTested(Arguments):
    """What a trial of a definition has found."""

    id: int
    steps: list[TrialStep]


@verb("bridges.login", "appliance", "node", "{user, ticket}")
class BridgesLogin(Arguments):
    """A user and a password for one login to a vhost, for a shovel of this owner. 401 says why it
    may no longer run."""

    owner: str | None
    vhost: str


@verb("bridges.source", "appliance", "node", "{dead_letter_exchange, stream}")
class BridgesSource(Arguments):
    """What the source of a shovel is: its dead-letter exchange, nil where it has none or one that
    does not exist, and if it is a stream the id of this incarnation of it."""

    vhost: str
    queue: str


@verb("bridges.place", "appliance", "node", "{}", changes=True)
class BridgesPlace(Arguments):
    """Keeps how far a shovel has come in a stream: `of` names the stream, below `offset` all is
    settled, and nothing above `noted` was published. Answered when it is on disk."""

    vhost: str
    name: str
    birth: int
    of: str
    offset: int
    noted: int


@verb(
    "federation.list",
    "management",
    "own",
    "[{vhost, type, upstream, id, status, uri, error, state, reason, counts, history, ...}]",
)
class FederationList(Arguments):
    """Shows the links of federated exchanges and queues with their states, without secrets: those
    of vhosts that the user may look into; with `down` those that neither run nor start. Takes a
    policymaker or monitoring."""

    vhost: str | None = None
    id: str | None = None
    down: bool = False


@verb("federation.upstreams", "management", "own", "[{vhost, name, component, owner, links, ...}]")
class FederationUpstreams(Arguments):
    """Shows upstreams and sets as forms show them, with `***` for passwords: those of vhosts that
    the user may look into. Takes a policymaker or monitoring."""

    vhost: str | None = None
    name: str | None = None


@verb("federation.restart", "policymaker", "vhost", "{state}")
class FederationRestart(Arguments):
    """Closes the connections of a link and begins anew, without waiting for its next try."""

    vhost: str
    id: str


@verb("federation.test", "policymaker", "vhost", "[{step, is_fine, text}]")
class FederationTest(Arguments):
    """Tries the definition of an upstream, stored or not: name, address, TLS, login, vhost, and
    the exchange or queue that it names. Nothing is declared, consumed or stored. `***` is the
    password that the stored upstream of this name has."""

    vhost: str
    name: str
    value: dict[str, Any]


@verb(
    "federation.follow",
    "appliance",
    "node",
    "{version, is_whole, more, name, links, bindings, wants, tests}",
)
class FederationFollow(Arguments):
    """What has changed since a version, for the process that runs links: links, serial numbers of
    the bindings of exchanges, which queues want more, and what is to be tried. At once where
    something has, else when something does, or after `wait_s`."""

    version: int
    wait_s: float = 30.0


@verb("federation.bindings", "appliance", "node", "{serial, known, more, rows}")
class FederationBindings(Arguments):
    """Changes of the bindings of a federated exchange since a serial number."""

    vhost: str
    exchange: str
    serial: int


@verb("federation.report", "appliance", "node", "{}")
class FederationReport(Arguments):
    """States and new counts of links; `name` is the id of a link."""

    links: list[ShovelReport]


@verb("federation.tested", "appliance", "node", "{}")
class FederationTested(Arguments):
    """What a trial of an upstream has found."""

    id: int
    steps: list[TrialStep]


@verb("federation.login", "appliance", "node", "{user, ticket}")
class FederationLogin(Arguments):
    """A user and a password for one login to a vhost, for a link of this owner. 401 says why it may
    no longer run."""

    owner: str | None
    vhost: str


@verb("parameter.delete", "policymaker", "vhost", "{}", changes=True)
class ParameterDelete(Arguments):
    """Removes a parameter of a component."""

    component: str
    vhost: str
    name: str


@verb("global-parameter.put", "policymaker", "node", "{created}", changes=True)
class GlobalParameterPut(Arguments):
    """Sets a global parameter; cluster_name needs an administrator."""

    name: str
    value: Any


@verb("global-parameter.delete", "policymaker", "node", "{}", changes=True)
class GlobalParameterDelete(Arguments):
    """Removes a global parameter."""

    name: str


@verb("definitions.export", "administrator", "node", "RabbitMQ's definitions map")
class DefinitionsExport(Arguments):
    """Exports everything that is defined, or what one virtual host holds. `target` (rabbitmq,
    rabbitmq-3, rabbitmq-4 or lavinmq) writes only what that broker can read. `secrets` includes
    passwords in URIs and keys of parameters. With `dry_run` the answer is {for, omitted, plugins}
    instead: what is left out and why, and what the other broker needs. With `slices`, a number as
    in `list`, it is {head, sections, items, more}: the members that are no lists, the names of the
    sections in their order, the first rows as [section, row]; `list.more` gives the next ones."""

    vhost: str | None = None
    target: str | None = None
    secrets: bool = False
    dry_run: bool = False
    slices: int | None = None


@verb(
    "definitions.import",
    "administrator",
    "node",
    "{dry_run, counts, left_out, inactive, difference}",
    changes=True,
    long=True,
)
class DefinitionsImport(Arguments):
    """Merges definitions of RabbitMQ, LavinMQ or Leveret in: all of them or, where one is wrong or
    contradicts another, none. `definitions` is the document, or its text as bytes, which is read in
    slices. `left_out` lists what has no counterpart here or cannot become what the document says,
    with the reason; `inactive` what is stored and does not run. `counts` says for each section what
    is created, changed and unchanged. With `dry_run` nothing is changed, and `difference` lists
    each change."""

    definitions: dict[str, Any] | memoryview
    vhost: str | None = None
    dry_run: bool = False


@verb("password.hash", "administrator", "node", "{result}")
class PasswordHash(Arguments):
    """Gives RabbitMQ's salted SHA-256 form of a password, for definitions files."""

    password: str


LEFT_EARLY = frozenset(
    {"list", "item", "queue.unacked", "definitions.export", "shovel.test", "federation.test"}
)
"""Verbs that may take long and change nothing, so that `request.leave` can end them anywhere."""


def _nouns(*nouns: Noun) -> dict[str, Noun]:
    return {noun.name: noun for noun in nouns}


_OBJECT = ("vhost", "name")
_BINDING = ("vhost", "source", "destination_type", "destination", "properties_key")
_ALL: Tag = "management"
_POLICY: Tag = "policymaker"
_ADMIN: Tag = "administrator"

NOUNS = _nouns(
    Noun("queues", _OBJECT, _ALL, _ALL, "vhost", "Queues, each with a word of `trouble`."),
    Noun("exchanges", _OBJECT, _ALL, _ALL, "vhost", "Exchanges; amq.default is the nameless one."),
    Noun("bindings", _BINDING, _ALL, _ALL, "vhost", "Bindings, the default exchange's included."),
    Noun("connections", ("name",), _ALL, _ALL, "connection", "Connections."),
    Noun(
        "channels",
        ("name",),
        _ALL,
        _ALL,
        "connection",
        "Channels: connection's name and ` (number)`.",
    ),
    Noun(
        "consumers",
        ("channel_details.name", "consumer_tag"),
        _ALL,
        _ALL,
        "vhost",
        "Consumers, each with a word of `trouble`: those of the user's own connections, all as "
        "monitoring. No `item`.",
    ),
    Noun("vhosts", ("name",), _ALL, _ADMIN, "vhost name", "Virtual hosts."),
    Noun("users", ("name",), _ADMIN, _ADMIN, "node", "Users."),
    Noun("permissions", ("vhost", "user"), _ADMIN, _ADMIN, "node", "Permission rows."),
    Noun(
        "topic-permissions",
        ("vhost", "user", "exchange"),
        _ADMIN,
        _ADMIN,
        "node",
        "Topic permission rows.",
    ),
    Noun("vhost-limits", ("vhost",), _ALL, _ALL, "vhost", "Limits of virtual hosts."),
    Noun("user-limits", ("user",), _ALL, _ALL, "user", "Limits of users."),
    Noun("global-parameters", ("name",), _POLICY, _POLICY, "node", "Global parameters."),
    Noun(
        "parameters",
        ("component", "vhost", "name"),
        _POLICY,
        _POLICY,
        "vhost",
        "Parameters of components: limits of virtual hosts, shovels, upstreams of federation.",
    ),
    Noun("policies", _OBJECT, _ALL, _POLICY, "vhost", "Policies, with how much is under each."),
    Noun("operator-policies", _OBJECT, _ALL, _ADMIN, "vhost", "Operator policies, likewise."),
)

TROUBLE = (
    "refusing",
    "not served",
    "stuck",
    "paused",
    "at a limit",
    "growing",
    "redelivering",
    "fine",
    "idle",
)
"""Words of `trouble`, worst first. Refusing: full, with x-overflow reject-publish, and it refused a
publish within the last 30 seconds. Not served: messages and no consumer. Stuck: consumers hold
messages and acknowledge none. Paused: by a person, with `queue.pause`. At a limit: 90 % of a length
or byte limit. A consumer is stuck, full (its prefetch is used up), fine or idle."""

EVENTS: dict[str, str] = {
    "session.ended": "{session_id}",
    "user.created": "{name}",
    "user.changed": "{name, epoch}: sessions with another epoch are over",
    "user.deleted": "{name}",
    "permission.changed": "{vhost, user}",
    "policy.changed": "{vhost, name, operator}: it was set or removed",
    "vhost.created": "{name}",
    "vhost.deleted": "{name}",
    "queue.created": "{vhost, name}",
    "queue.deleted": "{vhost, name}",
    "exchange.created": "{vhost, name}",
    "exchange.deleted": "{vhost, name}",
    "connection.created": "{name, user, vhost}",
    "connection.closed": "{name, user, vhost}",
    "alarm.set": "{name, text}: disk or memory: nothing is published until it is cleared; stalled "
    "disk: nothing is confirmed",
    "alarm.cleared": "{name, text}",
}
"""Names and data of the pushes of topic `events`."""


def _errors(*failures: Failure) -> dict[str, Failure]:
    return {failure.error: failure for failure in failures}


ERRORS = _errors(
    Failure(400, "bad_request", "An argument is missing, unknown or wrong, or AMQP's rules refuse"),
    Failure(400, "invalid_pagination_parameters", "page, page_size, name or use_regex is wrong"),
    Failure(400, "page_out_of_range", "There are fewer pages"),
    Failure(401, "not_authorised", "The user lacks the tag, vhost or permission that is named"),
    Failure(401, "not_authorized", "Unknown user, wrong password, or no login from there"),
    Failure(404, "not_found", "The named object does not exist"),
    Failure(412, "precondition_failed", "The object is protected from what was asked"),
    Failure(429, "too_many_attempts", "Too many wrong passwords; the reason has the time to wait"),
    Failure(429, "limit_reached", "The user follows as much as is allowed; the reason says what"),
    Failure(500, "internal_error", "A defect of the broker; its log has the trace"),
    Failure(501, "not_implemented", "No such verb"),
    Failure(
        503,
        "busy",
        "Too many passwords are being checked, the user or all users together ask for too much at "
        "a time, another backup runs, or an import of definitions met a change made meanwhile; try "
        "again",
    ),
    Failure(503, "unavailable", "The object store does not do what was asked; the reason says why"),
    Failure(503, "blocked", "An alarm is in force: nothing is published until it is cleared"),
    Failure(503, "broker_away", "Made by the client: the broker is away, or went before answering"),
)


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One request frame. `as_user`: on whose behalf, nil for the appliance itself."""

    id: int
    verb: str
    as_user: str | None = msgspec.field(default=None, name="as")
    args: dict[str, Any] = {}


class Received(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A `Request` as the broker reads it: its arguments, which may be megabytes, are decoded when
    it is known what they are."""

    id: int
    verb: str
    as_user: str | None = msgspec.field(default=None, name="as")
    args: msgspec.Raw = msgspec.Raw(b"\x80")


class Error(msgspec.Struct):
    """Why a request was refused; see `ERRORS`."""

    status: int
    error: str
    reason: str


class Incoming(msgspec.Struct):
    """A frame from the broker: a reply (`id` with `ok` or `error`) or a push (`event`, `sub`).

    `event` is `start` (the whole state, replaces what was known), `delta` (only what changed),
    `resync` (pushes were left out; a `start` follows), `ended` (the subscription is over; data is
    an error) or a name of `EVENTS`. `seq` rises by one with each push of a subscription; `at` is
    the broker's clock in milliseconds since 1970.
    """

    id: int | None = None
    ok: Any = None
    error: Error | None = None
    event: str | None = None
    sub: int | None = None
    seq: int = 0
    at: int = 0
    data: Any = None
