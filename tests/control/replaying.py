"""What tests of replays share: a stream, the start of a replay, what came of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from pika.adapters.blocking_connection import BlockingChannel

from management.broker_client import BrokerClient
from tests.control.transferring import until


class Replayed(NamedTuple):
    """A message that was replayed."""

    body: bytes
    redelivered: bool
    routing_key: str
    properties: Any


async def replay(client: BrokerClient, stream: str, target: str, **more: Any) -> Any:
    """The row of a replay that was started."""
    wanted = {"vhost": "/", "name": stream, "target": target, **more}
    return await client.call("transfer.replay", **wanted)


async def replayed(client: BrokerClient, stream: str, target: str, **more: Any) -> Any:
    """A replay from its start to its end."""
    started = await replay(client, stream, target, **more)
    return await until(client, started["id"], "finished", "failed", "stopped")


def taken(channel: BlockingChannel, name: str) -> list[Replayed]:
    """All messages of a queue, which are taken out."""
    found = []
    while True:
        method, properties, body = channel.basic_get(name, auto_ack=True)
        if method is None:
            return found
        found.append(Replayed(body, method.redelivered, method.routing_key, properties))


def offsets(messages: list[Replayed]) -> list[int]:
    """Their places in the stream, as their headers have them."""
    return [each.properties.headers["x-replay-offset"] for each in messages]
