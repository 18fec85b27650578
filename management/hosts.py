"""Which names may lead to this server, and which pages may open its sockets.

A page of an attacker can point its own host name at 127.0.0.1 after it was loaded ("rebinding").
The browser then takes this server for the attacker's own, and the loopback address would let that
page sign in as guest. Such a request shows itself by its Host: it comes from this machine and
names neither an address nor a name of this machine.
"""

import ipaddress
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from management.paths import Application, Receive, Scope, Send
from management.peer import is_loopback, peer_of

DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
MISDIRECTED = 421


class AcceptableHost:
    """ASGI wrapper: 421 for a request from loopback under a foreign name.

    `allowed` holds further names that lead here, for instance through a proxy on this machine.
    """

    def __init__(self, application: Application, allowed: Sequence[str] = ()) -> None:
        self.application = application
        own = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}
        self.allowed = own | {name.lower() for name in allowed}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and not self.accepts(scope):
            await refuse(scope, receive, send, MISDIRECTED, self.reason(scope))
            return
        await self.application(scope, receive, send)

    def accepts(self, scope: Scope) -> bool:
        if not is_loopback(peer_of(scope)):
            return True
        name = _split(header(scope, b"host"))[0]
        return name in self.allowed or name.endswith(".localhost") or _is_address(name)

    def reason(self, scope: Scope) -> str:
        name = _split(header(scope, b"host"))[0]
        return (
            f"This server does not know the name {ascii(name)[:100]}. Use its address, or name it "
            "in the setting allowed_hosts.\n"
        )


def origin_allowed(scope: Scope, allowed: Sequence[str]) -> bool:
    """Whether the page that opens a WebSocket may: same host and port, or an origin in `allowed`.

    Clients that are not browsers send no Origin and are let through: they hold no one's cookies.
    """
    origin = header(scope, b"origin")
    if not origin:
        return True
    if "*" in allowed or origin in allowed:
        return True
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https"):
        return False
    own_scheme = scope.get("scheme", "ws")
    own = _split(header(scope, b"host"), DEFAULT_PORTS.get(own_scheme))
    try:
        return own == _split(parts.netloc, DEFAULT_PORTS[parts.scheme])
    except ValueError:
        return False


async def refuse(scope: Scope, receive: Receive, send: Send, status: int, reason: str) -> None:
    """Answer a request, or a WebSocket's opening request, with a status and plain text."""
    kind = "http.response" if scope["type"] == "http" else "websocket.http.response"
    if scope["type"] == "websocket":
        await receive()
        if kind not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": 1008})
            return
    body = reason.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})


def header(scope: Scope, name: bytes) -> str:
    """The first value of a request header, or an empty string."""
    for key, value in scope["headers"]:
        if key == name:
            return value.decode("latin-1").strip()
    return ""


def _split(host: str, default_port: int | None = None) -> tuple[str, int | None]:
    """Lower-case name and port of a Host header or an origin's authority."""
    try:
        parts = urlsplit(f"//{host}")
        return (parts.hostname or "").rstrip("."), parts.port or default_port
    except ValueError:
        return "", None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
