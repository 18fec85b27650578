"""How the web process asks the reports process: one request, one answer, over `reports.sock`.

A frame is a big-endian u32 length and a msgpack map, as on the control socket. The socket is the
same user's only (mode 0600); the right to ask for a run was checked before.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import msgspec

from .runs import Run

FRAME_MAX = 1 << 20
LENGTH = struct.Struct(">I")
TIMEOUT = 5.0


class Request(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`run` a report (for the user `asked_by`), `cancel` a run, set a `tariff`
    (`parameters`), `remove tariff`, set a `plan`, `remove plan`, or tell the `status`."""

    verb: str
    report: str = ""
    parameters: dict[str, str] = {}
    run_id: str = ""
    asked_by: str | None = None


class SparkKept(msgspec.Struct, frozen=True, kw_only=True):
    """A Spark that waits for the next run: since when it runs (UTC ms), bytes of memory of its
    processes, and the runs that it has computed.
    """

    since: int
    memory: int
    runs: int


class Reply(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`run_id`: of the run asked for. `schedules`, `next_at` (UTC ms): by report. `unwritten`:
    records that the disk has no room for. `plans`: when each is due, by `report/plan`.
    `spark`: what is kept for the next run. `is_installing`: Spark and Java are, so that runs wait.
    `error`: what was refused.
    """

    run_id: str = ""
    schedules: dict[str, str] = {}
    next_at: dict[str, int] = {}
    unwritten: list[Run] = []
    plans: dict[str, int] = {}
    spark: SparkKept | None = None
    is_installing: bool = False
    error: str = ""


class ReportsUnavailable(Exception):
    """The reports process does not answer."""


class ReportsRefused(Exception):
    """The reports process refused the request; the text says why."""


def socket_path(data_dir: Path) -> Path:
    return data_dir / "reports.sock"


def run(
    data_dir: Path, report: str, asked_by: str | None, parameters: dict[str, str] | None = None
) -> str:
    """Ask for a run; the id of the new run, or of one with the same parameters that waits or runs
    already.
    """
    request = Request(verb="run", report=report, asked_by=asked_by, parameters=parameters or {})
    return _ask(data_dir, request).run_id


def cancel(data_dir: Path, report: str, run_id: str) -> None:
    """Ask for the end of a run that waits or runs. It ends a little later."""
    _ask(data_dir, Request(verb="cancel", report=report, run_id=run_id))


def set_tariff(data_dir: Path, values: dict[str, str], asked_by: str) -> None:
    """Put a tariff in force from its month on."""
    _ask(data_dir, Request(verb="tariff", parameters=values, asked_by=asked_by))


def remove_tariff(data_dir: Path, since: str, asked_by: str) -> None:
    """Take the tariff away that begins in a month."""
    request = Request(verb="remove tariff", parameters={"since": since}, asked_by=asked_by)
    _ask(data_dir, request)


def set_plan(data_dir: Path, report: str, name: str, given: dict[str, str], asked_by: str) -> None:
    """Put a plan in place of one of the same report and name."""
    values = {**given, "report": report, "name": name}
    _ask(data_dir, Request(verb="plan", parameters=values, asked_by=asked_by))


def remove_plan(data_dir: Path, report: str, name: str, asked_by: str) -> None:
    """Take a plan away."""
    request = Request(
        verb="remove plan", report=report, parameters={"name": name}, asked_by=asked_by
    )
    _ask(data_dir, request)


def status(data_dir: Path) -> Reply:
    """The schedule and when each report is due next."""
    return _ask(data_dir, Request(verb="status"))


def _ask(data_dir: Path, request: Request) -> Reply:
    """Raises ReportsUnavailable and ReportsRefused. Waits for at most TIMEOUT seconds."""
    data = msgspec.msgpack.encode(request)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(TIMEOUT)
            connection.connect(str(socket_path(data_dir)))
            connection.sendall(LENGTH.pack(len(data)) + data)
            (length,) = LENGTH.unpack(_read(connection, LENGTH.size))
            if length > FRAME_MAX:
                raise ReportsUnavailable("the reports process answered nonsense")
            reply = msgspec.msgpack.decode(_read(connection, length), type=Reply)
    except (OSError, msgspec.MsgspecError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ReportsUnavailable(f"the reports process does not answer: {reason}") from None
    if reply.error:
        raise ReportsRefused(reply.error)
    return reply


def _read(connection: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(length - len(parts))
        if not part:
            raise ReportsUnavailable("the reports process hung up")
        parts += part
    return bytes(parts)
