"""What an import would do: every row checked against what is there and what the document brings.

Nothing is changed here. A row is well-formed or the plan ends with Fault; what is well-formed and
has no counterpart here is left out and listed. `steps` carries the rest out (`applying`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from broker.access import BadSetting
from broker.access.secrets import without_secrets
from broker.definitions import document
from broker.definitions.document import Fault, LeftOut, Row, Sections
from broker.definitions.settings import Settings
from broker.definitions.tenants import Tenants
from broker.definitions.topology import Topology
from broker.definitions.users import Password, Users
from broker.schema.errors import AMQPError

Undo = Callable[[], None]


_AT_ONCE = 10
"""Rows that are given up in a step."""


class Step(NamedTuple):
    """One change. `do()` makes it and gives back what takes it back."""

    section: str
    named: dict[str, Any]
    do: Callable[[], Undo]


class Plan:
    """One import. `only` is the vhost that a document of one vhost goes to; `dry`: only to find out
    what it would do."""

    def __init__(
        self, broker: Any, only: str | None = None, *, dry: bool = False, owner: str = ""
    ) -> None:
        self.broker = broker
        self.only = only
        self.dry = dry
        self.owner = owner
        """Who imports, in whose name new shovels run; "" is the appliance itself."""
        self.steps: list[Step] = []
        self.made = 0
        """How many of the steps were carried out."""
        self.passwords: list[Password] = []
        self.left_out: list[dict[str, Any]] = []
        self.inactive: list[dict[str, Any]] = []
        """What is stored and does not run."""
        self.difference: list[dict[str, Any]] = []
        """Each change, where it is a dry run."""
        self.counts: dict[str, dict[str, int]] = {}
        self.swept: set[str] = set()
        """Vhosts whose policies change."""
        self._seen: dict[tuple[Hashable, ...], Mapping[str, Any]] = {}
        self._more: dict[tuple[str, str], int] = {}
        self.tenants = Tenants(self)
        self.users = Users(self)
        self.topology = Topology(self)
        settings = Settings(self)
        self._readers: dict[str, Callable[[Row], None]] = {
            "users": self.users.user,
            "vhosts": self.tenants.vhost,
            "permissions": self.users.permission,
            "topic_permissions": self.users.topic_permission,
            "parameters": settings.parameter,
            "global_parameters": settings.global_parameter,
            "policies": settings.policy,
            "operator_policies": settings.operator_policy,
            "exchanges": self.topology.exchange,
            "queues": self.topology.queue,
            "bindings": self.topology.binding,
        }

    def let_go(self) -> Iterator[None]:
        """Gives up all that refers back to the plan, a part a step; what came of it stays. Else it
        would be garbage in a circle, which a busy broker keeps for hours
        (`broker.process.garbage`)."""
        for things in (self._seen, *self.topology.kept()):
            take = things.popitem if isinstance(things, dict) else things.pop
            while things:
                for _ in range(min(_AT_ONCE, len(things))):
                    take()
                yield
        while self.steps:
            del self.steps[-_AT_ONCE:]
            yield
        self._readers.clear()
        self.passwords.clear()
        del self.tenants, self.users, self.topology

    def read(self, members: Mapping[str, Any]) -> Iterator[None]:
        """Checks a document, a row a step. Raises Fault."""
        for name in document.unknown(members):
            self.left_out.append({"section": name, "reason": "there is no such section here"})
        found: Sections = document.sections(members)
        self.tenants.announce(found)
        for section, rows in found.items():
            for place, fields in enumerate(rows):
                if not isinstance(fields, dict):
                    raise Fault(f"definitions: {section}[{place}] is not an object")
                if self.only is not None and section not in document.OF_THE_NODE:
                    fields = {**fields, "vhost": self.only}
                row = Row(section, place, fields)
                if self.only is not None and section in document.OF_THE_NODE:
                    self.leave_out(row, "it is not part of one virtual host's definitions")
                else:
                    self._read(row)
                yield
        try:
            self.topology.check_limits()
        except ValueError as error:
            raise Fault(f"definitions: {error}") from None

    def _read(self, row: Row) -> None:
        try:
            self._readers[row.section](row)
        except LeftOut as error:
            self.leave_out(row, str(error))
        except AMQPError as error:
            raise Fault(f"{row.where}: {error.text}") from None
        except (ValueError, BadSetting) as error:
            raise Fault(f"{row.where}: {error}") from None

    # For the readers.

    def leave_out(self, row: Row, reason: str, **part: Any) -> None:
        """Lists an object, or with `part` a part of one, that is left out."""
        listed = {"section": row.section, "place": row.place, **row.named(), **part}
        self.left_out.append({**listed, "reason": reason})

    def is_new(self, row: Row, key: tuple[Hashable, ...], content: Mapping[str, Any]) -> bool:
        """Whether an object was not in the document before. Raises ValueError where it was, with
        another content."""
        before = self._seen.setdefault((row.section, *key), content)
        if before is content:
            return True
        if before != content:
            raise ValueError("it is in the document twice, with different contents")
        return False

    def check_room(self, kind: str, vhost: str, there: int, most: int) -> None:
        """Counts one more object of a kind, such as `queues`, where there are `there` already.
        Raises ValueError where the settings allow no more: before anything is changed, since
        removing them again would block the event loop."""
        count = self._more[kind, vhost] = self._more.get((kind, vhost), 0) + 1
        if there + count > most:
            raise ValueError(
                f"virtual host '{vhost}' would have more than {most} {kind.replace('_', ' ')} "
                f"({kind.split('_')[-1]}_max); it has {there}"
            )

    def check_argument_room(self, vhost: str, there: int, more: int) -> None:
        """Counts the memory of one more object's arguments, where those that are there take so much
        already. Raises ValueError where they would take more than the settings allow."""
        count = self._more["arguments", vhost] = self._more.get(("arguments", vhost), 0) + more
        most = self.broker.config.arguments_max
        if more and there + count > most:
            raise ValueError(
                f"the arguments of queues, exchanges and bindings in virtual host '{vhost}' would "
                f"take more than {most} bytes of memory (arguments_max); those that are there take "
                f"{there}"
            )

    def change(
        self,
        row: Row,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any],
        do: Callable[[], Undo],
    ) -> bool:
        """Plans a change, if it is one; whether it is. `before` is None for a new object."""
        counts = self.counts.setdefault(row.section, {"created": 0, "changed": 0, "unchanged": 0})
        if before is not None:
            changed = {name for name in after if before.get(name) != after[name]}
            if not changed:
                counts["unchanged"] += 1
                return False
        counts["created" if before is None else "changed"] += 1
        if self.dry:
            entry = {"section": row.section, **row.named()}
            if before is None:
                entry.update(action="create", after=_shown(after, after))
            else:
                entry.update(
                    action="change", before=_shown(before, changed), after=_shown(after, changed)
                )
            self.difference.append(entry)
        self.steps.append(Step(row.section, row.named(), do))
        return True


def _shown(values: Mapping[str, Any], names: Any) -> dict[str, Any]:
    return {name: without_secrets(values[name]) for name in values if name in names}
