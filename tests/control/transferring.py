"""What tests of transfers share: filled queues, the end of a transfer, what a queue holds then."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from management.broker_client import BrokerClient

PERSISTENT = pika.BasicProperties(delivery_mode=2)
WAIT_S = 60.0

Seen = tuple[bytes, bool]


def queue(channel: BlockingChannel, **arguments: Any) -> str:
    """A durable queue of an unused name."""
    name = f"transfer.{uuid.uuid4().hex[:12]}"
    channel.queue_declare(name, durable=True, arguments=arguments)
    return name


def filled(channel: BlockingChannel, count: int, **arguments: Any) -> str:
    """One with persistent messages `0`, `1`, ..."""
    name = queue(channel, **arguments)
    publish(channel, name, range(count))
    return name


def publish(channel: BlockingChannel, name: str, numbers: Any) -> None:
    for number in numbers:
        properties = pika.BasicProperties(
            delivery_mode=2,
            message_id=str(number),
            headers={"number": number, "kind": "even" if number % 2 == 0 else "odd"},
        )
        channel.basic_publish("", name, b"%d" % number, properties)


def bodies(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


async def start(client: BrokerClient, mode: str, source: str, target: str, **more: Any) -> Any:
    vhost = more.pop("vhost", "/")
    return await client.call(
        "transfer.start", vhost=vhost, name=source, mode=mode, target=target, **more
    )


async def until(client: BrokerClient, id: int, *states: str) -> Any:
    """The transfer once it is in one of these states."""
    async with asyncio.timeout(WAIT_S):
        while True:
            for row in await client.call("transfer.list"):
                if row["id"] == id and row["state"] in states:
                    return row
            await asyncio.sleep(0.02)


async def done(client: BrokerClient, mode: str, source: str, target: str, **more: Any) -> Any:
    """A transfer from its start to its end."""
    started = await start(client, mode, source, target, **more)
    return await until(client, started["id"], "finished", "failed", "stopped")


def drained(channel: BlockingChannel, name: str) -> list[Seen]:
    """Takes all messages out: body, and whether it was marked as redelivered."""
    found: list[Seen] = []
    while True:
        method, _, body = channel.basic_get(name, auto_ack=True)
        if method is None:
            return found
        found.append((body, method.redelivered))


def held(channel: BlockingChannel, name: str) -> list[bytes]:
    """The bodies of all messages, which are taken out."""
    return [body for body, _ in drained(channel, name)]
