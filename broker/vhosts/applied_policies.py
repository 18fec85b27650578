"""Bringing the policies in force to the exchanges and queues of a vhost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from broker.kernel.contracts import Topology
from broker.kernel.through import Through
from broker.kernel.wide_dict import WideDict
from broker.queues.types import MessageQueue
from broker.routing.exchange import BoundExchange
from broker.schema.errors import describe
from broker.vhosts.policies import Policies, effective, move
from broker.vhosts.unused_queues import expires

log = logging.getLogger("leveret.vhost")


class Told(Protocol):
    """Callbacks for changed arguments of an object, and for a changed x-expires."""

    def exchange_configured(self, exchange: BoundExchange) -> None: ...

    def queue_configured(self, queue: MessageQueue) -> None: ...

    def watch_use(self, queue: MessageQueue) -> None: ...


class AppliedPolicies:
    """The policies of one vhost on its `exchanges` and `queues`, which are the vhost's own."""

    def __init__(
        self,
        vhost: str,
        policies: Policies,
        exchanges: Mapping[str, BoundExchange],
        queues: WideDict[str, MessageQueue],
        topology: Topology,
        told: Told,
    ) -> None:
        self._vhost = vhost
        self._policies = policies
        self._exchanges = exchanges
        self._queues = queues
        self._topology = topology
        self._told = told

    def to_all(self) -> Iterator[str]:
        """One object a step; yields what is wrong, or nothing. A policy that cannot be carried out
        for one object costs no other anything."""
        for exchange in Through(self._exchanges.values()):
            # It may have been deleted in a step before, and another one declared by its name.
            if self._exchanges.get(exchange.name) is exchange:
                yield self._try("exchange", exchange, self.to_exchange)
        for queue in Through(self._queues.values()):
            if not queue.deleted:
                before = expires(queue)
                problem = self._try("queue", queue, self.to_queue)
                if expires(queue) != before:
                    self._told.watch_use(queue)
                yield problem

    def _try(self, kind: str, which: Any, bring: Callable[[Any], None]) -> str:
        try:
            bring(which)
        except (OSError, MemoryError):
            raise
        except Exception as error:
            log.exception("policies of one %s cannot be carried out", kind)
            return (
                f"the policies of {describe(kind, which.name, self._vhost)} cannot be carried out "
                f"({type(error).__name__}: {error})"
            )
        return ""

    def to_exchange(self, exchange: BoundExchange) -> None:
        if not exchange.name:
            # The default exchange takes every message and has nothing that could be set.
            return
        in_force = self._policies.of(self._vhost, "exchange", exchange.name, exchange.type)
        if in_force is exchange.policy:
            return
        move("exchange", exchange.policy, in_force)
        exchange.policy = in_force
        exchange.reconfigure(effective("exchange", exchange.arguments, in_force))
        self._told.exchange_configured(exchange)
        self._topology.changed()

    def to_queue(self, queue: MessageQueue) -> None:
        in_force = self._policies.of(self._vhost, "queue", queue.name, queue.type)
        if in_force is not queue.policy:
            move("queue", queue.policy, in_force)
            queue.policy = in_force
            queue.reconfigure(effective("queue", queue.arguments, in_force))
            self._told.queue_configured(queue)
