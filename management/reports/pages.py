"""Reads results: a page of any result, its sums, or all of it as a file, never the whole at once.

A result is one or more Parquet files in the order of their names. Row groups are read one at a
time; how many rows of each match a filter is remembered, so that a page needs one or two of them.
"""

from __future__ import annotations

import csv
import functools
import io
import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from .measures import Column
from .tariff import amount

# A spreadsheet takes a text cell that begins so for a formula. Names come from clients.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")

BLOCK = 1 << 20

Values = tuple[Any, ...]


@dataclass(frozen=True)
class Where:
    """Which rows: of these virtual hosts (None: all), and columns whose text is or holds another,
    as pairs of column and text; upper and lower case are the same to `holds`.
    """

    vhosts: frozenset[str] | None = None
    equals: tuple[tuple[str, str], ...] = ()
    holds: tuple[tuple[str, str], ...] = ()

    @property
    def all(self) -> bool:
        return self.vhosts is None and not self.equals and not self.holds

    def columns(self) -> list[str]:
        names = [name for name, _ in (*self.equals, *self.holds)]
        return list(dict.fromkeys([*names, *([] if self.vhosts is None else ["vhost"])]))

    def mask(self, table: Any) -> Any:
        """Which rows of an Arrow table match."""
        import pyarrow as pa
        import pyarrow.compute as pc

        masks = []
        if self.vhosts is not None:
            masks.append(pc.is_in(table["vhost"], pa.array(sorted(self.vhosts), pa.string())))
        masks += [pc.equal(table[name], text) for name, text in self.equals]
        masks += [
            pc.match_substring(table[name], text, ignore_case=True) for name, text in self.holds
        ]
        return functools.reduce(pc.and_, masks)


@dataclass(frozen=True)
class Result:
    """The result of one run. `files` never change once they are there."""

    files: tuple[Path, ...]
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def count(self, where: Where) -> int:
        return sum(_counts(self.files, where))

    def page(self, where: Where, first: int, count: int) -> list[Values]:
        """Up to `count` matching rows behind the first `first` ones; times as UTC milliseconds."""
        rows: list[Values] = []
        for index, matching in enumerate(_counts(self.files, where)):
            if first >= matching:
                first -= matching
                continue
            table = _group(self.files, index, self.names, where)
            rows += _rows(table.slice(first, count - len(rows)))
            first = 0
            if len(rows) >= count:
                break
        return rows

    def distinct(self, name: str, where: Where) -> list[str]:
        """The values of a column, sorted."""
        return _distinct(self.files, name, where)

    def sums(self, by: str, names: tuple[str, ...], where: Where) -> dict[Any, tuple[int, ...]]:
        """Numbers added up over all matching rows, by the value of a column."""
        return _sums(self.files, by, names, where)

    def as_json(self, where: Where, head: dict[str, Any]) -> Iterator[bytes]:
        """One JSON object, its rows last, as arrays; times in ISO 8601, amounts as
        decimal texts."""
        yield msgspec.json.encode(self._head(where, head))[:-1] + b',"rows":['
        comma = b""
        for rows in self._iso_rows(where):
            if rows:
                yield comma + msgspec.json.encode(rows)[1:-1]
                comma = b","
        yield b"]}"

    def as_page(self, where: Where, head: dict[str, Any], page: int, size: int) -> dict[str, Any]:
        """The object of `as_json` with the rows of one page, and which page it is."""
        head = self._head(where, head)
        rows = [list(row) for row in self.page(where, (page - 1) * size, size)]
        self._spell(rows)
        pages = max(1, -(-head["row_count"] // size))
        return {**head, "page": page, "page_count": pages, "page_size": size, "rows": rows}

    def _head(self, where: Where, head: dict[str, Any]) -> dict[str, Any]:
        columns = [
            {"name": column.name, "kind": column.kind, "title": column.title}
            for column in self.columns
        ]
        # `truncated`: results of earlier versions could be; programs may ask for it.
        return {**head, "columns": columns, "row_count": self.count(where), "truncated": False}

    def _spell(self, rows: list[list[Any]]) -> None:
        """Times and amounts as texts."""
        for at, column in enumerate(self.columns):
            if (spell := SPELLED.get(column.kind)) is None:
                continue
            for row in rows:
                row[at] = None if row[at] is None else spell(row[at])

    def as_csv(self, where: Where) -> Iterator[bytes]:
        """RFC 4180, UTF-8."""
        yield csv_rows([self.names])
        for rows in self._iso_rows(where):
            yield csv_rows(rows)

    def as_parquet(self, where: Where) -> Iterator[bytes]:
        """One Parquet file of the matching rows."""
        import pyarrow.parquet

        if where.all and len(self.files) == 1:
            with self.files[0].open("rb") as file:
                while block := file.read(BLOCK):
                    yield block
            return
        with tempfile.TemporaryFile() as file:
            schema = pyarrow.parquet.read_schema(self.files[0])
            with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
                for index in range(len(_counts(self.files, where))):
                    writer.write_table(_group(self.files, index, self.names, where).cast(schema))
            file.seek(0)
            while block := file.read(BLOCK):
                yield block

    def _iso_rows(self, where: Where) -> Iterator[list[list[Any]]]:
        for index, matching in enumerate(_counts(self.files, where)):
            if not matching:
                continue
            table = _group(self.files, index, self.names, where)
            for start in range(0, len(table), 20_000):
                rows = [list(row) for row in _rows(table.slice(start, 20_000))]
                self._spell(rows)
                yield rows


def iso(milliseconds: int) -> str:
    """UTC milliseconds as ISO 8601, to the second."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


SPELLED: dict[str, Callable[[int], str]] = {"time": iso, "money": amount}


def row_groups(files: tuple[Path, ...]) -> Iterator[tuple[Any, int]]:
    """The row groups of a result, as the file that each is in and its number there."""
    import pyarrow.parquet

    for path in files:
        file = pyarrow.parquet.ParquetFile(path)
        for index in range(file.metadata.num_row_groups):
            yield file, index


@functools.lru_cache(maxsize=64)
def _counts(files: tuple[Path, ...], where: Where) -> tuple[int, ...]:
    """How many rows of each row group match."""
    import pyarrow.compute as pc

    found = []
    for file, index in row_groups(files):
        if where.all:
            found.append(file.metadata.row_group(index).num_rows)
        else:
            table = file.read_row_group(index, columns=where.columns())
            found.append(pc.sum(where.mask(table)).as_py() or 0)
    return tuple(found)


def _group(files: tuple[Path, ...], wanted: int, names: list[str], where: Where) -> Any:
    """The matching rows of one row group as an Arrow table."""
    for number, (file, index) in enumerate(row_groups(files)):
        if number == wanted:
            table = file.read_row_group(index, columns=names)
            return table if where.all else table.filter(where.mask(table))
    raise IndexError(wanted)


@functools.lru_cache(maxsize=64)
def _distinct(files: tuple[Path, ...], name: str, where: Where) -> list[str]:
    found: set[str] = set()
    for file, index in row_groups(files):
        table = file.read_row_group(index, columns=list({name, *where.columns()}))
        table = table if where.all else table.filter(where.mask(table))
        found.update(table[name].unique().to_pylist())
    return sorted(found)


@functools.lru_cache(maxsize=64)
def _sums(
    files: tuple[Path, ...], by: str, names: tuple[str, ...], where: Where
) -> dict[Any, tuple[int, ...]]:
    found: dict[Any, tuple[int, ...]] = {}
    for file, index in row_groups(files):
        table = file.read_row_group(index, columns=list({by, *names, *where.columns()}))
        table = table if where.all else table.filter(where.mask(table))
        grouped = table.group_by(by).aggregate([(name, "sum") for name in names])
        for key, *values in _rows(grouped.select([by, *(f"{name}_sum" for name in names)])):
            before = found.get(key, (0,) * len(names))
            found[key] = tuple(a + (b or 0) for a, b in zip(before, values, strict=True))
    return found


def _rows(table: Any) -> list[Values]:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = pc.divide(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000)
        columns.append(column.to_pylist())
    return list(zip(*columns, strict=True))


def csv_rows(rows: Collection[Collection[Any]]) -> bytes:
    """Lines of CSV; a text that a spreadsheet would run gets a quote in front."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([[_cell(value) for value in row] for row in rows])
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return "'" + value
    return value
