"""`manage.py report`: a report from a shell, by the running reports process.

It asks for a run with the parameters given (or takes the newest result with the same ones, with
`--cached`), waits for it with its progress on standard error, and writes the result.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from broker.process.lifetime import program
from broker.settings import config as settings
from management.reports import client, parameters
from management.reports.access import ReportAccess, order, top
from management.reports.catalog import REPORTS
from management.reports.pages import Where
from management.reports.runs import RESULT_FORMATS, Run, RunNotFound
from management.reports.shapes import View

LOOK_SECONDS = 0.2


def main(argv: Sequence[str]) -> int:
    """Write a report; the exit status."""
    options, others = parser().parse_known_args(argv)
    try:
        config = settings.load(others, os.environ)
    except settings.ConfigError as error:
        print(f"leveret report: {error}", file=sys.stderr)
        return settings.EXIT_CONFIG
    access = ReportAccess(config.data_dir.absolute())
    names = {"from": options.first, "to": options.end, "grain": options.grain,
             "by": options.by, "vhost": options.vhost}  # fmt: skip
    given = {name: value for name, value in names.items() if value}
    chosen = {name: getattr(options, name) or "" for name in ("top", "measure", "sort")}
    try:
        asked, canonical = parameters.read(REPORTS[options.name], given)
        _check(asked.view, chosen, options.output)  # before a run that may take minutes
        run = access.newest(options.name, canonical) if options.cached else None
        if run is None:
            run_id = client.run(config.data_dir.absolute(), options.name, None, canonical)
            run = _wait(access, options.name, run_id)
        if run.state != "done":
            print(f"leveret report: run {run.run_id} {run.state}: {run.error}", file=sys.stderr)
            return os.EX_SOFTWARE
        _write(access, run, access.chosen(run, chosen, None), options)
    except ValueError as error:
        print(f"leveret report: {error}", file=sys.stderr)
        return os.EX_USAGE
    except (client.ReportsUnavailable, client.ReportsRefused, RunNotFound) as error:
        print(f"leveret report: {error} (data directory {config.data_dir})", file=sys.stderr)
        return os.EX_UNAVAILABLE
    except OSError as error:
        reason = error.strerror or error
        print(
            f"leveret report: cannot write {options.output or 'the result'}: {reason}",
            file=sys.stderr,
        )
        return os.EX_IOERR
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    lines = [f"  {report.name:12} {report.summary}" for report in REPORTS.values()]
    made = argparse.ArgumentParser(
        prog=f"{program()} report",
        description="Compute a report and write its result.",
        epilog="reports:\n"
        + "\n".join(lines)
        + "\nThe settings of the appliance, such as --data-dir, may stand behind NAME.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("name", choices=REPORTS, metavar="NAME", help="which report, see below")
    parameters.add_options(made)
    made.add_argument("--top", metavar="N", help="rows of the N objects with the greatest sums")
    made.add_argument("--measure", metavar="COLUMN", help="what --top adds up")
    made.add_argument("--sort", metavar="COLUMN", help="-COLUMN: from the greatest down")
    made.add_argument("--format", choices=RESULT_FORMATS, default="csv", help="csv if left out")
    made.add_argument("--output", metavar="FILE", help="instead of standard output")
    made.add_argument(
        "--cached", action="store_true", help="take the newest result, if there is one"
    )
    return made


def _check(view: View, chosen: Mapping[str, str], output: str | None) -> None:
    """Raises ValueError for rows that the view cannot show, OSError for a file that cannot be
    written."""
    order(view, chosen)
    top(view, chosen)
    if chosen["measure"] and not chosen["top"]:
        raise ValueError("measure is what top adds up: give --top as well")
    if output is not None:
        if Path(output).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        part = _part(output)
        part.open("wb").close()
        part.unlink()


def _part(output: str) -> Path:
    return Path(f"{output}.part")


def _wait(access: ReportAccess, name: str, run_id: str) -> Run:
    """Wait for a run's end. Standard error tells each step, if it is a terminal."""
    told = ""
    while not (run := access.find(name, run_id)).is_over:
        if run.progress.step != told and sys.stderr.isatty():
            told = run.progress.step
            print(told, file=sys.stderr)
        time.sleep(LOOK_SECONDS)
    return run


def _write(access: ReportAccess, run: Run, where: Where, options: argparse.Namespace) -> None:
    for gap in run.gaps:
        print(
            f"leveret report: counts are missing from {_iso(gap.since)} to {_iso(gap.until)}"
            f" ({gap.reason})",
            file=sys.stderr,
        )
    pieces = access.file(run, options.format, where)
    if options.output is None:
        _copy(pieces, sys.stdout.buffer)
        return
    part = _part(options.output)
    try:
        with part.open("wb") as file:
            _copy(pieces, file)
        part.replace(options.output)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _copy(pieces: Iterator[bytes], file: IO[bytes]) -> None:
    for piece in pieces:
        file.write(piece)
    file.flush()


def _iso(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(milliseconds / 1000))
