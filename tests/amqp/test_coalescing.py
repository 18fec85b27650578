"""Small packets gather while their socket rests, and a client that waits for an answer is hardly
made to wait: the rule, with a client and a kernel on a clock that the test sets.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.kernel.coalescing import Coalescing

US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000
SLEEP_NS = 400 * US
"""Between two looks of a broker in its longest sleep."""
MESSAGE = 68
PACKET_NS = 4_000
JOINED_NS = 900
"""What a write of a message takes the client: as a packet, and while the window has no room."""
RECEIVED = 262_144
SIZE = 65_536
"""Of the receive buffer. The kernel takes twice as much, and offers that to the client."""
SEGMENT = 4_096
"""Bytes of a large packet, as the kernel counts them."""


class Socket:
    """A client that flushes each message, and what the kernels keep of it. `may_send(socket)` says
    whether it writes the next message now."""

    def __init__(
        self, may_send: Callable[[Socket], bool], coalescing: Coalescing | None = None
    ) -> None:
        self.may_send = may_send
        self.coalescing = coalescing
        self.now = 100 * SECOND
        self.wrote_until = self.now
        self.window = 0  # bytes that can be received
        self.waiting = 0  # that the client's kernel keeps back
        self.received = 0
        self.rests = 0
        self.packets = 0
        self.size = MESSAGE
        self.sleep = SLEEP_NS

    @property
    def is_on(self) -> bool:
        return self.coalescing is not None and self.coalescing.is_on

    def run(self, nanoseconds: int) -> float:
        """Bytes a second over so much time."""
        until, received, began = self.now + nanoseconds, self.received, self.now
        while self.now < until:
            self.look()
        return (self.received - received) * 1e9 / (self.now - began)

    def look(self) -> None:
        length = self.sleep
        if self.window:
            chunk = min(self.window, RECEIVED)
            self.window -= chunk
            self.received += chunk
            self.join()
            self.spend(10 * US + chunk // 4)
            if self.coalescing is not None:
                rest = self.coalescing.rest(self.now, chunk, chunk < RECEIVED, 0, self.packets)
                self.rests += rest > 0
                if rest:
                    length = rest
                elif self.coalescing.is_on and not self.coalescing.wide:
                    length = 0  # the loop does not sleep between the chunks of a burst
        self.spend(max(length, 20 * US))

    def spend(self, nanoseconds: int) -> None:
        """The client writes meanwhile."""
        self.now += nanoseconds
        while self.wrote_until < self.now and self.may_send(self):
            if self.window + self.size <= self.room and not self.waiting:
                self.window += self.size
                self.packets += -(-self.size // SEGMENT)
                self.wrote_until += PACKET_NS
            else:
                self.waiting += self.size
                self.wrote_until += JOINED_NS
        self.wrote_until = max(self.wrote_until, self.now)

    def join(self) -> None:
        joined = min(self.waiting, self.room - self.window)
        self.waiting -= joined
        self.window += joined
        self.packets += -(-joined // SEGMENT)

    @property
    def room(self) -> int:
        """Of the receive buffer: without rests it is bound to SIZE."""
        return 2 * ((self.coalescing and self.coalescing.room()) or SIZE)

    @property
    def sent(self) -> int:
        return self.received + self.window + self.waiting


def always(socket: Socket) -> bool:
    return True


def in_windows(messages: int) -> Callable[[Socket], bool]:
    """A client that sends this number when the last ones are received."""
    begun = 0

    def may_send(socket: Socket) -> bool:
        nonlocal begun
        if socket.sent - begun < messages * MESSAGE:
            return True
        if socket.received == socket.sent:
            begun = socket.sent
            return True
        return False

    return may_send


def test_more_comes_from_a_client_that_flushes_each_message_without_waiting() -> None:
    alone = Socket(always).run(SECOND)
    socket = Socket(always, Coalescing(SIZE))
    socket.run(SECOND // 2)
    assert socket.is_on
    assert socket.run(SECOND) > 2.5 * alone


def test_it_stays_so_for_as_long_as_the_client_sends() -> None:
    socket = Socket(always, Coalescing(SIZE))
    socket.run(SECOND // 2)
    for _ in range(50):
        socket.run(SECOND // 10)
        assert socket.is_on


@pytest.mark.parametrize("messages", [1, 10, 15, 100])
def test_a_client_that_waits_for_what_it_sent_keeps_its_rate(messages: int) -> None:
    alone = Socket(in_windows(messages)).run(20 * SECOND)
    socket = Socket(in_windows(messages), Coalescing(SIZE))
    assert socket.run(SECOND) > 0.85 * alone
    assert socket.run(20 * SECOND) > 0.98 * alone
    assert 0 < socket.rests < 100


@pytest.mark.parametrize("messages", [1, 10, 100])
def test_trials_of_a_client_that_waits_become_rare(messages: int) -> None:
    socket = Socket(in_windows(messages), Coalescing(SIZE))
    socket.run(20 * SECOND)
    before = socket.rests
    socket.run(8 * SECOND)
    assert socket.rests - before <= 12


@pytest.mark.parametrize("size", [250, 500, 1_000])
def test_more_comes_of_larger_messages_too_in_a_window_with_room_for_many(size: int) -> None:
    """Chunks are large then, so that the sleep is short, but not their packets."""
    alone, socket = Socket(always), Socket(always, Coalescing(SIZE))
    alone.size = socket.size = size
    alone.sleep = socket.sleep = 100 * US
    socket.run(SECOND // 2)
    assert socket.is_on
    assert socket.run(SECOND) > 1.5 * alone.run(SECOND)


def test_large_packets_are_never_held_up() -> None:
    socket = Socket(always, Coalescing(SIZE))
    socket.size = 2 * SEGMENT
    socket.run(5 * SECOND)
    assert socket.rests == 0


@pytest.mark.parametrize(
    ("size", "narrow"), [(16, 12_288), (68, 12_288), (128, 16_384), (256, 32_768), (1_024, SIZE)]
)
def test_a_narrow_window_has_room_for_few_packets_as_small_as_the_client_s(
    size: int, narrow: int
) -> None:
    coalescing, _ = on_trial(80 * size, size)
    assert coalescing.room() == narrow
    assert narrow < coalescing.room_in_rest() <= SIZE or narrow == SIZE


def test_a_client_that_goes_over_to_large_messages_has_its_wide_window_again() -> None:
    coalescing = Coalescing(SIZE)
    socket = Socket(always, coalescing)
    socket.run(SECOND // 2)
    assert socket.is_on
    for _ in range(1_000):
        socket.now += 50 * US
        if not coalescing.rest(socket.now, 24_576, True) and not socket.is_on:
            break
    assert not socket.is_on


def test_nothing_rests_behind_a_pause_of_the_client() -> None:
    coalescing = Coalescing(SIZE)
    socket = Socket(always, coalescing)
    socket.run(SECOND // 2)
    assert socket.is_on
    assert coalescing.rest(socket.now + SECOND, 68, True) == 0
    assert not socket.is_on


def test_a_client_that_becomes_slow_is_read_at_once_after_some_rests() -> None:
    coalescing = Coalescing(SIZE)
    socket = Socket(always, coalescing)
    socket.run(SECOND // 2)
    now, rests = socket.now, 0
    while coalescing.is_on:
        assert rests <= 8
        now += MS
        length = coalescing.rest(now, 68, True)
        now += length
        rests += length > 0


def begun(coalescing: Coalescing, octets: int, size: int = MESSAGE) -> int:
    """So much came at each look in packets of `size` bytes, until a trial began. Returns when that
    was."""
    now = 100 * SECOND
    packets = 0
    while not coalescing.is_on:
        now += SLEEP_NS
        packets += octets // size
        assert now < 101 * SECOND
        assert coalescing.rest(now, octets, True, 0, packets) == 0
    return now


def test_the_window_becomes_narrow_though_little_comes_at_a_time() -> None:
    """One of many clients: the kernel takes nothing back of its window for chunks below a KiB."""
    coalescing = Coalescing(SIZE)
    now = begun(coalescing, 800)
    chunks = waited = 0
    offered = 100_000
    while coalescing.wide:
        octets = 800 * (waited + SLEEP_NS) // SLEEP_NS
        offered -= max(octets - 1_024, 0)
        now += SLEEP_NS
        waited = coalescing.rest(now, octets, True, offered)
        now += waited
        chunks += 1
    assert chunks < 50


def test_the_window_is_narrow_when_the_kernel_says_so() -> None:
    coalescing = Coalescing(SIZE)
    now = begun(coalescing, 8_000)
    for offered in (100_000, 150_000, 60_000, 30_000):
        now += SLEEP_NS
        assert coalescing.rest(now, 8_000, True, offered) == 0
        assert coalescing.wide
    coalescing.rest(now + SLEEP_NS, 8_000, True, 20_000)
    assert not coalescing.wide


def test_a_kernel_that_does_not_say_what_it_offered_is_taken_to_have_offered_much() -> None:
    coalescing = Coalescing(SIZE)
    now = begun(coalescing, 8_000)
    taken = 0
    while coalescing.wide:
        now += SLEEP_NS
        coalescing.rest(now, 8_000, True)
        taken += 8_000
    assert taken > 3 * SIZE


@pytest.mark.parametrize("offered", [150_000, 100_000, 60_000, 30_000, 20_000])
def test_the_kernel_has_room_for_what_it_has_offered_and_never_offers_more(offered: int) -> None:
    """It takes twice the bound, drops what does not fit, and has that again 200 ms later. Small
    packets that are put together take 1.16 bytes for each of theirs."""
    coalescing = Coalescing(98_304)
    now = begun(coalescing, 8_000)
    coalescing.rest(now + SLEEP_NS, 8_000, True, offered)
    kept = 2 * coalescing.room()
    assert kept >= 0.99 * offered
    assert 0.8 * kept <= max(offered, 24_576)


@pytest.mark.parametrize("size", [8_192, 98_304])
def test_no_bound_is_more_than_the_one_without_rests(size: int) -> None:
    coalescing = Coalescing(size)
    assert coalescing.room() == 0
    now = begun(coalescing, 8_000, 1_000)
    assert coalescing.room() == size
    assert coalescing.room_in_rest() == size
    coalescing.rest(now + SLEEP_NS, 8_000, True, 1)
    assert not coalescing.wide
    assert coalescing.room_in_rest() == size


def test_a_socket_whose_window_never_becomes_narrow_does_not_rest_behind_its_trial() -> None:
    coalescing = Coalescing(SIZE)
    now = begun(coalescing, 500)
    rest = 1
    while coalescing.is_on:
        now += SLEEP_NS
        rest = coalescing.rest(now, 500, True)
        now += rest
    assert rest == 0


def on_trial(octets: int, size: int = MESSAGE) -> tuple[Coalescing, int]:
    """So much came at each look in packets of `size` bytes, and the window is narrow now."""
    coalescing = Coalescing(SIZE)
    now = begun(coalescing, octets, size)
    now += SLEEP_NS
    coalescing.rest(now, 4_000, True, 1)
    assert not coalescing.wide
    return coalescing, now


@pytest.mark.parametrize(
    ("octets", "milliseconds"), [(500, 20), (800, 15), (1_000, 12), (2_000, 6), (20_000, 3)]
)
def test_the_first_rest_of_a_trial_is_as_long_as_the_window_takes_to_fill(
    octets: int, milliseconds: int
) -> None:
    """Else eight clients that share a processor would all go on as before, each with a window that
    never is full."""
    coalescing, now = on_trial(octets)
    assert coalescing.rest(now + SLEEP_NS, 0, True) // MS == milliseconds


def test_a_long_rest_of_a_trial_that_filled_the_window_is_followed_by_shorter_ones() -> None:
    coalescing, now = on_trial(500)
    now += coalescing.rest(now + SLEEP_NS, 0, True) + SLEEP_NS
    assert coalescing.rest(now, 60_000, False) == 0
    assert coalescing.rest(now, 0, True) == 16 * MS


def test_a_trial_in_which_the_longest_rests_do_not_fill_the_window_is_over_at_once() -> None:
    """A client with ten messages of 2 KiB in flight. The next trial is late."""
    coalescing, now = on_trial(1_000)
    rests = []
    while coalescing.is_on:
        now += 10 * US
        coalescing.rest(now, 20_480, False)
        rests.append(coalescing.rest(now, 0, True))
        now += rests[-1]
    assert sum(rests) < 40 * MS
    over = now
    packets = 0
    while not coalescing.is_on:
        now += SLEEP_NS
        packets += 15
        coalescing.rest(now, 1_000, True, 0, packets)
    assert 8 * SECOND < now - over < 9 * SECOND


def test_a_trial_begins_though_some_packets_are_joined_in_a_sleep() -> None:
    """A client may come to that without rests, and has half more with them."""
    begun(Coalescing(SIZE), 30_000, 500)


def tried(gains: list[float], octets: int = 4_000) -> bool:
    """Whether the socket still rests when it was in this many times as much as before, with each
    rest and the burst behind it. `octets` came at a time before."""
    coalescing, now = on_trial(octets)
    waited = SLEEP_NS
    for gain in gains:
        now += 10 * US
        coalescing.rest(now, int(octets * gain * waited / SLEEP_NS), False)
        waited = coalescing.rest(now, 0, True)
        now += waited
        if not coalescing.is_on:
            return False
        waited += 10 * US
    return True


def test_a_trial_that_gains_little_at_first_has_a_second_chance() -> None:
    """Other clients of the same processor rest a little later."""
    assert tried([1.1] * 13 + [2.0] * 30)
    assert not tried([1.1] * 40)


def test_a_trial_with_which_less_comes_is_over_soon() -> None:
    assert not tried([0.5] * 8)
    assert not tried([0.9] * 14)


def test_where_packets_were_joined_already_it_is_enough_that_not_less_comes() -> None:
    assert tried([1.1] * 40, octets=30_000)
    assert not tried([0.9] * 40, octets=30_000)


@pytest.mark.parametrize("every", [1, 4])
def test_no_trial_begins_while_a_backlog_is_received(every: int) -> None:
    """In large packets, and what comes then says nothing of what a client sends."""
    coalescing, now = Coalescing(SIZE), 100 * SECOND
    packets = 0
    for chunk in range(1_000):
        octets, size = (100_000, SEGMENT) if chunk % every == 0 else (4_000, MESSAGE)
        now += SLEEP_NS
        packets += octets // size
        assert coalescing.rest(now, octets, True, 0, packets) == 0
    assert not coalescing.is_on


def test_packets_that_came_while_no_trial_may_begin_are_not_those_of_the_next_chunk() -> None:
    """The kernel is not asked meanwhile, and has counted them when it is again."""
    coalescing, now = Coalescing(SIZE), 100 * SECOND
    packets = asked = 0
    for _ in range(1_000):
        now += SLEEP_NS
        packets += 25
        is_asked = coalescing.asks(now)
        asked += is_asked
        assert coalescing.rest(now, 25 * SEGMENT, True, 0, packets if is_asked else 0) == 0
        assert not coalescing.is_on
    assert 500 < asked < 900


def test_the_kernel_is_asked_until_the_window_is_narrow() -> None:
    coalescing = Coalescing(SIZE)
    now = begun(coalescing, 4_000)
    assert coalescing.asks(now)
    coalescing.rest(now + SLEEP_NS, 4_000, True, 1)
    assert not coalescing.asks(now + SLEEP_NS)


def test_of_two_clients_of_one_processor_a_burst_early_in_a_trial_counts() -> None:
    """The other one sends meanwhile, so that little may come in the next rests; a client that waits
    for answers would send less in all of them."""
    assert tried([2.0, 2.0, 30.0, 0.3, 0.3, *[2.0] * 30])
    assert not tried([2.0, 2.0, 0.5, 0.3, 0.3, *[2.0] * 30])
