"""Lists that are read in slices: rows are built when the reader asks for them, not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from broker.schema.control_schema import ListEnd, ListMore
from broker.server.control.encoding import encode_slice, encode_steps
from broker.server.control.requests import (
    Caller,
    Request,
    RequestError,
    bad_request,
    handles,
    not_authorised,
    not_found,
)
from broker.settings.bounds import CONTROL_SHARE

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.freeing import Freeing

WHOLE_ROWS = 500
"""Lists up to this length come in one answer."""
SLICE_ROWS = 100
"""Rows of a slice at most: their msgpack is some 100 KB, and the web process writes them as JSON in
a few milliseconds."""
SLICE_BYTES = 256 * 1024
"""A slice ends with the row that reaches this, so one of large rows is not much longer."""

Rows = Callable[[list[Any]], Iterator[Any]]
"""Rows of some of the things, as they are now."""


class Source(Protocol):
    """What a list is read from."""

    @property
    def is_over(self) -> bool: ...

    async def slice(self) -> Any:
        """The next rows as a msgpack array."""

    def end(self) -> None:
        """No more is read of it."""


class RowsOf:
    """The rows of things, each as it is when it is read. `freeing` has the list at the end."""

    def __init__(self, things: list[Any], rows: Rows, freeing: Freeing) -> None:
        self._things, self._rows, self._freeing = things, rows, freeing
        self._place = 0

    @property
    def is_over(self) -> bool:
        return self._place >= len(self._things)

    async def slice(self) -> Any:
        things = self._things[self._place : self._place + SLICE_ROWS]
        rows, count = await encode_slice(self._rows(things), SLICE_BYTES)
        self._place += count
        return rows

    def end(self) -> None:
        self._freeing.add(self._things)
        self._things = []


class Stepwise:
    """Rows that a generator makes; None is a step without one. `at_end` is called at the end."""

    def __init__(self, rows: Iterator[Any], at_end: Callable[[], object]) -> None:
        self._rows = rows
        self._at_end = at_end
        self.is_over = False

    async def slice(self) -> Any:
        rows, self.is_over = await encode_steps(self._rows, SLICE_ROWS, SLICE_BYTES)
        return rows

    def end(self) -> None:
        self._at_end()


class OpenList:
    """One list: what is still to be shown of it, and on whose behalf."""

    def __init__(self, broker: Broker, caller: Caller) -> None:
        self._vhosts = broker.vhosts
        self.user = caller.name
        self._tags = frozenset(caller.user.tags if caller.user is not None else ())
        everything = caller.sight.has("administrator")
        self._seen = [] if everything else [vhost.name for vhost in caller.vhosts()]
        self._source: Source | None = None

    def begin(self, source: Source) -> None:
        self._source = source

    @property
    def is_over(self) -> bool:
        return self._source is None or self._source.is_over

    def check(self, caller: Caller) -> None:
        """Raises RequestError 404 for another user's list, and 401 when a tag or virtual host that
        the list was made with is not the caller's any more."""
        if caller.name != self.user or self._source is None:
            raise not_found("no such list")
        hidden = (name for name in self._seen if not caller.sight.of_vhost(name))
        lost = caller.user is not None and not self._tags.issubset(caller.user.tags)
        if lost or any(name in self._vhosts for name in hidden):
            raise not_authorised("rights were taken away while the list was read")

    async def slice(self) -> Any:
        """The next rows as a msgpack array."""
        assert self._source is not None
        return await self._source.slice()

    def end(self) -> None:
        if self._source is not None:
            self._source.end()


class OpenLists:
    """Those of one connection to the control socket, by the numbers its peer gave them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lists: dict[int, OpenList] = {}
        self._busy: set[int] = set()

    def __len__(self) -> int:
        return len(self._lists)

    def open(self, number: int, caller: Caller) -> OpenList:
        """Takes a number. Raises RequestError if it is in use, or if too many are, in all or by
        this user."""
        if number in self._lists:
            raise bad_request(f"list {number} is open already")
        most = self._broker.config.lists_read_max
        if len(self._lists) >= most:
            raise RequestError(
                "busy", f"lists_read_max ({most}) lists are being read; ask for pages or try again"
            )
        share = max(1, most // CONTROL_SHARE)
        if caller.user is not None and self._of(caller.name) >= share:
            raise RequestError(
                "busy",
                f"this user reads {share} lists already, a quarter of lists_read_max ({most}); ask "
                "for pages or try again",
            )
        opened = self._lists[number] = OpenList(self._broker, caller)
        return opened

    def _of(self, user: str) -> int:
        return sum(1 for opened in self._lists.values() if opened.user == user)

    def close(self, number: int) -> None:
        opened = self._lists.pop(number, None)
        if opened is not None:
            opened.end()

    def end(self) -> None:
        """The connection has ended."""
        for number in list(self._lists):
            self.close(number)

    async def more(self, number: int, caller: Caller) -> dict[str, Any]:
        """The next slice. Raises RequestError; the list is closed then."""
        opened = self._lists.get(number)
        if opened is None:
            raise not_found("no such list")
        if number in self._busy:
            raise bad_request(f"list {number} is being read")
        self._busy.add(number)
        try:
            opened.check(caller)
            answer = {"items": await opened.slice(), "more": not opened.is_over}
        except BaseException:
            self.close(number)
            raise
        finally:
            self._busy.discard(number)
        if opened.is_over:
            self.close(number)
        return answer


@handles("list.more")
async def more(request: Request[ListMore]) -> Any:
    """Answers verb `list.more`."""
    return await request.session.lists.more(request.args.list, request.caller)


@handles("list.end")
async def end(request: Request[ListEnd]) -> Any:
    """Answers verb `list.end`."""
    request.session.lists.close(request.args.list)
    return {}
