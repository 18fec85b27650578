"""Tables of the list pages: a page declares its columns; the rest follows from the URL.

`/queues?vhost=shop&q=orders&state=growing&sort=-messages&page=2` says the whole of what one
looks at: the broker filters, sorts and pages; this module turns the URL into the broker's
arguments and back into links.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from broker.schema.control_schema import NOUNS
from frontend.asking import ask, digits_in
from frontend.templatetags.show import at
from management.broker_client import BrokerError

PAGE_SIZE = 100
INNER = ("q", "sort", "page")
"""Ends of the names in the query of a table inside a page."""
POLICED = ("policy", "operator_policy", "effective_policy_definition")
LIVE = {"count", "rate", "net", "size", "duration"}
"""Kinds of columns whose numbers the page's script keeps up to date."""

ACTIONS = {"cancel", "unbind"}
"""Kinds of columns with a button in each row, which the form of the table sends."""

NUMBERS = {*LIVE, "prefetch"}


class Column(NamedTuple):
    """One column. `kind` names how a cell is written (`templatetags.cells`); `key` may be dotted.

    `phone`: the cell is also shown on a small screen. `sort`: another key to sort by, or None if
    the broker cannot sort by it.
    """

    key: str
    label: str
    kind: str = "text"
    group: str = ""
    help: str = ""
    phone: bool = False
    sort: str | None = ""

    @property
    def is_number(self) -> bool:
        return self.kind in NUMBERS

    @property
    def is_live(self) -> bool:
        return self.kind in LIVE

    @property
    def sort_key(self) -> str | None:
        return self.key if self.sort == "" else self.sort


class Heading(NamedTuple):
    """The head of a column: where a click leads and how the column is sorted now."""

    column: Column
    url: str
    direction: str
    starts_group: bool


@dataclass
class Table:
    """What the template `components/table.html` shows.

    A table inside the page of an object has the rows that belong to the object. `prefix` stands
    before the names of its query, so that two can be in one page, and `kept` is the rest of the
    page's query.
    """

    noun: str
    columns: Sequence[Column]
    query: dict[str, str]
    default_sort: str
    path: str
    can_pick: bool = False
    id: str = "table"
    prefix: str = ""
    kept: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    keys: list[list[Any]] = field(default_factory=list)
    page: int = 1
    page_count: int = 1
    filtered_count: int = 0
    total_count: int = 0
    error: str = ""

    @property
    def first(self) -> int:
        return (self.page - 1) * PAGE_SIZE + 1 if self.rows else 0

    @property
    def last(self) -> int:
        return (self.page - 1) * PAGE_SIZE + len(self.rows)

    @property
    def action(self) -> str:
        """What the buttons of the rows do; empty if there are none."""
        return next((column.kind for column in self.columns if column.kind in ACTIONS), "")

    @property
    def is_filtered(self) -> bool:
        return any(self.query.get(key) for key in ("q", "state", "vhost", "user"))

    @property
    def here(self) -> str:
        """The address of what is shown now."""
        return self.url()

    @property
    def all_url(self) -> str:
        """The address without filter."""
        return with_query(self.path, self.kept)

    @property
    def previous_url(self) -> str:
        return self.url(page=str(self.page - 1)) if self.page > 1 else ""

    @property
    def next_url(self) -> str:
        return self.url(page=str(self.page + 1)) if self.page < self.page_count else ""

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Headings over columns, each with how many columns it spans; empty if there are none."""
        if not any(column.group for column in self.columns):
            return []
        found = groupby(self.columns, key=lambda column: column.group)
        return [(label, len(list(columns))) for label, columns in found]

    @property
    def group_starts(self) -> set[str]:
        """Keys of the columns where a group begins."""
        starts, before = set(), ""
        for column in self.columns:
            if column.group != before:
                starts.add(column.key)
            before = column.group
        return starts

    @property
    def headings(self) -> list[Heading]:
        sort = self.query.get("sort") or self.default_sort
        starts = self.group_starts
        found = []
        for column in self.columns:
            key = column.sort_key
            direction, url = "", ""
            if key:
                direction = {key: "ascending", f"-{key}": "descending"}.get(sort, "")
                downwards = f"-{key}" if column.is_number else key
                upwards = key if column.is_number else f"-{key}"
                url = self.url(sort=upwards if sort == downwards else downwards, page="")
            found.append(Heading(column, url, direction, column.key in starts))
        return found

    def url(self, **changes: str) -> str:
        """This page's address with other query values; an empty value leaves the key out."""
        wanted = {f"{self.prefix}{key}": value for key, value in {**self.query, **changes}.items()}
        return with_query(self.path, {**self.kept, **wanted})


def with_query(path: str, query: Mapping[str, str]) -> str:
    """An address with the values of a query that are not empty."""
    given = {key: value for key, value in query.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


async def load(
    request: HttpRequest,
    noun: str,
    columns: Sequence[Column],
    *,
    default_sort: str,
    can_pick: bool = False,
    also: Sequence[str] = (),
    **arguments: Any,
) -> Table:
    """Ask the broker for the page of rows the URL names. `also`: further keys that are needed.

    A filter the broker cannot read (a regular expression) leaves the table empty with `error` set.
    """
    keys = ("vhost", "q", "state", "user", "sort", "page")
    query = {key: request.GET.get(key, "") for key in keys}
    if noun != "connections":
        query.pop("user")
    table = Table(noun, columns, query, default_sort, request.path, can_pick)
    return await _filled(request, table, also, arguments)


async def load_within(
    request: HttpRequest, table: Table, also: Sequence[str] = (), **arguments: Any
) -> Table:
    """Fill a table inside the page of an object, whose address is the table's `path`.

    `arguments` say whose rows these are.
    """
    path, _, names = table.path.partition("?")
    table.query = {key: request.GET.get(table.prefix + key, "") for key in INNER}
    own = {table.prefix + key for key in INNER}
    others = {k: v for k, v in request.GET.items() if k == "range" or k.endswith(INNER)}
    table.path, table.id = path, f"{table.prefix}table"
    table.kept = dict(parse_qsl(names)) | {k: v for k, v in others.items() if k not in own}
    return await _filled(request, table, also, arguments)


def back(request: HttpRequest, address: str) -> str:
    """An object's page with its tables as they are looked at now."""
    shown = {key: value for key, value in request.GET.items() if key.endswith(INNER)}
    path, _, names = address.partition("?")
    return with_query(path, dict(parse_qsl(names)) | shown)


async def _filled(
    request: HttpRequest, table: Table, also: Sequence[str], arguments: dict[str, Any]
) -> Table:
    query = table.query
    sort = query.get("sort") or table.default_sort
    name = query.get("q", "")
    is_regex = len(name) > 2 and name.startswith("/") and name.endswith("/")
    keys = NOUNS[table.noun].key
    asked: dict[str, Any] = {
        "noun": table.noun,
        "page": page_number(query.get("page")),
        "page_size": PAGE_SIZE,
        "sort": sort.removeprefix("-"),
        "sort_reverse": sort.startswith("-"),
        "columns": sorted({*keys, *also, *(column.key for column in table.columns)}),
        **arguments,
    }
    for key in ("vhost", "state", "user"):
        if query.get(key):
            asked[key] = query[key]
    if name:
        asked |= {"name": name[1:-1] if is_regex else name, "use_regex": is_regex}
    try:
        answer = await _ask_page(request, asked)
    except BrokerError as error:
        if error.status != 400:
            raise
        table.error = error.reason
        return table
    table.rows = answer["items"]
    table.keys = [[at(row, key) for key in keys] for row in table.rows]
    for fact in ("page", "page_count", "filtered_count", "total_count"):
        setattr(table, fact, answer[fact])
    return table


def fragment(request: HttpRequest, facts: dict[str, Any]) -> HttpResponseBase:
    """The table alone, for htmx; the address bar gets the page's plain address."""
    response = render(request, "components/table.html", facts)
    response["HX-Replace-Url"] = facts["table"].here
    return response


async def _ask_page(request: HttpRequest, asked: dict[str, Any]) -> dict[str, Any]:
    """The page asked for, or the first if there are fewer pages by now."""
    try:
        return await ask(request, "list", **asked)
    except BrokerError as error:
        if error.error != "page_out_of_range":
            raise
        return await ask(request, "list", **{**asked, "page": 1})


def page_number(text: str | None) -> int:
    """The number of a page as the URL says it; 1 for what is none."""
    number = digits_in(text or "") or 1
    return number if number < 10**6 else 1
