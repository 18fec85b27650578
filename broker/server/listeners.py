"""The broker's listeners: AMQP over TCP, WebSocket and Unix socket, the web process's relay, and
metrics; and where they are, for whoever asks.

`run/broker.json` holds the addresses, as `{"amqp": [host, port], "ws": [host, port], "metrics":
[host, port], "pid": number}` without `metrics` if it is off. It is there only while everything
accepts.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.server.metrics import MetricsServer
from broker.server.tcp import BACKLOG, RelayDoor, SocketDoor
from broker.server.websocket import WebSocketListener
from broker.store import disk

if TYPE_CHECKING:
    from broker.server.app import Broker


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
        self._sockets: list[asyncio.Server] = []
        self._websocket = WebSocketListener(broker)
        self._metrics: MetricsServer | None = None
        self._said_in = str(broker.config.run_dir / "broker.json")

    async def open(self) -> None:
        """Opens all that are configured. Raises CannotListen."""
        broker, config = self._broker, self._broker.config
        try:
            where = await self._open_tcp(config.bind, config.amqp_port)
        except OSError as error:
            raise self._cannot_listen("AMQP", config.amqp_port, error) from None
        self._add("amqp", "amqp", where)
        try:
            where = await self._websocket.open(config.bind, config.ws_port)
        except OSError as error:
            raise self._cannot_listen("AMQP over WebSocket", config.ws_port, error) from None
        self._add("ws", "ws", where)
        if config.metrics_port:
            metrics = MetricsServer(broker)
            try:
                port = await metrics.start(config.bind, max(0, config.metrics_port))
            except OSError as error:
                raise self._cannot_listen("metrics", config.metrics_port, error) from None
            self._metrics = metrics
            self._add("metrics", "http/prometheus", (config.bind, port))
        if config.unix_path is not None:
            await self._open_unix(config.unix_path, lambda: SocketDoor(broker, "unix"), 0o660)
        await self._open_unix(config.relay_socket, lambda: RelayDoor(broker), 0o600)

    async def _open_tcp(self, host: str, port: int) -> tuple[str, int]:
        server = await asyncio.get_running_loop().create_server(
            lambda: SocketDoor(self._broker, "amqp"),
            host,
            port,
            backlog=BACKLOG,
            reuse_address=True,
        )
        self._sockets.append(server)
        address = server.sockets[0].getsockname()
        return address[0], address[1]

    async def _open_unix(
        self, path: Path, door: Callable[[], asyncio.BaseProtocol], mode: int
    ) -> None:
        sock = _bind_unix(path, mode)
        loop = asyncio.get_running_loop()
        self._sockets.append(await loop.create_unix_server(door, sock=sock, backlog=BACKLOG))

    def _add(self, key: str, protocol: str, where: tuple[str, int]) -> None:
        self.addresses[key] = list(where)
        self.rows.append(
            {
                "node": self._broker.node_name,
                "protocol": protocol,
                "ip_address": where[0],
                "port": where[1],
            }
        )

    def _cannot_listen(self, what: str, port: int, error: OSError) -> CannotListen:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return CannotListen(
            f"cannot listen for {what} on {self._broker.config.bind} port {port}: {reason}"
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
        for server in self._sockets:
            server.close()

    async def close(self) -> None:
        """Ends the rest: WebSocket with its connections, metrics with its answers."""
        await self._websocket.close()
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
