"""One shovel as it is to run: what the broker ordered, with defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from broker.schema import shovel_keys


class ShovelFailed(Exception):
    """An attempt cannot go on; the text says why, without secrets. `stops`: another try does not
    help before something is changed here. `step`: which part of connecting it was: name, address,
    connection, TLS, login or virtual host."""

    def __init__(self, reason: str, *, stops: bool = False, step: str = "connection") -> None:
        super().__init__(reason)
        self.reason = reason
        self.stops = stops
        self.step = step


@dataclass(frozen=True)
class Plan:
    """A shovel's definition. `given` has every key of the table; `on_behalf_of` is the client
    property that its connections carry (`broker.access.behalf`)."""

    vhost: str
    name: str
    generation: int
    owner: str | None
    given: dict[str, Any]
    on_behalf_of: dict[str, str] = field(default_factory=dict)
    label: str = ""
    """Name of its connections, where it is not that of a shovel."""

    @classmethod
    def of(cls, order: dict[str, Any]) -> Plan:
        """From one of the orders of the broker."""
        return cls(
            vhost=order["vhost"],
            name=order.get("name", ""),
            generation=order.get("generation", 0),
            owner=order["owner"],
            given=shovel_keys.settled(order["value"]),
            on_behalf_of=order["on_behalf_of"],
        )

    def uris(self, key: str) -> list[str]:
        return shovel_keys.uris(self.given[key])

    @property
    def is_web(self) -> bool:
        """Whether messages go out over HTTP."""
        return self.uris("dest-uri")[0].startswith(("http:", "https:"))

    @property
    def confirms(self) -> bool:
        return bool(self.given["ack-mode"] == "on-confirm")

    @property
    def acks(self) -> bool:
        return bool(self.given["ack-mode"] != "no-ack")

    @property
    def prefetch(self) -> int:
        return int(self.given["src-prefetch-count"])


def shortened(text: Any, most: int = 300) -> str:
    """One line of a text from outside."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"
