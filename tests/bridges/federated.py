"""What tests of federation do with one broker as a downstream. Names are the test's own."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

from broker.client.aio import Channel, Connection, connect
from broker.client.message import Message
from broker.client.properties import encode
from management.broker_client import BrokerClient
from tests.bridges.conftest import Pair, endpoint_of, until


class Downstream:
    """A broker with its process of bridges, whose `name` is that of exchange, queue, upstream and
    policy of one test."""

    def __init__(self, pair: Pair, control: BrokerClient, here: Connection, name: str) -> None:
        self.pair = pair
        self.control = control
        self.here = here
        self.name = name

    async def upstream(self, uri: Any, *, name: str = "", user: str = "guest", **keys: Any) -> None:
        """Defines an upstream."""
        given = {key.replace("_", "-"): value for key, value in keys.items()}
        value = {"uri": uri, "reconnect-delay": 1, **given}
        await self.put("federation-upstream", name or self.name, value, user)

    async def put(self, component: str, name: str, value: Any, user: str = "guest") -> None:
        await self.control.call(
            "parameter.put", as_user=user, component=component, vhost="/", name=name, value=value
        )

    async def policy(self, apply_to: str = "exchanges", **definition: Any) -> None:
        """Federates what has the name of the test: from its upstream, unless told otherwise."""
        given = {key.replace("_", "-"): value for key, value in definition.items()}
        await self.control.call(
            "policy.put",
            vhost="/",
            name=self.name,
            pattern=f"^{self.name}$",
            definition=given or {"federation-upstream": self.name},
            apply_to=apply_to,
            priority=1,
        )

    async def links(self) -> list[dict[str, Any]]:
        rows = await self.control.call("federation.list", vhost="/")
        return [row for row in rows if self.name in (row.get("exchange"), row.get("queue"))]

    async def until(self, true: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Waits until the links are so."""
        rows: list[dict[str, Any]] = []

        async def are_so() -> bool:
            nonlocal rows
            rows = await self.links()
            return true(rows)

        await until(are_so, lambda: f"{rows}\n{self.pair.bridges.log()[-3000:]}")
        return rows

    async def until_running(self) -> dict[str, Any]:
        """The one link, once it runs."""
        return (await self.until_state("running"))[0]

    async def until_state(self, state: str) -> list[dict[str, Any]]:
        return await self.until(lambda rows: [row["state"] for row in rows] == [state])

    async def clear(self) -> None:
        """Takes away what the test defined."""
        with contextlib.suppress(Exception):
            await self.control.call("policy.delete", vhost="/", name=self.name)
        rows = await self.control.call("list", noun="parameters", vhost="/")
        for row in rows["items"]:
            if row["name"].startswith(self.name):
                await self.control.call(
                    "parameter.delete", component=row["component"], vhost="/", name=row["name"]
                )


@contextlib.asynccontextmanager
async def downstream_of(pair: Pair, name: str = "") -> AsyncIterator[Downstream]:
    control = BrokerClient(pair.broker.control_socket)
    try:
        async with await connect(endpoint_of(pair.broker)) as here:
            found = Downstream(pair, control, here, name or f"f-{uuid.uuid4().hex[:10]}")
            yield found
            await found.clear()
    finally:
        await control.close()


async def declare_exchange(connection: Connection, exchange: str, type: str = "topic") -> None:
    async with connection.channel() as channel:
        await channel.call("exchange.declare", exchange=exchange, type=type, durable=True)


async def bind(connection: Connection, queue: str, exchange: str, key: str = "#") -> None:
    """Declares a queue, if need be, and binds it."""
    async with connection.channel() as channel:
        await channel.call("queue.declare", queue=queue, durable=True)
        await channel.call("queue.bind", queue=queue, exchange=exchange, routing_key=key)


async def unbind(connection: Connection, queue: str, exchange: str, key: str = "#") -> None:
    async with connection.channel() as channel:
        await channel.call("queue.unbind", queue=queue, exchange=exchange, routing_key=key)


async def send(connection: Connection, exchange: str, key: str, body: bytes, **named: Any) -> bool:
    """Publishes, confirmed; whether a queue took it."""
    returned: list[Message] = []
    async with connection.channel() as channel:
        channel.on_return = lambda message, _: returned.append(message)
        await channel.select_confirms()
        listed = encode({"delivery_mode": 2, **named})
        channel.core.publish(exchange.encode(), key.encode(), listed, body, True)
        connection.flush()
        await channel.confirms_below(1)
    return not returned


async def until_routed(connection: Connection, exchange: str, key: str, body: bytes) -> None:
    """Publishes until a queue takes it: the binding has come."""

    async def is_routed() -> bool:
        return await send(connection, exchange, key, body)

    await until(is_routed, lambda: f"nothing takes {key} at {exchange}")


async def until_not_routed(connection: Connection, exchange: str, key: str) -> None:
    """Publishes until no queue takes it: the binding is removed."""

    async def is_returned() -> bool:
        return not await send(connection, exchange, key, b"too early")

    await until(is_returned, lambda: f"{key} at {exchange} is still bound")


async def has_queue(connection: Connection, queue: str) -> bool:
    from broker.client.errors import ChannelClosed

    try:
        async with connection.channel() as channel:
            await channel.call("queue.declare", queue=queue, passive=True)
    except ChannelClosed:
        return False
    return True


async def consume(connection: Connection, queue: str, found: list[Message], **how: Any) -> Channel:
    """A consumer that keeps and acknowledges what it gets."""
    channel = await connection.open_channel()

    def keep(channel: Channel, batch: Any) -> None:
        found.extend(batch.messages())
        channel.core.ack(batch.last_tag, multiple=True)

    await channel.consume(queue, keep, **how)
    return channel
