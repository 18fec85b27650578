"""`manage.py report-job`: what spark-submit needs to compute a report outside of the appliance."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARCHIVE = "leveret_reports.zip"
PROGRAM = "leveret_report.py"
PROGRAM_TEXT = '''"""Computes a report of Leveret from usage tables: spark-submit runs it."""

import sys

from management.reports.outside import main

sys.exit(main(sys.argv[1:]))
'''
# All that the job imports of this program; it needs no compiled module.
FILES = (
    "broker/__init__.py",
    "broker/features/__init__.py",
    "broker/features/interface.py",
    "broker/features/usage/__init__.py",
    "broker/features/usage/records.py",
    "broker/schema/__init__.py",
    "broker/schema/file_steps.py",
    "management/__init__.py",
    "management/priority.py",
)


def main(argv: Sequence[str]) -> int:
    """Write the job into a directory and print a line that runs it; the exit status."""
    made = argparse.ArgumentParser(
        prog="manage.py report-job",
        description="Write a program and its modules, with which spark-submit computes a report "
        "from usage tables on any cluster. Python there needs pyspark, pyarrow, pandas and "
        "msgspec, and obstore for s3://.",
        allow_abbrev=False,
    )
    made.add_argument("directory", type=Path, help="where the two files are written")
    made.add_argument("--master", default="local[*]", help="for the line that is printed")
    made.add_argument("--tables", default="", help="for the line that is printed")
    options = made.parse_args(argv)
    directory = options.directory.absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        archive, program = write(directory)
    except OSError as error:
        print(f"leveret report-job: {error}", file=sys.stderr)
        return os.EX_CANTCREAT
    tables = options.tables or "/var/lib/leveret/data/usage/tables"
    if options.master.startswith("sc://"):
        # A client of Spark Connect is plain Python, without a JVM to submit to.
        words = ["env", f"SPARK_REMOTE={options.master}", f"PYTHONPATH={archive}", "python3"]
    else:
        words = ["spark-submit", "--master", options.master, "--py-files", str(archive)]
    words += [str(program), "traffic", "--tables", tables, "--by", "vhost", "--format", "csv"]
    print(shlex.join(words))
    return 0


def write(directory: Path) -> tuple[Path, Path]:
    """The archive of modules and the program, written. Raises OSError."""
    archive, program = directory / ARCHIVE, directory / PROGRAM
    names = [*FILES, *(f"management/reports/{path.name}" for path in _modules())]
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.write(ROOT / name, name)
    program.write_text(PROGRAM_TEXT)
    return archive, program


def _modules() -> list[Path]:
    return sorted((ROOT / "management" / "reports").glob("*.py"))
