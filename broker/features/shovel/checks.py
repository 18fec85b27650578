"""Checks of a shovel's definition that need more than the table of keys: URIs, secrets, rights."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any
from urllib.parse import SplitResult

from broker.access import Access, BadSetting
from broker.access.secrets import STARS
from broker.client.uri import is_here
from broker.features.bridge_uris import (
    AMQP,
    check_amqp,
    known,
    no_certificate,
    split,
    with_password,
)
from broker.fields.properties import TABLE, encode
from broker.schema.shovel_keys import SECRET_KEYS, runs, settled, uris

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,4096}", re.ASCII)
_RESERVED = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "te"}
    # By these the receiver knows a shovel, and a proxy says where a request comes from.
    | {"x-shovel", "x-forwarded-for", "x-forwarded-proto", "forwarded", "x-real-ip"}
)
WEB = ("http", "https")


def checked(
    value: dict[str, Any],
    old: Any,
    *,
    access: Access,
    user: str | None,
    vhost: str,
    certificates: Collection[str],
) -> dict[str, Any]:
    """The definition to store: `***` is replaced by what `old` has there. `user` is who writes it;
    "" is the appliance. Raises BadSetting."""
    value = _with_secrets(value, old if isinstance(old, dict) else {})
    if not runs(value):
        return value
    schemes = set()
    for key in ("src-uri", "dest-uri"):
        for uri in uris(value[key]):
            parts = split(key, uri)
            if key == "dest-uri":
                schemes.add(parts.scheme in WEB)
            if parts.scheme in WEB and key == "dest-uri":
                _check_web(key, parts)
            elif parts.scheme in AMQP:
                check_amqp(key, uri, access, user, vhost, certificates)
            else:
                schemes_there = "amqp, amqps" + (", http or https" if key == "dest-uri" else "")
                raise BadSetting(f"{key}: the scheme is {schemes_there}, not '{parts.scheme[:20]}'")
    if len(schemes) > 1:
        raise BadSetting("dest-uri: all of them are AMQP or all of them are HTTP")
    _check_properties(value)
    authority = value.get("dest-cacertfile")
    if authority is not None and authority not in certificates:
        raise BadSetting(f"dest-cacertfile: {no_certificate(authority)}")
    _check_headers(value.get("dest-headers") or {})
    is_far = not all(is_here(uri) for uri in uris(value["src-uri"]))
    if value.get("on-refused") == "dead-letter" and "dead-letter-queue" not in value and is_far:
        raise BadSetting(
            "on-refused dead-letter needs dead-letter-queue: whether a queue of another broker"
            " has a dead-letter exchange is not known here"
        )
    return value


def _check_properties(value: dict[str, Any]) -> None:
    given = settled(value)["dest-publish-properties"] or {}
    properties = {name for name, _, _ in TABLE}
    for name in given:
        if name.replace("-", "_") not in properties:
            raise BadSetting(f"dest-publish-properties: there is no property '{name[:100]}'")
    headers = given.get("headers", {})
    if not isinstance(headers, dict):
        raise BadSetting("dest-publish-properties: headers should be an object")
    try:
        encode({name.replace("-", "_"): item for name, item in given.items()})
    except ValueError as error:
        raise BadSetting(f"dest-publish-properties: {error}") from None


def _check_headers(headers: dict[str, str]) -> None:
    for name, item in headers.items():
        if not _HEADER.fullmatch(name) or name.lower() in _RESERVED:
            raise BadSetting(f"dest-headers: '{name[:100]}' is no header that may be set")
        if not _HEADER_VALUE.fullmatch(item):
            raise BadSetting(f"dest-headers: the value of {name} has characters that none may have")


def _check_web(key: str, parts: SplitResult) -> None:
    if not parts.hostname:
        raise BadSetting(f"{key}: the URI names no host")
    if parts.fragment:
        raise BadSetting(f"{key}: the URI has a fragment")


# Secrets that are not given again.


def _with_secrets(value: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    found = dict(value)
    for key in ("src-uri", "dest-uri"):
        stored = uris(old[key]) if key in old else []
        given = [with_password(key, uri, stored) for uri in uris(value[key])]
        found[key] = given[0] if isinstance(value[key], str) else given
    for key in SECRET_KEYS:
        if value.get(key) == STARS:
            found[key] = known(key, old.get(key))
    headers = value.get("dest-headers")
    if isinstance(headers, dict) and STARS in headers.values():
        kept = old.get("dest-headers") or {}
        same = _places(value) == _places(old)
        found["dest-headers"] = {
            name: known(f"dest-headers: {name[:100]}", kept.get(name) if same else None)
            if item == STARS
            else item
            for name, item in headers.items()
        }
    return found


def _places(value: dict[str, Any]) -> set[tuple[str, str | None, int | None]]:
    """Where a definition sends messages to."""
    found = (split("dest-uri", uri) for uri in uris(value.get("dest-uri", [])))
    return {(parts.scheme, parts.hostname, parts.port) for parts in found}
