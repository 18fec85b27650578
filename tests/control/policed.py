"""Policies of a real broker for tests: setting them, and what queues are like under them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pika

from management.broker_client import BrokerClient
from tests.appliance import Appliance
from tests.control.test_real_broker import control, until

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@contextlib.asynccontextmanager
async def without_policies_after(broker: Appliance) -> AsyncIterator[BrokerClient]:
    """A client of the broker; when it closes, no policy is left."""
    async with control(broker) as client:
        yield client
        for noun, verb in (
            ("policies", "policy.delete"),
            ("operator-policies", "operator-policy.delete"),
        ):
            for row in (await client.call("list", noun=noun))["items"]:
                await client.call(verb, vhost=row["vhost"], name=row["name"])


async def put(
    client: BrokerClient,
    name: str,
    definition: dict[str, Any],
    *,
    pattern: str | None = None,
    verb: str = "policy.put",
    **more: Any,
) -> None:
    """Sets a policy for the queue or exchange of its own name."""
    pattern = f"^{name}$" if pattern is None else pattern
    args = {"vhost": "/", "pattern": pattern, "definition": definition, **more}
    await client.call(verb, name=name, **args)


async def shown(client: BrokerClient, name: str, noun: str = "queues") -> Any:
    return await client.call("item", noun=noun, vhost="/", name=name)


async def ready(client: BrokerClient, name: str, wanted: int) -> None:
    async def look() -> Any:
        return (await shown(client, name))["messages_ready"]

    await until(look, lambda count: count == wanted)


def fill(channel: Any, queue: str, count: int, body: bytes = b"", **arguments: Any) -> None:
    channel.queue_declare(queue, durable=True, arguments=arguments.get("arguments"))
    for number in range(count):
        channel.basic_publish("", queue, body or b"%d" % number, PERSISTENT)


def bodies(channel: Any, queue: str) -> list[bytes]:
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found
