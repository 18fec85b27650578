"""The broker's listeners: AMQP over TCP, TLS, WebSocket and Unix socket, the relay of the web
process, the socket of the process that runs shovels, and metrics; and the file with their
addresses.

`run/broker.json` holds the first address of each, as `{"amqp": [host, port], "amqps": …, "ws": …,
"wss": …, "metrics": …, "pid": number}` without those that are off. It is there from the moment
when everything accepts until the broker stops; suspended listeners keep their addresses in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.server.entrance import (
    ACCEPTED_AT_ONCE,
    Entrance,
    bound_segments,
    let_wait,
    set_options,
)
from broker.server.plain import PlainListener
from broker.server.tcp import RelayProtocol, SocketProtocol
from broker.server.tier_listener import TierListener
from broker.server.websocket import WebSocketListener, WebSocketProtocol
from broker.store.files import disk

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.metrics import MetricsServer


METRICS = "http/prometheus"


class CannotListen(Exception):
    """An address is taken or not to be had; the text says which and why, in one line."""


class _ClientListener(NamedTuple):
    """How a listener for clients is opened again after a pause: `what` for people, `where` its
    address or path, `factory` for who comes, `plain` the name of one that does without asyncio."""

    what: str
    where: tuple[str, int] | Path
    factory: Callable[[], Any]
    mode: int = 0
    plain: str = ""


class Listeners:
    """Every way into the broker but the control socket."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.addresses: dict[str, list[str | int]] = {}
        """Host and port by the key they have in `run/broker.json`."""
        self.suspended = False
        """Whether clients cannot connect for now; metrics and the appliance's own parts can."""
        self._rows: list[dict[str, Any]] = []
        self._reopened: list[_ClientListener] = []
        self._servers: list[asyncio.Server | PlainListener] = []
        self._inherited: list[socket.socket] = []
        """Listening sockets whose clients have their options."""
        self._paths: list[tuple[Path, int]] = []
        """Of Unix sockets, each with the number of its inode."""
        self._websocket = WebSocketListener(broker)
        self._metrics: MetricsServer | None = None
        self._tiers = TierListener(broker)
        self._said_in = str(broker.config.run_dir / "broker.json")

    async def open(self) -> None:
        """Opens all that are configured. Raises CannotListen."""
        broker, config = self._broker, self._broker.config
        amqp = partial(Entrance, broker, partial(SocketProtocol, broker, "amqp"), believes=True)
        await self._open("amqp", "amqp", "AMQP", config.amqp_port, amqp, "amqp")
        websocket = partial(Entrance, broker, lambda origin: WebSocketProtocol(self._websocket))
        await self._open("ws", "ws", "AMQP over WebSocket", config.ws_port, websocket)
        if broker.certificates.context is not None:
            secure = partial(
                Entrance,
                broker,
                partial(SocketProtocol, broker, "amqps"),
                secure=True,
                believes=True,
            )
            await self._open("amqps", "amqps", "AMQP over TLS", config.amqps_port, secure)
            if config.wss_port:
                secure = partial(
                    Entrance, broker, lambda origin: WebSocketProtocol(self._websocket), secure=True
                )
                port = max(0, config.wss_port)
                await self._open("wss", "wss", "AMQP over WebSocket over TLS", port, secure)
        self._websocket.start()
        if config.metrics_port:
            await self._open_metrics(max(0, config.metrics_port))
        if config.unix_path is not None:
            factory = partial(Entrance, broker, partial(SocketProtocol, broker, "unix"))
            await self._open_unix(config.unix_path, factory, 0o660, "unix")
        local = partial(Entrance, broker, partial(SocketProtocol, broker, "unix"))
        await self._open_unix(config.local_socket, local, 0o600, "unix")
        await self._tiers.open()
        relay = partial(Entrance, broker, lambda origin: RelayProtocol(broker))
        await self._open_unix(config.relay_socket, relay, 0o600)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """`node`, `protocol`, `ip_address` and `port` of each that accepts, as the overview shows
        them."""
        if not self.suspended:
            return self._rows
        return [row for row in self._rows if row["protocol"] == METRICS]

    def suspend(self) -> None:
        """Clients that come are refused until `resume`; who is connected stays."""
        self.suspended = True
        self._stop_serving()

    async def resume(self) -> None:
        """Clients may connect again, at the same addresses. Raises CannotListen, and all stay
        suspended."""
        try:
            for one in self._reopened:
                if isinstance(one.where, Path):
                    await self._listen_unix(one.where, one.factory, one.mode, one.plain)
                else:
                    await self._listen(one.what, *one.where, one.factory, one.plain)
        except CannotListen:
            self._stop_serving()
            raise
        self.suspended = False

    async def _open(
        self,
        key: str,
        protocol: str,
        what: str,
        port: int,
        factory: Callable[[], Any],
        plain: str = "",
    ) -> None:
        """Listens on each address of `bind`; where the port is any free one, on the same."""
        for host in self._broker.config.bind:
            port = await self._listen(what, host, port, factory, plain)
            self._reopened.append(_ClientListener(what, (host, port), factory, plain=plain))
            self._add(key, protocol, (host, port))

    async def _listen(
        self, what: str, host: str, port: int, factory: Callable[[], Any], plain: str
    ) -> int:
        """Returns the actual port. Raises CannotListen."""
        plain = plain if self._broker.sockets.epoll >= 0 else ""
        with _told(what, host, port):
            server = await asyncio.get_running_loop().create_server(
                factory,
                host,
                port,
                backlog=ACCEPTED_AT_ONCE,
                reuse_address=True,
                start_serving=not plain,
            )
        bound: int = server.sockets[0].getsockname()[1]
        let_wait(server, self._broker.config.tcp_backlog)
        bound_segments(server, self._broker.config.tcp_max_segment)
        if not plain:
            self._servers.append(server)
            return bound
        for listening in server.sockets:
            sock = socket.socket(fileno=os.dup(listening.fileno()))
            self._inherited.append(sock)
            give = partial(self._give, factory)
            self._servers.append(PlainListener(self._broker, sock, plain, give))
        server.close()
        self.set_options()
        return bound

    def _give(self, factory: Callable[[], Any], sock: socket.socket) -> None:
        """A client of a trusted proxy, whose header says who it is, is asyncio's."""
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        self._broker.run_task(loop.connect_accepted_socket(factory, sock))

    def set_options(self) -> None:
        """Settings have come into force: sets what accepted sockets have from their listeners."""
        config = self._broker.config
        for sock in self._inherited:
            set_options(sock, config.tcp_keepalive or _of_the_system(), config.send_timeout)

    async def _open_metrics(self, port: int) -> None:
        # The metrics ask verbs for figures, and a verb opens listeners: either may come first.
        from broker.server.metrics import MetricsServer

        metrics = self._metrics = MetricsServer(self._broker)
        for host in self._broker.config.bind:
            with _told("metrics", host, port):
                port = await metrics.start(host, port)
            self._add("metrics", METRICS, (host, port))

    async def _open_unix(
        self, path: Path, factory: Callable[[], asyncio.BaseProtocol], mode: int, plain: str = ""
    ) -> None:
        await self._listen_unix(path, factory, mode, plain)
        self._reopened.append(_ClientListener("", path, factory, mode, plain))

    async def _listen_unix(
        self, path: Path, factory: Callable[[], asyncio.BaseProtocol], mode: int, plain: str
    ) -> None:
        sock = _bind_unix(path, mode)
        self._note(path)
        if plain and self._broker.sockets.epoll >= 0:
            sock.setblocking(False)
            sock.listen(self._broker.config.tcp_backlog)
            self._servers.append(PlainListener(self._broker, sock, plain))
            return
        server = await asyncio.get_running_loop().create_unix_server(
            factory, sock=sock, backlog=ACCEPTED_AT_ONCE
        )
        sock.listen(self._broker.config.tcp_backlog)
        self._servers.append(server)

    def _note(self, path: Path) -> None:
        self._paths.append((path, path.lstat().st_ino))

    def _add(self, key: str, protocol: str, where: tuple[str, int]) -> None:
        self.addresses.setdefault(key, list(where))
        self._rows.append(
            {
                "node": self._broker.node_name,
                "protocol": protocol,
                "ip_address": where[0],
                "port": where[1],
            }
        )

    async def say_where(self) -> None:
        """Writes `run/broker.json`: everything accepts now."""
        first = self._broker.loading.first_user
        said = json.dumps({**self.addresses, "first_user": first, "pid": os.getpid()}).encode()
        await asyncio.get_running_loop().run_in_executor(
            None, disk.write_atomic, self._said_in, said
        )

    @property
    def told(self) -> str:
        """The first address of each, for the log."""
        return ", ".join(f"{key} on {at}" for key, at in self.addresses.items())

    def unsay_where(self) -> None:
        """Takes `run/broker.json` away; harmless if there is none."""
        disk.unlink(self._said_in)

    def stop_accepting(self) -> None:
        """Accepts no more on TCP and Unix sockets; who is connected stays."""
        self._stop_serving()

    def _stop_serving(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        self._inherited.clear()
        for path, inode in self._paths:
            # Not another's that has taken the place since.
            with contextlib.suppress(OSError):
                if path.lstat().st_ino == inode:
                    path.unlink()
        self._paths.clear()

    async def close(self) -> None:
        """Ends the rest: WebSocket with its connections, metrics with its answers."""
        self._websocket.close()
        await self._tiers.close()
        if self._metrics is not None:
            await self._metrics.close()


@contextlib.contextmanager
def _told(what: str, host: str, port: int) -> Iterator[None]:
    """An OSError becomes CannotListen, with what for and where."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CannotListen(f"cannot listen for {what} on {host} port {port}: {reason}") from None


def _bind_unix(path: Path, mode: int) -> socket.socket:
    """A socket at `path` that has these permissions from its first moment. Raises CannotListen."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _make_way(path)
        before = os.umask(0o777 & ~mode)
        try:
            sock.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        sock.close()
        raise CannotListen(f"cannot listen on {path}: {error.strerror or error}") from None
    except CannotListen:
        sock.close()
        raise
    return sock


def _make_way(path: Path) -> None:
    """Removes the socket that a killed process has left, and nothing else. Raises CannotListen and
    OSError."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            # Its group may use the socket.
            path.parent.mkdir(parents=True)
            path.parent.chmod(0o755)
        return
    if not stat.S_ISSOCK(mode):
        raise CannotListen(f"cannot listen on {path}: it exists and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass
    raise CannotListen(f"cannot listen on {path}: another process listens there")


def _of_the_system() -> tuple[int, ...]:
    """What the system does about silent peers of its own accord: as `tcp_keepalive`."""
    with socket.socket() as fresh:
        return tuple(
            fresh.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
