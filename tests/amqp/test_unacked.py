"""What a channel knows of its unacknowledged deliveries, and what it costs to settle them."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.amqp import raw
from tests.amqp.wired import PLACE, Wired
from tests.appliance import ROOT
from tests.inner import requeue_all

REQUEUE = 2


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Wired]:
    wired = Wired(tmp_path)
    yield wired
    wired.stop()


def test_many_deliveries_acked_at_once_let_the_other_queues_go_on_once(wired: Wired) -> None:
    wired.channel.deliveries.set_global_prefetch(500)
    wired.run()
    queue, other = wired.queue(), wired.queue()
    wired.consume(other, "waiting")
    wired.consume(queue, "busy")
    for _ in range(499):
        queue.put(b"", b"", b"\0\0", b"", persistent=False)
    assert len(wired.run()) == 499
    for _ in range(2):
        other.put(b"", b"", b"\0\0", b"", persistent=False)
    assert [each.delivery_tag for each in wired.run()] == [500]
    with wired.turns_at_once() as turns:
        wired.send("basic.ack", delivery_tag=499, multiple=True)
    # One for the room and one for what is written, not one for each delivery that was settled.
    assert len(turns) == 2
    assert wired.channel.messages_unacknowledged == 2


def unacked(wired: Wired) -> int:
    return wired.channel.messages_unacknowledged


def test_one_old_delivery_costs_no_room_for_a_million_behind_it(wired: Wired) -> None:
    channel = wired.channel
    getter = wired.getter()
    old = channel.take_got(getter, PLACE)
    for _ in range(1_000_000):
        channel.settle_committed(channel.take_got(getter, PLACE), False, REQUEUE)
    assert channel.deliveries.ledger.capacity < 100
    assert unacked(wired) == 1
    wired.send("basic.reject", delivery_tag=old, requeue=True)
    assert unacked(wired) == 0


def test_deliveries_that_want_no_ack_cost_no_room_behind_one_that_does(wired: Wired) -> None:
    channel = wired.channel
    free, getter = wired.getter(no_ack=True), wired.getter()
    old = channel.take_got(getter, PLACE)
    tags = [channel.take_got(free, PLACE) for _ in range(100_000)]
    assert tags == list(range(old + 1, old + 100_001))
    assert channel.deliveries.ledger.capacity < 100
    newest = channel.take_got(getter, PLACE)
    assert newest == tags[-1] + 1
    for tag in (tags[0], tags[50_000], tags[-1], newest + 1):
        wired.wire.feed(raw.method(1, "basic.ack", delivery_tag=tag))
        assert "unknown delivery tag" in str(wired.wire.failures.pop())
    wired.send("basic.reject", delivery_tag=newest, requeue=True)
    wired.send("basic.reject", delivery_tag=old, requeue=True)
    assert unacked(wired) == 0


def test_room_is_given_back_when_what_filled_it_is_settled(wired: Wired) -> None:
    channel, getter = wired.channel, wired.getter()
    first, *_ = [channel.take_got(getter, PLACE) for _ in range(100_000)]
    wired.send("basic.nack", delivery_tag=first, requeue=True)
    wide = channel.deliveries.ledger.capacity
    channel.take_got(wired.getter(no_ack=True), PLACE)
    assert channel.deliveries.ledger.capacity == wide
    wired.send("basic.nack", delivery_tag=0, multiple=True, requeue=True)
    assert channel.deliveries.ledger.capacity == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_wide_ring_keeps_what_is_open(wired: Wired, seed: int) -> None:
    """It grows where it is, wherever its oldest entry lies, and takes out what is settled."""
    chance = random.Random(seed)
    channel, getter, free = wired.channel, wired.getter(), wired.getter(no_ack=True)
    held: list[int] = []
    for _ in range(8):
        for number in range(chance.randrange(4000, 12_000)):
            if seed % 2 and number % 1000 == 0:
                channel.take_got(free, PLACE)
            held.append(channel.take_got(getter, PLACE))
        match chance.randrange(3):
            case 0:
                until = chance.randrange(len(held))
                wired.send("basic.nack", delivery_tag=held[until], multiple=True, requeue=True)
                del held[: until + 1]
            case 1:
                keep, since = chance.randrange(2, 4), chance.choice(held)
                settled = {tag for tag in held if tag >= since and tag % keep}
                for tag in settled:
                    channel.settle_committed(tag, False, REQUEUE)
                held = [tag for tag in held if tag not in settled]
        assert unacked(wired) == len(held)
    chance.shuffle(held)
    for tag in held:
        wired.send("basic.nack", delivery_tag=tag, requeue=True)
    assert unacked(wired) == 0
    assert not wired.wire.failures


class Unacked(RuleBasedStateMachine):
    """Deliveries and what is said of them, in any order, against a set of tags."""

    wired: Wired

    def __init__(self) -> None:
        super().__init__()
        self.wired.open_channel()
        self.getter, self.free = self.wired.getter(), self.wired.getter(no_ack=True)
        self.channel = self.wired.channel
        self.open: list[int] = []
        self.next = self.channel.deliveries.next_tag

    def teardown(self) -> None:
        requeue_all(self.channel)
        assert self.channel.messages_unacknowledged == 0

    @rule(count=st.integers(1, 40), without=st.integers(0, 3))
    def deliver(self, count: int, without: int) -> None:
        for _ in range(count):
            for _ in range(without):
                assert self.channel.take_got(self.free, PLACE) == self.next
                self.next += 1
            assert self.channel.take_got(self.getter, PLACE) == self.next
            self.open.append(self.next)
            self.next += 1

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def settle_one(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.open) - 1))
        self.wired.send("basic.nack", delivery_tag=self.open.pop(at), requeue=True)

    @precondition(lambda self: self.open)
    @rule(keep=st.integers(2, 9))
    def settle_all_but_some(self, keep: int) -> None:
        for tag in [tag for tag in self.open if tag % keep]:
            self.wired.send("basic.nack", delivery_tag=tag, requeue=True)
        self.open = [tag for tag in self.open if tag % keep == 0]

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def settle_up_to(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.open) - 1))
        tag = self.open[at]
        self.wired.send("basic.nack", delivery_tag=tag, multiple=True, requeue=True)
        del self.open[: at + 1]

    @rule(tag=st.integers(1, 10_000))
    def settle_what_is_not_open(self, tag: int) -> None:
        tag %= self.next + 2
        if tag and tag not in self.open:
            self.wired.wire.feed(raw.method(1, "basic.ack", delivery_tag=tag, multiple=True))
            assert "unknown delivery tag" in str(self.wired.wire.failures.pop())

    @rule()
    def recover(self) -> None:
        requeue_all(self.channel)
        self.open.clear()

    @rule(since=st.integers(0, 300), more=st.integers(0, 300))
    def look(self, since: int, more: int) -> None:
        since = max(0, self.next - since)
        before = since + more
        found = [tag for tag in self.open if since <= tag < before]
        queues = {self.getter.queue}
        lowest = self.channel.deliveries.first_held(since, before, queues)
        assert lowest == (found[0] if found else before)

    @invariant()
    def it_counts(self) -> None:
        assert self.channel.messages_unacknowledged == len(self.open)
        assert self.channel.deliveries.next_tag == self.next


def test_deliveries_are_settled_in_any_order(wired: Wired) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        type("Wired", (Unacked,), {"wired": wired}),
        settings=settings(
            max_examples=100, stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


def test_no_tag_is_given_twice_when_there_is_no_memory(tmp_path: Path) -> None:
    """In a process that may have no more than it has and 64 MiB."""
    script = """
import resource, sys
from pathlib import Path
from tests.amqp.wired import PLACE, Wired
wired = Wired(Path(sys.argv[1]))
channel = wired.channel
getter, free = wired.getter(), wired.getter(no_ack=True)
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (64 << 20), -1))
last = refused = 0
for number in range(20_000_000):
    try:
        tag = channel.take_got(free if number % 8 == 7 else getter, PLACE)
    except MemoryError:
        refused += 1
        if refused == 100:
            break
        continue
    assert tag == last + 1, f"{tag} behind {last}"
    last = tag
assert refused == 100, "there was memory"
assert channel.messages_unacknowledged > 100_000
"""
    ran = subprocess.run([sys.executable, "-c", script, tmp_path], cwd=ROOT, check=False)
    assert ran.returncode == 0
