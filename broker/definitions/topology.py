"""Exchanges, queues and bindings in a definitions document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from broker.definitions.document import LeftOut, Row
from broker.queues import types as queue_types
from broker.routing.binding import Binding
from broker.routing.exchange import BoundExchange
from broker.routing.types import TYPES
from broker.schema.arguments import memory_of
from broker.schema.errors import AMQPError, BoundReached, describe
from broker.vhosts.argument_memory import binding_memory
from broker.vhosts.changes import binding_change
from broker.vhosts.declaring import (
    check_new_exchange,
    check_new_queue,
    check_representable,
    check_same_exchange,
    check_same_queue,
)

if TYPE_CHECKING:
    from broker.definitions.plan import Plan, Undo

SERVER_NAMES = "names that begin with amq. are given by a server, and there is no such one here"
DELAYED = "x-delayed-message"


class Topology:
    """Readers of those sections."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._broker = plan.broker
        self._exchanges: dict[tuple[str, str], BoundExchange] = {}
        """New ones by vhost and name, with their new bindings; part of nothing."""
        self._queues: set[tuple[str, str]] = set()
        self._left_out: set[tuple[str, str, str]] = set()
        """(kind, vhost, name) of what is in the document and left out."""
        self._new_queues: dict[str, int] = {}

    def kept(self) -> tuple[dict[Any, Any] | set[Any], ...]:
        """What it has an entry in for each object of the document."""
        return self._exchanges, self._queues, self._left_out

    # -- exchanges ---------------------------------------------------------------------------------

    def exchange(self, row: Row) -> None:
        vhost, name = self._plan.tenants.vhost_of(row), row.text("name")
        try:
            self._exchange(row, vhost, name)
        except LeftOut:
            self._left_out.add(("exchange", vhost, name))
            raise

    def _exchange(self, row: Row, vhost: str, name: str) -> None:
        type, arguments = row.text_or("type", "direct"), row.table("arguments")
        if type == "x-delayed-exchange":
            # LavinMQ's name of it in an export.
            type = DELAYED
        given: dict[str, Any] = {
            "durable": row.flag("durable", True),
            "auto_delete": row.flag("auto_delete", False),
            "internal": row.flag("internal", False),
            "arguments": arguments,
        }
        after = {"type": type, **given}
        if not self._plan.is_new(row, (vhost, name), after):
            return
        there = self._broker.vhosts.get(vhost)
        old = there.exchanges.get(name) if there is not None else None
        if old is not None:
            self._same(row, check_same_exchange, "exchange", old, type=type, **given)
            return
        if not name:
            return
        if name.startswith("amq."):
            raise LeftOut(SERVER_NAMES)
        if type not in TYPES:
            raise LeftOut(f"there is no exchange type '{type[:100]}' here")
        inner = arguments.get("x-delayed-type")
        if type == DELAYED and isinstance(inner, str) and inner not in TYPES:
            raise LeftOut(f"there is no exchange type '{inner[:100]}' here")
        probe = check_new_exchange(name, vhost, type, **given)
        if there is not None:
            probe.bounds = there.exchanges[""].bounds
        self._check_room("exchanges", vhost, len(there.exchanges) if there is not None else 0)
        self._check_argument_room(vhost, memory_of(arguments))
        self._exchanges[vhost, name] = probe

        def do() -> Undo:
            owner = self._plan.tenants.there(vhost)
            if not owner.declare_exchange(name, type, **given):
                return _nothing
            return lambda: _drop(owner.delete_exchange(name))

        self._plan.change(row, None, after, do)

    # -- queues ------------------------------------------------------------------------------------

    def queue(self, row: Row) -> None:
        vhost, name = self._plan.tenants.vhost_of(row), row.name()
        try:
            self._queue(row, vhost, name)
        except LeftOut:
            self._left_out.add(("queue", vhost, name))
            raise

    def _queue(self, row: Row, vhost: str, name: str) -> None:
        arguments = self._queue_arguments(row)
        given: dict[str, Any] = {
            "durable": row.flag("durable", True),
            "auto_delete": row.flag("auto_delete", False),
            "arguments": arguments,
        }
        if row.flag("exclusive", False):
            raise LeftOut("an exclusive queue belongs to the connection that declares it")
        if not self._plan.is_new(row, (vhost, name), given):
            return
        there = self._broker.vhosts.get(vhost)
        old = there.queues.get(name) if there is not None else None
        if old is not None:
            default = there.default_queue_type
            self._same(
                row, check_same_queue, "queue", old, exclusive=False, default_type=default, **given
            )
            return
        if name.startswith("amq."):
            raise LeftOut(SERVER_NAMES)
        kind = arguments.get("x-queue-type", "classic")
        if isinstance(kind, str) and kind not in queue_types.TYPES:
            raise LeftOut(f"there is no queue type '{kind[:100]}' here")
        check_new_queue(name, vhost, **given)
        self._check_room("queues", vhost, len(there.queues) if there is not None else 0)
        self._check_argument_room(vhost, memory_of(arguments))
        self._queues.add((vhost, name))
        self._new_queues[vhost] = self._new_queues.get(vhost, 0) + 1

        def do() -> Undo:
            owner = self._plan.tenants.there(vhost)
            if not owner.declare_queue(name, **given, by_default=False)[1]:
                return _nothing
            return lambda: _drop(owner.delete_queue(name))

        self._plan.change(row, None, given, do)

    def _queue_arguments(self, row: Row) -> dict[str, Any]:
        """With the type that RabbitMQ 4 writes beside the arguments. Raises ValueError where they
        name two."""
        arguments = row.table("arguments")
        kind = row.fields.get("type")
        if kind is None:
            return arguments
        kind = row.text("type")
        if arguments.get("x-queue-type", kind) != kind:
            raise ValueError(f"its type is {kind} and its x-queue-type is another one")
        if kind == "classic":
            return arguments
        return {**arguments, "x-queue-type": kind}

    def check_limits(self) -> None:
        """Raises ValueError where a vhost would have more queues than its limit allows."""
        for vhost, count in self._new_queues.items():
            there = self._broker.vhosts.get(vhost)
            now = len(there.queues) if there is not None else 0
            limits = self._plan.tenants.limits.get(vhost)
            if limits is None:
                limits = self._broker.access.vhost_limits.get(vhost, {})
            limit = limits.get("max-queues", -1)
            if 0 <= limit < now + count:
                raise ValueError(
                    f'Adding {count} queue(s) to virtual host "{vhost}" would exceed the limit of '
                    f"{limit} queue(s); it has {now}"
                )

    # -- bindings ----------------------------------------------------------------------------------

    def binding(self, row: Row) -> None:
        vhost = self._plan.tenants.vhost_of(row)
        kind = row.text("destination_type")
        if kind not in ("queue", "exchange"):
            raise ValueError(f"destination_type '{kind[:100]}' is neither queue nor exchange")
        binding = Binding(
            row.text("source"),
            row.text("destination"),
            kind,
            row.text_or("routing_key", ""),
            row.table("arguments"),
        )
        if not binding.source and kind == "queue" and binding.destination == binding.routing_key:
            # LavinMQ lists what every queue has by its name.
            return
        if not self._plan.is_new(row, (vhost, binding), {}):
            return
        check_representable(*binding_change(binding, "bind"))
        self._find(kind, vhost, binding.destination)
        source = self._find("exchange", vhost, binding.source)
        if not binding.source or (kind == "exchange" and not binding.destination):
            raise LeftOut("the default exchange has a binding for each queue and no other")
        there = self._broker.vhosts.get(vhost)
        before = None
        if there is not None and there.has_binding(binding):
            before = {"arguments": binding.arguments}
        else:
            self._check_room("bindings", vhost, there.binding_count if there is not None else 0)
            self._check_argument_room(vhost, binding_memory(binding, source))
            try:
                source.check(binding)
            except BoundReached as error:
                raise LeftOut(error.text) from None
            if (vhost, binding.source) in self._exchanges:
                source.bind(binding)

        def do() -> Undo:
            owner = self._plan.tenants.there(vhost)
            try:
                is_new = owner.bind(**binding.facts())
            except BoundReached as error:
                # Together with others of the document, at an exchange that was there.
                self._plan.leave_out(row, error.text)
                return _nothing
            return (lambda: _drop(owner.unbind(**binding.facts()))) if is_new else _nothing

        self._plan.change(row, before, {"arguments": binding.arguments}, do)

    def _find(self, kind: str, vhost: str, name: str) -> Any:
        """An exchange, or whether a queue is there. Raises LeftOut if it will not be."""
        there = self._broker.vhosts.get(vhost)
        if kind == "exchange":
            found: Any = self._exchanges.get((vhost, name))
            if found is None and there is not None:
                found = there.exchanges.get(name)
            if found is None and there is None:
                found = _PREDECLARED.get(name)
        else:
            found = (vhost, name) in self._queues or (there is not None and name in there.queues)
        if not found:
            what = describe(kind, name, vhost)
            if (kind, vhost, name) in self._left_out:
                raise LeftOut(f"{what} is left out")
            raise LeftOut(f"there is no {what}, here or in the document")
        return found

    def _check_room(self, kind: str, vhost: str, there: int) -> None:
        self._plan.check_room(kind, vhost, there, getattr(self._broker.config, f"{kind}_max"))

    def _check_argument_room(self, vhost: str, more: int) -> None:
        there = self._broker.vhosts.get(vhost)
        taken = there.argument_memory.taken if there is not None else 0
        self._plan.check_argument_room(vhost, taken, more)

    # -- both --------------------------------------------------------------------------------------

    def _same(self, row: Row, check: Any, kind: str, old: Any, **given: Any) -> None:
        """Counts what is there as unchanged, or lists why it cannot become what the row says."""
        resource = describe(kind, row.fields["name"], row.fields["vhost"])
        try:
            check(resource, old, **given)
        except AMQPError as error:
            raise LeftOut(f"it is there and stays as it is: {error.text}") from None
        self._plan.change(row, {}, {}, lambda: _nothing)


def _nothing() -> None:
    """Nothing is to be taken back."""


def _drop(_: Any) -> None:
    """Drops an answer that an undo has no use for."""


def _predeclared() -> Iterator[tuple[str, BoundExchange]]:
    from broker.routing.types import PREDECLARED

    for name, type in PREDECLARED:
        yield name, TYPES[type](name, durable=True, auto_delete=False, internal=False, arguments={})


_PREDECLARED = dict(_predeclared())
"""What a vhost that the document brings has from its beginning."""
