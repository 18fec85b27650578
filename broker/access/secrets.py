"""What is secret in a stored parameter: passwords in URIs, and values whose names say so.

An export, a list and a difference show parameters without them, unless an administrator asks.
"""

from __future__ import annotations

import re
from typing import Any

STARS = "***"
"""What stands for a secret where its place is shown."""

_NAME = re.compile(
    r"passw(or)?d|passphrase|secret|token|credential|authori[sz]ation|cookie"
    r"|(private|api|access)[-_]?key",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://")
_AUTHORITY_END = re.compile(r"[/?#]")
_PORT = re.compile(r"[0-9]{0,5}")
_PARAMETER = re.compile(
    r"([?&])[^=&#]*(?:passw(?:or)?d|passphrase|secret|token)[^=&#]*=[^&#]*", re.IGNORECASE
)


def without_secrets(value: Any) -> Any:
    """A JSON value without its secrets; the value itself where it has none."""
    if isinstance(value, str):
        return _without_password(value)
    if isinstance(value, dict):
        shown = {
            name: without_secrets(item)
            for name, item in value.items()
            if not (isinstance(item, str) and item and _NAME.search(name))
        }
        return shown if shown != value else value
    if isinstance(value, list):
        items = [without_secrets(item) for item in value]
        return items if items != value else value
    return value


def masked(value: Any) -> Any:
    """A JSON value with stars in the place of its secrets."""
    if isinstance(value, str):
        return _masked_uri(value)
    if isinstance(value, dict):
        return {
            name: STARS if isinstance(item, str) and item and _NAME.search(name) else masked(item)
            for name, item in value.items()
        }
    return [masked(item) for item in value] if isinstance(value, list) else value


def _masked_uri(text: str) -> str:
    bare = _without_password(text)
    if bare == text:
        return text
    scheme = _SCHEME.match(text)
    assert scheme is not None, "only a URI has a password"
    end = scheme.end()
    user, at, rest = bare[end:].partition("@")
    had_password = at and text[end + len(user) : end + len(user) + 1] == ":"
    return f"{bare[:end]}{user}:{STARS}@{rest}" if had_password else bare


def _without_password(text: str) -> str:
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text
    begin = scheme.end()
    found = _AUTHORITY_END.search(text, begin)
    end = found.start() if found is not None else len(text)
    user, colon, rest = text[begin:end].partition(":")
    at = text.rfind("@", begin, end)
    if at < 0 and colon and not _PORT.fullmatch(rest):
        # A password with an unencoded slash: it reaches past what looks like the authority.
        at = text.rfind("@", end)
    if at >= 0 and colon and begin + len(user) < at:
        text = f"{text[:begin]}{user}{text[at:]}"
    stripped = _PARAMETER.sub(r"\1", text)
    if stripped != text:
        text = re.sub(r"&+", "&", stripped.replace("?&", "?")).rstrip("?&")
    return text
