"""What is kept of a transfer over restarts, in `transfers.json` (docs/formats/transfers.md)."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

FILE = "transfers.json"

State = Literal["waiting", "running", "blocked", "paused", "finished", "stopped", "failed"]
STATES: tuple[State, ...] = get_args(State)
UNFINISHED = frozenset({"waiting", "running", "blocked", "paused"})


class Transfer(msgspec.Struct, kw_only=True):
    """One transfer. Times are ms of the broker's clock."""

    id: int
    user: str | None
    """Who asked for it; None is the appliance itself."""
    mode: Literal["move", "copy", "replay"]
    source_vhost: str
    source: str
    source_incarnation: int
    target_vhost: str
    target: str
    target_type: Literal["queue", "exchange"]
    routing_key: str | None = None
    """A pattern for routing keys."""
    header: str | None = None
    header_value: str | None = None
    since: int = -1
    until: int = -1
    """Published at this time or later, and before this time; -1 is no limit."""
    limit: int = 0
    rate: int = 0
    """Messages a second at most; 0 is no limit."""
    begin: int = 0
    """Of a stream: the first offset that is handed over."""
    search: str | None = None
    """What the messages of a replay were found by: key and value."""
    record: bool = False
    """Of a replay: it goes into the history of the target, too, where a policy has one."""
    offsets: list[int] | None = None
    """Of such a replay: those that are still to be handed over, in their order."""
    created: int
    ended: int | None = None
    state: State = "waiting"
    reason: str = ""
    ends: list[tuple[int, int]] = []
    """The end of a queue: level of priority -> segment; of a stream: 0 -> offset behind the last
    one."""
    level: int | None = None
    at: int = 0
    """A copy continues here: level, and segment << 32 | position; offset of a stream."""
    doubtful: tuple[int, int] | None = None
    """A copy that a crash ended may have handed over what lies up to here."""
    total: int = 0
    looked: int = 0
    matched: int = 0
    handed_over: int = 0
    handed_over_bytes: int = 0
    refused: int = 0
    unreadable: int = 0
    passed: int = 0
    """Of a stream: offsets without a message, because retention took it or it is damaged."""

    @property
    def is_over(self) -> bool:
        return self.state not in UNFINISHED

    def shown(self) -> dict[str, Any]:
        """The row of the control socket and the API."""
        return {
            "id": self.id,
            "user": self.user,
            "mode": self.mode,
            "source_vhost": self.source_vhost,
            "source": self.source,
            "target_vhost": self.target_vhost,
            "target": self.target,
            "target_type": self.target_type,
            "filter": {
                "routing_key": self.routing_key,
                "header": self.header,
                "value": self.header_value,
                "since": self.since if self.since >= 0 else None,
                "until": self.until if self.until >= 0 else None,
            },
            "limit": self.limit,
            "rate": self.rate,
            "search": self.search,
            "record": self.record,
            **self._range(),
            "created": self.created,
            "ended": self.ended,
            "state": self.state,
            "reason": self.reason,
            "total": self.total,
            "looked": self.looked,
            "matched": self.matched,
            "handed_over": self.handed_over,
            "handed_over_bytes": self.handed_over_bytes,
            "refused": self.refused,
            "unreadable": self.unreadable,
            "passed": self.passed,
            "left": 0
            if self.state == "finished"
            else max(0, self.total - self.looked - self.passed),
        }

    def _range(self) -> dict[str, Any]:
        """The offsets of a replay; null for queues."""
        is_replay = self.mode == "replay"
        return {
            "first_offset": self.begin if is_replay else None,
            "last_offset": dict(self.ends).get(0, 0) - 1 if is_replay else None,
        }


class TransfersFile(msgspec.Struct):
    """The whole file, oldest first."""

    last_id: int = 0
    transfers: list[Transfer] = []
