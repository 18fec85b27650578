"""Compares the journals of publishers and consumers; every message that went wrong is counted.

A message is one (queue, publisher, sequence). At a drained point (all queues read to the end and
acknowledged) these sets must be empty:

lost          confirmed, never delivered
vanished      confirmed and delivered, never acknowledged, and not delivered again
phantom       delivered, never attempted
altered       delivered with other bytes than were published
unflagged     delivered again without the redelivered flag
resurrected   delivered again although its ack was known to be processed
disordered    a publisher's messages in one queue, not in the order they were published in
doubled       delivered twice to one consumer that did not give it back
miscounted    queue.declare-ok told another number than could then be read
broken        the broker's log tells of an error that nobody expected

Allowed and counted: recovered (delivered, never confirmed), redelivered, nacked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.crash.journal import Kind, Record

FAULTS = (
    "lost",
    "vanished",
    "phantom",
    "altered",
    "unflagged",
    "resurrected",
    "disordered",
    "doubled",
    "miscounted",
    "broken",
)
ATTEMPTED, CONFIRMED, DELIVERED, ACK_SENT, ACK_KNOWN = 1, 2, 4, 8, 16


@dataclass
class Verdict:
    """Counts of one check, and the first few faulty messages of each kind."""

    attempted: int = 0
    confirmed: int = 0
    nacked: int = 0
    delivered: int = 0
    redelivered: int = 0
    recovered: int = 0
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether every set that must be empty is empty."""
        return not any(self.faults.values())

    def blame(self, fault: str, text: str) -> None:
        """Counts one fault and keeps it as an example if it is among the first."""
        self.faults[fault] += 1
        examples = self.examples.setdefault(fault, [])
        if len(examples) < 8:
            examples.append(text)

    def __str__(self) -> str:
        text = (
            f"attempted {self.attempted:,}, confirmed {self.confirmed:,}, "
            f"delivered {self.delivered:,}, redelivered {self.redelivered:,}, "
            f"recovered {self.recovered:,}, nacked {self.nacked:,}; "
        )
        text += ", ".join(f"{name} {count}" for name, count in self.faults.items())
        for name, examples in self.examples.items():
            text += f"\n  {name}: " + "; ".join(examples)
        return text


class Checker:
    """Takes journals as they come and judges at each drained point."""

    def __init__(self) -> None:
        self.verdict = Verdict()
        self.states: dict[tuple[int, int], bytearray] = {}
        self.first_deliveries: dict[tuple[int, int], int] = {}
        """Highest sequence delivered for the first time, per queue and publisher."""
        self.judged: dict[tuple[int, int], int] = {}
        """Sequences below this one were judged at an earlier drained point."""
        self.attempted: dict[tuple[int, int], int] = {}
        """One more than the highest sequence attempted."""

    def _state(self, queue: int, publisher: int, sequence: int) -> bytearray:
        states = self.states.setdefault((queue, publisher), bytearray())
        if len(states) <= sequence:
            states.extend(bytes(max(sequence + 1, 2 * len(states)) - len(states)))
        return states

    def publisher_journal(self, records: Iterable[Record]) -> None:
        """Takes what one publisher attempted and what was confirmed to it."""
        routes: dict[tuple[int, int], int] = {}
        for record in records:
            key = (record.publisher, record.sequence)
            if record.kind is Kind.ATTEMPTED:
                self.verdict.attempted += 1
                routes[key] = record.queue
                self._mark(key, record.queue, ATTEMPTED)
            elif record.kind is Kind.CONFIRMED:
                self.verdict.confirmed += 1
                self._mark(key, routes[key], CONFIRMED)
            elif record.kind is Kind.NACKED:
                self.verdict.nacked += 1

    def _mark(self, key: tuple[int, int], queues: int, bit: int) -> None:
        publisher, sequence = key
        queue = 0
        while queues >> queue:
            if queues >> queue & 1:
                self._state(queue, publisher, sequence)[sequence] |= bit
                if sequence >= self.attempted.get((queue, publisher), 0):
                    self.attempted[queue, publisher] = sequence + 1
            queue += 1

    def consumer_journal(self, records: Iterable[Record]) -> None:
        """Takes what one consumer process got and acknowledged. Publishers' journals come first."""
        in_session: dict[tuple[int, int], int] = {}
        given_back: set[int] = set()
        sent: list[Record] = []
        for record in records:
            if record.kind is Kind.SESSION:
                for key in [key for key in in_session if key[0] == record.queue]:
                    del in_session[key]
                given_back.discard(record.queue)
            elif record.kind is Kind.REQUEUED:
                given_back.add(record.queue)
            elif record.kind is Kind.STRANGER:
                self.verdict.blame("phantom", f"queue {record.queue}: not of this run")
            elif record.kind is Kind.DELIVERED:
                # What was given back comes again behind what was on its way: any order is right.
                again = bool(record.flag & 1) and record.queue in given_back
                self._delivered(record, {} if again else in_session)
            elif record.kind is Kind.ACK_SENT:
                sent.append(record)
                states = self._state(record.queue, record.publisher, record.sequence)
                states[record.sequence] |= ACK_SENT
            elif record.kind is Kind.FENCED:
                for acked in sent:
                    states = self._state(acked.queue, acked.publisher, acked.sequence)
                    states[acked.sequence] |= ACK_KNOWN
                sent.clear()

    def _delivered(self, record: Record, in_session: dict[tuple[int, int], int]) -> None:
        verdict, key = self.verdict, (record.queue, record.publisher)
        states = self._state(record.queue, record.publisher, record.sequence)
        state = states[record.sequence]
        name = f"queue {record.queue}, publisher {record.publisher}, message {record.sequence}"
        verdict.delivered += 1
        redelivered = bool(record.flag & 1)
        verdict.redelivered += redelivered
        if not state & ATTEMPTED:
            verdict.blame("phantom", name)
        if record.flag & 2:
            verdict.blame("altered", name)
        if state & ACK_KNOWN:
            verdict.blame("resurrected", name)
        if state & DELIVERED and not redelivered:
            verdict.blame("unflagged", name)
        last = in_session.get(key, -1)
        if record.sequence == last:
            verdict.blame("doubled", name)
        elif record.sequence < last:
            verdict.blame("disordered", f"{name} after {last}")
        in_session[key] = max(last, record.sequence)
        if not state & DELIVERED:
            first = self.first_deliveries.get(key, -1)
            if record.sequence < last and record.sequence < first:
                pass  # already blamed above
            elif record.sequence < first:
                verdict.blame("disordered", f"{name}, first delivered after {first}")
            self.first_deliveries[key] = max(first, record.sequence)
            if not state & CONFIRMED:
                verdict.recovered += 1
        states[record.sequence] |= DELIVERED

    def depth(self, queue: int, told: int, drained: int) -> None:
        """What queue.declare-ok told before draining, and how many messages then came."""
        if told != drained:
            self.verdict.blame("miscounted", f"queue {queue}: told {told}, drained {drained}")

    def log(self, text: str) -> None:
        """What the broker has written since the last call: no traceback may be in it."""
        for line in text.splitlines():
            if "Traceback" in line:
                self.verdict.blame("broken", line[-400:])

    def drained(self) -> Verdict:
        """All queues have been read to the end: what was confirmed has come and is acknowledged."""
        for key, end in self.attempted.items():
            states = self.states[key]
            for sequence in range(self.judged.get(key, 0), end):
                state = states[sequence]
                if state & (CONFIRMED | ACK_SENT) == CONFIRMED:
                    name = f"queue {key[0]}, publisher {key[1]}, message {sequence}"
                    self.verdict.blame("vanished" if state & DELIVERED else "lost", name)
            self.judged[key] = end
        return self.verdict
