"""One link of federation through its attempts: from an upstream to an exchange or a queue here."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from broker.client.aio import Channel, OnBatch
from broker.client.batch import Batch
from broker.client.errors import ChannelClosed, ClientError
from broker.settings.config import Config
from management.bridges.amqp import AmqpCarrier, Handling, close
from management.bridges.attempts import Attempts, Turns
from management.bridges.ends import NOT_FOUND, End, Ends
from management.bridges.federation_bindings import Mirror, UpstreamExchange, why
from management.bridges.federation_headers import ExchangeHeaders, QueueHeaders, UserId
from management.bridges.federation_plan import QUEUE, LinkPlan
from management.bridges.pace import Step
from management.bridges.plan import Plan, ShovelFailed
from management.bridges.source import Source
from management.bridges.status import Status
from management.broker_client import BrokerClient

LOCAL = "amqp://"
DELAY_LEAST_S = 1.0
CLEAN_UP_TIMEOUT_S = 15.0
CREDIT_MOST = 16_384
BELOW_LOCAL = -1
"""Priority of the consumer on a queue: those of the upstream's own clients come first."""


def _same(listed: bytes) -> bytes:
    """What was refused here is published again as it is."""
    return listed


class Wish:
    """Whether consumers of a queue here want more than it has. The broker says so again whenever
    they have taken all that came since it said so last."""

    def __init__(self, wants: bool) -> None:
        self.wants = wants
        self.changed = asyncio.Event()
        self.count = 0
        """How often it was said."""

    def put(self, wants: bool) -> None:
        self.wants = wants
        self.count += 1
        self.changed.set()


class ExchangeSource(Source):
    """The queue of a link at the upstream of an exchange, with the bindings that lead to it."""

    def __init__(self, plan: Plan, upstream: UpstreamExchange, mirror: Callable[[Any], Mirror]):
        super().__init__(plan, upstream.end)
        self._upstream = upstream
        self._mirror_on = mirror
        self._mirror: Mirror

    async def prepare(self) -> None:
        """Declares the queue, and binds it as the exchange here is bound. Raises ShovelFailed."""
        upstream, link = self._upstream, self._upstream.plan
        self.queue = upstream.queue
        try:
            self.channel = await self.end.connection.open_channel()
            reply = await self.channel.call(
                "queue.declare", queue=self.queue, durable=True, arguments=link.queue_arguments
            )
            self.message_count = reply["message_count"]
            await upstream.prepare()
            commands = self.channel
            if link.value["channel-use-mode"] == "multiple":
                commands = await self.end.connection.open_channel()
            self._mirror = self._mirror_on(commands)
            await self._mirror.fill()
            await upstream.drop_before()
        except ClientError as error:
            raise why(error, self.end) from None

    async def watch(self, fail: Callable[[Exception], None]) -> None:
        """Mirrors bindings; fails when the queue is deleted."""
        try:
            await asyncio.gather(super().watch(fail), self._mirror.follow())
        except ClientError as error:
            raise why(error, self.end) from None


class QueueSource(Source):
    """A queue of the upstream, consumed while consumers here want more: at first as many messages
    as the prefetch, twice as many each time that they have taken all of them."""

    def __init__(self, plan: Plan, link: LinkPlan, end: End, wish: Wish) -> None:
        super().__init__(plan, end)
        self._link = link
        self._wish = wish
        self._on_batch: OnBatch
        self._is_consuming = False
        self._credit = self._window = self._left = 0
        """Messages to begin with, messages each time, and what is left of them."""
        self._heard = 0

    async def prepare(self) -> None:
        """Declares the queue as the one here is, if it is not there. Raises ShovelFailed."""
        properties = self.end.connection.core.server_properties.get("capabilities")
        if not isinstance(properties, dict) or not properties.get("consumer_priorities"):
            raise ShovelFailed(
                f"upstream {self.end.shown}: it lacks consumer priorities, so that a link would"
                " take messages from its own consumers"
            )
        self.queue = self._link.object
        try:
            if not await self._is_there():
                async with self.end.connection.channel() as channel:
                    await channel.call("queue.declare", queue=self.queue, **self._link.declared)
            self.channel = await self.end.connection.open_channel()
        except ClientError as error:
            raise why(error, self.end) from None

    async def _is_there(self) -> bool:
        try:
            async with self.end.connection.channel() as channel:
                await channel.call("queue.declare", queue=self.queue, passive=True)
        except ChannelClosed as error:
            if error.code != NOT_FOUND:
                raise
            return False
        return True

    async def consume(self, on_batch: OnBatch, prefetch: int) -> None:
        """Notes what deliveries go to; consuming is a matter of `watch`."""
        self._on_batch = on_batch
        self._credit = prefetch or CREDIT_MOST
        try:
            await self.channel.call("basic.qos", prefetch_count=prefetch)
        except ClientError as error:
            raise why(error, self.end) from None

    async def watch(self, fail: Callable[[Exception], None]) -> None:
        """Consumes while more is wanted; fails when the queue is deleted."""
        try:
            while True:
                self._wish.changed.clear()
                if self._wish.wants and not self._is_consuming:
                    await self._begin()
                elif not self._wish.wants and self._is_consuming:
                    await self.channel.cancel(self.consumer)
                    self._is_consuming = False
                    self.hold_acks(False)
                elif self._is_consuming:
                    self._renew()
                    await self._cancelled_or_changed()
                    if self.consumer.cancelled.is_set():
                        break
                else:
                    await self._wish.changed.wait()
        except ClientError as error:
            raise why(error, self.end) from None
        if not self.channel.ended.done():
            fail(ShovelFailed(f"upstream {self.end.shown}: the queue {self.queue} was deleted"))

    def _take(self, channel: Channel, batch: Batch) -> None:
        self._left -= batch.count
        self._on_batch(channel, batch)
        if self._left <= 0:
            # The upstream sends what its prefetch still allows, and no more.
            self.hold_acks(True)

    def _renew(self) -> None:
        """The broker has said once more that more is wanted."""
        if self._heard != self._wish.count:
            self._heard = self._wish.count
            if self._left <= 0:
                self._window = min(2 * self._window, max(CREDIT_MOST, self._credit))
            self._left = self._window
            self.hold_acks(False)

    async def _begin(self) -> None:
        self._heard = self._wish.count
        self._left = self._window = self._credit
        self.consumer = await self.channel.consume(
            self.queue,
            self._take,
            no_ack=self._link.value["ack-mode"] == "no-ack",
            arguments={"x-priority": BELOW_LOCAL},
            tag=self._link.tag,
        )
        self._is_consuming = True

    async def _cancelled_or_changed(self) -> None:
        events = self._wish.changed, self.consumer.cancelled
        waits = [asyncio.create_task(each.wait()) for each in events]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()


class Link:
    """Runs until it is stopped."""

    def __init__(
        self, plan: LinkPlan, ends: Ends, config: Config, broker: BrokerClient, wants: bool
    ) -> None:
        self.plan = plan
        self.wish = Wish(wants)
        self._ends = ends
        self._config = config
        self._broker = broker
        self._mirror: Mirror | None = None
        self._carried = plan.carried_as() if plan.fault is None else Plan("", "", 0, None, {})
        status_of = plan.carried_as() if plan.fault is None else _unusable(plan)
        self.status = Status(status_of)
        self._attempts: Attempts | None = None

    def start(self, behind: Step) -> None:
        """Begins, once what it is to come behind is over; or says why it cannot."""
        if self.plan.fault is not None:
            self.status.put("stopped", self.plan.fault)
            return
        self._uris = Turns(self.plan.uris, "upstream")
        what = f"federation link {self.plan.id} of {self.plan.kind} '{self.plan.name}'"
        delay = max(DELAY_LEAST_S, float(self.plan.value["reconnect-delay"]))
        self._attempts = Attempts(what, self.status, self._once, delay)
        self._attempts.start(behind)

    def follow(self, plan: LinkPlan, wants: bool) -> None:
        """Takes over what an order says of its owner, which the next attempt goes by, and whether
        more is wanted."""
        self.plan = plan
        self._carried = dataclasses.replace(self._carried, on_behalf_of=plan.on_behalf_of)
        self.wish.put(wants)

    async def stop(self) -> None:
        """Ends it; what is not settled goes back to the queue of the upstream."""
        if self._attempts is not None:
            await self._attempts.stop()

    def bindings_changed(self) -> None:
        """Those of the exchange here have changed."""
        if self._mirror is not None:
            self._mirror.news.set()

    async def _open_upstream(self) -> End:
        return await self._uris.open(self._ends, self._carried)

    async def _once(self) -> None:
        """One attempt. Raises ShovelFailed."""
        status = self.status
        opened: list[End] = []
        status.in_flight = status.held = 0
        try:
            end = await self._open_upstream()
            opened.append(end)
            status.src_uri = end.shown
            here = await self._ends.open(self._carried, LOCAL, "local")
            opened.append(here)
            status.dest_uri = here.shown
            source: ExchangeSource | QueueSource
            if self.plan.kind == QUEUE:
                source = QueueSource(self._carried, self.plan, end, self.wish)
                handling = self._queue_handling(end)
            else:
                upstream = UpstreamExchange(self.plan, end, self._open_same)
                source = ExchangeSource(self._carried, upstream, self._mirrored(upstream))
                handling = self._exchange_handling(upstream)
            carrier = AmqpCarrier(
                self._carried, source, here, status, self._config.bridges_memory, handling
            )
            await source.prepare()
            status.count("connects", 1)
            await carrier.run()
        finally:
            self._mirror = None
            await close(*opened)

    async def _open_same(self) -> End:
        return await self._ends.open(self._carried, self._uris.current, "upstream, exchange type")

    def _mirrored(self, upstream: UpstreamExchange) -> Callable[[Any], Mirror]:
        def mirror(channel: Any) -> Mirror:
            self._mirror = Mirror(upstream, channel, self._broker)
            return self._mirror

        return mirror

    def _user_id(self) -> UserId:
        plan = self.plan
        return UserId(
            plan.owner, trusts=plan.value["trust-user-id"], impersonates=plan.impersonates
        )

    def _exchange_handling(self, upstream: UpstreamExchange) -> Handling:
        plan = self.plan
        passed = {"uri": upstream.end.shown, "exchange": plan.object}
        if isinstance(upstream.cluster, str):
            passed["cluster-name"] = upstream.cluster
        passed["vhost"] = upstream.vhost
        rewrite = ExchangeHeaders(
            passed,
            self._user_id(),
            max_hops=plan.value["max-hops"],
            cluster=plan.cluster,
            vhost=plan.vhost,
        )
        return Handling(rewrite, rewrites_all=True, mandatory=False, repeat=_same, on_unfit="drop")

    def _queue_handling(self, end: End) -> Handling:
        rewrite = QueueHeaders({"uri": end.shown, "queue": self.plan.object}, self._user_id())
        # The queue belongs to the upstream's users: it is to dead-letter what cannot come here.
        return Handling(
            rewrite,
            rewrites_all=True,
            mandatory=True,
            with_names=True,
            repeat=_same,
            on_unfit="reject",
        )

    async def clean_up(self) -> None:
        """Removes what the link has at the upstream, if that can be reached now."""
        if not self.plan.cleans_up or self.plan.fault is not None:
            return
        with contextlib.suppress(ClientError, ShovelFailed, TimeoutError, OSError):
            async with asyncio.timeout(CLEAN_UP_TIMEOUT_S):
                end = await self._open_upstream()
                try:
                    await UpstreamExchange(self.plan, end, self._open_same).clean_up()
                finally:
                    await end.connection.close()


def _unusable(plan: LinkPlan) -> Plan:
    return Plan(plan.vhost, plan.id, plan.generation, plan.owner, {})
