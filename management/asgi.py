"""Everything the web server hands over, from the outside in: see `build`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from channels.routing import ProtocolTypeRouter
from django.conf import settings
from servestatic import ServeStaticASGI

from management.bodies import Bodies
from management.broken_answers import BrokenAnswers
from management.client_scheduler import InTurn
from management.handler import Handler
from management.hosts import AcceptableHost, origin_allowed, refuse
from management.paths import Application, RawPath, Receive, Scope, Send
from management.peer import ForwardedHeaders
from management.relay import Relay
from management.security import HEADERS
from management.sessions import SessionSocket

if TYPE_CHECKING:
    from broker.settings.config import Config

LIVE_PATH = "/live/"


class Sockets:
    """WebSockets: `/live/` is the pages' own, every other path is AMQP and goes to the broker."""

    def __init__(
        self, live: Application, relay: Application, origins: Callable[[], tuple[str, ...]]
    ) -> None:
        self.live = live
        self.relay = relay
        self.origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not origin_allowed(scope, self.origins()):
            reason = "This page may not open a WebSocket here: its origin is not allowed.\n"
            await refuse(scope, receive, send, 403, reason)
        elif scope["path"] == LIVE_PATH:
            await self.live(scope, receive, send)
        else:
            await self.relay(scope, receive, send)


def build(config: "Config") -> Application:
    """The ASGI application of one web process."""
    pages = Handler()
    from management.live import LiveConsumer  # needs Django's apps to be ready

    static = ServeStaticASGI(
        RawPath(pages),
        root=settings.STATIC_ROOT,
        prefix=settings.STATIC_URL,
        immutable_file_test=lambda path, url: True,
        allow_all_origins=False,
        add_headers_function=_static_headers,
    )
    sockets = Sockets(
        SessionSocket(LiveConsumer.as_asgi()),
        Relay(config.relay_socket),
        lambda: settings.APPLIANCE.allowed_origins,
    )
    routes = ProtocolTypeRouter({"http": BrokenAnswers(Bodies(static)), "websocket": sockets})
    served = InTurn(AcceptableHost(routes, lambda: settings.APPLIANCE.allowed_hosts))
    return ForwardedHeaders(served, config.trusted_proxies) if config.trusted_proxies else served


def _static_headers(headers: Any, path: str, url: str) -> None:
    for name, value in HEADERS.items():
        headers[name] = value
