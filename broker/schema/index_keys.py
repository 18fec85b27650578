"""The keys of a stream's random index, as `x-stream-index` and the policy key `stream-index` name
them."""

from __future__ import annotations

from typing import Any

KEYS_MOST = 16
"""Keys of one stream."""

_PROPERTIES = ("message_id", "correlation_id")
_HEADER = "header:"


class BadKeys(ValueError):
    """What is wrong with a list of keys; the text says what to write instead."""


def index_keys(value: Any) -> tuple[str, ...]:
    """The names in a list, or in a text with commas between them, each once. Raises BadKeys."""
    if isinstance(value, str):
        names = [name.strip() for name in value.split(",")]
    elif isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value):
        names = [name.strip() for name in value]
    else:
        raise BadKeys("expected a list of keys, or a text with commas between them")
    for name in names:
        header = name.removeprefix(_HEADER)
        if name not in _PROPERTIES and (header == name or not header):
            raise BadKeys(
                f"'{name[:100]}' is no key: expected message_id, correlation_id or header:NAME"
            )
        if len(header.encode("utf-8", "surrogateescape")) > 255:
            raise BadKeys(f"the header '{header[:100]}...' is longer than 255 bytes")
    found = tuple(dict.fromkeys(names))
    if len(found) > KEYS_MOST:
        raise BadKeys(f"{len(found)} keys, at most {KEYS_MOST}")
    return found


def keys_of(value: Any) -> tuple[str, ...]:
    """The same of a value that was accepted once; nothing where it is none, or missing."""
    try:
        return () if value is None else index_keys(value)
    except BadKeys:
        return ()
