"""The firehose of a vhost: what clients publish and get, published again to `amq.rabbitmq.trace`.

As in RabbitMQ the routing key is `publish.<exchange>` or `deliver.<queue>`, the body that of the
message, and the headers say the rest. While it is off, a message costs one look at a flag of its
channel. While it is on, copies wait in a bounded list and are published between turns of the loop,
some at a time; what does not fit is left out and counted. It is off after a start.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from broker.fields import properties
from broker.fields.codec import octets, text
from broker.settings.bounds import (
    TRACED_BODY_MAX,
    TRACED_BYTES_MAX,
    TRACED_PROPERTIES_MAX,
    TRACED_ROUTES_MAX,
    TRACED_WAITING_MAX,
)

log = logging.getLogger("leveret.tracing")

EXCHANGE = "amq.rabbitmq.trace"

_SLICE_S = 0.0005
_SAID_EVERY_S = 10.0


class Traced(NamedTuple):
    """A copy that waits. `queue` is empty for what was published."""

    who: tuple[str, int, str]
    """Connection, channel and user."""
    exchange: str
    routing_key: str
    listed: bytes
    body: bytes
    queue: str
    redelivered: bool
    routed: tuple[str, ...]
    """The queues of its route, TRACED_ROUTES_MAX of them at most."""
    routes: int
    """How many queues there are."""


class Trace(NamedTuple):
    """A queue that gets what the firehose brings under the keys that match `pattern`."""

    name: str
    pattern: str
    queue: str
    is_own: bool
    """Whether the queue was declared for the trace and goes with it."""


class Tracer:
    """`publish(key, found, body)` publishes to the exchange; `later(seconds, callback)` calls in a
    later turn of the loop."""

    def __init__(
        self,
        vhost: str,
        publish: Callable[[str, dict[str, Any], bytes], object],
        later: Callable[[float, Callable[[], None]], Any],
    ) -> None:
        self.on = False
        self.lost = 0
        """Messages that were left out since the start."""
        self.node = ""
        """The node's name, as the headers say it."""
        self.traces: dict[str, Trace] = {}
        """What was asked for by name; without any, tracing may be on all the same."""
        self._vhost = vhost
        self._publish = publish
        self._later = later
        self._waiting: deque[Traced] = deque()
        self._bytes = 0
        self._scheduled = False
        self._said_at = -_SAID_EVERY_S

    def published(
        self,
        who: tuple[str, int, str],
        exchange: str,
        routing_key: str,
        listed: bytes,
        body: bytes,
        queues: Sequence[Any],
    ) -> None:
        """A client published a message, and these queues are its route."""
        if exchange != EXCHANGE:
            routed = tuple(queue.name for queue in itertools.islice(queues, TRACED_ROUTES_MAX))
            self._add(
                Traced(who, exchange, routing_key, listed, body, "", False, routed, len(queues))
            )

    def delivered(
        self,
        who: tuple[str, int, str],
        exchange: str,
        routing_key: str,
        listed: bytes,
        body: bytes,
        queue: str,
        redelivered: bool,
    ) -> None:
        """A client gets a message from a queue."""
        # What the firehose itself brought is not traced again: that would never end.
        if exchange != EXCHANGE:
            self._add(Traced(who, exchange, routing_key, listed, body, queue, redelivered, (), 0))

    def _add(self, traced: Traced) -> None:
        traced = traced._replace(body=traced.body[:TRACED_BODY_MAX])
        size = _size(traced)
        if len(self._waiting) >= TRACED_WAITING_MAX or self._bytes + size > TRACED_BYTES_MAX:
            self.lost += 1
            now = time.monotonic()
            if now - self._said_at >= _SAID_EVERY_S:
                self._said_at = now
                log.warning(
                    "vhost '%s': tracing cannot keep up; %d messages were left out of "
                    "'%s' so far. Messages themselves are not touched.",
                    self._vhost,
                    self.lost,
                    EXCHANGE,
                )
            return
        self._waiting.append(traced)
        self._bytes += size
        if not self._scheduled:
            self._scheduled = True
            self._later(0, self._flush)

    def _flush(self) -> None:
        until = time.perf_counter() + _SLICE_S
        try:
            while self._waiting and time.perf_counter() < until:
                traced = self._waiting.popleft()
                self._bytes -= _size(traced)
                try:
                    self._publish(*self._message(traced))
                except ValueError:
                    # Headers that are nested as deep as they may be do not fit into headers.
                    self.lost += 1
        finally:
            # One that fails does not keep those behind it.
            self._scheduled = bool(self._waiting)
            if self._scheduled:
                self._later(0, self._flush)

    def _message(self, traced: Traced) -> tuple[str, dict[str, Any], bytes]:
        connection, channel, user = traced.who
        headers: dict[str, Any] = {
            "exchange_name": traced.exchange,
            "routing_keys": [traced.routing_key],
            "properties": {},
            "node": self.node,
            "vhost": self._vhost,
            "connection": connection,
            "channel": channel,
            "user": user,
        }
        # They are one frame, and every consumer of the firehose must be able to take it.
        if len(traced.listed) <= TRACED_PROPERTIES_MAX:
            headers["properties"] = properties.readable(traced.listed)
        else:
            headers["properties_bytes_left_out"] = len(traced.listed)
        if traced.queue:
            headers["redelivered"] = int(traced.redelivered)
            return _key("deliver", traced.queue), {"headers": headers}, traced.body
        headers["routed_queues"] = _fitting(traced.routed)
        left_out = traced.routes - len(headers["routed_queues"])
        if left_out:
            headers["routed_queues_left_out"] = left_out
        return _key("publish", traced.exchange), {"headers": headers}, traced.body


def _fitting(names: Sequence[str]) -> list[str]:
    """The first names that take no more than TRACED_PROPERTIES_MAX bytes."""
    size = 0
    for count, name in enumerate(names):
        size += 5 + len(octets(name))
        if size > TRACED_PROPERTIES_MAX:
            return list(names[:count])
    return list(names)


def _size(traced: Traced) -> int:
    """Bytes that a copy holds; names are those of the queues themselves."""
    return len(traced.body) + len(traced.listed) + 8 * len(traced.routed)


def _key(kind: str, name: str) -> str:
    """A routing key of at most 255 octets: a long name is cut."""
    return text(octets(f"{kind}.{name}")[:255])
