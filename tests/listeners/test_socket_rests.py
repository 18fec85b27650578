"""The loop lets a socket rest whose packets stay small, in a receive buffer that always has room
for what the kernel has offered: the broker's own loop, with what the kernel counts set by the test.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path

from broker.kernel.moderation import Moderation
from broker.server.app import Broker
from broker.server.sockets import Receiver
from tests.amqp import raw
from tests.listeners.test_loop import opened, run, until

US = 1_000
SIZE = 98_304
CHUNK = 2_040
PACKETS = 30
"""Of a chunk."""


class Client:
    """Sends chunks, each of which is received before the next one; also what the loop asks of and
    does to the socket's other end (`broker/server/rests.py`). `counts(self)` is what the kernel
    says."""

    receive_size = SIZE

    def __init__(self, broker: Broker, counts: Callable[[Client], tuple[int, int]]) -> None:
        self.counts = counts
        self.packets = 0
        self.done: list[str | int] = []
        self.changed = asyncio.Event()
        self.socket, self.end = socket.socketpair()
        self.end.setblocking(False)
        broker.loop.add_reader(self.end, self.changed.set)
        receiver = Receiver(memoryview(bytearray(4_096)), self, self)  # type: ignore[arg-type]
        broker.sockets.watch(self.end.fileno(), receiver)

    async def send(self) -> None:
        """A chunk, which is received then; and if the socket rests behind it, waits for the end."""
        self.changed.clear()
        self.packets += PACKETS
        self.socket.sendall(b"x" * CHUNK)
        await self.changed.wait()
        while self.done and self.done[-1] == "begin":
            self.changed.clear()
            await self.changed.wait()

    def buffer_updated(self, length: int) -> None:
        assert length == CHUNK
        self.changed.set()

    def abort(self) -> None:
        raise AssertionError("the loop gave the socket up")

    def counted(self) -> tuple[int, int]:
        return self.counts(self)

    def bound_receiving(self, size: int, may_grow: bool) -> None:
        assert may_grow == (not size)  # the client's packets are short
        self.done.append(size)

    def begin_rest(self) -> None:
        self.done.append("begin")

    def end_rest(self) -> None:
        self.done.append("end")
        self.changed.set()

    def close(self, broker: Broker) -> None:
        broker.loop.remove_reader(self.end)
        broker.sockets.forget(self.end.fileno())
        self.end.close()
        self.socket.close()


def flooded(moderation: Moderation) -> None:
    """So many frames came in the turns before that the loop sleeps behind them."""
    now = time.monotonic_ns() - 10**9
    since = now
    while not moderation.needs_rests(CHUNK):
        began = now + 5 * US
        frames = 2 * (began - since) // US
        since = began
        now = began + 30 * US
        now += moderation.pause(began, now, frames, 1, 10 * frames)
        moderation.slept(now)
        assert now < time.monotonic_ns()


def test_its_buffer_has_room_for_what_is_offered_until_it_rests_in_a_narrow_one(
    tmp_path: Path,
) -> None:
    offers = [0, 150_000, 100_000, 60_000, 20_000]

    def counts(client: Client) -> tuple[int, int]:
        return offers[min(len(client.done), 4)], client.packets

    async def test(broker: Broker) -> None:
        flooded(broker.turn.moderation)
        client = Client(broker, counts)
        try:
            while "end" not in client.done:
                await client.send()
                if client.done[-1:] == [0]:
                    client.done.clear()  # the machine did other things meanwhile: the next trial
        finally:
            client.close(broker)
        narrow = [12_288, 16_384, "begin", 12_288, "end"]
        assert client.done == [SIZE, 75_000, 50_000, 30_000, *narrow]

    run(tmp_path / "data", test)


def test_it_does_not_rest_while_its_packets_are_large(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        flooded(broker.turn.moderation)
        client = Client(broker, lambda client: (150_000, client.packets // PACKETS // 2))
        try:
            for _ in range(500):
                await client.send()
        finally:
            client.close(broker)
        assert not client.done

    run(tmp_path / "data", test)


def test_a_look_that_brings_what_needs_no_turn_counts_for_the_sleep(tmp_path: Path) -> None:
    """Else a publisher that flushes what has to wait for a round is never slept for. Here little
    comes with each look, so that no sleep is worth while any more."""

    async def test(broker: Broker) -> None:
        _, writer = await opened(broker)
        (connection,) = broker.connections.values()
        writer.write(raw.method(1, "channel.open"))
        writer.write(raw.method(1, "basic.publish", routing_key="nowhere") + raw.header(1, 1_000))
        await until(lambda: connection.recv_cnt >= 6)
        moderation = broker.turn.moderation
        flooded(moderation)
        for _ in range(70):
            before = connection.recv_cnt
            writer.write(raw.body(1, b"x"))
            await until(lambda before=before: connection.recv_cnt > before)  # type: ignore[misc]
        writer.close()
        assert moderation.level == 0

    run(tmp_path / "data", test)
