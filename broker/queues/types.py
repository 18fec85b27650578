"""The queue types by name, and what all of them have in common.

An added type goes by deleting its files and its line here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol

from broker.kernel.contracts import Consumer, Queue
from broker.queues.classic import ClassicQueue
from broker.queues.refusals import Refusals
from broker.schema import arguments as argument_table
from broker.schema.errors import PreconditionFailed


class MessageQueue(Protocol):
    """What a vhost asks of a queue of any type."""

    owner: Any
    declared_by: str | None
    used_at: int
    unused: Any
    later: Any
    dead_letter: Any
    bodies: Any
    policy: Any
    gauge: Any
    is_timed: bool

    @property
    def name(self) -> str: ...
    @property
    def vhost_name(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def durable(self) -> bool: ...
    @property
    def exclusive(self) -> bool: ...
    @property
    def auto_delete(self) -> bool: ...
    @property
    def arguments(self) -> dict[str, Any]: ...
    @property
    def limits(self) -> Any: ...
    @property
    def deleted(self) -> bool: ...
    @property
    def paused(self) -> bool: ...
    @property
    def store(self) -> Any: ...
    @property
    def consumers(self) -> Collection[Consumer]: ...
    @property
    def consumer_count(self) -> int: ...
    @property
    def exclusive_consumer_tag(self) -> str | None: ...
    @property
    def memory(self) -> int | None: ...
    @property
    def messages_ready(self) -> int: ...
    @property
    def messages_unacknowledged(self) -> int: ...
    @property
    def messages_ram(self) -> int | None: ...
    @property
    def message_bytes_ready(self) -> int: ...
    @property
    def message_bytes_unacknowledged(self) -> int: ...
    @property
    def refusals(self) -> Refusals | None: ...
    @property
    def refused(self) -> int: ...
    def put(
        self,
        exchange: bytes,
        routing_key: bytes,
        properties: bytes,
        body: bytes,
        persistent: bool,
        reference: bytes | None = None,
    ) -> int: ...
    def get(self, getter: Any, *, forced: bool = False) -> None: ...
    def settle_place(self, place: tuple[int, ...], acked: bool = True) -> None: ...
    def requeue_place(self, place: tuple[int, ...]) -> None: ...
    def counters(self) -> dict[str, int]: ...
    def deaths(self) -> dict[str, tuple[int, int]]: ...
    def deliver_pending(self) -> int: ...
    def hold_back(self, on: bool) -> None: ...
    def consumed_by(
        self,
        channel: Any,
        tag: str,
        no_ack: bool,
        exclusive: bool,
        arguments: dict[str, Any],
    ) -> Queue: ...
    def recover(self) -> list[str]: ...
    def reconfigure(self, effective: Mapping[str, Any]) -> None: ...
    def wake(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def purge_part(self, most: int) -> int: ...
    def purge(self) -> int: ...
    def delete(self) -> int: ...
    def close(self) -> None: ...
    def rest_if_idle(self, now: float, after: float) -> None: ...


def check_classic(resource: str, **_: Any) -> None:
    """A classic queue may have any properties."""


def check_quorum(
    resource: str, *, durable: bool, exclusive: bool, auto_delete: bool, arguments: Any
) -> None:
    """What RabbitMQ refuses of a quorum queue. Here it is a durable queue with a delivery limit."""
    for name, is_wrong in (
        ("non-durable", not durable),
        ("exclusive-owner", exclusive),
        ("auto-delete", auto_delete),
    ):
        if is_wrong:
            raise PreconditionFailed(f"invalid property '{name}' for {resource}")


def is_for_every_type(argument: str) -> bool:
    """Whether no other type has an argument of this name for itself alone."""
    row = argument_table.BY_OWNER["queue"].get(argument)
    return row is None or not row.only


class QueueType(NamedTuple):
    """`make` takes what `ClassicQueue` takes; `check` raises PreconditionFailed for a declaration
    that does not fit the type; `uses` tells whether an argument of a policy means anything to
    it."""

    make: Callable[..., Any]
    check: Callable[..., None]
    uses: Callable[[str], bool] = is_for_every_type


# Each has a module `<name>_type` with what it is made by and checked by.
ADDED: tuple[str, ...] = ("stream",)

TYPES = {
    "classic": QueueType(ClassicQueue, check_classic),
    "quorum": QueueType(ClassicQueue, check_quorum),
    **{
        name: QueueType(*importlib.import_module(f"broker.queues.{name}_type").TYPE)
        for name in ADDED
    },
}

NAMES = ", ".join(f"'{name}'" for name in sorted(TYPES))
"""The types, for people to read."""


def of(arguments: Mapping[str, Any]) -> QueueType:
    """The type that a declaration's arguments name."""
    return TYPES[arguments.get("x-queue-type", "classic")]


def check(
    resource: str,
    *,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: Mapping[str, Any],
) -> None:
    """Checks type and arguments of a new queue. Raises PreconditionFailed (406)."""
    argument_table.check("queue", arguments, resource)
    kind = arguments.get("x-queue-type", "classic")
    if kind not in TYPES:
        raise PreconditionFailed(
            f"invalid arg 'x-queue-type' for {resource}: \"unsupported queue type '{kind}'\""
        )
    argument_table.check_type(kind, arguments, resource)
    TYPES[kind].check(
        resource,
        durable=durable,
        exclusive=exclusive,
        auto_delete=auto_delete,
        arguments=arguments,
    )
