"""Regular expressions that users write: RE2, so that no pattern can take more than linear time."""

from __future__ import annotations

import re2

_options = re2.Options()
_options.log_errors = False
_options.max_mem = 1 << 20


_LENGTH_MAX = 4_096


class BadPattern(ValueError):
    """The text is no regular expression that RE2 accepts."""


class Pattern:
    """A compiled pattern, found anywhere in a name. An empty one finds only the empty name."""

    __slots__ = ("_search", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._search = _compile(text or "^$").search

    def matches(self, name: str) -> bool:
        return self._search(_octets(name)) is not None


def _compile(text: str) -> re2._Regexp:
    if len(text) > _LENGTH_MAX:
        raise BadPattern(f"regular expression of {len(text)} characters; at most {_LENGTH_MAX}")
    try:
        return re2.compile(_octets(text), options=_options)
    except re2.error as error:
        detail = error.args[0] if error.args else error
        if isinstance(detail, bytes):
            detail = detail.decode("utf-8", "replace")
        raise BadPattern(f"invalid regular expression '{text}': {detail}") from None


def filled_in(pattern: str, user: str, vhost: str) -> str:
    """A pattern with the names in place of `{username}` and `{vhost}`, as text that matches only
    itself; a pattern that finds nothing if the outcome is none."""
    filled = pattern.replace("{username}", str(re2.escape(user)))
    filled = filled.replace("{vhost}", str(re2.escape(vhost)))
    try:
        Pattern(filled)
    except BadPattern:
        return ""
    return filled


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
