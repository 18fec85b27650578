"""The end of a shovel from which messages are taken."""

from __future__ import annotations

from collections.abc import Callable

from broker.client.aio import Channel, Consumer, OnBatch
from broker.client.errors import ChannelClosed, ClientError
from management.bridges.ends import NOT_FOUND, End, failed
from management.bridges.plan import Plan, ShovelFailed


class Source:
    """A consumer on a queue, or on an exclusive queue that is bound to an exchange."""

    def __init__(self, plan: Plan, end: End) -> None:
        self._plan = plan
        self.end = end
        self.queue = ""
        self.message_count = 0
        """What was in the queue at the start."""
        self.hold_acks: Callable[[bool], None] = lambda is_held: None
        """Set by what carries messages from here."""
        self.channel: Channel
        self.consumer: Consumer

    async def prepare(self) -> None:
        """Finds or declares the queue. Raises ShovelFailed."""
        given = self._plan.given
        try:
            if given["src-queue"] is not None:
                self.queue, self.message_count = await declared(
                    self.end, given["src-queue"], given["src-queue-args"], given["src-predeclared"]
                )
            self.channel = await self.end.connection.open_channel()
            if given["src-queue"] is None:
                await self._bind()
        except ClientError as error:
            raise self.failed(error) from None

    async def _bind(self) -> None:
        given, call = self._plan.given, self.channel.call
        reply = await call("queue.declare", exclusive=True, arguments=given["src-queue-args"] or {})
        self.queue = reply["queue"]
        key = given["src-exchange-key"]
        await call("queue.bind", queue=self.queue, exchange=given["src-exchange"], routing_key=key)

    async def consume(self, on_batch: OnBatch, prefetch: int) -> None:
        """Begins. Raises ShovelFailed."""
        try:
            self.consumer = await self.channel.consume(
                self.queue,
                on_batch,
                prefetch=prefetch,
                no_ack=not self._plan.acks,
                arguments=self._plan.given["src-consumer-args"],
            )
        except ClientError as error:
            raise self.failed(error) from None

    async def watch(self, fail: Callable[[Exception], None]) -> None:
        """Fails when the server cancels the consumer: its queue was deleted."""
        await self.consumer.cancelled.wait()
        if not self.channel.ended.done():
            fail(ShovelFailed(f"source {self.end.shown}: the queue {self.queue} was deleted"))

    async def stop_consuming(self) -> None:
        """Cancels the consumer, so that acks bring no further deliveries. Raises ClientError."""
        await self.channel.cancel(self.consumer)

    def failed(self, error: ClientError) -> Exception:
        """What an error at this end means."""
        return failed(error, f"source {self.end.shown}", is_here=self.end.is_here)


async def declared(
    end: End, queue: str, arguments: dict[str, object] | None, must_be_there: bool
) -> tuple[str, int]:
    """Name of a queue and how many messages it has; one that is not there is declared, durable.
    Raises ClientError."""
    try:
        async with end.connection.channel() as channel:
            reply = await channel.call("queue.declare", queue=queue, passive=True)
            return reply["queue"], reply["message_count"]
    except ChannelClosed as error:
        if error.code != NOT_FOUND or must_be_there:
            raise
    async with end.connection.channel() as channel:
        reply = await channel.call(
            "queue.declare", queue=queue, durable=True, arguments=arguments or {}
        )
        return reply["queue"], reply["message_count"]
