"""Which reports there are: a report is an entry here and a function in `transforms`."""

from __future__ import annotations

from .measures import (
    ACKED,
    AT,
    CLIENT_TEXTS,
    EXCHANGE_COLUMNS,
    IN,
    LAST_SEEN,
    OLDEST,
    OUT,
    PEAK,
    QUEUE_COLUMNS,
    REDELIVERED,
    USER_COLUMNS,
    VHOST_COLUMNS,
    Column,
)
from .shapes import CLIENT_KEYS, QUEUE_KEYS, Report, View, texts
from .trouble_catalog import CONSUMERS, DEAD_LETTERS, REASONS, REFUSED

_SUBJECTS: tuple[tuple[str, str, tuple[tuple[str, str], ...], tuple[Column, ...]], ...] = (
    ("queue", "Queue", QUEUE_KEYS, QUEUE_COLUMNS),
    ("exchange", "Exchange", (("vhost", "vhost"), ("exchange", "name")), EXCHANGE_COLUMNS),
    ("user", "User", (("vhost", "vhost"), ("user", "user")), USER_COLUMNS),
    ("vhost", "Virtual host", (("vhost", "vhost"),), VHOST_COLUMNS),
)


def _traffic(
    name: str,
    title: str,
    keys: tuple[tuple[str, str], ...],
    columns: tuple[Column, ...],
    time: Column = AT,
) -> View:
    named = texts(keys, title)
    order = (f"-{time.name}", *(column.name for column in named))
    return View(name, title, keys, (time, *named, *columns), order, keys[-1][0])


def _changed(
    name: str, title: str, keys: tuple[tuple[str, str], ...], columns: tuple[Column, ...]
) -> View:
    before = tuple(
        Column(
            f"{column.name}_before",
            column.kind,
            f"{column.title} before",
            "the same in the period of the same length before",
            column.of,
            column.rows,
            column.merge,
        )
        for column in columns
    )
    pairs = tuple(column for pair in zip(columns, before, strict=True) for column in pair)
    change = Column(
        "change", "number", "Change", "messages in, in percent of the period before", unit="%"
    )
    named = texts(keys, title)
    order = ("-messages_in", "-messages_out", *(column.name for column in named))
    return View(name, title, keys, (*named, change, *pairs), order, keys[-1][0])


QUEUE_USAGE = Report(
    name="queue-usage",
    title="Messages and bytes per hour",
    summary="What each queue took in and gave out, by the hour.",
    transform="traffic",
    grains=("hour",),
    days=31,
    views=(
        _traffic(
            "queue",
            "Queue",
            QUEUE_KEYS,
            QUEUE_COLUMNS,
            Column("hour", "time", "Hour", "the hour begins at this time (UTC)"),
        ),
    ),
    every="schedule",
    by_time=True,
)

TRAFFIC = Report(
    name="traffic",
    title="Traffic",
    summary="What came and went, by the day, hour or month, for queues, exchanges, users or "
    "virtual hosts.",
    transform="traffic",
    grains=("day", "hour", "month"),
    days=31,
    views=tuple(_traffic(*subject) for subject in _SUBJECTS),
    by_time=True,
)

CHANGES = Report(
    name="changes",
    title="Top talkers and what changed",
    summary="Who moved most, and how that compares with the period of the same length before.",
    transform="changes",
    grains=("day", "hour"),
    days=7,
    views=tuple(_changed(*subject) for subject in _SUBJECTS),
    compares=True,
)

BACKLOG = Report(
    name="backlog",
    title="Backlog and health",
    summary="How much each queue holds, whether it drains, and what went wrong on the way.",
    transform="backlog",
    grains=("day", "hour"),
    days=7,
    wants_cover=True,
    views=(
        View(
            "queue",
            "Queue",
            QUEUE_KEYS,
            (
                *texts(QUEUE_KEYS, "Queue"),
                Column(
                    "state",
                    "text",
                    "State",
                    "abandoned: it holds messages and has no consumer "
                    "and gave out none; idle: nothing came or went; growing: more came than "
                    "left; draining: less came than left; steady: as much",
                ),
                Column("held", "count", "Held", "messages at the end of the period"),
                Column(
                    "held_bytes", "bytes", "Bytes held", "their bodies, which deleting would free"
                ),
                Column(
                    "drain",
                    "ms",
                    "Time to drain",
                    "at the pace of this period; empty if the queue does not drain",
                ),
                Column("consumers", "count", "Consumers", "at the end of the period"),
                PEAK,
                Column("mean", "number", "Held on average", "over the time that the feed covers"),
                OLDEST,
                IN,
                OUT,
                ACKED,
                REDELIVERED,
                Column(
                    "refused",
                    "count",
                    "Refused",
                    "publishes refused by the full queue",
                    ("refused",),
                ),
                Column("expired", "count", "Expired", "", ("expired",)),
                Column(
                    "dropped",
                    "count",
                    "Dropped",
                    "dropped from the head of a full queue",
                    ("dropped",),
                ),
                *(
                    Column(
                        f"dead_{reason}",
                        "count",
                        f"Dead letters: {reason}".replace("_", " "),
                        "messages that became dead letters for this reason; this queue is their "
                        "origin",
                        (f"dead_letter_{reason}",),
                    )
                    for reason in REASONS
                ),
                Column(
                    "lost",
                    "count",
                    "Discarded",
                    "gone without ack and dead letter",
                    tuple(f"discard_{reason}" for reason in REASONS),
                ),
            ),
            ("-held", "-messages_peak", "vhost", "queue"),
            "queue",
        ),
    ),
)

PERCENTILES = (50, 90, 99)

LATENCY = Report(
    name="latency",
    title="Latency",
    summary="How long messages waited from their publish to their first delivery.",
    transform="latency",
    grains=("day", "hour"),
    days=7,
    views=(
        View(
            "queue",
            "Queue",
            QUEUE_KEYS,
            (
                *texts(QUEUE_KEYS, "Queue"),
                Column("deliveries", "count", "First deliveries"),
                Column("mean", "number", "Mean (ms)"),
                *(
                    Column(
                        f"p{percent}",
                        "ms",
                        f"p{percent}",
                        f"{percent} % of them took less than this: the upper end of a bucket of "
                        "the feed, two buckets for each doubling",
                    )
                    for percent in PERCENTILES
                ),
                Column("longest", "ms", "Longest", "", ("latency_max",), merge="max"),
            ),
            ("-p99", "-deliveries", "vhost", "queue"),
            "queue",
        ),
    ),
)

CLIENTS = Report(
    name="clients",
    title="Client libraries",
    summary="Which client libraries and versions connect, and what they move.",
    transform="totals",
    grains=("day", "hour"),
    days=31,
    views=(
        View(
            "client",
            "Client library",
            CLIENT_KEYS,
            (
                *CLIENT_TEXTS,
                LAST_SEEN,
                *USER_COLUMNS,
            ),
            ("client", "version", "vhost", "user"),
            "client",
        ),
    ),
)

AHEAD_DAYS = 30


def _growth(name: str, title: str, keys: tuple[tuple[str, str], ...]) -> View:
    named = texts(keys, title)
    band = "with 95 % probability if it continues as in this period"
    columns = (
        Column("days", "count", "Days", "days, or hours, that the trend is drawn through"),
        Column("held_bytes", "bytes", "Held", "bytes held on average on the last of these days"),
        Column(
            "growth",
            "number",
            "Growth a day",
            "bytes a day, by a straight line through all",
            unit="bytes",
        ),
        Column("growth_low", "number", "At least", f"bytes a day, {band}", unit="bytes"),
        Column("growth_high", "number", "At most", f"bytes a day, {band}", unit="bytes"),
        Column("expected", "bytes", f"In {AHEAD_DAYS} days", "bytes held then, by the same line"),
        Column("expected_low", "bytes", f"In {AHEAD_DAYS} days at least", band),
        Column("expected_high", "bytes", f"In {AHEAD_DAYS} days at most", band),
    )
    order = ("-growth", *(column.name for column in named))
    return View(name, title, keys, (*named, *columns), order, keys[-1][0])


GROWTH = Report(
    name="growth",
    title="Growth and forecast",
    summary="Whether what queues hold grows, and how much they hold a month from now if it does.",
    transform="growth",
    grains=("day", "hour"),
    days=31,
    wants_cover=True,
    views=(
        _growth("queue", "Queue", QUEUE_KEYS),
        _growth("vhost", "Virtual host", (("vhost", "vhost"),)),
    ),
)

DISK = Report(
    name="disk",
    title="Disk forecast",
    summary="The day on which the disk is full if what queues hold continues to grow as it did.",
    transform="disk",
    grains=("day", "hour"),
    days=31,
    views=(
        View(
            "disk",
            "Disk",
            (("vhost", "vhost"),),
            (
                Column("vhost", "text", "Virtual host", "empty: the disk belongs to all of them"),
                Column("days", "count", "Days", "days, or hours, that the trend is drawn through"),
                Column("held_bytes", "bytes", "Held", "bytes held on the last of these days"),
                Column("free", "bytes", "Free", "on the disk of the data directory, at the run"),
                Column(
                    "growth",
                    "number",
                    "Growth a day",
                    "bytes a day, by a straight line",
                    unit="bytes",
                ),
                Column(
                    "growth_low",
                    "number",
                    "At least",
                    "bytes a day, with 95 % probability",
                    unit="bytes",
                ),
                Column(
                    "growth_high",
                    "number",
                    "At most",
                    "bytes a day, with 95 % probability",
                    unit="bytes",
                ),
                Column(
                    "full_at",
                    "time",
                    "Full",
                    "free bytes divided by the growth, counted from the run on; empty if nothing "
                    "grows or it takes more than ten years. Bodies only: what files hold beside "
                    "them, and what else is written to the disk, is not in it",
                ),
                Column("full_first", "time", "Full at the earliest", "at the greatest growth"),
                Column("full_last", "time", "Full at the latest", "at the least growth"),
            ),
            ("vhost",),
            "vhost",
        ),
    ),
    wants_disk=True,
    wants_cover=True,
)

_LATE = "counted after the month was closed, for example because the reports did not run: not in "


def _cost(
    name: str, title: str, keys: tuple[tuple[str, str], ...], published: str, storage: bool
) -> View:
    named = texts(keys, title)

    def money(item: str, heading: str, text: str) -> Column:
        return Column(f"cost_{item}", "money", heading, text)

    storage_cost = money("storage", "For storage", "GB-hours at the price of the tariff")
    gb_hours = Column(
        "storage", "number", "GB-hours", "GB of bodies held for an hour, 10⁹ bytes each"
    )
    columns = (
        Column("state", "text", "State", "closed: it no longer changes; open: month to date,"
               " or no tariff was in force"),
        Column("currency", "text", "Currency", "of the tariff in force; empty without a tariff"),
        Column("cost", "money", "Cost", "the sum of the items of this row"),
        money("messages", "For messages", "in and out, at the price of a million messages"),
        money("bytes", "For bytes", "in and out, at the price of a GB (10⁹ bytes)"),
        *((storage_cost,) if storage else ()),
        money("connections", "For connections", "at the price of an hour of one connection"),
        Column("late_cost", "money", "Late cost", _LATE + "the cost"),
        Column("messages_in", "count", "In", published),
        Column("messages_out", "count", "Out", "messages delivered or got, redeliveries included"),
        Column("bytes_in", "bytes", "Bytes in", "their bodies"),
        Column("bytes_out", "bytes", "Bytes out", "their bodies"),
        *((gb_hours,) if storage else ()),
        Column("connected", "ms", "Connected", "time of all connections added up"),
        Column("late_messages", "count", "Late messages", _LATE + "the statement"),
    )  # fmt: skip
    time = Column("month", "time", "Month", "the month begins at this time (UTC)")
    order = ("-month", "-cost", *(column.name for column in named))
    return View(name, title, keys, (time, *named, *columns), order, keys[-1][0])


COST = Report(
    name="cost",
    title="Cost statement",
    summary="What each virtual host and user costs by the tariff: month to date, and closed months "
    "that no longer change.",
    transform="",
    grains=("month",),
    days=366,
    views=(
        _cost(
            "vhost",
            "Virtual host",
            (("vhost", "vhost"),),
            "messages published to its exchanges, also through the HTTP API",
            storage=True,
        ),
        _cost(
            "user",
            "User",
            (("vhost", "vhost"), ("user", "user")),
            "messages that the user's clients published; storage is in the statement by virtual "
            "host, because a queue belongs to no user",
            storage=False,
        ),
    ),
    charges=True,
)

REPORTS = {
    report.name: report
    for report in (
        QUEUE_USAGE,
        TRAFFIC,
        CHANGES,
        BACKLOG,
        CONSUMERS,
        REFUSED,
        DEAD_LETTERS,
        LATENCY,
        CLIENTS,
        GROWTH,
        DISK,
        COST,
    )
}
