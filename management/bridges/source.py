"""The end of a shovel from which messages are taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker.client.aio import Channel, Consumer, OnBatch
from broker.client.errors import ChannelClosed, ClientError
from broker.client.message import Message
from management.bridges.ends import NOT_FOUND, End, Ends, failed
from management.bridges.place import Place, Track
from management.bridges.plan import Plan, ShovelFailed, shortened
from management.bridges.properties import login_of, published_by


class Source:
    """A consumer on a queue, or on an exclusive queue that is bound to an exchange."""

    def __init__(
        self, plan: Plan, end: End, ends: Ends | None = None, place: Place | None = None
    ) -> None:
        self._plan = plan
        self._ends = ends
        self._place = place
        self.track: Track | None = None
        """The place in the stream, if it is one."""
        self.end = end
        self._letters: Channel | None = None
        """Where refused messages are published, one at a time."""
        self._lettering = asyncio.Lock()
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
        await self.check_dead_letters()
        await self._find_place()

    async def _find_place(self) -> None:
        """A stream is what the queue is here; of another broker's the definition has to say it."""
        given, stream = self._plan.given, None
        arguments = given["src-consumer-args"] or {}
        if self.end.is_here:
            stream = (await self._facts())["stream"]
        elif (
            "x-stream-offset" in arguments
            or (given["src-queue-args"] or {}).get("x-queue-type") == "stream"
        ):
            stream = 0
        if stream is not None and self._place is not None:
            wanted = arguments.get("x-stream-offset")
            self.track = Track(self._place, f"{self.end.shown} {self.queue} {stream} from {wanted}")

    async def check_dead_letters(self) -> None:
        """Raises ShovelFailed where the queue is to dead-letter what is refused and has nowhere to
        put it: it would be lost."""
        given = self._plan.given
        if given["on-refused"] != "dead-letter" or given["dead-letter-queue"] is not None:
            return
        found = await self._facts() if self.end.is_here else {}
        if found.get("dead_letter_exchange") is None:
            raise ShovelFailed(
                f"source {self.end.shown}: the queue {self.queue} has no dead-letter exchange, and"
                " what the destination refuses would be lost: give it one, or name a"
                " dead-letter-queue",
                stops=True,
            )

    async def _facts(self) -> dict[str, Any]:
        """What this broker says of the queue. Raises ShovelFailed."""
        if self._ends is None or self._ends.source is None:
            return {"dead_letter_exchange": None, "stream": None}
        return await self._ends.source(self.end.connection.endpoint.vhost, self.queue)

    async def _bind(self) -> None:
        given, call = self._plan.given, self.channel.call
        reply = await call("queue.declare", exclusive=True, arguments=given["src-queue-args"] or {})
        self.queue = reply["queue"]
        key = given["src-exchange-key"]
        await call("queue.bind", queue=self.queue, exchange=given["src-exchange"], routing_key=key)

    async def consume(self, on_batch: OnBatch, prefetch: int) -> None:
        """Begins. Raises ShovelFailed."""
        arguments = dict(self._plan.given["src-consumer-args"] or {})
        if self.track is not None and self.track.start is not None:
            arguments["x-stream-offset"] = self.track.start
        try:
            self.consumer = await self.channel.consume(
                self.queue,
                on_batch,
                prefetch=prefetch,
                no_ack=not self._plan.acks,
                arguments=arguments,
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

    async def dead_letter(self, message: Message) -> None:
        """Publishes what was refused to the queue that the definition names for it, if it names
        one; else makes sure that the source dead-letters it. Raises ShovelFailed."""
        queue = self._plan.given["dead-letter-queue"]
        if queue is None:
            await self.check_dead_letters()
            return
        refused: list[str] = []
        try:
            async with self._lettering:
                if self._letters is None:
                    self._letters = await self.end.connection.open_channel()
                    await self._letters.select_confirms()
                self._letters.on_return = lambda _, text: refused.append(text)
                self._letters.on_refused = lambda _: refused.append("basic.nack")
                named = b"", queue.encode()
                properties = published_by(login_of(self.end.connection), message.properties)
                self._letters.core.publish(*named, properties, message.body, True)
                self.end.connection.flush()
                await self._letters.confirms_below(1)
        except ClientError as error:
            raise self.failed(error) from None
        except ValueError as error:
            refused.append(str(error))
        if refused:
            raise ShovelFailed(
                f"source {self.end.shown}: the dead-letter-queue {queue} does not take a message:"
                f" {shortened(refused[0])}"
            )

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
