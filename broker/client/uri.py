"""Where a client connects and as which user: AMQP URIs with RabbitMQ's query parameters.

https://www.rabbitmq.com/docs/uri-spec and https://www.rabbitmq.com/docs/uri-query-parameters
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from broker.fields.codec import octets

PORTS = {"amqp": 5672, "amqps": 5671}
MALFORMED = (
    "host or port are malformed; in user and password, / is written as %2F, @ as %40 and : as %3A"
)
CAPABILITIES = (
    "publisher_confirms",
    "consumer_cancel_notify",
    "exchange_exchange_bindings",
    "basic.nack",
    "connection.blocked",
    "authentication_failure_close",
)


class BadURI(ValueError):
    """A URI that cannot be used; the text says why, without its password."""


@dataclass(frozen=True, slots=True)
class TLS:
    """How the server is checked, and which certificate is shown to it. Paths are of PEM files.
    `server_name` is asked for, and checked in the certificate, instead of the endpoint's host; with
    the empty name none is asked for, and only the chain is checked."""

    verify: bool = True
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server and one login. `path`: a Unix socket instead of host and port. Limits of 0 leave
    the server's; times are seconds."""

    host: str = "127.0.0.1"
    port: int = 5672
    path: str | None = None
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    vhost: str = "/"
    tls: TLS | None = None
    mechanism: str = "PLAIN"
    heartbeat: int = 60
    frame_max: int = 131072
    channel_max: int = 2047
    connect_timeout: float = 30.0
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def response(self) -> bytes:
        """What connection.start-ok carries for the mechanism."""
        if self.mechanism == "EXTERNAL":
            return b""
        return b"\0" + octets(self.user) + b"\0" + octets(self.password)

    @property
    def client_properties(self) -> dict[str, Any]:
        return {
            "product": "Leveret",
            "platform": "Python",
            "capabilities": dict.fromkeys(CAPABILITIES, True),
            **self.properties,
        }

    @property
    def server_name(self) -> str | None:
        """The name that TLS asks for; the empty one for none. None: no TLS."""
        if self.tls is None:
            return None
        return self.host if self.tls.server_name is None else self.tls.server_name

    @property
    def shown(self) -> str:
        """The URI without user and password."""
        if self.path is not None:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqp' if self.tls is None else 'amqps'}://{host}:{self.port}"


def is_here(uri: str) -> bool:
    """Whether a URI without a host: it means the broker that it was given to."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    return parts.scheme == "amqp" and not parts.hostname


def parse(uri: str, vhost: str = "/") -> Endpoint:
    """An endpoint from `amqp://user:password@host:port/vhost?heartbeat=30`, or from
    `amqp+unix:///path?vhost=v`. `vhost`: where the URI names none. Raises BadURI."""
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        # Python's text may quote a part of the password.
        raise BadURI(f"the URI cannot be read: {MALFORMED}") from None
    if parts.scheme not in (*PORTS, "amqp+unix"):
        raise BadURI(f"the scheme is amqp, amqps or amqp+unix, not '{parts.scheme}'")
    values: dict[str, Any] = {"vhost": vhost}
    if parts.username is not None:
        values["user"] = unquote(parts.username)
    if parts.password is not None:
        values["password"] = unquote(parts.password)
    if parts.scheme == "amqp+unix":
        values["path"] = unquote(parts.path)
        if not values["path"]:
            raise BadURI("amqp+unix needs the path of a socket: amqp+unix:///run/leveret.sock")
    else:
        values["host"] = parts.hostname or "127.0.0.1"
        values["port"] = port if port is not None else PORTS[parts.scheme]
        # A path of "/" names the vhost with the empty name, which is "/" for Leveret.
        if len(parts.path) > 1:
            values["vhost"] = unquote(parts.path[1:])
    tls: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        _parameter(name, value, values, tls)
    if parts.scheme == "amqps":
        values["tls"] = TLS(**tls)
    elif tls:
        raise BadURI(f"{', '.join(tls)}: settings of TLS need the scheme amqps")
    return dataclasses.replace(Endpoint(), **values)


def _parameter(name: str, value: str, values: dict[str, Any], tls: dict[str, Any]) -> None:
    """Reads one query parameter into the values of an endpoint. Raises BadURI."""
    files = {"cacertfile": "ca_file", "certfile": "certificate_file", "keyfile": "key_file"}
    if name in ("heartbeat", "frame_max", "channel_max"):
        values[name] = _number(name, value, 0x7FFFFFFF if name == "frame_max" else 65535)
    elif name == "connection_timeout":
        values["connect_timeout"] = _number(name, value, 86_400_000) / 1000
    elif name == "auth_mechanism":
        if value.upper() not in ("PLAIN", "EXTERNAL"):
            raise BadURI(f"auth_mechanism is plain or external, not '{value}'")
        values["mechanism"] = value.upper()
    elif name == "vhost":
        values["vhost"] = value
    elif name in files:
        tls[files[name]] = Path(value)
    elif name == "verify":
        if value not in ("verify_peer", "verify_none"):
            raise BadURI(f"verify is verify_peer or verify_none, not '{value}'")
        tls["verify"] = value == "verify_peer"
    elif name == "server_name_indication":
        tls["server_name"] = "" if value == "disable" else value
    else:
        raise BadURI(f"the parameter '{name[:100]}' is unknown")


def _number(name: str, value: str, most: int) -> int:
    if not value.isascii() or not value.isdigit() or int(value) > most:
        raise BadURI(f"{name} is a number from 0 to {most}, not '{value[:100]}'")
    return int(value)
