"""Streams for tests: declaring, filling and reading them."""

import itertools
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.amqp import raw
from tests.amqp.raw import Client, Message
from tests.appliance import Appliance

_channels = itertools.count(100)


def declare(client: Client, name: str = "", **arguments: Any) -> str:
    """A new stream with these arguments (`x_max_age=…`)."""
    name = name or f"stream-{uuid.uuid4().hex[:8]}"
    client.call(1, "queue.declare", queue=name, durable=True, arguments=table(arguments))
    return name


def table(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a stream, by their names with underscores."""
    return {
        "x-queue-type": "stream",
        **{key.replace("_", "-"): value for key, value in arguments.items()},
    }


def fill(client: Client, stream: str, *bodies: bytes, **values: Any) -> None:
    """Publishes on a confirming channel of its own; every message is confirmed."""
    channel = next(_channels)
    client.call(channel, "channel.open")
    client.call(channel, "confirm.select")
    client.send(b"".join(raw.publish(channel, "", stream, body, **values) for body in bodies))
    told = client.expect_confirms(channel, len(bodies))
    assert set(told.values()) == {"basic.ack"}
    client.call(channel, "channel.close")


class Reader:
    """A consumer on a channel of its own; `arguments` as of basic.consume (`x_stream_offset=…`)."""

    def __init__(
        self, client: Client, stream: str, tag: str = "", prefetch: int = 100, **arguments: Any
    ) -> None:
        self.client = client
        self.channel = next(_channels)
        client.call(self.channel, "channel.open")
        client.call(self.channel, "basic.qos", prefetch_count=prefetch)
        given = {key.replace("_", "-"): value for key, value in arguments.items()}
        client.call(self.channel, "basic.consume", queue=stream, consumer_tag=tag, arguments=given)

    def take(self, count: int, *, ack: bool = True) -> list[Message]:
        """The next `count` messages, acknowledged as they come."""
        messages = []
        for _ in range(count):
            message = self.client.expect_message(channel=self.channel)
            if ack:
                self.ack(message)
            messages.append(message)
        return messages

    def ack(self, message: Message, *, multiple: bool = False) -> None:
        self.client.send_method(
            self.channel, "basic.ack", delivery_tag=message.tag, multiple=multiple
        )

    def is_at_end(self) -> bool:
        """Whether nothing more is on its way."""
        self.client.fence(self.channel)
        return True

    def close(self) -> None:
        """Ends the consumer; its acks are written. What was still on its way is passed over."""
        self.client.send_method(self.channel, "channel.close")
        while (got := self.client.read_method()).name == "basic.deliver":
            self.client.read_content(got)
        assert got.name == "channel.close-ok", f"channel.close-ok was due, not {got}"


def read(client: Client, stream: str, count: int, **arguments: Any) -> list[tuple[int, bytes]]:
    """Offsets and bodies of the first `count` messages that a new reader gets."""
    arguments.setdefault("x_stream_offset", "first")
    reader = Reader(client, stream, **arguments)
    found = [(offset(message), message.body) for message in reader.take(count)]
    reader.close()
    return found


def offset(message: Message) -> int:
    """Where in its stream a delivered message stands."""
    value: int = message.properties["headers"]["x-stream-offset"]
    return value


def kept(client: Client, stream: str) -> int:
    """Messages of the stream, by a passive declare."""
    count: int = client.call(1, "queue.declare", queue=stream, passive=True).message_count
    return count


def connect(broker: Appliance) -> Client:
    """An open connection with channel 1."""
    return Client.open((broker.host, broker.amqp_port))


def files(broker: Appliance, pattern: str) -> list[Path]:
    """Files of its queues and streams."""
    return sorted(broker.data_dir.glob(f"vhosts/*/queues/*/{pattern}"))


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Waits for what the broker does on its own."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)
