"""What a link has at the upstream of a federated exchange: a queue, and an internal exchange with
the bindings of the exchange here.

A link that begins fills a new internal exchange and then deletes its predecessor, which may have
bindings that are not here any more. The names take turns, so that it is known which of two is the
predecessor: the other one is of an attempt that ended before it was filled, and is deleted first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from broker.client.aio import Channel
from broker.client.errors import ChannelClosed, ClientError, Closed
from broker.client.properties import Long, Short
from broker.schema.hops import (
    BOUND_FROM,
    DOWNSTREAM_NAME,
    DOWNSTREAM_VHOST,
    FEDERATION,
    MAX_HOPS,
    PURPOSE,
    TYPE,
    hops_of,
    trail,
)
from management.bridges.ends import NOT_FOUND, End, failed
from management.bridges.federation_commands import BIND, UNBIND, Bound, Command, Commands
from management.bridges.federation_plan import SUFFIXES, LinkPlan
from management.bridges.plan import ShovelFailed
from management.broker_client import BrokerClient, BrokerError

UNKNOWN_TYPE = (503, 406, 540)
"""How brokers answer a declaration of an exchange type that they do not have."""


class UpstreamExchange:
    """The upstream's side of a link. `open_again` opens one more connection to it. Everything
    raises ClientError."""

    def __init__(self, plan: LinkPlan, end: End, open_again: Callable[[], Awaitable[End]]) -> None:
        self.plan = plan
        self.end = end
        self.cluster: Any = end.connection.core.server_properties.get("cluster_name")
        self.vhost = end.connection.endpoint.vhost
        self.queue = plan.upstream_queue(self.vhost)
        self.internal = ""
        self.suffix = ""
        self._open_again = open_again
        self._before: list[str] = []

    async def _is_there(self, exchange: str) -> bool:
        try:
            async with self.end.connection.channel() as channel:
                await channel.call(
                    "exchange.declare", exchange=exchange, type="direct", passive=True
                )
        except ChannelClosed as error:
            if error.code != NOT_FOUND:
                raise
            return False
        return True

    async def prepare(self) -> None:
        """Declares the exchange as the one here is, if it is not there, and a new internal one, to
        which the queue of the link is bound."""
        if not await self._is_there(self.plan.object):
            await self._once("exchange.declare", exchange=self.plan.object, **self.plan.declared)
        there = [each for each in SUFFIXES if await self._is_there(f"{self.queue} {each}")]
        self.suffix = next_suffix(there)
        self.internal = f"{self.queue} {self.suffix}"
        if self.suffix in there:
            await self._once("exchange.delete", exchange=self.internal)
        self._before = [each for each in there if each != self.suffix]
        given = {"exchange": self.internal, "durable": True, "auto_delete": True, "internal": True}
        if not await self._knows_type(given):
            await self._once(
                "exchange.declare", **given, type="fanout", arguments={PURPOSE: FEDERATION}
            )
        await self._once("queue.bind", queue=self.queue, exchange=self.internal, routing_key="")

    async def _knows_type(self, given: dict[str, Any]) -> bool:
        """Declares the internal exchange with the type for it. A broker without federation closes
        the whole connection, so that it is one of its own."""
        arguments = {
            MAX_HOPS: Long(self.plan.value["max-hops"]),
            DOWNSTREAM_NAME: self.plan.cluster,
            DOWNSTREAM_VHOST: self.plan.vhost,
            PURPOSE: FEDERATION,
        }
        end = await self._open_again()
        try:
            async with end.connection.channel() as channel:
                await channel.call("exchange.declare", **given, type=TYPE, arguments=arguments)
        except Closed as error:
            if error.code not in UNKNOWN_TYPE:
                raise
            return False
        finally:
            await end.connection.close()
        return True

    async def drop_before(self) -> None:
        """Deletes the internal exchanges of earlier runs."""
        for suffix in self._before:
            await self._once("exchange.delete", exchange=f"{self.queue} {suffix}")

    async def clean_up(self) -> None:
        """Deletes the queue and every internal exchange."""
        await self._once("queue.delete", queue=self.queue)
        for suffix in SUFFIXES:
            await self._once("exchange.delete", exchange=f"{self.queue} {suffix}")

    async def _once(self, method: str, **arguments: Any) -> None:
        """Calls a method on a channel of its own."""
        async with self.end.connection.channel() as channel:
            await channel.call(method, **arguments)


def next_suffix(there: list[str]) -> str:
    """The name of a new internal exchange, beside those that are there. It may be one of them:
    what was bound to it before it was filled may not be bound here any more."""
    if not there:
        return SUFFIXES[0]
    for index, suffix in enumerate(SUFFIXES):
        if suffix in there and SUFFIXES[index - 1] not in there:
            return SUFFIXES[(index + 1) % len(SUFFIXES)]
    # Earlier versions left all three behind, the last one nearly always unfilled.
    return SUFFIXES[-1]


class Mirror:
    """Keeps the bindings of the internal exchange as those of the exchange here are. Several of
    these with one routing key and arguments, to several queues, are one there."""

    def __init__(self, upstream: UpstreamExchange, channel: Channel, broker: BrokerClient) -> None:
        self.news = asyncio.Event()
        """Set when bindings here have changed."""
        self._upstream = upstream
        self._plan = upstream.plan
        self._commands = Commands(upstream.plan, upstream.internal, channel)
        self._broker = broker
        self._serial = -1
        self._there: dict[Bound, set[tuple[str, str]]] = {}
        """What is bound, and to which queues and exchanges it is here."""
        self._arguments: dict[Bound, dict[str, Any]] = {}

    async def fill(self) -> None:
        """Brings all bindings. Raises ClientError or ShovelFailed."""
        try:
            reply = await self._ask()
            self._serial = reply["serial"]
            here: dict[Bound, set[tuple[str, str]]] = {}
            slices = self._broker.listed(
                noun="bindings", vhost=self._plan.vhost, source=self._plan.name
            )
            async for part in slices:
                for row in part["items"]:
                    bound = self._bound(row["routing_key"], row["arguments"])
                    end = row["destination_type"], row["destination"]
                    here.setdefault(bound, set()).add(end)
        except BrokerError as error:
            raise _unread(error) from None
        gone = [bound for bound in self._there if bound not in here]
        new = [bound for bound in here if bound not in self._there]
        self._there = here
        await self._carry_out([(BIND, each) for each in new])
        await self._carry_out([(UNBIND, each) for each in gone])

    async def follow(self) -> None:
        """Mirrors what changes, without end. Raises ClientError or ShovelFailed."""
        while True:
            await self.news.wait()
            self.news.clear()
            more = True
            while more:
                try:
                    reply = await self._ask()
                except BrokerError as error:
                    raise _unread(error) from None
                more = reply["more"]
                if reply["known"]:
                    self._serial = reply["serial"]
                    await self._carry_out(self._changes(reply["rows"]))
                else:
                    await self.fill()

    async def _ask(self) -> Any:
        return await self._broker.call(
            "federation.bindings",
            vhost=self._plan.vhost,
            exchange=self._plan.name,
            serial=self._serial,
        )

    def _bound(self, key: str, arguments: dict[str, Any]) -> Bound:
        bound = key, repr(sorted(arguments.items())) if arguments else ""
        self._arguments[bound] = arguments
        return bound

    def _changes(self, rows: list[Any]) -> list[tuple[str, Bound]]:
        """What is to be done at the upstream for changes here; what came and went again at once is
        done twice, in its order."""
        found = []
        for is_there, kind, destination, key, arguments in rows:
            bound = self._bound(key, arguments)
            ends = self._there.setdefault(bound, set())
            was = bool(ends)
            if is_there:
                ends.add((kind, destination))
            else:
                ends.discard((kind, destination))
            if ends and not was:
                found.append((BIND, bound))
            elif was and not ends:
                found.append((UNBIND, bound))
            if not ends:
                del self._there[bound]
        return found

    async def _carry_out(self, commands: list[tuple[str, Bound]]) -> None:
        """Sends commands and waits for their answers."""
        given = ((method, bound, self._sent(bound)) for method, bound in commands)
        await self._commands.carry_out(
            Command(method, bound, arguments)
            for method, bound, arguments in given
            if arguments is not None
        )
        for _, bound in commands:
            if bound not in self._there:
                self._arguments.pop(bound, None)

    def _sent(self, bound: Bound) -> dict[str, Any] | None:
        """The arguments at the upstream; None for a binding that goes no further."""
        plan, upstream = self._plan, self._upstream
        arguments = self._arguments[bound]
        left = hops_of(arguments, plan.value["max-hops"], upstream.cluster, upstream.vhost)
        if not left:
            return None
        passed = {
            "cluster-name": plan.cluster,
            "vhost": plan.vhost,
            "exchange": f"{plan.vhost}:{plan.name} {upstream.suffix}",
            "hops": Short(left),
        }
        before = [_typed(each) for each in trail(arguments.get(BOUND_FROM))]
        return {**arguments, BOUND_FROM: [passed, *before]}


def _typed(passed: Any) -> dict[str, Any]:
    """A table of an earlier link; brokers read its number as a short one only."""
    hops = passed.get("hops")
    return {**passed, "hops": Short(hops)} if isinstance(hops, int) else dict(passed)


def _unread(error: BrokerError) -> ShovelFailed:
    return ShovelFailed(f"the bindings of the exchange cannot be read: {error.reason}")


def why(error: ClientError, end: End) -> ShovelFailed:
    """What an error at the upstream means."""
    return failed(error, f"upstream {end.shown}", is_here=end.is_here)
