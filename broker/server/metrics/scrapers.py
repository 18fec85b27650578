"""Who scrapes: places on the metrics port that no flood takes away, the Host header, the login."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.access import Refused
from broker.schema.sight import has_tag
from broker.serving.addresses import address_of
from broker.serving.origins import host_accepted
from broker.settings.bounds import METRICS_CONNECTIONS_MAX, SCRAPERS_MAX

if TYPE_CHECKING:
    from broker.server.app import Broker

BUILT_AT_ONCE = 2
"""Pages that are built at a time; others wait."""

CHALLENGE = 'WWW-Authenticate: Basic realm="Leveret metrics", charset="UTF-8"\r\n'


class Answer(Exception):
    """A request that gets no page: the status line, the text, and further header lines."""

    def __init__(self, status: str, text: str, headers: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers


class Place:
    """One connection: whose it is, whether its request is still awaited, and since when it is
    answered."""

    __slots__ = ("address", "answered_since", "is_waiting", "writer")

    def __init__(self, address: str, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self.writer = writer
        self.is_waiting = True
        self.answered_since = 0.0

    def answer(self) -> None:
        """Its request has come."""
        self.is_waiting = False
        self.answered_since = time.monotonic()


PAGES_MIN = 3
"""Pages that an address has taken whole, `APART_S` seconds apart, before it is a known scraper."""
APART_S = 1.0
KNOWN_FOR_S = 900.0
"""For so long after its last page a scraper is known."""
CANDIDATES_MAX = 1000
"""Addresses that are watched for becoming scrapers."""
SLOW_S = 5.0
"""An answer that takes longer gives way to another client's."""


class Scrapers:
    """Addresses that fetch pages regularly. Those known longest stay known as long as they come, so
    that a flood from many addresses, however patient, takes no place of theirs."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}  # when the last page was taken
        self._candidates: dict[str, tuple[int, float]] = {}  # pages, and when

    def took_page(self, address: str) -> None:
        """A client has taken a whole page, and was let in to it."""
        now = time.monotonic()
        for gone in [one for one, at in self._known.items() if now - at > KNOWN_FOR_S]:
            del self._known[gone]
        if address in self._known:
            self._known[address] = now
            return
        pages, at = self._candidates.pop(address, (0, 0.0))
        if not pages or now - at >= APART_S:
            pages, at = pages + 1, now
        if pages >= PAGES_MIN and len(self._known) < SCRAPERS_MAX:
            self._known[address] = now
            return
        self._candidates[address] = (pages, at)
        if len(self._candidates) > CANDIDATES_MAX:
            del self._candidates[next(iter(self._candidates))]

    def knows(self, address: str) -> bool:
        at = self._known.get(address)
        return at is not None and time.monotonic() - at <= KNOWN_FOR_S


class Places:
    """Open connections, the oldest first. When all are taken a new one gets the place of

    - the oldest that has sent no request yet, of the address that has most of them; or else
    - the oldest of the address that has most, if that is more than the new one's address has; or
    - one whose client takes its answer slowly.

    A known scraper that has none gets one beyond them, so that it always finds one.
    """

    def __init__(self, most: int = METRICS_CONNECTIONS_MAX) -> None:
        self._most = most
        self._open: dict[Place, None] = {}
        self.scrapers = Scrapers()

    def take(self, peer: str, writer: asyncio.StreamWriter) -> Place | None:
        """A place, or None if there is none."""
        address = address_of(peer)
        place = Place(address, writer)
        if len(self._open) >= self._most:
            leaving = self._leaving(address)
            if leaving is not None:
                del self._open[leaving]
                leaving.writer.transport.abort()
            elif not self._is_kept_for(address):
                return None
        self._open[place] = None
        return place

    def give(self, place: Place) -> None:
        self._open.pop(place, None)

    def _is_kept_for(self, address: str) -> bool:
        return self.scrapers.knows(address) and all(one.address != address for one in self._open)

    def _leaving(self, address: str) -> Place | None:
        """Whose place a new connection gets."""
        if waiting := self._by_address(one for one in self._open if one.is_waiting):
            return max(waiting.values(), key=len)[0]
        answered = self._by_address(self._open)
        most = max(answered.values(), key=len)
        if len(most) > len(answered.get(address, ())) + 1:
            return most[0]
        slow_since = time.monotonic() - SLOW_S
        return next((one for one in self._open if one.answered_since < slow_since), None)

    def _by_address(self, places: Iterable[Place]) -> dict[str, list[Place]]:
        found: dict[str, list[Place]] = {}
        for place in places:
            found.setdefault(place.address, []).append(place)
        return found


def header_of(request: bytes, name: bytes) -> str | None:
    """The first value of a header of a request's head, or None."""
    for line in request.split(b"\r\n")[1:]:
        key, colon, value = line.partition(b":")
        if colon and key.strip().lower() == name:
            return value.strip().decode("latin-1")
    return None


async def check(broker: Broker, request: bytes, address: str) -> None:
    """Raises Answer for a request that may not have a page: called by a foreign name from this
    machine, or without the login that the setting `metrics_login` demands."""
    host = header_of(request, b"host")
    allowed = {name.lower() for name in broker.config.allowed_hosts}
    if host is not None and not host_accepted(host, address, allowed):
        raise Answer(
            "421 Misdirected Request",
            "this server does not know the name in the Host header; use its address, or name it in "
            "the setting allowed_hosts\n",
        )
    if broker.config.metrics_login:
        await _check_login(broker, request, address)


async def _check_login(broker: Broker, request: bytes, address: str) -> None:
    scheme, _, encoded = (header_of(request, b"authorization") or "").partition(" ")
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        text = ""
    name, colon, password = text.partition(":")
    if scheme.lower() != "basic" or not colon:
        raise Answer("401 Unauthorized", "metrics need a login (metrics_login)\n", CHALLENGE)
    user = await broker.logins.check(name, password, address, "http")
    if isinstance(user, Refused):
        status = {429: "429 Too Many Requests", 503: "503 Service Unavailable"}.get(user.status)
        raise Answer(status or "401 Unauthorized", f"{user.reason}\n", "" if status else CHALLENGE)
    if not has_tag(user.tags, "monitoring"):
        raise Answer("401 Unauthorized", "Not monitor user\n")
