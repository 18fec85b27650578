"""The history of one vhost: what is recorded in it, and the stream that holds the records."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from broker.features.history.book import OFF, Book
from broker.features.history.recording import ChannelRecording
from broker.kernel.recording import EVENT_DELETED
from broker.schema.index_keys import KEYS_MOST, keys_of
from broker.schema.message_history import HISTORY, LEVELS, PLACE_KEY, place_of, queue_part
from broker.schema.times import age_ms

if TYPE_CHECKING:
    from broker.vhosts.policies import InForce
    from broker.vhosts.vhost import VHost

log = logging.getLogger("leveret.history")

RETENTION = "x-max-age"
KEYS = "x-stream-index"


class VHostHistory:
    """`retention` is how long records stay where no policy says so, such as 7D; `book` what is
    recorded."""

    def __init__(self, vhost: VHost, retention: str, book: Book) -> None:
        self.book = book
        self._vhost = vhost
        self._retention = retention
        self._under: dict[Any, InForce] = {}
        self._policies: Counter[InForce] = Counter()
        self.left_out: list[str] = []
        """Keys that policies name and that the history is not indexed by: there are too many."""
        vhost.recorder.begin = lambda user, connection: ChannelRecording(
            self.book, user, connection
        )

    def configure(self, owner: Any, in_force: InForce | None) -> None:
        """An exchange or a queue is under these policies now."""
        definition = in_force.definition if in_force is not None else {}
        level = LEVELS.index(definition.get("history", "off"))
        self.book.set_level(owner, level)
        if hasattr(owner, "observer"):
            self.book.observe(owner, level != OFF and definition.get("history-events") is True)
        self._move(owner, in_force if level != OFF else None)

    @property
    def keeps_events(self) -> bool:
        """Whether a policy wants them."""
        return any(each.definition.get("history-events") is True for each in self._policies)

    def forget(self, owner: Any) -> None:
        """An exchange or a queue is deleted."""
        self.book.forget_ways()
        if getattr(owner, "observer", None) is not None:
            self.book.observe(owner, False)
            place = queue_part(place_of(owner.incarnation, 0))
            self.book.add_event(EVENT_DELETED, place, owner.name)
        self.book.set_level(owner, OFF)
        self._move(owner, None)

    def _move(self, owner: Any, after: InForce | None) -> None:
        """Notes under which policies an object is recorded; the stream follows the first object
        that comes under some, and the last that leaves them."""
        before = self._under.pop(owner, None)
        if after is not None:
            self._under[owner] = after
        if before is after:
            return
        is_other = False
        if before is not None:
            self._policies[before] -= 1
            if not self._policies[before]:
                del self._policies[before]
                is_other = True
        if after is not None:
            self._policies[after] += 1
            is_other |= self._policies[after] == 1
        if is_other:
            self.renew()

    def renew(self) -> None:
        """Brings the stream to what the policies say now, and turns recording on or off. The
        stream of a time when something was recorded stays, with its records."""
        is_on = bool(self._policies)
        self.left_out = []
        stream: Any = self._vhost.queues.get(HISTORY)
        if is_on:
            if stream is None and self._vhost.recovering:
                # Made when the vhost starts.
                return
            arguments = self._arguments()
            if stream is None:
                stream = self._vhost.declare_own(HISTORY, arguments)
            elif stream.arguments != arguments:
                self._vhost.set_arguments(stream, arguments)
        self.book.stream = stream
        self._vhost.recorder.on = is_on

    def problem(self) -> str:
        """Which keys are left out, as a sentence; empty: none is."""
        if not self.left_out:
            return ""
        count = KEYS_MOST + len(self.left_out)
        return (
            f"the policies of vhost '{self._vhost.name}' name {count} keys "
            f"for its history: it is indexed by the first {KEYS_MOST}, without "
            + ", ".join(self.left_out)
        )

    def _arguments(self) -> dict[str, Any]:
        """Of the stream: the keys of all policies together, and the longest time of any."""
        names: dict[str, None] = {}
        ages = []
        if self.keeps_events:
            names[PLACE_KEY] = None
        for in_force in self._policies:
            names.update(dict.fromkeys(keys_of(in_force.definition.get("history-keys"))))
            ages.append(in_force.definition.get("history-retention", self._retention))
        longest = max(ages, key=lambda age: age_ms(age) or 0)
        arguments = {"x-queue-type": "stream", RETENTION: longest}
        self.left_out = list(names)[KEYS_MOST:]
        if self.left_out:
            log.warning("%s", self.problem())
        if names:
            arguments[KEYS] = ",".join(list(names)[:KEYS_MOST])
        return arguments
