"""Which reports there are: a report is an entry here and a function in `transforms`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .measures import (
    ACKED,
    AT,
    EXCHANGE_COLUMNS,
    IN,
    OUT,
    PEAK,
    QUEUE_COLUMNS,
    REDELIVERED,
    USER_COLUMNS,
    VHOST,
    VHOST_COLUMNS,
    Column,
)

Grain = Literal["hour", "day", "month"]


@dataclass(frozen=True)
class View:
    """One table of a report. `keys` are its text columns and the columns of the usage tables they
    are. Rows are sorted by `order`; a name with `-` in front from the greatest down. `search` names
    the column that a search looks in; the first column of time, if there is one, is the chart's.
    """

    name: str
    title: str
    keys: tuple[tuple[str, str], ...]
    columns: tuple[Column, ...]
    order: tuple[str, ...]
    search: str

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def time(self) -> str:
        return next((column.name for column in self.columns if column.kind == "time"), "")


@dataclass(frozen=True)
class Report:
    """One report. `transform` names the function in `transforms`, which only Spark's side imports.

    `grains` are the tables it can read, `views` what it can be told by; the first of each is the
    default, as are the last `days`. Every view has a column `vhost`, by which rows are shown or not
    to users who may see some virtual hosts only. `compares` says that it also reads the period of
    the same length before. `every` is `schedule` or `day`: how often it is computed by itself.
    """

    name: str
    title: str
    summary: str
    transform: str
    grains: tuple[Grain, ...]
    days: int
    views: tuple[View, ...]
    compares: bool = False
    every: Literal["schedule", "day"] = "day"

    def view(self, name: str = "") -> View:
        """A view by its name, the first one by default. Raises ValueError."""
        for view in self.views:
            if name in ("", view.name):
                return view
        names = ", ".join(view.name for view in self.views)
        raise ValueError(f"report {self.name} has no rows by {name!r}: by is one of {names}")


_QUEUE_KEYS = (("vhost", "vhost"), ("queue", "name"))
_SUBJECTS: tuple[tuple[str, str, tuple[tuple[str, str], ...], tuple[Column, ...]], ...] = (
    ("queue", "Queue", _QUEUE_KEYS, QUEUE_COLUMNS),
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
    texts = _texts(keys, title)
    order = (f"-{time.name}", *(column.name for column in texts))
    return View(name, title, keys, (time, *texts, *columns), order, keys[-1][0])


def _texts(keys: tuple[tuple[str, str], ...], title: str) -> tuple[Column, ...]:
    """The text columns of a view; the last one has the view's title."""
    return (VHOST, *(Column(name, "text", title) for name, _ in keys[1:]))


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
    change = Column("change", "number", "Change", "messages in, in percent of the period before")
    texts = _texts(keys, title)
    order = ("-messages_in", "-messages_out", *(column.name for column in texts))
    return View(name, title, keys, (*texts, change, *pairs), order, keys[-1][0])


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
            _QUEUE_KEYS,
            QUEUE_COLUMNS,
            Column("hour", "time", "Hour", "the hour begins at this time (UTC)"),
        ),
    ),
    every="schedule",
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

_REASONS = "rejected", "expired", "maxlen", "delivery_limit"

BACKLOG = Report(
    name="backlog",
    title="Backlog and health",
    summary="How much each queue holds, whether it drains, and what went wrong on the way.",
    transform="backlog",
    grains=("day", "hour"),
    days=7,
    views=(
        View(
            "queue",
            "Queue",
            _QUEUE_KEYS,
            (
                *_texts(_QUEUE_KEYS, "Queue"),
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
                Column("mean", "number", "Held on average", "over the time that the feed told of"),
                Column(
                    "oldest",
                    "ms",
                    "Oldest",
                    "the greatest age of a ready message",
                    ("oldest_ms",),
                    merge="max",
                ),
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
                    for reason in _REASONS
                ),
                Column(
                    "lost",
                    "count",
                    "Discarded",
                    "gone without ack and dead letter",
                    tuple(f"discard_{reason}" for reason in _REASONS),
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
            _QUEUE_KEYS,
            (
                *_texts(_QUEUE_KEYS, "Queue"),
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

_CLIENT_KEYS = (
    ("vhost", "vhost"),
    ("user", "user"),
    ("client", "client"),
    ("version", "client_version"),
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
            _CLIENT_KEYS,
            (
                VHOST,
                Column("user", "text", "User"),
                Column("client", "text", "Library", "what the client says of itself"),
                Column("version", "text", "Version"),
                Column("last_seen", "time", "Last hour or day"),
                *USER_COLUMNS,
            ),
            ("client", "version", "vhost", "user"),
            "client",
        ),
    ),
)

AHEAD_DAYS = 30


def _growth(name: str, title: str, keys: tuple[tuple[str, str], ...]) -> View:
    texts = _texts(keys, title)
    band = "with 95 % probability if it continues as in this period"
    columns = (
        Column("days", "count", "Days", "days, or hours, that the trend is drawn through"),
        Column("held_bytes", "bytes", "Held", "bytes held on average on the last of these days"),
        Column("growth", "number", "Growth a day", "bytes a day, by a straight line through all"),
        Column("growth_low", "number", "At least", f"bytes a day, {band}"),
        Column("growth_high", "number", "At most", f"bytes a day, {band}"),
        Column("expected", "bytes", f"In {AHEAD_DAYS} days", "bytes held then, by the same line"),
        Column("expected_low", "bytes", f"In {AHEAD_DAYS} days at least", band),
        Column("expected_high", "bytes", f"In {AHEAD_DAYS} days at most", band),
    )
    order = ("-growth", *(column.name for column in texts))
    return View(name, title, keys, (*texts, *columns), order, keys[-1][0])


GROWTH = Report(
    name="growth",
    title="Growth and forecast",
    summary="Whether what queues hold grows, and how much they hold a month from now if it does.",
    transform="growth",
    grains=("day", "hour"),
    days=31,
    views=(
        _growth("queue", "Queue", _QUEUE_KEYS),
        _growth("vhost", "Virtual host", (("vhost", "vhost"),)),
    ),
)

REPORTS = {
    report.name: report
    for report in (QUEUE_USAGE, TRAFFIC, CHANGES, BACKLOG, LATENCY, CLIENTS, GROWTH)
}
