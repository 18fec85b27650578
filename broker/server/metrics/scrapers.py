"""Who scrapes: places on the metrics port that no flood takes away, the Host header, the login."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Any

from broker.access import Refused
from broker.origins import host_accepted
from broker.sight import has_tag

CONNECTIONS_MAX = 64
"""Open connections of the metrics port."""

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
    """One connection: whose it is, and whether its request is still awaited."""

    __slots__ = ("address", "is_waiting", "writer")

    def __init__(self, address: str, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self.writer = writer
        self.is_waiting = True


class Places:
    """Open connections, the oldest first. When all are taken a new one gets the place of the oldest
    that has sent no request yet, of the address that has most of them; so a scraper always finds
    one."""

    def __init__(self, most: int = CONNECTIONS_MAX) -> None:
        self._most = most
        self._open: dict[Place, None] = {}

    def take(self, address: str, writer: asyncio.StreamWriter) -> Place | None:
        """A place, or None if all belong to requests that are being answered."""
        if len(self._open) >= self._most and not self._make_room():
            return None
        place = Place(address, writer)
        self._open[place] = None
        return place

    def give(self, place: Place) -> None:
        self._open.pop(place, None)

    def _make_room(self) -> bool:
        waiting: dict[str, list[Place]] = {}
        for place in self._open:
            if place.is_waiting:
                waiting.setdefault(place.address, []).append(place)
        if not waiting:
            return False
        oldest = max(waiting.values(), key=len)[0]
        del self._open[oldest]
        oldest.writer.transport.abort()
        return True


def header_of(request: bytes, name: bytes) -> str | None:
    """The first value of a header of a request's head, or None."""
    for line in request.split(b"\r\n")[1:]:
        key, colon, value = line.partition(b":")
        if colon and key.strip().lower() == name:
            return value.strip().decode("latin-1")
    return None


async def check(broker: Any, request: bytes, address: str) -> None:
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


async def _check_login(broker: Any, request: bytes, address: str) -> None:
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
