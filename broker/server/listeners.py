"""The broker's listeners: AMQP over TCP, TLS, WebSocket and Unix socket, the web process's relay,
and metrics; and where they are, for whoever asks.

`run/broker.json` holds the first address of each, as `{"amqp": [host, port], "amqps": …, "ws": …,
"wss": …, "metrics": …, "pid": number}` without those that are off. It is there only while
everything accepts.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.server.entrance import Entrance
from broker.server.metrics import MetricsServer
from broker.server.tcp import RelayDoor, SocketDoor
from broker.server.websocket import Door, WebSocketListener
from broker.store import disk

if TYPE_CHECKING:
    from broker.server.app import Broker


ACCEPTED_AT_ONCE = 16
"""Sockets a listener takes in a turn of the loop."""


class CannotListen(Exception):
    """An address is taken or not to be had; the text says which and why, in one line."""


class Listeners:
    """Every way into the broker but the control socket."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.addresses: dict[str, list[str | int]] = {}
        """Host and port by the key they have in `run/broker.json`."""
        self.rows: list[dict[str, Any]] = []
        """`node`, `protocol`, `ip_address` and `port` of each, as the overview shows them."""
        self._servers: list[asyncio.Server] = []
        self._websocket = WebSocketListener(broker)
        self._metrics: MetricsServer | None = None
        self._said_in = str(broker.config.run_dir / "broker.json")

    async def open(self) -> None:
        """Opens all that are configured. Raises CannotListen."""
        broker, config = self._broker, self._broker.config
        amqp = partial(Entrance, broker, partial(SocketDoor, broker, "amqp"), believes=True)
        await self._open("amqp", "amqp", "AMQP", config.amqp_port, amqp)
        websocket = partial(Entrance, broker, lambda origin: Door(self._websocket))
        await self._open("ws", "ws", "AMQP over WebSocket", config.ws_port, websocket)
        if broker.certificates.context is not None:
            secure = partial(
                Entrance,
                broker,
                partial(SocketDoor, broker, "amqps"),
                secure=True,
                believes=True,
            )
            await self._open("amqps", "amqps", "AMQP over TLS", config.amqps_port, secure)
            if config.wss_port:
                secure = partial(
                    Entrance, broker, lambda origin: Door(self._websocket), secure=True
                )
                port = max(0, config.wss_port)
                await self._open("wss", "wss", "AMQP over WebSocket over TLS", port, secure)
        self._websocket.start()
        if config.metrics_port:
            await self._open_metrics(max(0, config.metrics_port))
        if config.unix_path is not None:
            door = partial(Entrance, broker, partial(SocketDoor, broker, "unix"))
            await self._open_unix(config.unix_path, door, 0o660)
        relay = partial(Entrance, broker, lambda origin: RelayDoor(broker))
        await self._open_unix(config.relay_socket, relay, 0o600)

    async def _open(
        self, key: str, protocol: str, what: str, port: int, door: Callable[[], Any]
    ) -> None:
        """Listens on each address of `bind`; where the port is any free one, on the same."""

        async def listen(host: str, port: int) -> int:
            # Few at a time: an accepted socket is counted only in the next turn.
            server = await asyncio.get_running_loop().create_server(
                door, host, port, backlog=ACCEPTED_AT_ONCE, reuse_address=True
            )
            self._servers.append(server)
            listener = server.sockets[0]
            with socket.socket(fileno=os.dup(listener.fileno())) as same:
                same.listen(self._broker.config.tcp_backlog)
            bound: int = listener.getsockname()[1]
            return bound

        await self._on_each_address(key, protocol, what, port, listen)

    async def _on_each_address(
        self,
        key: str,
        protocol: str,
        what: str,
        port: int,
        listen: Callable[[str, int], Awaitable[int]],
    ) -> None:
        for host in self._broker.config.bind:
            try:
                port = await listen(host, port)
            except OSError as error:
                reason = os.strerror(error.errno) if error.errno else str(error)
                raise CannotListen(
                    f"cannot listen for {what} on {host} port {port}: {reason}"
                ) from None
            self._add(key, protocol, (host, port))

    async def _open_metrics(self, port: int) -> None:
        metrics = self._metrics = MetricsServer(self._broker)
        await self._on_each_address("metrics", "http/prometheus", "metrics", port, metrics.start)

    async def _open_unix(
        self, path: Path, door: Callable[[], asyncio.BaseProtocol], mode: int
    ) -> None:
        sock = _bind_unix(path, mode)
        server = await asyncio.get_running_loop().create_unix_server(
            door, sock=sock, backlog=ACCEPTED_AT_ONCE
        )
        sock.listen(self._broker.config.tcp_backlog)
        self._servers.append(server)

    def _add(self, key: str, protocol: str, where: tuple[str, int]) -> None:
        self.addresses.setdefault(key, list(where))
        self.rows.append(
            {
                "node": self._broker.node_name,
                "protocol": protocol,
                "ip_address": where[0],
                "port": where[1],
            }
        )

    async def say_where(self) -> None:
        """Writes `run/broker.json`: everything accepts now."""
        said = json.dumps({**self.addresses, "pid": os.getpid()}).encode()
        await asyncio.get_running_loop().run_in_executor(
            None, disk.write_atomic, self._said_in, said
        )

    def unsay_where(self) -> None:
        """Takes `run/broker.json` away; harmless if there is none."""
        disk.unlink(self._said_in)

    def stop_accepting(self) -> None:
        """Accepts no more on TCP and Unix sockets; who is connected stays."""
        for server in self._servers:
            server.close()

    async def close(self) -> None:
        """Ends the rest: WebSocket with its connections, metrics with its answers."""
        self._websocket.close()
        if self._metrics is not None:
            await self._metrics.close()


def _bind_unix(path: Path, mode: int) -> socket.socket:
    """A socket at `path` that has these permissions from its first moment. Raises CannotListen."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~mode)
    try:
        sock.bind(str(path))
    except OSError as error:
        sock.close()
        raise CannotListen(f"cannot listen on {path}: {error.strerror}") from None
    finally:
        os.umask(before)
    return sock
