"""Carries messages to a broker: as batches of bytes, bounded by the prefetch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from broker.client.aio import Channel
from broker.client.batch import Batch
from broker.client.errors import ClientError
from broker.client.flight import Flight
from broker.client.message import Message
from management.bridges.carrier import (
    AGAIN_FIRST_S,
    AGAIN_MOST_S,
    Ending,
    Limit,
    Reading,
    backoff,
    carry,
)
from management.bridges.ends import End, failed
from management.bridges.place import Track
from management.bridges.plan import Plan, ShovelFailed, shortened
from management.bridges.properties import login_of
from management.bridges.rewrite import Rewrite
from management.bridges.source import Source, declared
from management.bridges.status import Status

log = logging.getLogger("leveret.bridges")

LEVERET = "Leveret"
"""What brokers that close the connection for very many values in headers call themselves."""
LOG_EVERY_S = 60.0
COUNTED = {
    "moved": "moved",
    "moved_bytes": "moved_bytes",
    "refused": "refused",
    "dropped": "dropped",
    "parted_count": "dead_lettered",
    "marked": "marked",
}
"""Counter of the flight and name of the count that is reported."""


@dataclass(frozen=True)
class Handling:
    """What is done to messages, as `Flight` says it. `mandatory`: what no queue takes counts as
    refused. `on_unfit`: what is done to those that cannot be published, each of which is logged
    then; without it that is what is done to all that are refused."""

    rewrite: Callable[..., bytes | None]
    rewrites_all: bool
    mandatory: bool
    with_names: bool = False
    repeat: Callable[[bytes], bytes] | None = None
    on_unfit: str | None = None


def _of_shovel(plan: Plan, source: Source, end: End) -> Handling:
    rewrite = Rewrite(plan, source.end.shown, end.shown, login_of(end.connection))
    return Handling(rewrite, rewrite.of_all, plan.confirms, repeat=rewrite.again)


class AmqpCarrier:
    """One attempt: from its first delivery to its end."""

    def __init__(
        self,
        plan: Plan,
        source: Source,
        end: End,
        status: Status,
        memory: int,
        handling: Handling | None = None,
    ) -> None:
        self._plan = plan
        self._handling = handling or _of_shovel(plan, source, end)
        self._source = source
        self._end = end
        self._status = status
        self._ending = Ending()
        self._reading = Reading(source.end.connection, memory)
        self._has_waiting = asyncio.Event()
        self._has_refusals = asyncio.Event()
        self._refused_why = ""
        self._unfit = 0
        self._logged_s = -LOG_EVERY_S
        self._tries = 0
        self._is_holding = False
        self._again: asyncio.TimerHandle | None = None
        self._counted = dict.fromkeys(COUNTED, 0)
        self._track: Track | None = None
        self._target: Channel
        self._flight: Flight

    async def run(self) -> None:
        """Moves messages until as many are moved as the definition says. Raises ShovelFailed."""
        await self._prepare()
        limit = Limit(self._plan, self._status, self._source)
        self._start_flight(limit)
        if limit.is_set and not limit.count:
            return
        self._track = self._source.track
        work = self._publish_waiting(), self._dead_letter()
        try:
            await carry(self._source, limit, self._ending, self._status, self._take, *work)
        finally:
            if self._again is not None:
                self._again.cancel()

    async def _prepare(self) -> None:
        """Finds or declares the target. Raises ShovelFailed."""
        given = self._plan.given
        try:
            if given["dest-queue"]:
                await declared(
                    self._end,
                    given["dest-queue"],
                    given["dest-queue-args"],
                    given["dest-predeclared"],
                )
            self._target = await self._end.connection.open_channel()
            if given["dest-exchange"]:
                await self._target.call(
                    "exchange.declare", exchange=given["dest-exchange"], type="direct", passive=True
                )
            if self._plan.confirms:
                await self._target.select_confirms()
        except ClientError as error:
            raise self._failed(error) from None

    def _start_flight(self, limit: Limit) -> None:
        given, target = self._plan.given, self._target
        exchange, key = given["dest-exchange"], given["dest-exchange-key"]
        if given["dest-queue"] is not None:
            exchange, key = "", given["dest-queue"]
        self._flight = Flight(
            self._source.channel.core,
            target.core,
            exchange=exchange.encode() if exchange is not None else None,
            routing_key=key.encode() if key is not None else None,
            rewrite=self._handling.rewrite,
            mandatory=self._handling.mandatory,
        )
        self._flight.rewrite_all = self._handling.rewrites_all
        self._flight.with_names = self._handling.with_names
        self._flight.repeat = self._handling.repeat
        product = self._end.connection.core.server_properties.get("product")
        self._flight.checks_headers = product == LEVERET
        source = self._source.end.connection.core.server_properties.get("product")
        self._flight.checks_plain = product == LEVERET != source
        self._flight.limit, self._flight.ack_most = limit.count, limit.ack_most
        self._flight.acks = self._plan.acks
        self._source.hold_acks = self._hold_acks
        refused = given["on-refused"]
        self._flight.on_refused = "apart" if refused == "dead-letter" else refused
        # Without confirms nothing else is refused, and what would be held has no end.
        usual = self._flight.on_refused if self._plan.confirms else "drop"
        self._flight.on_unfit = self._handling.on_unfit or usual
        self._ending.follow(self._source)
        target.ended.add_done_callback(
            lambda future: self._ending.fail(self._failed(future.result()))
        )
        target.on_confirmed = self._confirmed
        target.on_return = self._returned
        target.on_refused = self._nacked
        self._end.connection.on_blocked = self._blocked

    def _failed(self, error: ClientError) -> ShovelFailed:
        return failed(error, f"destination {self._end.shown}", is_here=self._end.is_here)

    # Deliveries.

    @property
    def _may_publish(self) -> bool:
        is_noted = self._track is None or self._track.may_publish
        return self._end.connection.is_writable and is_noted and not self._is_holding

    def _take(self, channel: Channel, batch: Batch) -> None:
        if self._ending.has_come:
            return
        try:
            if self._track is not None:
                self._flight.marks = self._track.took(batch)
            self._flight.take(batch, self._may_publish)
            self._written()
        except ClientError as error:
            self._ending.fail(self._failed(error))
        except ShovelFailed as error:
            self._ending.fail(error)
        except ValueError as error:
            self._ending.fail(ShovelFailed(f"a message cannot be published: {error}"))
        if self._flight.waiting_count:
            self._has_waiting.set()

    def _hold_acks(self, is_held: bool) -> None:
        """Acknowledges nothing at the source for a while, or what may be since then."""
        self._flight.holds_acks = is_held
        self._flight.flush_acks()
        self._source.end.connection.flush()

    def _written(self) -> None:
        """Messages were given to the connection of the destination."""
        self._end.connection.flush()
        # What is left out is acknowledged without an answer of the destination.
        self._source.end.connection.flush()
        if self._flight.unfit != self._unfit:
            self._unfit_came()
        if not self._plan.confirms:
            # What the socket has not taken yet does not count as published.
            if self._end.connection.is_writable:
                self._flight.flush_acks()
                self._source.end.connection.flush()
            else:
                self._has_waiting.set()
            self._account()
            if self._flight.is_over and self._end.connection.is_writable:
                self._ending.finish()
        self._reading.bound(self._flight.bytes)

    async def _publish_waiting(self) -> None:
        """Publishes what came while the destination did not take messages."""
        while True:
            await self._has_waiting.wait()
            self._has_waiting.clear()
            try:
                if self._track is not None:
                    await self._track.ready()
                await self._end.connection.writable()
                if self._is_holding:
                    continue  # `_collected` wakes this again
                self._flight.go()
                self._written()
            except ClientError as error:
                self._ending.fail(self._failed(error))
                return

    def _blocked(self, reason: str | None) -> None:
        if reason is not None:
            self._status.put(
                "blocked", f"the destination blocks publishers: {shortened(reason) or 'no reason'}"
            )
        elif not self._is_holding:
            self._status.put("running")

    def _unfit_came(self) -> None:
        """Messages could not be published, so that no answer will come for them."""
        self._unfit, self._refused_why = self._flight.unfit, shortened(self._flight.unfit_why)
        now = time.monotonic()
        if self._handling.on_unfit is not None and now - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now
            log.warning(
                "%s: a message cannot be published and is left out (%d since it began): %s",
                self._plan.label or self._plan.name,
                self._unfit,
                self._refused_why,
            )
        self._account()
        if self._plan.confirms:
            self._collected()

    # Answers of the destination.

    def _returned(self, message: Message, text: str) -> None:
        self._refused_why = f"{shortened(text)} ({message.code})"
        self._flight.returned(message)

    def _nacked(self, numbers: list[int]) -> None:
        self._refused_why = "the destination did not confirm a message (basic.nack)"
        self._flight.nacked(numbers)

    def _confirmed(self) -> None:
        if self._ending.has_come:
            return
        try:
            self._flight.collect()
            self._source.end.connection.flush()
        except ClientError as error:
            self._ending.fail(self._source.failed(error))
            return
        self._account()
        self._collected()

    def _collected(self) -> None:
        """Continues after answers: holds what was refused, or takes more."""
        flight = self._flight
        if flight.held_count:
            self._hold()
        elif self._is_holding and not flight.strays:
            self._is_holding = False
            self._tries = 0
            self._status.put("running")
            self._has_waiting.set()
        if flight.refusals:
            self._has_refusals.set()
        self._reading.bound(flight.bytes)
        if flight.is_over:
            self._ending.finish()

    def _hold(self) -> None:
        """Publishes what was refused again, later; nothing else meanwhile."""
        self._is_holding = True
        if self._again is not None:
            return
        delay = backoff(AGAIN_FIRST_S, AGAIN_MOST_S, self._tries)
        self._tries += 1
        self._status.put(
            "blocked", f"a message is refused and published again: {self._refused_why}", delay
        )
        self._again = asyncio.get_running_loop().call_later(delay, self._publish_again)

    def _publish_again(self) -> None:
        self._again = None
        try:
            self._flight.again()
            self._written()
        except ClientError as error:
            self._ending.fail(self._failed(error))

    async def _dead_letter(self) -> None:
        """Hands what was refused to the dead letters of the source."""
        by_source = self._plan.given["dead-letter-queue"] is None
        while True:
            await self._has_refusals.wait()
            self._has_refusals.clear()
            for message in list(self._flight.refusals):
                await self._source.dead_letter(message)
                self._flight.parted(message, by_source)
            self._source.end.connection.flush()
            self._account()
            self._collected()

    # Figures.

    def _account(self) -> None:
        """Tells the status what has moved, and the place in a stream what is settled."""
        flight, status = self._flight, self._status
        if self._track is not None:
            self._track.settled(flight.acked if flight.count else None)
        for name, count in COUNTED.items():
            now = getattr(flight, name)
            status.count(count, now - self._counted[name])
            self._counted[name] = now
        status.in_flight = flight.count
        status.held = flight.held_count
        if flight.limit:
            left = flight.moved + flight.dropped + flight.parted_count
            status.remaining = max(0, flight.limit - left)


async def close(*ends: End) -> None:
    """Closes connections, each within the client's own time."""
    with contextlib.suppress(ClientError, OSError):
        await asyncio.gather(*(end.connection.close() for end in ends), return_exceptions=True)
