"""Checks of a shovel's definition that need more than the table of keys: URIs, secrets, rights."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import SplitResult, urlsplit

from broker.access import Access, BadSetting
from broker.access.secrets import STARS, without_secrets
from broker.client.uri import BadURI, is_here, parse
from broker.fields.properties import TABLE, encode
from broker.schema.shovel_keys import SECRET_KEYS, runs, settled, uris

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,4096}", re.ASCII)
_RESERVED = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "te"}
)
AMQP = ("amqp", "amqps")
WEB = ("http", "https")


def checked(
    value: dict[str, Any],
    old: Any,
    *,
    access: Access,
    user: str | None,
    vhost: str,
    certificates: Iterable[str],
) -> dict[str, Any]:
    """The definition to store: `***` is replaced by what `old` has there. `user` is who writes it;
    "" is the appliance. Raises BadSetting."""
    value = _with_secrets(value, old if isinstance(old, dict) else {})
    if not runs(value):
        return value
    schemes = set()
    for key in ("src-uri", "dest-uri"):
        for uri in uris(value[key]):
            parts = _split(key, uri)
            if key == "dest-uri":
                schemes.add(parts.scheme in WEB)
            if parts.scheme in WEB and key == "dest-uri":
                _check_web(key, parts)
            elif parts.scheme in AMQP:
                _check_amqp(key, uri, access, user, vhost, frozenset(certificates))
            else:
                known = "amqp, amqps" + (", http or https" if key == "dest-uri" else "")
                raise BadSetting(f"{key}: the scheme is {known}, not '{parts.scheme[:20]}'")
    if len(schemes) > 1:
        raise BadSetting("dest-uri: all of them are AMQP or all of them are HTTP")
    _check_properties(value)
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
    known = {name for name, _, _ in TABLE}
    for name in given:
        if name.replace("-", "_") not in known:
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


def _split(key: str, uri: str) -> SplitResult:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError as error:
        raise BadSetting(f"{key}: the URI cannot be read: {error}") from None
    return parts


def _check_web(key: str, parts: SplitResult) -> None:
    if not parts.hostname:
        raise BadSetting(f"{key}: the URI names no host")
    if parts.fragment:
        raise BadSetting(f"{key}: the URI has a fragment")


def _check_amqp(
    key: str, uri: str, access: Access, user: str | None, vhost: str, certificates: frozenset[str]
) -> None:
    try:
        endpoint = parse(uri, vhost=vhost)
    except BadURI as error:
        raise BadSetting(f"{key}: {without_secrets(str(error))}") from None
    if endpoint.tls is not None:
        tls = endpoint.tls
        for file in (tls.ca_file, tls.certificate_file, tls.key_file):
            if file is not None and str(file) not in certificates:
                raise BadSetting(
                    f"{key}: there is no certificate '{str(file)[:100]}': files are named by the"
                    " setting bridges_certificates, not by a path"
                )
    in_name_of = user if is_here(uri) and urlsplit(uri).username is None else None
    if in_name_of and not access.vhost_access(in_name_of, endpoint.vhost):
        raise BadSetting(
            f'{key}: user "{in_name_of}" may not connect to vhost "{endpoint.vhost[:100]}"'
        )


# Secrets that are not given again.


def _with_secrets(value: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    found = dict(value)
    for key in ("src-uri", "dest-uri"):
        known = uris(old[key]) if key in old else []
        given = [_with_password(key, uri, known) for uri in uris(value[key])]
        found[key] = given[0] if isinstance(value[key], str) else given
    for key in SECRET_KEYS:
        if value.get(key) == STARS:
            found[key] = _known(key, old.get(key))
    headers = value.get("dest-headers")
    if isinstance(headers, dict) and STARS in headers.values():
        kept = old.get("dest-headers") or {}
        same = _places(value) == _places(old)
        found["dest-headers"] = {
            name: _known(f"dest-headers: {name[:100]}", kept.get(name) if same else None)
            if item == STARS
            else item
            for name, item in headers.items()
        }
    return found


def _places(value: dict[str, Any]) -> set[tuple[str, str | None, int | None]]:
    """Where a definition sends messages to."""
    found = (_split("dest-uri", uri) for uri in uris(value.get("dest-uri", [])))
    return {(parts.scheme, parts.hostname, parts.port) for parts in found}


def _known(key: str, kept: Any) -> Any:
    if kept is None:
        raise BadSetting(f"{key} is {STARS}, and none is stored that would be kept")
    return kept


def _with_password(key: str, uri: str, known: list[str]) -> str:
    """The URI with the stored password in the place of stars: that of the same user at the same
    address, so that no one sends a password they do not know to a server of their own."""
    parts = _split(key, uri)
    if parts.password != STARS:
        return uri
    for other in known:
        there = _split(key, other)
        if there.password and (parts.scheme, parts.username, parts.hostname, parts.port) == (
            there.scheme, there.username, there.hostname, there.port,
        ):  # fmt: skip
            head, _, rest = uri.partition(f":{STARS}@")
            return f"{head}:{there.password}@{rest}"
    raise BadSetting(
        f"{key}: the password is {STARS}, and none is stored for this user at this address: give it"
    )
