"""Heartbeats of an idle client wait in the kernel until the broker looks for them; anything else
that it sends is received at once."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from broker.server.app import Broker
from tests.amqp import raw
from tests.inside import CLOSED, until
from tests.listeners.test_loop import run

BEAT = raw.frame(raw.HEARTBEAT, 0, b"")
OPEN_CHANNEL = raw.method(2, "channel.open")
HANDSHAKE = (
    raw.PROTOCOL_HEADER
    + raw.start_ok()
    + raw.method(0, "connection.tune-ok", channel_max=100, frame_max=131_072, heartbeat=60)
    + raw.method(0, "connection.open", virtual_host="/")
    + raw.method(1, "channel.open")
)


class Client:
    """A client in the broker's own loop."""

    def __init__(self, broker: Broker, writer: asyncio.StreamWriter, session: Any) -> None:
        self.broker = broker
        self.writer = writer
        self.session = session

    @classmethod
    async def open(cls, broker: Broker, path: Path | None = None) -> Client:
        before = set(broker.connections)
        _, writer = (
            await asyncio.open_unix_connection(path)
            if path
            else await asyncio.open_connection("127.0.0.1", port_of(broker))
        )
        writer.write(HANDSHAKE)
        await until(lambda: any(1 in each.channels for each in added(broker, before)))
        (session,) = added(broker, before)
        return cls(broker, writer, session)

    @property
    def wakes_from(self) -> int:
        """Octets that have to wait in the kernel before the broker's loop sees them."""
        with socket.socket(fileno=os.dup(self.session.fd)) as same:
            return same.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

    async def send(self, data: bytes) -> None:
        """Sends these octets, and returns when the broker has looked at its sockets since."""
        self.writer.write(data)
        await self.writer.drain()
        other = await Client.open(self.broker)
        other.writer.close()

    async def fall_silent(self) -> None:
        """What came with the handshake is past, and the broker has looked."""
        self.session._beat()
        self.session._beat()


def port_of(broker: Broker) -> int:
    return int(broker.listeners[0]["port"])


def added(broker: Broker, before: set[Any]) -> list[Any]:
    return [each for key, each in broker.connections.items() if key not in before]


def with_client(directory: Path, test: Callable[[Client], Awaitable[None]]) -> None:
    async def whole(broker: Broker) -> None:
        client = await Client.open(broker)
        try:
            await test(client)
        finally:
            client.writer.close()

    run(directory, whole)


def test_a_heartbeat_waits_in_the_kernel_until_it_is_looked_for(tmp_path: Path) -> None:
    async def test(client: Client) -> None:
        await client.fall_silent()
        before = client.session.recv_oct
        await client.send(BEAT)
        assert client.session.recv_oct == before
        client.session._beat()
        assert client.session.recv_oct == before + len(BEAT)

    with_client(tmp_path / "data", test)


def test_a_client_that_sends_heartbeats_alone_is_not_dropped(tmp_path: Path) -> None:
    async def test(client: Client) -> None:
        for _ in range(12):
            await client.send(BEAT)
            client.session._beat()
        assert client.session.is_open

    with_client(tmp_path / "data", test)


def test_a_client_that_sends_nothing_is_dropped(tmp_path: Path) -> None:
    async def test(client: Client) -> None:
        for _ in range(12):
            client.session._beat()
        await until(lambda: client.session.phase == CLOSED)

    with_client(tmp_path / "data", test)


def test_a_frame_is_received_wherever_its_octets_are_cut(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        for cut in range(1, len(BEAT + OPEN_CHANNEL)):
            client = await Client.open(broker)
            await client.fall_silent()
            await client.send((BEAT + OPEN_CHANNEL)[:cut])
            await client.send((BEAT + OPEN_CHANNEL)[cut:])
            await until(lambda: 2 in client.session.channels)  # noqa: B023
            client.writer.close()

    run(tmp_path / "data", test)


def test_the_rest_of_a_frame_is_received_however_short_it_is(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        for left in range(1, len(OPEN_CHANNEL)):
            client = await Client.open(broker)
            await client.fall_silent()
            await client.send(BEAT + OPEN_CHANNEL[:-left])
            client.session._beat()
            await client.send(OPEN_CHANNEL[-left:])
            await until(lambda: 2 in client.session.channels)  # noqa: B023
            client.writer.close()

    run(tmp_path / "data", test)


def test_each_octet_wakes_the_loop_when_the_client_is_not_idle(tmp_path: Path) -> None:
    async def test(client: Client) -> None:
        assert client.wakes_from == 1
        await client.fall_silent()
        assert client.wakes_from == len(BEAT) + 1
        await client.send(raw.method(1, "queue.declare", queue="q", exclusive=True))
        assert client.wakes_from == 1
        await client.send(raw.publish(1, "", "q", bytes(100)))
        client.session._beat()
        assert client.wakes_from == 1

    with_client(tmp_path / "data", test)


def test_the_end_of_an_idle_client_is_seen_at_once(tmp_path: Path) -> None:
    async def test(client: Client) -> None:
        await client.fall_silent()
        client.writer.write(BEAT[:3])
        client.writer.close()
        await until(lambda: client.session.id not in client.broker.connections)

    with_client(tmp_path / "data", test)


def test_a_client_that_the_broker_does_not_read_is_left_alone(tmp_path: Path) -> None:
    async def test(client: Client) -> None:
        client.session.transport.pause_reading()
        before = client.session.recv_oct
        await client.send(BEAT)
        client.session._beat()
        assert (client.session.recv_oct, client.wakes_from) == (before, 1)

    with_client(tmp_path / "data", test)


def test_a_unix_socket_is_received_from_at_once(tmp_path: Path) -> None:
    path = tmp_path / "socket"

    async def test(broker: Broker) -> None:
        client = await Client.open(broker, path)
        await client.fall_silent()
        before = client.session.recv_oct
        await client.send(BEAT)
        assert client.session.recv_oct == before + len(BEAT)
        client.writer.close()

    run(tmp_path / "data", test, unix_path=path)
