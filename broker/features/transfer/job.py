"""One transfer while it runs. What it needs is looked up before each slice, so that nothing goes to
what was deleted, or on behalf of a user who lost the permission."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from broker.access.patterns import Pattern
from broker.features.transfer.figures import Figures
from broker.features.transfer.hand_over import (
    AT_BOUND,
    DONE,
    FULL,
    MORE,
    PACED,
    READING,
    UNROUTED,
    HandOver,
)
from broker.features.transfer.pace import Pace
from broker.features.transfer.records import Transfer
from broker.features.transfer.rules import Rules
from broker.features.transfer.sources import FromQueue, FromStream, Place, Record, Replayed
from broker.features.transfer.target import ToExchange, ToQueue
from broker.fields.codec import octets
from broker.kernel import clock
from broker.schema.errors import AMQPError, describe
from broker.schema.message_history import HISTORY

log = logging.getLogger("leveret.transfer")

READ_AGAIN_S = 0.002
ASK_AGAIN_S = 0.25
"""How long a transfer waits before it offers a message again that was refused."""
NOTE_AGAIN_S = 1.0
"""And before it notes its progress again, if the disk would not take it."""


class Failed(Exception):
    """A transfer cannot go on; the text says why."""


def rules_of(
    *,
    routing_key: str | None,
    header: str | None,
    header_value: str | None,
    since: int,
    until: int,
) -> Rules:
    """The filter of a transfer, by its fields. Raises BadPattern."""
    pattern = Pattern.sent(routing_key) if routing_key is not None else None
    matches = pattern.matches if pattern is not None else None
    return Rules(matches, header, header_value, since, until)


class Job:
    """One transfer under way. `changed()` is called when what is to be kept of it is another;
    `figures` count what all transfers do."""

    def __init__(
        self, host: Any, transfer: Transfer, changed: Callable[[], None], figures: Figures
    ) -> None:
        self.transfer = transfer
        self._host = host
        self._changed = changed
        self._figures = figures
        self._pace = Pace(transfer.rate)
        self._source: FromQueue | FromStream | None = None
        self._hand_over: HandOver | None = None
        self._met: tuple[Any, Any, Any] | None = None
        self._is_noting = False
        self._is_written = False
        self._is_paused = False
        self._is_stopping = False
        self._doubled: Place | None = None

    # -- what it needs -----------------------------------------------------------------------------

    def _check(self) -> tuple[Any, Any, Any]:
        """Source, the target's vhost and the target. Raises Failed, or AMQPError."""
        transfer, access = self.transfer, self._host.access
        if transfer.user is not None and transfer.user not in access.users:
            raise Failed(f"user '{transfer.user}', who started it, does not exist any more")
        source_vhost = self._host.vhosts.get(transfer.source_vhost)
        target_vhost = self._host.vhosts.get(transfer.target_vhost)
        if source_vhost is None or target_vhost is None:
            name = transfer.source_vhost if source_vhost is None else transfer.target_vhost
            raise Failed(f"virtual host '{name}' was deleted")
        access.rights(transfer.user, transfer.source_vhost).check("read", "queue", transfer.source)
        kind, name = transfer.target_type, transfer.target
        access.rights(transfer.user, transfer.target_vhost).check("write", kind, name)
        source = source_vhost.queues.get(transfer.source)
        if source is None or source.incarnation != transfer.source_incarnation:
            where = describe("queue", transfer.source, transfer.source_vhost)
            raise Failed(f"{where} was deleted; what it held was not handed over")
        targets = target_vhost.queues if kind == "queue" else target_vhost.exchanges
        target = targets.get(name)
        if target is None:
            raise Failed(f"{describe(kind, name, transfer.target_vhost)} was deleted")
        return source, target_vhost, target

    def _meet(self) -> None:
        """Finds source and target, and what reads and gives; anew if one of them is another."""
        source, target_vhost, target = met = self._check()
        if self._met is not None and all(a is b for a, b in zip(met, self._met, strict=True)):
            return
        transfer = self.transfer
        rights = self._host.access.rights(transfer.user, transfer.target_vhost)
        if transfer.target_type == "queue":
            route: Any = ToQueue(target)
        else:
            route = ToExchange(target_vhost, target, rights)
        self._met = met
        is_same = transfer.target_vhost == transfer.source_vhost
        if self._hand_over is not None:
            self._end_source()
        self._hand_over = HandOver(
            route,
            is_same,
            transfer.handed_over,
            transfer.handed_over_bytes,
            target_vhost.bodies,
        )
        if transfer.mode == "move":
            # What was handed over is not there any more; the rest is looked at from its head.
            transfer.looked, transfer.total = 0, source.messages_ready
        self._source = None
        if source.type == "stream" or source.store is not None:
            rules = rules_of(
                routing_key=transfer.routing_key,
                header=transfer.header,
                header_value=transfer.header_value,
                since=transfer.since,
                until=transfer.until,
            )
            if source.type == "stream":
                record = self._record_of(target_vhost, target)
                replayed = self._replayed_of(source)
                self._source = FromStream(
                    source, transfer, rules, self._hand_over, record, replayed
                )
            else:
                self._source = FromQueue(source, transfer, rules, self._hand_over)

    def _record_of(self, vhost: Any, target: Any) -> Record | None:
        """What writes a replay into the history of its target, where that was asked for."""
        transfer = self.transfer
        if not transfer.record:
            return None
        exchange = target if transfer.target_type == "exchange" else None
        name = octets(exchange.name) if exchange is not None else b""

        def record(routing_key: bytes, listed: bytes, body: bytes, queues: tuple[Any, ...]) -> None:
            if vhost.recorder.on:
                recording = vhost.recorder.begin(transfer.user or "", f"replay {transfer.id}")
                recording.keep(exchange, name, routing_key, listed, body, queues, 0)

        return record

    def _replayed_of(self, source: Any) -> Replayed | None:
        """What notes in a history that a message of it was replayed, where events are kept."""
        histories = getattr(self._host, "histories", None)
        is_replay = self.transfer.mode == "replay" and source.name == HISTORY
        if histories is None or not is_replay:
            return None

        def replayed(offset: int, queues: tuple[Any, ...]) -> None:
            histories.replayed(source, offset, queues)

        return replayed

    def _end_source(self) -> None:
        if self._source is not None:
            self.transfer.level, self.transfer.at = self._source.place
            self._source.end()
            self._source = None

    # -- its slices --------------------------------------------------------------------------------

    def step(self) -> float | None:
        """A slice of at most half a millisecond. In how many seconds the next one is due; None when
        it is over."""
        try:
            return self._step()
        except AMQPError as error:
            self._over("failed", error.text)
        except Failed as error:
            self._over("failed", str(error))
        except Exception as error:
            log.exception("transfer %d ended in the middle", self.transfer.id)
            self._over("failed", f"a defect of the broker: {type(error).__name__}")
        return None

    def _step(self) -> float | None:
        if self._is_leaving and not self._is_halfway:
            return self._leave()
        self._meet()
        if self._is_noting:
            return READ_AGAIN_S
        if self._host.alarms:
            alarms = " and ".join(sorted(self._host.alarms))
            return self._wait(f"nothing is published while there is an alarm: {alarms}")
        if self._host.persister.has_to_wait():
            return READ_AGAIN_S
        if self._source is None:
            self._over("finished")
            return None
        assert self._hand_over is not None
        self._hand_over.allowed = 0 if self._is_leaving else self._allowed()
        state = self._source.step()
        self._count()
        if state == DONE:
            if self.transfer.mode == "move" or self._is_written:
                self._over("finished")
                return None
            # It is finished when the copies are on disk.
            self._is_written = True
            self._note(self._source)
            return READ_AGAIN_S
        if state in (FULL, UNROUTED):
            if self._source.in_flight:
                # First what was handed over is settled.
                return READ_AGAIN_S
            self.transfer.refused += 1
            self._figures.refused += 1
            return self._wait(self._hand_over.refusal)
        if state == READING and self._source.trouble:
            return self._wait(self._source.trouble)
        if not self._is_leaving:
            self._set_state("running", "")
        if state == PACED:
            return self._pace.wait_s
        if state == AT_BOUND:
            self._note(self._source)
        return 0.0 if state == MORE else READ_AGAIN_S

    def _allowed(self) -> int:
        """How many messages may be handed over by now, all in all."""
        if self._pace.rate != self.transfer.rate:
            self._pace = Pace(self.transfer.rate)
        return self._pace.allowed(self.transfer.handed_over)

    def _count(self) -> None:
        transfer, source, hand_over = self.transfer, self._source, self._hand_over
        assert source is not None and hand_over is not None
        transfer.looked = source.looked
        transfer.matched = source.matched
        transfer.unreadable = source.unreadable
        transfer.passed = source.passed
        self._figures.add(
            transfer.mode,
            hand_over.handed - transfer.handed_over,
            hand_over.handed_bytes - transfer.handed_over_bytes,
        )
        transfer.handed_over = hand_over.handed
        transfer.handed_over_bytes = hand_over.handed_bytes

    def _set_state(self, state: Any, reason: str) -> None:
        if (self.transfer.state, self.transfer.reason) != (state, reason):
            self.transfer.state, self.transfer.reason = state, reason
            self._changed()

    def _wait(self, reason: str) -> float | None:
        """It cannot go on now; it tries again."""
        if self._is_leaving:
            return self._leave()
        if self.transfer.state != "blocked":
            log.warning("transfer %d waits: %s", self.transfer.id, reason)
        self._set_state("blocked", reason)
        return ASK_AGAIN_S

    def _over(self, state: Any, reason: str = "") -> None:
        transfer = self.transfer
        if self._source is not None:
            self._count()
            self._source.end()
            self._source = None
        transfer.ended = clock.now()
        transfer.doubtful = None
        transfer.offsets = None
        self._set_state(state, reason)
        log.log(
            logging.WARNING if state == "failed" else logging.INFO,
            "transfer %d %s: %d messages handed over%s",
            transfer.id,
            state,
            transfer.handed_over,
            f": {reason}" if reason else "",
        )

    def stop(self) -> bool:
        """Ends it at the message it has come to. Whether it is over: a message that very many
        queues are getting goes to all of them first."""
        if self._is_halfway and self.transfer.state != "blocked":
            self._is_stopping = True
            return False
        self._over("stopped")
        return True

    def rest(self) -> None:
        """Stops here; it continues from here later. Called when the broker stops, and for a
        transfer that is paused once all it handed over is on the disk."""
        if self._source is None:
            return
        self._complete()
        self._count()
        self._let_be()
        if self.transfer.mode != "move":
            self.transfer.level, self.transfer.at = self._source.place
        self.transfer.doubtful, self._doubled = self._doubled, None
        self._source.end()
        self._source = None

    # -- a message that very many queues are getting -----------------------------------------------

    @property
    def _is_halfway(self) -> bool:
        return self._source is not None and self._source.is_halfway

    @property
    def _is_leaving(self) -> bool:
        """Whether no further message is begun."""
        return self._is_paused or self._is_stopping

    def _leave(self) -> float | None:
        """What is halfway still, because a queue does not take it, stays in the source, too."""
        if self._is_stopping:
            self._over("stopped")
            return None
        self._let_be()
        return self._come_to_rest()

    def _let_be(self) -> None:
        """If it is handed over later once more, the doubles are marked."""
        if self._source is not None and self._source.is_halfway:
            self._doubled = self._source.place
            self._source.let_be()

    def _complete(self) -> None:
        """Gives what is halfway to the rest of its queues, as long as twice the memory for what is
        not written is enough for it: no client publishes any more."""
        source, hand_over = self._source, self._hand_over
        assert source is not None and hand_over is not None
        persister = self._host.persister
        hand_over.allowed = 0
        while source.is_halfway and persister.tail_bytes < 2 * persister.tail_limit:
            if source.step() != MORE:
                return

    # -- pauses ------------------------------------------------------------------------------------

    def pause(self) -> None:
        """It stays at the message it has come to."""
        self._is_paused, self._is_written = True, False
        self._set_state("paused", "")

    def resume(self) -> None:
        """After a pause that may not have come to its end."""
        if self._is_paused:
            self._is_paused = self._is_written = False
            self._set_state("waiting", "")

    def _come_to_rest(self) -> float | None:
        """The steps of a pause: what was handed over is settled, or on the disk; then source and
        target are let go."""
        source = self._source
        if self._is_noting or (source is not None and source.in_flight):
            return READ_AGAIN_S
        if source is not None and self.transfer.mode != "move" and not self._is_written:
            self._is_written = True
            self._note(source)
            return READ_AGAIN_S
        self.rest()
        self._changed()
        return None

    # -- a copy's progress -------------------------------------------------------------------------

    def _note(self, source: FromQueue | FromStream) -> None:
        """Notes on the disk how far a copy may go until its copies are there: after a crash those
        that may be doubles are known."""
        place, bound = source.place, source.next_bound
        self.transfer.doubtful = bound
        self._is_noting = True
        self._changed()

        def noted(task: Any) -> None:
            if task.cancelled() or self._host.stopping:
                return
            if task.exception() is not None:
                log.error(
                    "transfer %d: its progress is not on the disk: %s",
                    self.transfer.id,
                    task.exception(),
                )
                self._host.later(NOTE_AGAIN_S, lambda: self._note(source))
                return
            self._is_noting = False
            self.transfer.level, self.transfer.at = place
            source.set_bound(bound)

        self._host.run_task(self._host.synced(records=True)).add_done_callback(noted)
