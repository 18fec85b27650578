"""The event loop of the web process: addresses take turns also in what asyncio does for them."""

import asyncio
import os
import select
import socket
import time
from collections.abc import Callable
from contextvars import Context
from selectors import EVENT_READ, EVENT_WRITE, SelectorKey
from typing import TYPE_CHECKING, Any

from broker.process.garbage import YOUNG_EVERY_NS
from broker.serving.addresses import address_of
from broker.serving.tls_handshakes import Handshakes
from broker.settings.bounds import WEB_ACCEPTED_AT_ONCE
from management.client_scheduler import ADDRESS, scheduler_of

if TYPE_CHECKING:
    from broker.settings.config import Config

_ADDRESS = "leveret.address"
"""Key of what a transport tells about itself."""
_SHAKING = "leveret.shaking"
"""The same: whether its TLS handshake is under way."""
_ACCEPTING = "accepting"
"""In whose turn sockets are accepted and connections made: no client that is connected waits for
more of it than for one address."""


_TOLD_AGAIN = 16


def _config() -> "Config":
    from django.conf import settings

    config: Config = settings.APPLIANCE
    return config


class EventLoop(asyncio.SelectorEventLoop):
    """Listens as uvicorn has no setting for: TLS handshakes are bounded in time and number, and
    sockets are accepted a few at a time, since each takes part of a turn before it is known whose
    it is. What is done for requests is done in turn (`management.client_scheduler`), and so is
    reading from and writing to the connections of clients; the broker's answers wait for no client.
    """

    def __init__(self) -> None:
        super().__init__()
        self._handshakes = Handshakes(_config)
        self._scheduler = scheduler_of(self)
        self._making_for: str | None = None
        """The client whose connection is made at the moment."""
        self._is_making_tls = False
        """Whether it begins with a TLS handshake."""
        self._due: set[int] = set()
        """Descriptors that are ready and wait for their turn. Of the first few the selector tells
        again in each turn of the loop; of hundreds that would be most of the turn."""
        self._hushed: set[int] = set()
        """Those of them of which it does not."""
        self.walk_over_young: Callable[[], object] | None = None
        """Called between turns, every `YOUNG_EVERY_NS` at most."""
        self._walked_ns = 0

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """What tasks and futures call for each step of theirs, with their context, and a transport
        that is made for what its connection begins with."""
        address = self._making_for if context is None else context.get(ADDRESS)
        if address is None:
            return super().call_soon(callback, *args, context=context)
        self._check_closed()  # type: ignore[attr-defined]
        if context is None and self._is_making_tls:
            return self._scheduler.shake(address, callback, *args)
        handle = asyncio.Handle(callback, args, self, context)
        self._scheduler.step(address, handle, self)
        return handle

    def _process_events(self, ready: list[tuple[SelectorKey, int]]) -> None:
        """What asyncio calls in each turn, with all sockets that are ready."""
        now = time.monotonic_ns()
        if self.walk_over_young is not None and now - self._walked_ns >= YOUNG_EVERY_NS:
            self._walked_ns = now
            self.walk_over_young()
        new = [event for event in ready if event[0].fd not in self._due]
        whose = [_whose(key) for key, _ in new]
        at_once = [event for event, address in zip(new, whose, strict=True) if address is None]
        super()._process_events(at_once)  # type: ignore[misc]
        for event, address in zip(new, whose, strict=True):
            if address is not None:
                self._due.add(event[0].fd)
                if len(self._due) > _TOLD_AGAIN:
                    self._hush(event[0].fd)
                transport = _transport_of(event[0])
                is_shaking = transport is not None and transport.get_extra_info(_SHAKING)
                begin = self._scheduler.shake if is_shaking else self._scheduler.begin
                begin(address, self._work_on, *event)

    def _work_on(self, key: SelectorKey, mask: int) -> None:
        """Reads or writes. If the socket was closed meanwhile, its descriptor may be another's; its
        handles are cancelled then."""
        self._due.discard(key.fd)
        if key.fd in self._hushed:
            self._listen_again(key.fd)
        for handle, bit in zip(key.data, (EVENT_READ, EVENT_WRITE), strict=True):
            if handle is not None and mask & bit and not handle.cancelled():
                handle._run()

    def _hush(self, fd: int) -> None:
        """Has epoll say nothing of a registered descriptor."""
        self._hushed.add(fd)
        self._selector._selector.modify(fd, 0)  # type: ignore[attr-defined]

    def _listen_again(self, fd: int) -> None:
        """Has epoll say what the descriptor is registered for, if it still is."""
        self._hushed.discard(fd)
        selector = self._selector  # type: ignore[attr-defined]
        key = selector.get_map().get(fd)
        if key is not None:
            events = (key.events & EVENT_READ and select.EPOLLIN) | (
                key.events & EVENT_WRITE and select.EPOLLOUT
            )
            selector._selector.modify(fd, events)

    async def create_server(self, *args: Any, **more: Any) -> asyncio.Server:
        backlog = more.pop("backlog", 100)  # asyncio's own default
        if more.get("ssl") is not None:
            more["ssl_handshake_timeout"] = _config().tls_handshake_timeout
        server = await super().create_server(*args, backlog=WEB_ACCEPTED_AT_ONCE, **more)
        for listener in server.sockets:
            with socket.socket(fileno=os.dup(listener.fileno())) as same:
                same.listen(backlog)
        return server

    async def _accept_connection2(self, *args: Any, **more: Any) -> None:
        """What asyncio calls for each socket it has accepted: a connection is made in turn, too."""
        ADDRESS.set(_ACCEPTING)
        await asyncio.sleep(0)
        await super()._accept_connection2(*args, **more)  # type: ignore[misc]

    def _make_socket_transport(
        self, sock: socket.socket, protocol: Any, waiter: Any = None, **more: Any
    ) -> asyncio.Transport:
        """What asyncio calls for each socket it has accepted or connected; `extra` is what the
        former are asked for with `get_extra_info`."""
        make = super()._make_socket_transport  # type: ignore[misc]
        return self._made(make, sock, protocol, waiter, **more)

    def _made(self, make: Callable[..., asyncio.Transport], *args: Any, **more: Any) -> Any:
        """A transport, which works in the context of who opens a connection, or in one of its own
        if it was accepted: then what it begins with is done in turn."""
        extra = more.get("extra")
        if extra is None:
            return make(*args, **more)
        peer = extra.get("peername")
        extra[_ADDRESS] = self._making_for = address_of(peer[0]) if peer else "unix"
        self._is_making_tls = _SHAKING in extra
        try:
            return Context().run(make, *args, **more)
        finally:
            self._making_for = None

    def _make_ssl_transport(
        self,
        rawsock: socket.socket,
        protocol: Any,
        sslcontext: Any,
        waiter: Any = None,
        **more: Any,
    ) -> asyncio.Transport:
        """The same with TLS; `waiter` is done when the handshake is over."""
        make = super()._make_ssl_transport  # type: ignore[misc]
        if waiter is None or not more.get("server_side"):
            return self._made(make, rawsock, protocol, sslcontext, waiter, **more)
        extra: dict[str, Any] = more.get("extra") or {}
        more["extra"], extra[_SHAKING] = extra, True
        made = self._made(make, rawsock, protocol, sslcontext, waiter, **more)
        peer = extra.get("peername")
        handshake = self._handshakes.begin(peer[0] if peer else "", made.abort)

        def end(_: object) -> None:
            extra[_SHAKING] = False
            self._handshakes.end(handshake)

        waiter.add_done_callback(end)
        return made


def _whose(key: SelectorKey) -> str | None:
    """The address of the client whose socket it is, or that of a listener; None for the broker's
    answers, and what the loop has for itself."""
    handle = key.data[0] or key.data[1]
    if getattr(handle._callback, "__name__", "") == "_accept_connection":
        return _ACCEPTING
    transport = _transport_of(key)
    address: str | None = None if transport is None else transport.get_extra_info(_ADDRESS)
    return address


def _transport_of(key: SelectorKey) -> asyncio.BaseTransport | None:
    handle = key.data[0] or key.data[1]
    transport = getattr(handle._callback, "__self__", None)
    return transport if isinstance(transport, asyncio.BaseTransport) else None
