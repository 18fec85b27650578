"""WebSocket messages that are begun and not finished: bounded in memory for all together, and paid
for by who holds them."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from broker.serving.websocket_room import COUNTED_FROM, Hold, Room
from broker.settings.config import Config
from tests.amqp import raw
from tests.appliance import Appliance
from tests.conftest import _maker
from tests.hostile.figures import forget_peak, peak_bytes, resident_bytes, wait_idle
from tests.hostile.sockets import BINARY, Flood, frame, last_words, logged_in

MIB = 1 << 20
PROCESS = {"ws": "broker", "http": "web"}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """An appliance with a bound of four of the longest messages."""
    for make in _maker("serve", tmp_path_factory.mktemp("unfinished")):
        appliance = make(ws_unfinished_max="16 MiB", ws_unfinished_timeout="3 s")
        with httpx.Client(base_url=appliance.http_url, auth=("guest", "guest"), timeout=60) as api:
            api.put("/api/users/other", json={"password": "other", "tags": ""})
            everything = {"configure": ".*", "write": ".*", "read": ".*"}
            api.put("/api/permissions/%2F/other", json=everything).raise_for_status()
        yield appliance


@pytest.mark.parametrize("door", PROCESS)
def test_unfinished_messages_are_bounded_and_others_send_long_ones(
    attacked: Appliance, door: str
) -> None:
    pid = attacked.pids[PROCESS[door]]
    socks = [logged_in(attacked, door) for _ in range(30)]
    forget_peak(pid)
    before = resident_bytes(pid)
    Flood(socks, frame(BINARY, bytes(3 * MIB), length=4 * MIB - 100)).wait()
    wait_idle(pid)
    # 90 MB without the bound.
    assert peak_bytes(pid) - before < 24 * MIB
    # Another user, at another address where the web port knows no user.
    body = b"x" * (3 * MIB)
    with raw.Client.open((attacked.host, attacked.amqp_port)) as reader:
        reader.call(1, "queue.declare", queue=door, auto_delete=True)
        sock = logged_in(attacked, door, user="other", source="127.0.0.2")
        sock.sendall(frame(BINARY, raw.publish(1, "", door, body)))
        reader.call(1, "basic.consume", queue=door, no_ack=True)
        assert reader.expect_message(channel=1).body == body
    sock.close()
    for one in socks:
        one.close()


def test_a_message_that_others_wait_for_is_closed_with_its_reason(attacked: Appliance) -> None:
    # On the web port: the broker's own holds nothing of a message.
    door = "http"
    unfinished = frame(BINARY, bytes(4 * MIB - 200), length=4 * MIB - 100)
    stalled = [logged_in(attacked, door) for _ in range(2)]
    Flood(stalled, unfinished).wait()
    body = b"y" * (3 * MIB)
    with raw.Client.open((attacked.host, attacked.amqp_port)) as reader:
        queue = f"waiting-{door}"
        reader.call(1, "queue.declare", queue=queue, auto_delete=True)
        honest = logged_in(attacked, door)
        Flood([honest], frame(BINARY, raw.publish(1, "", queue, body))).wait()
        words = last_words(stalled[0])
        assert struct.pack(">H", 1013) in words
        assert b"ws_unfinished_max" in words
        reader.call(1, "basic.consume", queue=queue, no_ack=True)
        assert reader.expect_message(channel=1).body == body
    for one in (honest, *stalled):
        one.close()


# -- the rules of the room -------------------------------------------------------------------------


class Connections:
    """Connections at a room of 1 MiB, with a clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        config = Config(ws_unfinished_max=MIB, ws_message_max=4096, frame_max=4096)
        self.now = 100.0
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.closed: list[str] = []
        self.woken: list[str] = []
        self.room = Room(lambda: config, lambda delay, work: self.later.append((delay, work)))
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def open(self, name: str) -> Hold:
        return self.room.hold(lambda: self.closed.append(name), lambda: self.woken.append(name))

    def run(self) -> None:
        """What was to be called later."""
        work, self.later = self.later, []
        for _, each in work:
            each()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    return Connections(monkeypatch)


def grow(hold: Hold, who: str, size: int, *, is_held_back: bool = False) -> None:
    hold.set(size, who, is_held_back=is_held_back)


def test_small_messages_are_not_counted(connections: Connections) -> None:
    for number in range(1000):
        grow(connections.open(str(number)), "one", COUNTED_FROM)
    assert (connections.room.size, connections.closed) == (0, [])


def test_the_first_message_of_a_user_goes_on_and_the_others_wait(connections: Connections) -> None:
    first, second, other = (connections.open(name) for name in ("first", "second", "other"))
    grow(first, "one", 200 * 1024)
    grow(second, "one", 100 * 1024)
    grow(other, "two", 200 * 1024)
    assert (first.waits, second.waits, other.waits) == (False, True, False)
    grow(first, "one", 300 * 1024)
    assert not first.waits
    grow(first, "one", 0)
    connections.run()
    assert (second.waits, connections.woken) == (False, ["second"])


def test_who_keeps_others_waiting_is_closed_after_a_while(connections: Connections) -> None:
    first, second = connections.open("first"), connections.open("second")
    grow(first, "one", 200 * 1024)
    grow(second, "one", 100 * 1024)
    connections.now += 9
    grow(first, "one", 201 * 1024)
    connections.run()
    assert connections.closed == []
    connections.now += 1
    connections.run()
    assert (connections.closed, connections.room.closed) == (["first"], 1)
    connections.run()
    assert connections.woken == ["second"]


def test_nobody_waits_so_nobody_is_closed(connections: Connections) -> None:
    hold = connections.open("slow")
    grow(hold, "one", 1000 * 1024)
    connections.now += 1000
    connections.run()
    assert connections.closed == []


def test_time_that_the_broker_takes_is_not_counted(connections: Connections) -> None:
    first, second = connections.open("first"), connections.open("second")
    grow(first, "one", 200 * 1024)
    grow(first, "one", 200 * 1024, is_held_back=True)
    grow(second, "one", 100 * 1024)
    connections.now += 1000
    connections.run()
    grow(first, "one", 200 * 1024, is_held_back=False)
    connections.run()
    assert connections.closed == []
    connections.now += 10
    connections.run()
    assert connections.closed == ["first"]


def test_when_all_is_taken_who_holds_most_pays(connections: Connections) -> None:
    users = ["one", "two", "three", "four"]
    for user in users:
        grow(connections.open(user), user, 256 * 1024)
    grow(connections.open("more"), "three", 20 * 1024)
    assert connections.closed == ["three"]
    grow(connections.open("five"), "five", 200 * 1024)
    assert connections.closed == ["three"]
    assert connections.room.size <= MIB


def test_a_connection_that_ends_gives_its_room_back(connections: Connections) -> None:
    hold = connections.open("gone")
    grow(hold, "one", 900 * 1024)
    hold.clear()
    hold.clear()
    assert connections.room.size == 0
