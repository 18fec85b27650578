"""One link of federation as it is to run: what the broker ordered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from broker.schema import shovel_keys
from management.bridges.plan import Plan

QUEUE = "queue"
SUFFIXES = ("A", "B", "C")
"""Of the internal exchanges: a link that begins fills a new one beside the one that is in use."""


@dataclass(frozen=True)
class LinkPlan:
    """A link. `object` is the exchange or queue of the upstream, `value` has every key of the table
    of upstreams, `declared` is what the upstream's has to be; `cluster` is the name by which others
    know this broker."""

    id: str
    generation: int
    vhost: str
    kind: str
    name: str
    upstream: str
    object: str
    policy: str
    owner: str | None
    on_behalf_of: dict[str, str]
    impersonates: bool
    value: dict[str, Any]
    fault: str | None
    tag: str
    declared: dict[str, Any]
    cluster: str

    @classmethod
    def of(cls, order: dict[str, Any], cluster: str) -> LinkPlan:
        """From one of the orders of the broker."""
        known = {key: item for key, item in order.items() if key in cls.__annotations__}
        return cls(**known, cluster=cluster)

    @property
    def uris(self) -> list[str]:
        return shovel_keys.uris(self.value["uri"])

    @property
    def place(self) -> tuple[Any, ...]:
        """What decides which queue a link has at the upstream, and with which arguments."""
        return (tuple(self.uris), self.cluster, *self.queue_arguments.items()) if self.value else ()

    @property
    def cleans_up(self) -> bool:
        """Whether queue and exchange at the upstream go with the link."""
        return self.kind != QUEUE and self.value.get("resource-cleanup-mode") == "default"

    def upstream_queue(self, upstream_vhost: str) -> str:
        """Name of the queue at the upstream, as RabbitMQ makes it."""
        if upstream_vhost != self.vhost:
            down = f":{self.vhost}:{self.name}"
        else:
            down = f":{self.name}" if self.object != self.name else ""
        return f"federation: {self.object} -> {self.cluster}{down}"

    @property
    def queue_arguments(self) -> dict[str, Any]:
        """Arguments of that queue."""
        found = {"x-internal-purpose": "federation"}
        for key in ("expires", "message-ttl", "ha-policy", "queue-type"):
            if self.value.get(key) is not None:
                found[f"x-{key}"] = self.value[key]
        return found

    def carried_as(self) -> Plan:
        """What the carrier of a shovel needs to know."""
        target = (
            {"dest-exchange": "", "dest-exchange-key": self.name}
            if self.kind == QUEUE
            else {"dest-exchange": self.name}
        )
        given = {
            "src-uri": self.value["uri"],
            "src-prefetch-count": self.value["prefetch-count"],
            "dest-uri": "amqp://",
            "ack-mode": self.value["ack-mode"],
            "on-refused": "hold",
            **target,
        }
        return Plan(
            vhost=self.vhost,
            name=self.id,
            generation=self.generation,
            owner=self.owner,
            given=shovel_keys.settled(given),
            on_behalf_of=self.on_behalf_of,
            label=f"Federation link (upstream: {self.upstream}, policy: {self.policy})",
        )
