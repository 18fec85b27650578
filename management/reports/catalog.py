"""Which reports there are. A report is an entry here, a transform, and a schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["time", "text", "count", "bytes"]


@dataclass(frozen=True)
class Column:
    """One column of a result: its key in files, what kind of value it holds, its heading, its help.

    `time` is a moment (in JSON and CSV an ISO 8601 UTC text), `count` and `bytes` are integers.
    """

    name: str
    kind: Kind
    title: str
    help: str = ""


@dataclass(frozen=True)
class Report:
    """One report. `transform` names the function in `transforms`, which only Spark's side imports.

    It reads rows of the grain `reads`, `days` back. Results are sorted by the columns of `order`,
    those of `newest_first` from the largest down. `search` names the column that a search looks in.
    Every result has a column `vhost`, by which rows are shown or not to users who may see some
    vhosts only.
    """

    name: str
    title: str
    summary: str
    transform: str
    reads: Literal["hour", "day", "month"]
    days: int
    columns: tuple[Column, ...]
    order: tuple[str, ...]
    newest_first: tuple[str, ...] = ()
    search: str = "queue"


_IN = (
    "messages that the queue took: one that went to three queues counts in each; dead letters from "
    "other queues count, refused publishes do not"
)
_MOST = "the most messages that the queue held at any time of the hour, ready and unacknowledged"

QUEUE_USAGE = Report(
    name="queue-usage",
    title="Messages and bytes per hour",
    summary="What each queue took in and gave out, by the hour, over the last 31 days.",
    transform="queue_usage",
    reads="hour",
    days=31,
    columns=(
        Column("hour", "time", "Hour", "the hour begins at this time"),
        Column("vhost", "text", "Virtual host"),
        Column("queue", "text", "Queue"),
        Column("messages_in", "count", "In", _IN),
        Column("bytes_in", "bytes", "Bytes in", "their bodies"),
        Column("messages_out", "count", "Out", "messages delivered or got, redeliveries included"),
        Column("bytes_out", "bytes", "Bytes out", "their bodies"),
        Column("acknowledged", "count", "Acknowledged"),
        Column("redelivered", "count", "Redelivered", "deliveries that were not the first"),
        Column("messages_peak", "count", "Most held", _MOST),
    ),
    order=("hour", "vhost", "queue"),
    newest_first=("hour",),
)

REPORTS = {report.name: report for report in (QUEUE_USAGE,)}
