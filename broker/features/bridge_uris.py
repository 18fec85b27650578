"""Checks of the URIs in definitions of shovels and upstreams: scheme, certificates, rights at this
broker; and passwords that are not given again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import SplitResult, urlsplit

from broker.access import Access, BadSetting
from broker.access.secrets import STARS, without_secrets
from broker.client.uri import MALFORMED, BadURI, is_here, parse

AMQP = ("amqp", "amqps")


def split(key: str, uri: str) -> SplitResult:
    """The parts of a URI. Raises BadSetting."""
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        # Python's text may quote a part of the password.
        raise BadSetting(f"{key}: the URI cannot be read: {MALFORMED}") from None
    return parts


def check_amqp(
    key: str, uri: str, access: Access, user: str | None, vhost: str, certificates: Iterable[str]
) -> None:
    """Raises BadSetting for a URI that cannot be used, or that leads into a virtual host here which
    the user may not enter. "" is the appliance."""
    try:
        endpoint = parse(uri, vhost=vhost)
    except BadURI as error:
        raise BadSetting(f"{key}: {without_secrets(str(error))}") from None
    if endpoint.tls is not None:
        tls = endpoint.tls
        for file in (tls.ca_file, tls.certificate_file, tls.key_file):
            if file is not None and str(file) not in certificates:
                raise BadSetting(f"{key}: {no_certificate(str(file))}")
    in_name_of = user if is_here(uri) and urlsplit(uri).username is None else None
    if in_name_of and not access.vhost_access(in_name_of, endpoint.vhost):
        raise BadSetting(
            f'{key}: user "{in_name_of}" may not connect to vhost "{endpoint.vhost[:100]}"'
        )


def no_certificate(name: str) -> str:
    """The error for a name that is not in the settings."""
    return (
        f"there is no certificate '{name[:100]}': files are named by the setting"
        " bridges_certificates, not by a path"
    )


def known(key: str, kept: Any) -> Any:
    """The stored value in the place of stars. Raises BadSetting if there is none."""
    if kept is None:
        raise BadSetting(f"{key} is {STARS}, and none is stored that would be kept")
    return kept


def with_password(key: str, uri: str, stored: list[str]) -> str:
    """The URI with the stored password in the place of stars: that of the same user at the same
    address, so that no one sends a password they do not know to a server of their own."""
    parts = split(key, uri)
    if parts.password != STARS:
        return uri
    for other in stored:
        there = split(key, other)
        # Stars that are stored stand for a password that no key decrypts.
        if there.password in (None, "", STARS):
            continue
        if (parts.scheme, parts.username, parts.hostname, parts.port) == (
            there.scheme, there.username, there.hostname, there.port,
        ):  # fmt: skip
            head, _, rest = uri.partition(f":{STARS}@")
            return f"{head}:{there.password}@{rest}"
    raise BadSetting(
        f"{key}: the password is {STARS}, and none is stored for this user at this address: give it"
    )


def login_of(access: Access, owner: str | None, vhost: str, what: str) -> str:
    """The user as whom a bridge of this owner logs in to a virtual host here; `what` it is, for the
    text. Raises BadSetting when there is none."""
    if owner is None:
        raise BadSetting(
            f"who wrote this {what} is not recorded: save it again, and it runs in your name"
        )
    if owner:
        if owner not in access.users:
            raise BadSetting(f"user '{owner}', in whose name it ran, does not exist any more")
        if not access.vhost_access(owner, vhost):
            raise BadSetting(f"user '{owner}' may not connect to vhost '{vhost}' any more")
        return owner
    for name in sorted(access.users):
        is_administrator = access.users[name].has_tag("administrator")
        if is_administrator and access.vhost_access(name, vhost):
            return str(name)
    raise BadSetting(f"no administrator has permissions in vhost '{vhost}'")
