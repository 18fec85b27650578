"""The address a request comes from, as the broker wants it told."""

import ipaddress
from collections.abc import Collection
from typing import Any

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from broker.schema.shovel_keys import BY_SHOVEL
from management.paths import Application, Receive, Scope, Send

UNKNOWN = "0.0.0.0"  # noqa: S104 - compared, not bound
"""What a proxy says that names this machine as the client: it may not be believed."""

_TOLD = "leveret.told"
_BY_SHOVEL = BY_SHOVEL.lower().encode()


class ForwardedHeaders:
    """ASGI wrapper: the headers `X-Forwarded-For` and `X-Forwarded-Proto` count from `trusted`
    addresses, read from the right over trusted hops only."""

    def __init__(self, application: Application, trusted: Collection[str]) -> None:
        self.application = application
        # uvicorn's types of scopes are stricter than ASGI's.
        noted: Any = self._noted
        self._headers: Any = ProxyHeadersMiddleware(noted, list(trusted))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._headers({**scope, _TOLD: scope.get("client")}, receive, send)

    async def _noted(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The middleware leaves the address of the socket alone, or puts another tuple there.
        scope[_TOLD] = scope.get("client") is not scope[_TOLD]
        await self.application(scope, receive, send)


def is_told(scope: Scope) -> bool:
    """Whether a trusted proxy named the client, and not the socket."""
    return bool(scope.get(_TOLD))


def peer_of(scope: Scope) -> str:
    """The peer's address without port; `unix` for a local socket.

    IPv4 addresses that arrive on an IPv6 socket are given in their own form. With trusted proxies
    configured this is the address the nearest trusted proxy vouches for; `UNKNOWN` if that is one
    of this machine: the default user may sign in from here, and only a socket shows who is here.
    A shovel sends from here what a client elsewhere may have written: it is `UNKNOWN`, too.
    """
    client = scope.get("client")
    if not client or not client[0]:
        return "unix"
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0])
    except ValueError:
        # A proxy may say any text, `unix` as well.
        return UNKNOWN if scope.get(_TOLD) else str(client[0])
    address = getattr(address, "ipv4_mapped", None) or address
    if (address.is_loopback or address.is_unspecified) and (
        scope.get(_TOLD) or any(name == _BY_SHOVEL for name, _ in scope.get("headers", ()))
    ):
        return UNKNOWN
    return str(address)
