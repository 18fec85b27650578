"""Small packets gather while the loop sleeps for a moment, and nobody who waits for an answer is
made to wait: the rule, with turns on a clock that the test sets.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from broker.kernel.moderation import Moderation

US = 1_000
MS = 1_000_000
TURN_NS = 15 * US
FRAME_NS = 300
"""What a turn takes, and each frame in it."""

Arrivals = Callable[["Turns"], int]


class Turns:
    """A loop with one client: `arrivals` says how many frames of `octets` bytes have come at `now`,
    which may be none."""

    def __init__(
        self,
        arrivals: Arrivals,
        moderation: Moderation | None = None,
        turn_ns: int = TURN_NS,
        frame_ns: int = FRAME_NS,
        octets: int = 0,
    ) -> None:
        self.octets = octets
        self.turn_ns = turn_ns
        self.frame_ns = frame_ns
        self.arrivals = arrivals
        self.moderation = moderation
        self.now = 1_000 * MS
        self.begun = self.now
        self.ended = self.now
        self.frames = 0
        self.turns = 0
        self.slept = 0

    def run(self, milliseconds: int) -> float:
        """Frames a second over so much time."""
        since, frames = self.now, self.frames
        while self.now < since + milliseconds * MS:
            self.turn()
        return (self.frames - frames) * 1e9 / (self.now - since)

    def turn(self) -> None:
        while not (count := self.arrivals(self)):
            self.now += US
        began = self.now
        self.frames += count
        self.turns += 1
        self.now += self.turn_ns + count * self.frame_ns
        self.ended = self.now
        if self.moderation is not None and (
            length := self.moderation.pause(began, self.now, count, 1, count * self.octets)
        ):
            self.now += length
            self.slept += 1
            self.moderation.slept(self.now)


def at_a_rate(frames_a_second: int, at_once: int = 1) -> Arrivals:
    """A client that sends all the time, whatever comes back. A publish has three frames."""
    taken = 0

    def arrivals(turns: Turns) -> int:
        nonlocal taken
        due = (turns.now - turns.begun) * frames_a_second // 1_000_000_000 // at_once * at_once
        count, taken = due - taken, due
        return count

    return arrivals


def in_windows(frames: int, thinks_ns: int = 20 * US) -> Arrivals:
    """A client that sends so many frames when the last ones were answered."""

    def arrivals(turns: Turns) -> int:
        return frames if turns.now >= turns.ended + thinks_ns else 0

    return arrivals


def one_after_the_other(clients: int, frames: int, thinks_ns: int = 100 * US) -> Arrivals:
    """Clients that each send so many frames some time after the last ones were answered, and
    seldom all of them at once."""
    chance = random.Random(1)
    due = [chance.randrange(2 * thinks_ns) for _ in range(clients)]
    begun = 0

    def arrivals(turns: Turns) -> int:
        nonlocal begun
        begun = begun or turns.now
        ready = [number for number in range(clients) if turns.now >= begun + due[number]]
        end = turns.now - begun + turns.turn_ns + len(ready) * frames * turns.frame_ns
        for number in ready:
            due[number] = end + chance.randrange(2 * thinks_ns)
        return len(ready) * frames

    return arrivals


def test_clients_that_wait_for_a_while_keep_their_rate_though_more_would_gather() -> None:
    alone = Turns(one_after_the_other(8, 20)).run(2_000)
    turns = Turns(one_after_the_other(8, 20), Moderation())
    assert turns.run(2_000) > 0.95 * alone
    assert turns.slept > 0


def test_a_longer_sleep_is_tried_soon_when_much_less_comes_than_before() -> None:
    moderation = Moderation()
    turns = Turns(at_a_rate(12_000_000), moderation, frame_ns=30)
    turns.run(100)
    assert moderation.level == 1
    turns.arrivals = at_a_rate(1_800_000)
    turns.begun = turns.now
    turns.run(200)
    assert moderation.level > 1


def test_a_longer_sleep_is_tried_soon_when_much_more_comes_than_before() -> None:
    """A client that flushes each message, behind hours of one whose messages are few: trials of a
    longer sleep had failed, and were rare."""
    moderation = Moderation()
    turns = Turns(at_a_rate(60_000, 3), moderation, turn_ns=35 * US)
    turns.run(10_000)
    assert moderation.level <= 1
    turns.arrivals = at_a_rate(1_800_000)
    turns.begun = turns.now
    turns.turn_ns = TURN_NS
    turns.run(250)
    assert moderation.level > 1


def test_packets_of_a_client_that_sends_without_waiting_gather() -> None:
    turns = Turns(at_a_rate(1_800_000), Moderation())
    turns.run(200)
    frames, made = turns.frames, turns.turns
    assert turns.run(500) > 1_780_000
    assert (turns.frames - frames) / (turns.turns - made) > 90


def test_it_stays_so_for_as_long_as_the_client_sends() -> None:
    """There is no second state, in which the sleep is given up and tried again all the while."""
    turns = Turns(at_a_rate(660_000), Moderation())
    turns.run(200)
    for _ in range(20):
        frames, made = turns.frames, turns.turns
        turns.run(100)
        assert (turns.frames - frames) / (turns.turns - made) > 45


@pytest.mark.parametrize(
    ("messages", "flooded"), [(20_000, False), (50_000, False), (80_000, False), (230_000, True)]
)
def test_sockets_rest_only_where_more_comes_than_clients_at_a_rate_send(
    messages: int, flooded: bool
) -> None:
    moderation = Moderation()
    turns = Turns(at_a_rate(3 * messages, 3), moderation)
    turns.run(1_000)
    found = []
    for _ in range(100):
        turns.run(10)
        found.append(moderation.needs_rests(300))
    assert any(found) == flooded


def test_sockets_may_rest_before_the_longest_sleep_was_tried() -> None:
    """It is tried late where one window had enough, and a client's rate is a quarter meanwhile."""
    moderation = Moderation()
    turns = Turns(at_a_rate(690_000, 3), moderation)
    levels = set()
    for _ in range(1_000):
        turns.run(1)
        if moderation.needs_rests(300):
            levels.add(moderation.level)
    assert min(levels) == 2


@pytest.mark.parametrize(
    ("octets", "is_awaited", "may_rest"),
    [(340, False, True), (340, True, False), (20, True, False)],
)
def test_a_socket_may_rest_whose_large_chunks_keep_the_sleep_short(
    octets: int, is_awaited: bool, may_rest: bool
) -> None:
    """Their packets may be small all the same. A publisher that waits for its confirms, which a
    round writes, sends no more if its socket rests."""
    moderation = Moderation()
    moderation.is_awaited = is_awaited
    turns = Turns(at_a_rate(690_000, 3), moderation, octets=octets)
    turns.run(1_000)
    found = set()
    for _ in range(100):
        turns.run(10)
        found.add((moderation.level, moderation.needs_rests(100 * octets)))
        # A consumer's acks, of which little comes at a time.
        assert not moderation.needs_rests(300)
    assert ((1, True) in found) == may_rest
    assert max(level for level, _ in found) == 1


@pytest.mark.parametrize("tenths", range(1, 15))
def test_a_sleep_is_tried_again_behind_a_time_of_calm(tenths: int) -> None:
    """Whichever trial was due when the calm began."""
    moderation = Moderation()
    turns = Turns(at_a_rate(690_000, 3), moderation)
    turns.run(100 * tenths)
    assert moderation.level > 0
    turns.arrivals = at_a_rate(3_000, 3)
    turns.begun = turns.now
    turns.run(100)
    assert moderation.level == 0
    turns.arrivals = at_a_rate(690_000, 3)
    turns.begun = turns.now
    turns.run(200)
    assert moderation.level > 0


def test_few_packets_gather_in_the_shortest_sleep_and_wait_no_longer() -> None:
    """20,000 persistent publishes a second, which are delivered and confirmed, so that a turn takes
    longer: there are fewer turns, and nobody waits for a longer sleep."""
    turns = Turns(at_a_rate(60_000, 3), Moderation(), turn_ns=35 * US)
    turns.run(500)
    for _ in range(20):
        frames, made = turns.frames, turns.turns
        turns.run(100)
        assert (turns.frames - frames) / (turns.turns - made) > 1.4 * 3
    assert turns.moderation is not None and turns.moderation.level <= 1


def test_only_the_first_sleep_is_used_while_a_round_is_written() -> None:
    """A publisher with a window waits for the round, and then for the sleep as well."""
    moderation = Moderation()
    turns = Turns(at_a_rate(1_800_000), moderation)
    turns.run(500)

    def pause() -> int:
        moderation.slept(turns.now)
        return moderation.pause(turns.now, turns.now + TURN_NS, 60, 1)

    assert pause() > 100 * US
    moderation.is_awaited = True
    assert pause() == 100 * US
    moderation.is_awaited = False
    assert pause() > 100 * US


@pytest.mark.parametrize(("frames", "length"), [(0, 60 * US), (23, 60 * US), (24, 100 * US)])
def test_the_first_sleep_is_shorter_behind_a_turn_with_few_frames(frames: int, length: int) -> None:
    """Of 20,000 messages a second ten come in it, and wait longer in a longer one."""
    moderation = Moderation()
    turns = Turns(at_a_rate(1_800_000), moderation)
    turns.run(500)
    moderation.is_awaited = True
    moderation.slept(turns.now)
    assert moderation.pause(turns.now, turns.now + TURN_NS, frames, 1) == length
    assert moderation.brings_few(frames) == (length == 60 * US)


def test_a_turn_of_a_loop_that_does_not_sleep_does_not_count_as_one_that_brings_few() -> None:
    """A round for its confirms begins at once."""
    assert not Moderation().brings_few(3)


def test_a_client_that_waits_for_its_answers_keeps_its_rate() -> None:
    for window in (1, 5, 10, 50):
        alone = Turns(in_windows(window)).run(2_000)
        assert Turns(in_windows(window), Moderation()).run(2_000) > 0.95 * alone


def test_a_loop_with_time_between_its_turns_never_sleeps() -> None:
    turns = Turns(at_a_rate(8_000), Moderation())
    turns.run(1_000)
    assert turns.slept == 0


def test_what_comes_in_large_chunks_is_not_slept_behind() -> None:
    """Publishes of 1 KiB: sleeping would let more of them gather, and save next to nothing."""
    turns = Turns(at_a_rate(1_500_000, 96), Moderation(), octets=1024 // 3)
    turns.run(200)
    assert turns.slept == 0
    small = Turns(at_a_rate(1_500_000, 96), Moderation(), octets=60 // 3)
    small.run(200)
    assert small.slept > 0


def test_long_turns_are_not_slept_behind() -> None:
    turns = Turns(in_windows(5_000), Moderation())
    turns.run(1_000)
    assert turns.slept == 0


def test_who_comes_after_a_client_that_did_not_wait_is_found_out() -> None:
    turns = Turns(at_a_rate(1_800_000), Moderation())
    turns.run(500)
    alone = Turns(in_windows(10)).run(2_000)
    turns.arrivals = in_windows(10)
    turns.run(4_000)
    assert turns.run(2_000) > 0.95 * alone


def test_the_first_turn_after_a_pause_is_answered_at_once() -> None:
    turns = Turns(at_a_rate(1_800_000), Moderation())
    turns.run(500)
    assert turns.moderation is not None and turns.moderation.level > 0
    turns.now += 500 * US
    assert turns.moderation.pause(turns.now, turns.now + TURN_NS, 3, 1) == 0
