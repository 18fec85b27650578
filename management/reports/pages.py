"""Reads results: a page of any result, its sums, or all of it as a file, never the whole at once.

A result is one or more Parquet files in the order of their names. Row groups are read one at a
time; how many rows of each match a filter is remembered, so that a page needs one or two of them.
"""

from __future__ import annotations

import csv
import functools
import io
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from .measures import Column
from .tariff import amount

# A spreadsheet takes a text cell that begins so for a formula. Names come from clients.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")

BLOCK = 1 << 20

# Rows that are sorted otherwise than they lie in the files, at most: a sorted file is made of all
# of them in memory, some 200 bytes each. And as many of them at once.
SORTED_MAX = 500_000
SORTED_PART = 100_000

# Stands between the keys of an object where they are compared as one text.
BETWEEN_KEYS = "\x1f"

Values = tuple[Any, ...]


@dataclass(frozen=True)
class Where:
    """Which rows: of these virtual hosts (None: all), and columns whose text is or holds another,
    as pairs of column and text; upper and lower case are the same to `holds`. `objects`: only
    those whose values of the columns `keys` are among them.

    `order` is the column to sort by, with `-` in front from the greatest down; empty: as the rows
    lie in the files. It is no part of a comparison, because the same rows match.
    """

    vhosts: frozenset[str] | None = None
    equals: tuple[tuple[str, str], ...] = ()
    holds: tuple[tuple[str, str], ...] = ()
    keys: tuple[str, ...] = ()
    objects: tuple[tuple[str, ...], ...] = ()
    order: str = field(default="", compare=False)

    @property
    def all(self) -> bool:
        return self.vhosts is None and not self.equals and not self.holds and not self.keys

    def columns(self) -> list[str]:
        names = [name for name, _ in (*self.equals, *self.holds)]
        names += self.keys
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
        if self.keys:
            masks.append(pc.is_in(joined(table, self.keys), spelled(self.objects)))
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
        """Up to `count` matching rows behind the first `first` ones; times as UTC milliseconds.
        Raises ValueError for more rows than are sorted."""
        if where.order:
            return self._sorted_page(where, first, count)
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

    def check_order(self, where: Where) -> None:
        """Raises ValueError for more rows than are sorted."""
        if where.order:
            _order(self.files, where.order, where)

    def _sorted_page(self, where: Where, first: int, count: int) -> list[Values]:
        import numpy as np

        places = _order(self.files, where.order, where).slice(first, count).to_numpy()
        counts = _counts(self.files, where)
        ends = np.cumsum(counts)
        groups = np.searchsorted(ends, places, side="right")
        rows: list[Values] = [()] * len(places)
        for group in np.unique(groups):
            wanted = np.flatnonzero(groups == group)
            table = _group(self.files, int(group), self.names, where)
            found = _rows(table.take(places[wanted] - (ends[group] - counts[group])))
            for at, row in zip(wanted, found, strict=True):
                rows[at] = row
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

        if where.all and not where.order and len(self.files) == 1:
            with self.files[0].open("rb") as file:
                while block := file.read(BLOCK):
                    yield block
            return
        with tempfile.TemporaryFile() as file:
            schema = pyarrow.parquet.read_schema(self.files[0])
            with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
                for table in self._tables(where):
                    writer.write_table(table.select(schema.names).cast(schema))
            file.seek(0)
            while block := file.read(BLOCK):
                yield block

    def _tables(self, where: Where) -> Iterator[Any]:
        """All matching rows in their order, as Arrow tables."""
        import pyarrow as pa

        if not where.order:
            yield from _matching(self.files, self.names, where)
            return
        places = _order(self.files, where.order, where)
        whole = pa.concat_tables(_matching(self.files, self.names, where))
        for first in range(0, len(places), SORTED_PART):
            yield whole.take(places.slice(first, SORTED_PART))

    def _iso_rows(self, where: Where) -> Iterator[list[list[Any]]]:
        for table in self._tables(where):
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


def without_rows(files: tuple[Path, ...], names: Collection[str]) -> Any:
    """An Arrow table of these columns for a result without a row, which has no row group either."""
    import pyarrow.parquet

    return pyarrow.parquet.read_schema(files[0]).empty_table().select(list(names))


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


@functools.lru_cache(maxsize=4)
def _order(files: tuple[Path, ...], order: str, where: Where) -> Any:
    """The places of the matching rows, counted over all files, in the order of a column; rows of
    the same value as they lie there, rows without a value last. Raises ValueError.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    count = sum(_counts(files, where))
    if count > SORTED_MAX:
        raise ValueError(
            f"{count:,} rows match, and no more than {SORTED_MAX:,} are sorted: choose fewer by"
            " vhost, q or top, or leave sort out"
        )
    name = order.removeprefix("-")
    found = pa.concat_tables(_matching(files, [name], where)).rename_columns(["value"])
    direction = "descending" if order.startswith("-") else "ascending"
    keys = [("value", direction)]
    return pc.sort_indices(found, sort_keys=keys).cast(pa.uint32())


def joined(table: Any, keys: Sequence[str]) -> Any:
    """The keys of each row as one text."""
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*(table[name] for name in keys), BETWEEN_KEYS)


def spelled(objects: Sequence[tuple[str, ...]]) -> Any:
    """Objects by their keys as an Arrow array of the texts that `joined` gives."""
    import pyarrow as pa

    return pa.array([BETWEEN_KEYS.join(keys) for keys in objects], pa.string())


def _group(files: tuple[Path, ...], wanted: int, names: list[str], where: Where) -> Any:
    """The matching rows of one row group as an Arrow table."""
    for number, (file, index) in enumerate(row_groups(files)):
        if number == wanted:
            return _chosen(file, index, names, where)
    raise IndexError(wanted)


def _matching(files: tuple[Path, ...], names: list[str], where: Where) -> Iterator[Any]:
    """The matching rows of each row group as an Arrow table, which may be empty; one at least."""
    has_groups = False
    for file, index in row_groups(files):
        has_groups = True
        yield _chosen(file, index, names, where)
    if not has_groups:
        yield without_rows(files, names)


def _chosen(file: Any, index: int, names: list[str], where: Where) -> Any:
    table = file.read_row_group(index, columns=list({*names, *where.columns()}))
    return (table if where.all else table.filter(where.mask(table))).select(names)


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
