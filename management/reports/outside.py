"""Computes a report outside of the appliance: what `spark-submit` runs.

It reads usage tables, a directory or what the setting `object_store` has written, and writes one
file. The session is that of spark-submit's options. Usage of the hour under way is not in
the tables; the cost statement and the forecast of the disk need the appliance itself.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import parameters
from .catalog import REPORTS
from .pages import Result, Where
from .runs import RESULT_FORMATS
from .session import ConnectMissing, require_connect
from .stores import Place, Store, StoreFailed
from .tables import MANIFEST, File, Tables, TablesNewer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROGRAM = "leveret_report.py"
OPTIONS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}
NO_JARS = ("S3AFileSystem not found", 'No FileSystem for scheme "s3a"')
END_OF_TIME = 1 << 60


class CannotCompute(Exception):
    """What is missing, and what to do."""


def main(argv: Sequence[str]) -> int:
    """Compute a report; the exit status."""
    options = parser().parse_args(argv)
    given = {name: getattr(options, name) or "" for name in ("grain", "by", "vhost")}
    given |= {"from": options.first or "", "to": options.end or ""}
    try:
        report = REPORTS[options.name]
        if report.charges or report.wants_disk:
            raise CannotCompute(f"report {report.name} is computed by the appliance only")
        chosen, _ = parameters.read(report, given)
        if remote := os.environ.get("SPARK_REMOTE"):
            require_connect(remote)
        with tempfile.TemporaryDirectory(prefix="leveret-") as scratch:
            place = Place(options.tables, options.endpoint, options.region)
            source = Source.of(place, Path(scratch))
            result = compute(source, chosen, Path(scratch))
            write(result, options.output, options.format, place)
    except (CannotCompute, ConnectMissing, StoreFailed, TablesNewer, ValueError, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The options behind the program's name."""
    made = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, allow_abbrev=False)
    names = [name for name, one in REPORTS.items() if not one.charges and not one.wants_disk]
    made.add_argument("name", choices=names, metavar="NAME", help=", ".join(names))
    made.add_argument("--tables", required=True, metavar="PLACE",
                      help="the directory usage/tables of a data directory or a backup, or "
                      "s3://bucket/prefix/usage/tables (read by the driver), or s3a://… (read by "
                      "the executors, if Spark has the classes)")  # fmt: skip
    made.add_argument(
        "--output", metavar="FILE", help="a file or s3://…; standard output if left out"
    )
    made.add_argument("--format", choices=RESULT_FORMATS, default="csv", help="csv if left out")
    parameters.add_options(made)
    made.add_argument("--endpoint", default="", help="of an S3 store that is not Amazon's")
    made.add_argument("--region", default="", help="of the store")
    return made


@dataclass(frozen=True)
class Source:
    """Usage tables to read: `tables` knows the manifest, which lies here in any case."""

    tables: Tables
    store: Store | None = None
    scheme: str = ""

    @classmethod
    def of(cls, place: Place, scratch: Path) -> Source:
        """Raises CannotCompute, StoreFailed, OSError."""
        scheme, separator, rest = place.url.partition("://")
        if not separator or scheme == "file":
            directory = Path(rest if separator else place.url).absolute()
            if not (directory / MANIFEST).is_file():
                raise CannotCompute(f"there are no usage tables in {directory}: no {MANIFEST}")
            return cls(Tables(directory))
        if scheme not in ("s3", "s3a"):
            raise CannotCompute(f"--tables is {place.url!r}, not a directory, s3://… or s3a://…")
        store = Store(Place(f"s3://{rest}", place.endpoint, place.region))
        manifest = store.get(MANIFEST)
        if manifest is None:
            raise CannotCompute(f"there are no usage tables in {place.url}: no {MANIFEST}")
        directory = scratch / "tables"
        directory.mkdir()
        (directory / MANIFEST).write_bytes(manifest)
        return cls(Tables(directory), store, scheme)

    def rows(self, spark: SparkSession, files: list[File]) -> DataFrame:
        """Rows of these files. Executors read them where they can, otherwise the driver does."""
        from . import folding

        if self.store is not None and self.scheme == "s3a":
            base = "s3a://" + self.store.url.removeprefix("s3://")
            return folding.read(spark, [f"{base}/{file.path}" for file in files])
        for file in files if self.store is not None else ():
            path = self.tables.directory / file.path
            path.parent.mkdir(exist_ok=True)
            self.store.fetch(file.path, path)  # type: ignore[union-attr]
        paths = self.tables.paths(files)
        if self.store is None or _shares_files(spark):
            return folding.read(spark, paths)
        return folding.shipped(spark, paths)


def compute(source: Source, chosen: parameters.Chosen, scratch: Path) -> Result:
    """The result, sorted, as a Parquet file in `scratch`. Raises CannotCompute, Spark's errors."""
    import pyarrow.parquet
    from pyspark.sql import SparkSession

    from . import results, transforms

    now = datetime.now(UTC)
    first, end = chosen.range(now)
    before = chosen.before(now)
    spark = SparkSession.builder.appName(f"leveret {chosen.report.name}").getOrCreate()
    for name, value in OPTIONS.items():
        spark.conf.set(name, value)
    files = source.tables.files(chosen.grain, before, end)
    try:
        rows = transforms.within(source.rows(spark, files), before, end)
        frame = transforms.transformed(
            chosen.report, rows, chosen.view, first, end, vhost=chosen.vhost
        )
        order = results.order(chosen.view)
        table = frame.select(*chosen.view.names).orderBy(*order).toArrow()
    except Exception as error:  # Java's own come as Py4J's where Spark does not wrap them
        if any(text in str(error) for text in NO_JARS):
            raise CannotCompute(_without_jars(spark)) from None
        raise
    _warn(source, int(before.timestamp() * 1000), int(end.timestamp() * 1000) if end else None)
    path = scratch / "result.parquet"
    pyarrow.parquet.write_table(table, path, compression="zstd")
    return Result((path,), chosen.view.columns)


def write(result: Result, output: str | None, form: str, place: Place) -> None:
    """Write a result to a file, a store, or standard output. Raises OSError, StoreFailed."""
    head: dict[str, Any] = {}
    made = {
        "csv": lambda: result.as_csv(Where()),
        "json": lambda: result.as_json(Where(), head),
        "parquet": lambda: result.as_parquet(Where()),
    }[form]()
    if output is None:
        for part in made:
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
        return
    scheme, separator, rest = output.partition("://")
    if separator and scheme in ("s3", "s3a"):
        prefix, _, name = rest.rpartition("/")
        Store(Place(f"s3://{prefix}", place.endpoint, place.region)).put(name, b"".join(made))
        return
    path = Path(rest if separator else output)
    part_path = path.with_name(f".{path.name}.part")
    with part_path.open("wb") as file:
        for part in made:
            file.write(part)
    part_path.replace(path)


def _shares_files(spark: SparkSession) -> bool:
    """Whether what reads files runs on this machine, as far as Spark's master says."""
    try:
        master = spark.conf.get("spark.master", "")
    except Exception:  # a Connect server need not tell
        master = ""
    return bool(master) and str(master).startswith("local")


def _without_jars(spark: SparkSession) -> str:
    return (
        f"Spark {spark.version} has no classes for s3a://: put hadoop-aws of its Hadoop version"
        " and the AWS SDK bundle that it names on the class path (spark-submit --packages or"
        " --jars), or read the tables through the driver with s3://"
    )


def _warn(source: Source, first_ms: int, end_ms: int | None) -> None:
    for gap in source.tables.gaps(first_ms, end_ms or END_OF_TIME):
        since, until = (
            datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
            for ms in (gap.since, gap.until)
        )
        print(
            f"{PROGRAM}: counts are missing from {since} to {until} ({gap.reason})",
            file=sys.stderr,
        )
