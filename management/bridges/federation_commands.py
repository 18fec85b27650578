"""Bindings and unbindings at the upstream of a federated exchange, many at once.

A binding that the upstream does not take is left out and logged, so that it does not keep the
others from being mirrored: one that is longer than a frame, for which brokers close the connection,
and one that is refused with PRECONDITION_FAILED. Every other refusal is about all of them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

from broker.client.aio import Channel
from broker.client.errors import ChannelClosed
from management.bridges.federation_plan import LinkPlan
from management.bridges.plan import shortened

log = logging.getLogger("leveret.bridges")

AT_ONCE = 200
"""Requests that are sent before their answers are waited for."""
REFUSED_MOST = 100
"""Bindings that the upstream may refuse before the link fails: each costs a channel."""
PRECONDITION_FAILED = 406
BIND, UNBIND = "exchange.bind", "exchange.unbind"

Bound = tuple[str, str]
"""Routing key and arguments."""


class Command(NamedTuple):
    """One of the two methods, for a binding with these arguments at the upstream."""

    method: str
    bound: Bound
    arguments: dict[str, Any]


class Commands:
    """Those of one attempt, for the bindings from the upstream's exchange to `internal`."""

    def __init__(self, plan: LinkPlan, internal: str, channel: Channel) -> None:
        self._plan = plan
        self._internal = internal
        self._channel = channel
        self._left_out: set[Bound] = set()
        self._refused = 0

    async def carry_out(self, commands: Iterable[Command]) -> None:
        """Sends them in their order and waits for the answers. Raises ClientError."""
        rest = iter(commands)
        while some := list(itertools.islice(rest, AT_ONCE)):
            while some:
                some = await self._send(some)

    async def _send(self, commands: list[Command]) -> list[Command]:
        """Carries out commands. Returns those behind one that was refused: the channel is another
        one then, and they were not carried out."""
        sent: list[tuple[Command, asyncio.Future[Any]]] = []
        for command in commands:
            if command.method == UNBIND and command.bound in self._left_out:
                self._left_out.discard(command.bound)
                continue
            try:
                answer = self._request(command)
            except ValueError as error:
                self._leave_out(command, str(error))
                continue
            if answer is not None:
                sent.append((command, answer))
        connection = self._channel.connection
        connection.flush()
        # Answers come in the order of the requests: the first one that has none was refused.
        answers = await asyncio.gather(*(answer for _, answer in sent), return_exceptions=True)
        for index, found in enumerate(answers):
            if isinstance(found, BaseException):
                if not self._may_leave_out(found):
                    raise found
                self._refused += 1
                self._leave_out(sent[index][0], str(found))
                self._channel = await connection.open_channel()
                return [command for command, _ in sent[index + 1 :]]
        return []

    def _request(self, command: Command) -> asyncio.Future[Any] | None:
        """Sends one; None where no answer is asked for. Raises ClientError, or ValueError for one
        that no frame holds."""
        given = {
            "source": self._plan.object,
            "destination": self._internal,
            "routing_key": command.bound[0],
            "arguments": command.arguments,
        }
        if self._plan.value["bind-nowait"]:
            self._channel.core.send(command.method, **given, no_wait=True)
            return None
        answer = self._channel.connection.new_future()
        self._channel.core.request(command.method, answer, **given)
        return answer

    def _may_leave_out(self, error: BaseException) -> bool:
        # Messages would end with a channel that they share with commands.
        return (
            isinstance(error, ChannelClosed)
            and error.code == PRECONDITION_FAILED
            and self._plan.value["channel-use-mode"] == "multiple"
            and self._refused < REFUSED_MOST
        )

    def _leave_out(self, command: Command, why: str) -> None:
        if command.method != BIND:
            return
        self._left_out.add(command.bound)
        log.warning(
            "federation link %s of exchange '%s': a binding with the key '%s' is left out: %s",
            self._plan.id,
            self._plan.name,
            shortened(command.bound[0], 100),
            shortened(why),
        )
