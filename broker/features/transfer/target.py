"""Where a transfer's messages go: a queue, or the queues behind an exchange."""

from __future__ import annotations

from typing import Any

from broker.fields import properties
from broker.fields.codec import octets, text
from broker.kernel.reached import Reached, is_wide
from broker.kernel.steps import Found, Steps, first_step
from broker.schema.errors import AccessRefused, describe

Given = tuple[Found | Reached | Steps, bytes | str | None]

ROUTES_MAX = 1024
"""Routes that are remembered while the topology stands still."""


class ToQueue:
    """The target is a queue. Called for each message: (the queue), None; or (), what is wrong."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._given: Given = ((queue,), None)

    def __call__(self, routing_key: bytes, listed: bytes) -> Given:
        if self._queue.deleted:
            return (), f"queue '{self._queue.name}' was deleted"
        return self._given


class ToExchange:
    """The target is an exchange: (queues, its name), or (), why the message reaches none. Very many
    queues may be the steps that find them, and those may find none (`nowhere`)."""

    def __init__(self, vhost: Any, exchange: Any, rights: Any) -> None:
        self._vhost = vhost
        self._exchange = exchange
        self._rights = rights
        self._name = octets(exchange.name)
        self._known: dict[bytes, Given] = {}
        self._version = -1
        self._by_key = False

    def __call__(self, routing_key: bytes, listed: bytes) -> Given:
        version = self._vhost.topology_version
        if version != self._version:
            self._version = version
            self._known.clear()
            self._by_key = self._vhost.routes.is_by_key(self._exchange)
        is_plain = self._by_key and b"\x02CC" not in listed
        if is_plain and (known := self._known.get(routing_key)) is not None:
            return known
        key = text(routing_key)
        told = properties.readable(listed)
        headers = told.get("headers", {})
        keys = [key, *properties.copied_to(headers, "CC")]
        try:
            self._rights.check_topics("write", self._exchange, keys)
        except AccessRefused as error:
            return (), error.text
        queues = first_step(self._vhost.routes.routing(self._exchange, keys, headers, told))
        if not isinstance(queues, (tuple, Reached)):
            return self._further(queues, routing_key, is_plain), self._name
        return self._found(queues, routing_key, is_plain)

    def nowhere(self, routing_key: bytes) -> str:
        """That a message with this key reaches no queue."""
        where = describe("exchange", self._exchange.name, self._vhost.name)
        return f"{where} leads a message with routing key '{text(routing_key)}' to no queue"

    def _found(self, queues: Found | Reached, routing_key: bytes, is_plain: bool) -> Given:
        found: Given = (queues, self._name) if queues else ((), self.nowhere(routing_key))
        # Very many queues are found anew: a thousand keys may lead to all of them.
        if is_plain and len(self._known) < ROUTES_MAX and not is_wide(queues):
            self._known[routing_key] = found
        return found

    def _further(self, steps: Steps, routing_key: bytes, is_plain: bool) -> Steps:
        """The steps that remain. What they find is remembered, if nothing has changed meanwhile."""
        version = self._version
        queues = yield from steps
        is_same = version == self._version == self._vhost.topology_version
        self._found(queues, routing_key, is_plain and is_same)
        return queues
