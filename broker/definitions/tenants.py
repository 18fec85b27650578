"""Virtual hosts and their limits in a definitions document."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from broker.access.parameters import LIMITS, limits_fault
from broker.access.records import VHOST_LIMITS
from broker.definitions.document import Row, Sections, checked_text, words
from broker.queues import types as queue_types
from broker.schema.errors import NotFound

if TYPE_CHECKING:
    from broker.definitions.plan import Plan, Undo

_KEPT = frozenset({"protected_from_deletion"})
"""Flags of a vhost that a definitions file sets."""


class Tenants:
    """Reader of vhosts. `names` are those that there will be."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._broker = plan.broker
        self.names = set(plan.broker.vhosts)
        self.limits: dict[str, dict[str, int]] = {}
        """Limits of vhosts that the document sets."""
        self._limits_named: set[str] = set()
        self.new = 0
        """How many vhosts there will be that are not there yet."""
        self.prepared: list[int] = []
        """Incarnation ids for them."""

    def announce(self, sections: Sections) -> None:
        """Looks at which vhosts have their limits among the parameters."""
        for row in sections.get("parameters", ()):
            if isinstance(row, dict) and row.get("component") == LIMITS:
                self._limits_named.add(str(row.get("vhost")))

    def vhost(self, row: Row) -> None:
        plan, broker = self._plan, self._broker
        name = row.name()
        if not plan.is_new(row, (name,), row.fields):
            return
        given: dict[str, Any] = {}
        description = self._property(row, "description")
        if description is not None:
            if not isinstance(description, str):
                raise ValueError("description is not text")
            given["description"] = checked_text(description, "description")
        tags = self._property(row, "tags")
        if tags is not None:
            given["tags"] = words(tags, "tags")
        kind = self._property(row, "default_queue_type")
        if kind is not None and not isinstance(kind, str):
            raise ValueError("default_queue_type is not text")
        if kind in queue_types.TYPES:
            given["default_queue_type"] = kind
        elif kind not in (None, "", "undefined"):
            plan.leave_out(row, f"there is no queue type '{kind[:100]}'", part="default_queue_type")
        for flag in ("protected_from_deletion", "tracing"):
            value = self._property(row, flag)
            if value is not None and not isinstance(value, bool):
                raise ValueError(f"{flag} is neither true nor false")
            if flag in _KEPT and value is not None:
                given[flag] = value
            elif value:
                plan.leave_out(row, "a definitions file does not set it here", part=flag)
        old = broker.vhosts.get(name)
        before = None
        if old is not None:
            before = {key: getattr(old, key) for key in given}
        else:
            self.new += 1
        self.names.add(name)

        def do() -> Undo:
            there = broker.vhosts.get(name)
            if there is None:
                broker.definitions.create_vhost(
                    name, **given, incarnation=self.prepared.pop() if self.prepared else None
                )
                broker.emit("vhost.created", {"name": name})
                return lambda: _take_back_vhost(broker, name)
            was = {key: getattr(there, key) for key in given}
            broker.definitions.change_vhost(name, **given)
            return lambda: broker.definitions.change_vhost(name, **was)

        plan.change(row, before, given, do)
        self._vhost_row_limits(row, name)

    def _vhost_row_limits(self, row: Row, name: str) -> None:
        """RabbitMQ 4 writes the limits of a vhost beside the parameter that sets them, too."""
        limits = row.fields.get("limits")
        if limits and limits != [] and name not in self._limits_named:
            self.vhost_limits(Row("parameters", row.place, {"vhost": name}), name, limits)

    def _property(self, row: Row, name: str) -> Any:
        """A property of a vhost, which may stand in its metadata, too. Raises ValueError where they
        differ."""
        metadata = row.fields.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise ValueError("metadata is not an object")
        outer, inner = row.fields.get(name), metadata.get(name)
        if outer is not None and inner is not None and outer != inner:
            raise ValueError(f"{name} is another one in metadata")
        return outer if outer is not None else inner

    def vhost_of(self, row: Row) -> str:
        """The vhost that a row belongs to. Raises ValueError."""
        if row.fields.get("vhost") is None:
            raise ValueError(
                "'vhost' is missing; a file of one virtual host is imported into that one "
                "(POST /api/definitions/<vhost>)"
            )
        name = row.text("vhost")
        if name not in self.names:
            raise ValueError(f'Please create virtual host "{name}" prior to importing definitions.')
        return name

    def there(self, name: str) -> Any:
        """The vhost, when something of it is changed. Raises NotFound: it was deleted since it was
        planned, and the next one of its name would have what was meant for it."""
        vhost = self._broker.vhosts.get(name)
        if vhost is None:
            raise NotFound(f"vhost '{name}' was deleted meanwhile")
        return vhost

    def vhost_limits(self, row: Row, vhost: str, value: Any) -> None:
        if value == []:
            value = {}
        fault = limits_fault(value)
        if fault is not None:
            raise ValueError(fault)
        if not self._plan.is_new(row, (LIMITS, vhost), value):
            return
        named = {"component": LIMITS, "vhost": vhost, "name": "limits"}
        self.limits[vhost] = value
        parameters = self._broker.access.parameters
        old = parameters.vhost_limits.get(vhost)
        kept = {name: limit for name, limit in value.items() if limit >= 0}

        def put(limits: dict[str, int]) -> None:
            for name in VHOST_LIMITS:
                parameters.put_vhost_limit(vhost, name, limits.get(name))

        def do() -> Undo:
            self.there(vhost)
            was = dict(parameters.vhost_limits.get(vhost, {}))
            put(kept)
            return lambda: put(was)

        before = {"value": old} if old is not None else None
        if old is None and not kept:
            before = {"value": {}}
        self._plan.change(row._replace(fields=named), before, {"value": kept}, do)


def _take_back_vhost(broker: Any, name: str) -> None:
    vhost = broker.definitions.remove_vhost(name)
    broker.access.forget_vhost(name)
    policies = broker.policies.forget_vhost(name)
    broker.emit("vhost.deleted", {"name": name})
    for _ in itertools.chain(vhost.delete(), policies):
        pass
