"""Which links an exchange or a queue has: what its policies name, among the upstreams of its
virtual host."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from broker.access import Parameter
from broker.access.patterns import BadPattern, Pattern
from broker.access.sealing import UNREADABLE
from broker.schema import upstream_keys
from broker.schema.upstream_keys import ALL, UPSTREAM, UPSTREAM_PATTERN, UPSTREAM_SET

EXCHANGE, QUEUE = "exchange", "queue"


class Link(NamedTuple):
    """One link. `object` is the exchange or queue of the upstream, `value` every key with the
    value that holds."""

    vhost: str
    kind: str
    name: str
    upstream: str
    object: str
    value: dict[str, Any]
    owner: str | None
    policy: str
    fault: str | None

    @property
    def id(self) -> str:
        """Names the link: the same after a change of its keys, and over restarts."""
        named = "\0".join((self.vhost, self.kind, self.name, self.upstream, self.object))
        return hashlib.blake2b(named.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()


class Upstreams:
    """The upstreams and sets of one virtual host."""

    def __init__(self, parameters: Iterator[Parameter]) -> None:
        self._upstreams: dict[str, Parameter] = {}
        self._sets: dict[str, Parameter] = {}
        for row in parameters:
            if row.component == UPSTREAM:
                self._upstreams[row.name] = row
            elif row.component == UPSTREAM_SET:
                self._sets[row.name] = row

    def named_by(
        self, definition: Mapping[str, Any]
    ) -> Iterator[tuple[Parameter, Mapping[str, Any]]]:
        """The upstreams that a policy's definition asks for, each with what an entry of a set says
        otherwise. A name without an upstream is left out, as it may be defined later."""
        wanted = definition.get(UPSTREAM)
        if wanted in self._upstreams:
            yield self._upstreams[wanted], {}
        wanted = definition.get(UPSTREAM_SET)
        if wanted == ALL:
            for row in self._upstreams.values():
                yield row, {}
        elif wanted in self._sets and isinstance(self._sets[wanted].value, list):
            for entry in self._sets[wanted].value:
                if entry.get("upstream") in self._upstreams:
                    yield self._upstreams[entry["upstream"]], entry
        wanted = definition.get(UPSTREAM_PATTERN)
        if wanted is not None:
            try:
                pattern = Pattern(wanted or "(?:)")
            except BadPattern:
                return
            for name, row in self._upstreams.items():
                if pattern.matches(name):
                    yield row, {}


def links_of(
    upstreams: Upstreams, vhost: str, kind: str, name: str, in_force: Any
) -> dict[str, Link]:
    """The links of one object by id. `in_force`: the policies it is under (`InForce`) or None."""
    found: dict[str, Link] = {}
    if in_force is None or not any(key in in_force.definition for key in upstream_keys.POLICY_KEYS):
        return found
    for row, entry in upstreams.named_by(in_force.definition):
        wrong = UNREADABLE if row.sealed else upstream_keys.fault(row.name, row.value)
        value = upstream_keys.settled(row.value, entry) if wrong is None else {}
        link = Link(
            vhost,
            kind,
            name,
            row.name,
            value.get(kind) or name,
            value,
            row.owner,
            in_force.name or in_force.operator_name or "",
            wrong,
        )
        found[link.id] = link
    return found
