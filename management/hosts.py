"""The rules of `broker.serving.origins` for requests and WebSockets of the web process."""

from collections.abc import Callable, Collection

from django.http import HttpRequest

from broker.serving import origins
from management.paths import Application, Receive, Scope, Send
from management.peer import peer_of

MISDIRECTED = 421


class AcceptableHost:
    """ASGI wrapper: 421 for a request from loopback under a foreign name.

    `allowed` gives further names that lead here, for instance through a proxy on this machine.
    """

    def __init__(
        self, application: Application, allowed: Callable[[], Collection[str]] = tuple
    ) -> None:
        self.application = application
        self.allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            host = header(scope, b"host")
            if not origins.host_accepted(
                host, peer_of(scope), {name.lower() for name in self.allowed()}
            ):
                await refuse(scope, receive, send, MISDIRECTED, _reason(host))
                return
        await self.application(scope, receive, send)


def origin_allowed(scope: Scope, allowed: Collection[str]) -> bool:
    """Whether the page that makes this request may: same host and port, or named in `allowed`."""
    secure = scope.get("scheme") in ("https", "wss")
    return origins.origin_allowed(
        header(scope, b"origin"), header(scope, b"host"), secure=secure, allowed=allowed
    )


def host_of(request: HttpRequest) -> str:
    """The host and port that the client called, for addresses that a page shows; our own where its
    Host header is none. Django's `get_host` refuses some names that are in use, such as those with
    an underscore."""
    told: str = request.META.get("HTTP_HOST", "")
    if origins.host_name(told):
        return told
    return f"{request.META.get('SERVER_NAME', '')}:{request.META.get('SERVER_PORT', '')}"


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


def _reason(host: str) -> str:
    return (
        f"This server does not know the name {ascii(origins.host_name(host))[:100]}. Use its "
        "address, or name it in the setting allowed_hosts.\n"
    )
