"""Names in URLs. A segment may hold any name, also one with `/` in it, and none is ever altered.

An ASGI server decodes `%2F` before Django sees the path, so a queue named `a/b` would be two
segments. `RawPath` hands Django the path as it was sent; the `seg` converter then decodes each
segment by itself. Every route that takes a name uses `<seg:…>`, and every link is made by `link`.
"""

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from django.urls import register_converter, reverse

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class Segment:
    """One path segment, percent-decoded as UTF-8. Bytes that are not UTF-8 match no route."""

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        try:
            return unquote(value, errors="strict")
        except UnicodeDecodeError:
            raise ValueError("the name is not UTF-8") from None

    def to_url(self, value: str) -> str:
        return quote(str(value), safe="")


register_converter(Segment, "seg")

_PLACE = "~"
"""Stands for a name in a path; no route has it."""


class RawPath:
    """ASGI wrapper: `path` becomes what the client sent, still percent-encoded."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path = scope.get("raw_path")
        if scope["type"] == "http" and raw_path:
            path = raw_path.partition(b"?")[0].decode("latin-1")
            scope = {**scope, "path": path}
        await self.application(scope, receive, send)


def link(view_name: str, *names: Any, **named: Any) -> str:
    """The path of a view whose `seg` arguments are the given names, each quoted once."""
    if not names:
        return _reversed(view_name, named)
    first, *others = _around(view_name, len(names))
    quoted = (quote(str(name), safe="") for name in names)
    return first + "".join(map("".join, zip(quoted, others, strict=True)))


@lru_cache(maxsize=128)
def _around(view_name: str, count: int) -> list[str]:
    """The parts of a view's path around `count` segments: Django takes 30 µs to find them."""
    return reverse(view_name, args=[_PLACE] * count).split(_PLACE)


def _reversed(view_name: str, named: dict[str, Any]) -> str:
    # Django's `reverse` quotes the whole path again after the converters did, which doubles every
    # percent sign and changes nothing else; that is undone here.
    return reverse(view_name, kwargs=named or None).replace("%25", "%")
