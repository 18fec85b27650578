"""One channel and its queues in this process, without a loop: bytes in, bytes out."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.kernel.contracts import Consumer, Exchange, Topology
from broker.queues.classic import ClassicQueue
from broker.schema.errors import AMQPError
from broker.wire import ack_timeouts
from broker.wire.channel import Channel
from broker.wire.frame_parser import FrameParser
from broker.wire.settling import settled
from tests.amqp import raw
from tests.inner import requeue_all
from tests.store.driven import Driven

PLACE = (1, 0, 0, False, 0)
"""Of a message that is in no queue, for `take_got`."""


class Wire(FrameParser):
    """A connection without its session. What goes wrong is in `failures`, what it wrote in
    `data`."""

    host = SimpleNamespace(
        config=SimpleNamespace(consumer_timeout=0.0),
        later=lambda _seconds, _callback: SimpleNamespace(cancel=lambda: None),
    )
    """Its clock stands still."""

    def __init__(self, driven: Driven) -> None:
        super().__init__(driven.turn, self)
        self.data = b""
        self.failures: list[AMQPError] = []
        self.routes: dict[bytes, tuple[Exchange, tuple[ClassicQueue, ...]]] = {}
        self.feed(raw.PROTOCOL_HEADER)

    def on_protocol_header(self, header: bytes) -> None:
        self.set_phase(2)
        self.set_tuned(100, 131072)

    def fail(self, error: AMQPError) -> None:
        self.failures.append(error)

    def has_ack_timeout(self, queue: Any) -> bool:
        return ack_timeouts.timeout_of(queue, 0.0) > 0

    def resolve(
        self, channel: Channel, exchange: bytes, routing_key: bytes
    ) -> tuple[Exchange, tuple[ClassicQueue, ...]]:
        return self.routes[routing_key]

    def settle_in_slices(self, channel: Channel, last: int, how: int) -> None:
        for _ in settled(channel, last, how):
            pass

    def label(self) -> str:
        return "test"

    def write(self, data: bytes) -> None:
        """As a transport."""
        self.data += data

    def methods(self) -> Iterator[raw.Method]:
        """Takes what was written: its methods."""
        data, self.data = self.data, b""
        at = 0
        while at < len(data):
            kind, number, size = struct.unpack_from(">BHI", data, at)
            if kind == raw.METHOD:
                yield raw.decode_method(data[at + 7 : at + 7 + size], number)
            at += size + 8


class Wired:
    """Channel 1 of a connection, and queues that are not durable."""

    def __init__(self, directory: Path) -> None:
        self.driven = Driven(directory)
        self.turn = self.driven.turn
        self.topology = Topology()
        self.wire = Wire(self.driven)
        self.open_channel()
        self.wire.routes[b"durable"] = Exchange(""), (self.driven.queue,)
        self._last = 7

    def open_channel(self) -> None:
        """A new one in its place."""
        self.channel = Channel(
            self.wire,
            self.wire.output,
            1,
            self.driven.persister,
            self.topology,
        )
        self.wire.put_channel(self.channel)

    def stop(self) -> None:
        """To be called at the end."""
        requeue_all(self.channel)
        self.driven.stop()

    def queue(self, **arguments: Any) -> ClassicQueue:
        """A new one."""
        self._last += 1
        driven = self.driven
        queue = ClassicQueue(
            driven.turn,
            driven.persister,
            str(driven.parent),
            "/",
            f"q{self._last}",
            1 << 32 | self._last,
            arguments={f"x-{name.replace('_', '-')}": value for name, value in arguments.items()},
        )
        self.wire.routes[queue.name.encode()] = Exchange(""), (queue,)
        return queue

    def consume(self, queue: ClassicQueue, tag: str, **more: Any) -> Consumer:
        """A consumer on the channel."""
        consumer = Consumer(queue, self.channel, tag, more.pop("no_ack", False), **more)
        self.channel.add_consumer(consumer)
        queue.add_consumer(consumer)
        return consumer

    def getter(self, *, no_ack: bool = False) -> Consumer:
        """What stands for the basic.gets of a queue that is gone: what it takes is nowhere."""
        queue = self.queue()
        queue.delete()
        return Consumer(queue, self.channel, "", no_ack, active=False)

    def send(self, name: str, **fields: Any) -> None:
        """A method of the client."""
        self.wire.feed(raw.method(1, name, **fields))
        assert not self.wire.failures

    def run(self) -> list[raw.Method]:
        """Turns until there is nothing to do. Returns what the client was told."""
        callbacks = self.driven.callbacks
        while callbacks:
            callbacks.pop(0)()
        return list(self.wire.methods())

    def publish(self, routing_key: str, body: bytes = b"", **values: Any) -> None:
        """To the queue of this name, or to the `durable` one."""
        self.wire.feed(raw.publish(1, "", routing_key, body, **values))
        assert not self.wire.failures

    def sync(self) -> list[raw.Method]:
        """A round of the disk. Returns what the client was told."""
        self.driven.sync()
        return self.run()

    @contextmanager
    def turns_at_once(self) -> Iterator[list[str]]:
        """Each touch is a turn of its own, and an entry of the list."""
        assert not self.run()
        turns: list[str] = []

        def run_now(run: Callable[[], None]) -> None:
            turns.append("turn")
            run()

        self.turn.schedule = run_now
        yield turns
        self.turn.schedule = self.driven.callbacks.append
