"""Definitions that go out: all there is, or what another broker can read of it.

What is left out is listed in `omitted`, never in the document.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from broker.access.passwords import SHA256
from broker.access.secrets import without_secrets
from broker.definitions.targets import DELAYED, Target
from broker.kernel.reached import Reached
from broker.kernel.through import Through, long_list
from broker.schema.message_history import HISTORY
from broker.schema.times import Timestamp
from broker.vhosts.policies import Policy

if TYPE_CHECKING:
    from broker.kernel.wide_dict import WideDict
    from broker.queues.types import MessageQueue
    from broker.vhosts.vhost import VHost

_Row = dict[str, Any]

_FEW = 1_000

_STEP = 100

SECTIONS = ("parameters", "policies", "queues", "exchanges", "bindings")
OF_THE_NODE = ("users", "vhosts", "permissions", "topic_permissions", "global_parameters")

NOT_UTF8 = "its name is not UTF-8, which JSON cannot carry"
NO_JSON = "a value has a type of AMQP that JSON does not have"


class Export:
    """One export. `vhosts` are those it covers, `scoped` whether it is that of one. `target` is
    None for Leveret itself. The sections fill `omitted` and `plugins` while they are read."""

    def __init__(
        self,
        broker: Any,
        vhosts: list[Any],
        *,
        scoped: bool,
        target: Target | None,
        secrets: bool,
    ) -> None:
        self._broker = broker
        self._vhosts = vhosts
        self._scoped = scoped
        self._target = target
        self._secrets = secrets
        self.omitted: list[_Row] = long_list()
        self.plugins: Counter[str] = Counter()
        """What the other broker needs, and for how many objects."""
        self._gone, self._there = Reached(), Reached()
        """Queues and exchanges that are left out, and those that are in the document."""

    def sections(self) -> list[tuple[str, Iterator[_Row | None]]]:
        """In an order in which what leans on something comes behind it."""
        readers: dict[str, Callable[[], Iterator[_Row | None]]] = {
            "users": self._users,
            "vhosts": self._vhost_rows,
            "permissions": self._permissions,
            "topic_permissions": self._topic_permissions,
            "global_parameters": self._global_parameters,
            "parameters": self._parameters,
            "policies": self._policies,
            "queues": self._queues,
            "exchanges": self._exchanges,
            "bindings": self._bindings,
        }
        names = SECTIONS if self._scoped else (*OF_THE_NODE, *SECTIONS)
        return [(name, self._checked(name, readers[name]())) for name in names]

    def give_up(self) -> Iterator[None]:
        """Lets go of what it holds, in steps: it may be of 250,000 queues."""
        for things in (self._gone, self._there):
            while things.let_some_go(_STEP):
                yield
        while self.omitted:
            del self.omitted[-_STEP:]
            yield

    def _checked(self, section: str, rows: Iterator[_Row | None]) -> Iterator[_Row | None]:
        for row in rows:
            if self._scoped and row is not None:
                row.pop("vhost", None)
            yield row

    def _omit(self, section: str, reason: str, **named: Any) -> None:
        self.omitted.append({"section": section, **named, "reason": reason})

    # -- of the node -------------------------------------------------------------------------------

    def _users(self) -> Iterator[_Row | None]:
        target = self._target
        for user in list(self._broker.access.users.values()):
            named = {"name": user.name}
            if not _is_text(user.name):
                self._omit("users", NOT_UTF8, name=_printable(user.name))
                yield None
                continue
            row = {
                "name": user.name,
                "password_hash": user.password_hash,
                "hashing_algorithm": user.hashing_algorithm,
                "tags": list(user.tags),
                "limits": dict(user.limits),
            }
            if target is not None:
                if user.password_hash and user.hashing_algorithm not in target.hashes:
                    row["password_hash"] = ""
                    self._omit(
                        "users",
                        f"a hash of {user.hashing_algorithm} cannot be read there: give the user "
                        "a password there; one that it has there already is taken away",
                        **named,
                        part="password_hash",
                    )
                if not row["password_hash"]:
                    row["hashing_algorithm"] = SHA256
                if user.limits and not target.user_limits:
                    self._omit("users", "there are no such limits there", **named, part="limits")
                    row["limits"] = {}
                if target.tags is not None and not target.tags.issuperset(user.tags):
                    row["tags"] = [tag for tag in user.tags if tag in target.tags]
                    others = ", ".join(tag for tag in user.tags if tag not in target.tags)
                    self._omit("users", f"unknown there: {others}", **named, part="tags")
            yield row

    def _vhost_rows(self) -> Iterator[_Row | None]:
        for vhost in self._vhosts:
            metadata = {
                "description": vhost.description,
                "tags": vhost.tags,
                "default_queue_type": vhost.default_queue_type,
            }
            if vhost.protected_from_deletion:
                metadata["protected_from_deletion"] = True
            target = self._target
            if target is not None and not target.vhost_properties:
                for part, plain in (
                    ("description", ""), ("tags", []), ("default_queue_type", "classic"),
                    ("protected_from_deletion", False),
                ):  # fmt: skip
                    if metadata.get(part, plain) != plain:
                        self._omit("vhosts", "not read there", name=vhost.name, part=part)
            yield {"name": vhost.name, **metadata, "metadata": metadata}

    def _permissions(self) -> Iterator[_Row | None]:
        for row in list(self._broker.access.permissions.values()):
            yield msgspec.to_builtins(row)

    def _topic_permissions(self) -> Iterator[_Row | None]:
        for row in list(self._broker.access.topic_permissions.values()):
            found: _Row = msgspec.to_builtins(row)
            if self._target is not None and not self._target.topic_permissions:
                named = {name: found[name] for name in ("user", "vhost", "exchange")}
                self._omit("topic_permissions", "there are none there", **named)
                yield None
            else:
                yield found

    def _global_parameters(self) -> Iterator[_Row | None]:
        for name, value in list(self._broker.access.global_parameters.items()):
            yield {"name": name, "value": self._value("global_parameters", value, name=name)}

    def _value(self, section: str, value: Any, **named: Any) -> Any:
        if self._secrets:
            return value
        shown = without_secrets(value)
        if shown is not value:
            reason = "its secrets are left out; secrets=true exports them"
            self._omit(section, reason, **named, part="value")
        return shown

    # -- parameters and policies -------------------------------------------------------------------

    def _covered(self, vhost: str) -> bool:
        return any(each.name == vhost for each in self._vhosts)

    def _parameters(self) -> Iterator[_Row | None]:
        target = self._target
        for parameter in list(self._broker.access.parameters.all()):
            if not self._covered(parameter.vhost):
                yield None
                continue
            named = {
                "component": parameter.component,
                "vhost": parameter.vhost,
                "name": parameter.name,
            }
            if target is not None and target.components is not None:
                if parameter.component not in target.components:
                    self._omit("parameters", "there is no such component there", **named)
                    yield None
                    continue
                self._need(parameter.component)
            elif target is not None and not isinstance(parameter.value, dict):
                self._omit("parameters", "its value is not an object", **named)
                yield None
                continue
            yield {**named, "value": self._value("parameters", parameter.value, **named)}
        for policy in self._broker.policies.all(operator=True):
            row = self._policy("parameters", policy, operator=True)
            # RabbitMQ writes operator policies among the parameters.
            yield (
                None
                if row is None
                else {
                    "component": "operator_policy",
                    "vhost": row.pop("vhost"),
                    "name": row.pop("name"),
                    "value": row,
                }
            )

    def _policies(self) -> Iterator[_Row | None]:
        for policy in self._broker.policies.all():
            yield self._policy("policies", policy, operator=False)

    def _policy(self, section: str, policy: Policy, *, operator: bool) -> _Row | None:
        if not self._covered(policy.vhost):
            return None
        row: _Row = msgspec.to_builtins(policy)
        target = self._target
        if target is None:
            return row
        named = {"vhost": policy.vhost, "name": policy.name}
        if policy.apply_to not in target.apply_to:
            self._omit(section, f"there is no apply-to '{policy.apply_to}' there", **named)
            return None
        if not -target.priority_most - 1 <= policy.priority <= target.priority_most:
            self._omit(section, f"its priority is above {target.priority_most}", **named)
            return None
        keys = target.operator_keys if operator else target.policy_keys
        kept = {}
        for key, value in policy.definition.items():
            fits = target.values.get(key)
            if key not in keys:
                self._omit(section, "no such key there", **named, part=f"definition.{key}")
            elif fits is not None and not fits(value):
                self._omit(section, "no such value there", **named, part=f"definition.{key}")
            else:
                self._need(key)
                kept[key] = value
        if not kept:
            self._omit(section, "nothing of its definition can be read there", **named)
            return None
        return {**row, "definition": kept}

    def _need(self, name: str) -> None:
        assert self._target is not None
        plugin = self._target.plugins.get(name)
        if plugin is not None:
            self.plugins[plugin] += 1

    # -- queues, exchanges, bindings ---------------------------------------------------------------

    def _queues(self) -> Iterator[_Row | None]:
        for vhost in self._vhosts:
            for queue in _in_order(vhost.queues):
                row = None if queue is None or _is_own(queue) else self._queue(vhost, queue)
                if row is not None:
                    self._there.add(queue)
                yield row

    def _queue(self, vhost: VHost, queue: MessageQueue) -> _Row | None:
        target = self._target
        reason = None
        if not _is_text(queue.name):
            reason = NOT_UTF8
        elif target is not None and queue.name.startswith("amq.") and not target.server_names:
            reason = "queues whose names begin with amq. are not imported there"
        elif target is not None and not queue.durable and not target.transient_queues:
            reason = (
                "a transient queue that is not exclusive is refused there, unless "
                "deprecated_features.permit.transient_nonexcl_queues is set"
            )
        if reason is not None:
            self._leave(vhost, "queue", queue, reason)
            return None
        arguments = self._arguments("queues", vhost, queue)
        kind = queue.type
        if target is not None and target.arguments:
            arguments = self._queue_arguments(vhost, queue, arguments)
            if vhost.default_queue_type != "classic" and "x-queue-type" not in arguments:
                # There the vhost's default type would be taken.
                arguments = {**arguments, "x-queue-type": kind}
        row = {
            "name": queue.name,
            "vhost": vhost.name,
            "durable": queue.durable,
            "auto_delete": queue.auto_delete,
            "arguments": arguments,
        }
        if target is not None and target.queue_type_beside:
            row["type"] = kind
        return row

    def _queue_arguments(
        self, vhost: VHost, queue: MessageQueue, arguments: Mapping[str, Any]
    ) -> _Row:
        """Without those that the other broker refuses for the queue's type or value."""
        assert self._target is not None
        of_type = self._target.arguments[queue.type]
        known = frozenset().union(*self._target.arguments.values())
        kept = {}
        for name, value in arguments.items():
            fits = self._target.values.get(name)
            if name in known and name not in of_type:
                reason = f"not for queues of type {queue.type} there"
            elif fits is not None and not fits(value):
                reason = "no such value there"
            else:
                kept[name] = value
                continue
            self._omit(
                "queues", reason, vhost=vhost.name, name=queue.name, part=f"arguments.{name}"
            )
        return kept

    def _exchanges(self) -> Iterator[_Row | None]:
        target = self._target
        for vhost in self._vhosts:
            for exchange in Through(vhost.exchanges.values()):
                name = exchange.name
                if not name or name.startswith("amq."):
                    self._there.add(exchange)
                    yield None
                    continue
                reason = None
                if not _is_text(name):
                    reason = NOT_UTF8
                elif target is not None and exchange.type not in target.exchange_types:
                    reason = f"there is no exchange type '{exchange.type}' there"
                elif target is not None:
                    inner = exchange.arguments.get("x-delayed-type")
                    if exchange.type == DELAYED and inner not in target.exchange_types:
                        reason = f"there is no exchange type '{inner}' there"
                if reason is not None:
                    self._leave(vhost, "exchange", exchange, reason)
                    yield None
                    continue
                if target is not None:
                    self._need(exchange.type)
                self._there.add(exchange)
                yield {
                    "name": name,
                    "vhost": vhost.name,
                    "type": exchange.type,
                    "durable": exchange.durable,
                    "auto_delete": exchange.auto_delete,
                    "internal": exchange.internal,
                    "arguments": self._arguments("exchanges", vhost, exchange),
                }

    def _bindings(self) -> Iterator[_Row | None]:
        for vhost in self._vhosts:
            for exchange in Through(vhost.exchanges.values()):
                if not exchange.name:
                    continue
                for binding in vhost.bindings(source=exchange.name):
                    row = {**binding.facts(), "vhost": vhost.name}
                    reason = self._binding_fault(vhost, binding)
                    if reason is None:
                        yield row if self._is_shown(vhost, binding) else None
                        continue
                    if not _is_exclusive(vhost, binding):
                        del row["arguments"]
                        self._omit("bindings", reason, **_printable_row(row))
                    yield None

    def _is_shown(self, vhost: VHost, binding: Any) -> bool:
        """Whether both ends are in the document: queues that are exclusive are not, nor is what
        came while the document was read."""
        return all(thing in self._there for _, _, thing in _ends(vhost, binding))

    def _binding_fault(self, vhost: VHost, binding: Any) -> str | None:
        for kind, name, thing in _ends(vhost, binding):
            if thing in self._gone:
                return f"its {kind} '{_printable(name)}' is left out"
        if not _is_text(binding.routing_key):
            return "its routing key is not UTF-8, which JSON cannot carry"
        return None if _is_json(binding.arguments) else NO_JSON

    def _leave(self, vhost: VHost, kind: str, thing: Any, reason: str) -> None:
        self._gone.add(thing)
        self._omit(f"{kind}s", reason, vhost=vhost.name, name=_printable(thing.name))

    def _arguments(self, section: str, vhost: VHost, thing: Any) -> Mapping[str, Any]:
        """The arguments that JSON can carry."""
        arguments: Mapping[str, Any] = thing.arguments
        if _is_json(arguments):
            return arguments
        kept = {}
        for name, value in arguments.items():
            if _is_text(name) and _is_json(value):
                kept[name] = value
            else:
                part = f"arguments.{_printable(name)}"
                self._omit(section, NO_JSON, vhost=vhost.name, name=thing.name, part=part)
        return kept


def _ends(vhost: VHost, binding: Any) -> Iterator[tuple[str, str, Any]]:
    """Kind, name and object of the binding's source and of what it leads to; the object is None if
    it is not there any more."""
    yield "exchange", binding.source, vhost.exchanges.get(binding.source)
    kind, name = binding.destination_type, binding.destination
    yield kind, name, (vhost.queues if kind == "queue" else vhost.exchanges).get(name)


def _is_exclusive(vhost: VHost, binding: Any) -> bool:
    queue = vhost.queues.get(binding.destination)
    return binding.destination_type == "queue" and queue is not None and queue.exclusive


def _in_order(queues: WideDict[str, MessageQueue]) -> Iterator[MessageQueue | None]:
    """Few queues as they were declared, many by their names: a large `WideDict` has another order
    after each start, and two exports of the same queues are to be alike. None: a step is done."""
    if len(queues) <= _FEW:
        yield from Through(queues.values())
        return
    walk, runs = Through(queues.values()), []
    while some := walk.piece(_FEW):
        runs.append(Through(sorted([queue.name for queue in some])))
        yield None
    for name in heapq.merge(*runs):
        queue = queues.get(name)
        if queue is not None:
            yield queue


def _is_own(queue: MessageQueue) -> bool:
    """Whether it is no definition: it belongs to a connection or to the broker, or goes."""
    return queue.exclusive or queue.deleted or queue.name == HISTORY


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _printable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _printable_row(row: _Row) -> _Row:
    return {
        name: _printable(value) if isinstance(value, str) else value for name, value in row.items()
    }


def _is_json(value: Any) -> bool:
    """Whether JSON gives a value back as it was."""
    if isinstance(value, Timestamp):
        return False
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return type(value) is str and _is_text(value)
    if isinstance(value, dict):
        return all(_is_text(name) and _is_json(item) for name, item in value.items())
    if isinstance(value, list):
        return all(_is_json(item) for item in value)
    return value is None or isinstance(value, int)
