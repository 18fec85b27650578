"""Reads the broker's feed files and adds up their lines, by the hour and object.

The lines lie on the broker's own disk and an hour of them becomes some thousand rows, so this is
done here, by Arrow, while Spark starts; Spark gets the hours. Memory does not grow with a file: it
is read CHUNK bytes at a time.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet

from broker.features.usage import records

from .columns import FEED_HELD, HELD, HELD_DIVISOR, IDENTITY, MERGED, SPAN
from .gaps import Gap

FILE_NAME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d)-(\d{1,15})\.jsonl(\.open)?")
LEAF_NAME = re.compile(r"date=(\d{4}-\d\d-\d\d)/hour=(\d{1,2})/begun=(\d{1,15})")

CHUNK = 2 << 20

# A row of any usage table: when its hour, day or month begins, the object, its numbers.
SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        *(pa.field(name, pa.string(), nullable=False) for name in IDENTITY),
        *(pa.field(name, pa.int64(), nullable=False) for name in MERGED),
    ]
)

_LINE_RULES = {**SPAN, **records.MERGE}
_LINE_NUMBERS = ("v", "since", "until", *records.MERGE)
_LINE_TEXTS = (*IDENTITY, "reason")
_LINE = pa.schema(
    [pa.field(name, pa.int64()) for name in _LINE_NUMBERS]
    + [pa.field(name, pa.string()) for name in _LINE_TEXTS]
)
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_TypedLine = msgspec.defstruct(
    "_TypedLine",
    [(name, _Int64 | None, None) for name in _LINE_NUMBERS]
    + [(name, str | None, None) for name in _LINE_TEXTS],
)
_DECODER = msgspec.json.Decoder(_TypedLine)


@dataclass(frozen=True)
class Census:
    """How many lines there are, how many of them are left out, how many are of a newer version."""

    lines: int = 0
    unreadable: int = 0
    newer: int = 0

    def __add__(self, other: Census) -> Census:
        return Census(
            self.lines + other.lines, self.unreadable + other.unreadable, self.newer + other.newer
        )


@dataclass(frozen=True)
class Hour:
    """What a source holds: rows added up by object, what was counted of its lines, its gaps."""

    rows: pa.Table
    census: Census
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, order=True)
class Source:
    """One feed file, or one directory of lines as earlier versions compacted them.

    `name` is the hour and the millisecond the file was begun, as its name spells them.
    """

    name: str
    path: Path

    @property
    def hour(self) -> datetime:
        return datetime.strptime(self.name[:13], "%Y-%m-%dT%H").replace(tzinfo=UTC)


def closed_sources(directory: Path) -> list[Source]:
    """The files of closed hours, oldest first. A directory wins over a file of the same name: the
    program that compacted it was stopped before it deleted the file.
    """
    found = {}
    for path in _entries(directory):
        match = FILE_NAME.fullmatch(path.name)
        if match is not None and match[3] is None:
            found[path.name.removesuffix(".jsonl")] = path
    compacted = directory / "compacted"
    for path in compacted.glob("date=*/hour=*/begun=*"):
        match = LEAF_NAME.fullmatch(str(path.relative_to(compacted)))
        if match is not None:
            found[f"{match[1]}T{int(match[2]):02d}-{match[3]}"] = path
    return sorted(Source(name, path) for name, path in found.items())


def open_sources(directory: Path, scratch: Path) -> list[Source]:
    """The hour under way: its file, copied into `scratch` up to its last whole line, because it
    grows and is renamed meanwhile.
    """
    found = []
    for path in _entries(directory):
        match = FILE_NAME.fullmatch(path.name)
        if match is None or match[3] is None:
            continue
        name = path.name.removesuffix(".jsonl.open")
        copy = scratch / f"{name}.jsonl"
        try:
            shutil.copyfile(path, copy)
        except FileNotFoundError:
            continue  # its hour ended since we looked; the next run reads it under its new name
        _cut_to_whole_lines(copy)
        found.append(Source(name, copy))
    return found


def hour_of(source: Source) -> Hour:
    """A source's lines added up by object (columns of SCHEMA), all in the hour of its name.

    Raises OSError, and pyarrow's errors for a compacted directory that is damaged.
    """
    census = Census()
    parts, gaps = [], []
    for lines in _lines_of(source.path):
        known = pc.and_(pc.is_valid(lines["v"]), pc.is_valid(lines["kind"]))
        newer = pc.fill_null(pc.greater(lines["v"], records.SCHEMA_VERSION), False)
        kept = lines.filter(pc.and_(known, pc.invert(newer)))
        census += Census(len(lines), len(lines) - len(kept), pc.sum(newer).as_py() or 0)
        census += _torn(lines)
        gaps += _gaps(kept)
        parts.append(_merged(_as_rows(kept.filter(_counts(kept)))))
    merged = _merged(pa.concat_tables(parts or [_NO_ROWS], promote_options="default"))
    at = pa.repeat(pa.scalar(source.hour, SCHEMA.field("at").type), len(merged))
    rows = merged.append_column("at", at)
    if FEED_HELD in rows.column_names:
        rows = rows.append_column(HELD, pc.divide(rows[FEED_HELD], HELD_DIVISOR))
    rows = rows.select([name for name in SCHEMA.names if name in rows.column_names])
    return Hour(rows.sort_by([(name, "ascending") for name in IDENTITY]), census, tuple(gaps))


def write(rows: pa.Table, path: Path) -> None:
    """One Parquet file of rows, whole or not at all under its name. Raises OSError."""
    part = path.with_name(f".{path.name}")
    texts = [field.name for field in rows.schema if pa.types.is_string(field.type)]
    packed = {name: "DELTA_BINARY_PACKED" for name in rows.column_names if name not in texts}
    pyarrow.parquet.write_table(
        rows, part, compression="zstd", use_dictionary=texts, column_encoding=packed
    )
    part.rename(path)


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []


def _counts(lines: pa.Table) -> Any:
    """Which lines count something. In version 1 a connection's line told the whole of its life,
    hours that are over included.
    """
    counting = pc.is_in(lines["kind"], pa.array(list(records.IDENTITY)))
    whole_life = pc.and_(pc.equal(lines["kind"], "connection"), pc.less(lines["v"], 2))
    return pc.and_(counting, pc.invert(whole_life))


def _gaps(lines: pa.Table) -> list[Gap]:
    found = lines.filter(pc.equal(lines["kind"], "gap")).select(["since", "until", "reason"])
    return [
        Gap(row["since"] or 0, row["until"] or 0, row["reason"] or "") for row in found.to_pylist()
    ]


def _as_rows(lines: pa.Table) -> pa.Table:
    """Lines in the columns of a row: what a line leaves out is zero, or an empty text. A number
    that no line has is left out.
    """
    columns: dict[str, Any] = {name: pc.fill_null(lines[name], "") for name in IDENTITY}
    for name in ("since", "until", *records.MERGE):
        if name in SPAN or lines[name].null_count < len(lines):
            columns[name] = pc.fill_null(lines[name], 0)
    if "messages" in columns:
        # Lines of older brokers tell only what was held at their end.
        peak = columns.get("messages_peak", columns["messages"])
        columns["messages_peak"] = pc.max_element_wise(peak, columns["messages"])
    columns["lines"] = pa.repeat(pa.scalar(1, pa.int64()), len(lines))
    return pa.table(columns)


_NO_ROWS = _as_rows(_LINE.empty_table())


def _merged(rows: pa.Table) -> pa.Table:
    """One row for each object, by the rules of the columns; rows come in the order of time."""
    rules = {name: rule for name, rule in _LINE_RULES.items() if name in rows.column_names}
    filled = pa.table(
        {
            name: pc.fill_null(rows[name], 0) if name in rules else rows[name]
            for name in rows.column_names
        }
    )
    grouped = filled.group_by(list(IDENTITY), use_threads=False).aggregate(list(rules.items()))
    names = {f"{name}_{rule}": name for name, rule in rules.items()}
    return grouped.rename_columns([names.get(name, name) for name in grouped.column_names])


def _lines_of(path: Path) -> Iterator[pa.Table]:
    """A source's lines in tables of _LINE. `torn` in the metadata counts lines left out."""
    if path.is_dir():
        for part in sorted(path.glob("*.parquet")):
            stored = pyarrow.parquet.read_table(part)
            yield pa.table(
                {
                    field.name: stored[field.name].cast(field.type)
                    if field.name in stored.column_names
                    else pa.nulls(len(stored), field.type)
                    for field in _LINE
                }
            )
        return
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            yield _parsed(data + file.readline())


def _parsed(data: bytes) -> pa.Table:
    """Whole lines as a table: by Arrow where they look as the broker writes them, else, or if Arrow
    refuses them, one by one.
    """
    if _looks_whole(data):
        try:
            return _arrow(data)
        except pa.ArrowInvalid:
            pass
    return _one_by_one(data)


def _looks_whole(data: bytes) -> bool:
    """Whether every line begins with a brace and all is UTF-8. Arrow passes other texts on, which
    fail later then, and a line that is no object ends the whole process where it is the first.
    """
    lines = data.rstrip(b"\n")
    if not lines.startswith(b"{") or lines.count(b"\n{") != lines.count(b"\n"):
        return False
    try:
        lines.decode()
    except UnicodeDecodeError:
        return False
    return True


def _one_by_one(data: bytes) -> pa.Table:
    """The lines that can be read. They do not go through Arrow's parser, which refuses some of
    them: a key that is there twice, more than a block of text.
    """
    lines = [line for line in data.split(b"\n") if line.strip()]
    good = []
    for line in lines:
        try:
            good.append(_DECODER.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    columns = {
        field.name: pa.array([getattr(line, field.name) for line in good], field.type)
        for field in _LINE
    }
    table = pa.table(columns, _LINE)
    return table.replace_schema_metadata({"torn": str(len(lines) - len(good))})


def _arrow(data: bytes) -> pa.Table:
    return pyarrow.json.read_json(
        io.BytesIO(data),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=1 << 20),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=_LINE, unexpected_field_behavior="ignore"
        ),
    )


def _torn(lines: pa.Table) -> Census:
    torn = int((lines.schema.metadata or {}).get(b"torn", 0))
    return Census(lines=torn, unreadable=torn)


def _cut_to_whole_lines(path: Path, block: int = 1 << 16) -> None:
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - block)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)
