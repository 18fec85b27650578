"""Deleting what much hangs on: a little in each turn, as if all were gone from the first on."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.schema.errors import NotFound
from broker.vhosts import slices
from broker.vhosts.vhost import VHost
from tests.crash.inside import Inside, publish

MANY = 40
PLAIN = b"\x00\x00"


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """A broker in which every slice has one step."""
    monkeypatch.setattr(slices, "SLICE_S", 0)
    return Inside(tmp_path / "data").start()


@pytest.fixture
def vhost(inside: Inside) -> VHost:
    return inside.vhost


def bind_often(vhost: VHost, source: str, destination: str, kind: str = "queue") -> None:
    for number in range(MANY):
        vhost.bind(source, destination, kind, f"key {number}")


def go_on(inside: Inside, left: Callable[[], int]) -> list[int]:
    """Lets turn after turn pass until nothing is left to do; what was left after each."""
    seen = [left()]
    while not inside.vhost.slices.is_over():
        inside.ring()
        seen.append(left())
    return seen


def is_stepwise(seen: list[int]) -> bool:
    """Whether there was much to do and no turn did more than a little of it."""
    return seen[0] > MANY // 2 and max(a - b for a, b in itertools.pairwise(seen)) <= 2


class Owner:
    """A connection, as far as its exclusive queues are concerned."""

    def __init__(self) -> None:
        self.exclusive_queues: set[str] = set()


def connection(vhost: VHost, *queues: str) -> Owner:
    """A connection with these exclusive queues."""
    owner = Owner()
    for queue in queues:
        vhost.declare_queue(queue, exclusive=True, owner=owner)
    return owner


def test_no_message_follows_a_binding_to_a_queue_that_is_gone(inside: Inside, vhost: VHost) -> None:
    vhost.declare_queue("q")
    vhost.declare_exchange("x")
    vhost.declare_exchange("unused")
    bind_often(vhost, "x", "q")
    bind_often(vhost, "unused", "q")
    exchange = vhost.exchanges["x"]
    told: list[bool] = []
    vhost.delete_queue("q")
    vhost.slices.over(lambda: told.append(True))

    def left() -> int:
        assert not list(vhost.bindings(destination="q"))
        assert not list(vhost.bindings(source="x"))
        assert not publish(vhost, "x", "key 3", PLAIN, b"")
        assert told == [True] * vhost.slices.is_over()
        return len(exchange.bindings)

    assert left() == MANY
    vhost.delete_exchange("unused", if_unused=True)
    assert is_stepwise(go_on(inside, left))
    assert left() == 0


def test_a_queue_declared_again_meanwhile_has_its_own_bindings_only(
    inside: Inside, vhost: VHost
) -> None:
    vhost.declare_queue("q")
    vhost.declare_exchange("x")
    bind_often(vhost, "x", "q")
    vhost.delete_queue("q")
    assert not vhost.slices.is_over()
    vhost.declare_queue("q")
    assert not publish(vhost, "x", "key 3", PLAIN, b"")
    assert vhost.bind("x", "q", "queue", "key 5")
    go_on(inside, lambda: 0)
    assert publish(vhost, "x", "key 5", PLAIN, b"")
    assert [each.routing_key for each in vhost.bindings(source="x")] == ["key 5"]


def test_an_exchange_takes_its_bindings_along_in_both_directions(
    inside: Inside, vhost: VHost
) -> None:
    vhost.declare_queue("q")
    vhost.declare_exchange("before")
    vhost.declare_exchange("x")
    bind_often(vhost, "before", "x", "exchange")
    bind_often(vhost, "x", "q")
    exchange, before = vhost.exchanges["x"], vhost.exchanges["before"]
    assert publish(vhost, "before", "key 3", PLAIN, b"")
    vhost.delete_exchange("x")

    def left() -> int:
        assert not list(vhost.bindings(source="before"))
        assert [each.source for each in vhost.bindings(destination="q")] == [""]
        assert not publish(vhost, "before", "key 3", PLAIN, b"")
        return len(exchange.bindings) + len(before.bindings)

    assert is_stepwise(go_on(inside, left))
    assert left() == 0


def test_an_exchange_declared_again_meanwhile_has_its_own_bindings_only(
    inside: Inside, vhost: VHost
) -> None:
    vhost.declare_queue("q")
    vhost.declare_exchange("before")
    vhost.declare_exchange("x")
    bind_often(vhost, "before", "x", "exchange")
    bind_often(vhost, "x", "q")
    vhost.delete_exchange("x")
    assert not vhost.slices.is_over()
    vhost.declare_exchange("x")
    vhost.bind("x", "q", "queue", "key 5")
    go_on(inside, lambda: 0)
    assert publish(vhost, "x", "key 5", PLAIN, b"")
    assert not publish(vhost, "before", "key 5", PLAIN, b"")
    assert len(list(vhost.bindings(destination="q"))) == 2


def test_both_ends_of_bindings_may_come_again_meanwhile(inside: Inside, vhost: VHost) -> None:
    for _ in range(2):
        vhost.declare_queue("q")
        vhost.declare_exchange("x")
        bind_often(vhost, "x", "q")
        vhost.delete_queue("q")
        vhost.delete_exchange("x")
    vhost.declare_queue("q")
    vhost.declare_exchange("x")
    bind_often(vhost, "x", "q")
    go_on(inside, lambda: 0)
    assert len(vhost.exchanges["x"].bindings) == MANY
    assert len(list(vhost.bindings(destination="q"))) == MANY + 1
    assert publish(vhost, "x", "key 3", PLAIN, b"")
    vhost.delete_queue("q")
    go_on(inside, lambda: 0)
    assert not vhost.exchanges["x"].bindings


@pytest.mark.parametrize("type", ["x-consistent-hash", "x-random"])
def test_what_picks_one_of_its_bindings_never_picks_one_that_is_gone(
    inside: Inside, vhost: VHost, type: str
) -> None:
    vhost.declare_exchange("x", type)
    for name in ("q", "r"):
        vhost.declare_queue(name)
        for weight in range(1, 8):
            vhost.bind("x", name, "queue", str(weight))
    vhost.delete_queue("q")
    assert all(publish(vhost, "x", f"{number}", PLAIN, b"") for number in range(100))
    go_on(inside, lambda: 0)


def test_auto_delete_exchanges_go_with_a_queue_though_the_broker_is_killed_meanwhile(
    tmp_path: Path, inside: Inside, vhost: VHost
) -> None:
    vhost.declare_queue("q", durable=True)
    vhost.declare_exchange("never bound", durable=True, auto_delete=True)
    vhost.declare_exchange("bound again", durable=True, auto_delete=True)
    vhost.declare_queue("r", durable=True)
    vhost.bind("bound again", "q", "queue", "")
    for number in range(MANY):
        vhost.declare_exchange(f"x {number}", durable=True, auto_delete=True)
        vhost.bind(f"x {number}", "q", "queue", "")
    vhost.delete_queue("q")
    vhost.bind("bound again", "r", "queue", "")
    inside.sync()
    assert sum(name.startswith("x ") for name in vhost.exchanges) > MANY // 2
    inside.kill()
    for _ in range(2):
        inside = Inside(tmp_path / "data").start()
        go_on(inside, lambda: 0)
        ours = {name for name in inside.vhost.exchanges if name and not name.startswith("amq.")}
        assert ours == {"never bound", "bound again"}
        inside.stop()


def test_an_auto_delete_exchange_is_deleted_once(inside: Inside, vhost: VHost) -> None:
    vhost.declare_queue("q", durable=True)
    vhost.declare_exchange("x", durable=True, auto_delete=True)
    vhost.bind("x", "q", "queue", "")
    events: list[str] = []
    vhost._emit = lambda event, _data: events.append(event)
    inside.sync()
    before = _entries(inside)
    vhost.delete_exchange("x")
    go_on(inside, lambda: 0)
    inside.sync()
    assert events == ["exchange.deleted"]
    assert _entries(inside) == before + 1


def _entries(inside: Inside) -> int:
    """How often the journal names the exchange `x`."""
    (journal,) = inside.directory.glob("vhosts/*/definitions.journal")
    return journal.read_bytes().count(b"\x01x")


def test_exclusive_queues_of_a_connection_that_ended_are_gone_for_whoever_asks(
    inside: Inside, vhost: VHost
) -> None:
    names = [f"q {number}" for number in range(MANY)]
    owner = connection(vhost, *names)
    vhost.delete_exclusive(owner)
    assert len(vhost.queues) > MANY // 2
    last = list(vhost.queues)[-1]
    with pytest.raises(NotFound):
        vhost.queue(last, object())
    first = next(iter(vhost.queues))
    mine, is_new = vhost.declare_queue(first, durable=True)
    assert is_new
    assert is_stepwise(go_on(inside, lambda: len(vhost.queues)))
    assert list(vhost.queues.items()) == [(first, mine)]
    assert not owner.exclusive_queues


def test_exclusive_queues_of_a_connection_that_ended_are_in_no_list(
    inside: Inside, vhost: VHost
) -> None:
    """To make one of 250,000 names is a turn of 10 ms, and the garbage collector walks over it."""
    owner = connection(vhost, *(f"q {number}" for number in range(MANY)))
    vhost.delete_exclusive(owner)
    assert len(owner.exclusive_queues) == len(vhost.queues) > MANY // 2
    lists = [each for each in gc.get_objects() if type(each) is list and len(each) > 1]
    assert not [each for each in lists if all(type(name) is str and "q " in name for name in each)]


def test_a_vhost_killed_while_it_is_being_deleted_is_gone_at_the_next_start(
    tmp_path: Path, inside: Inside
) -> None:
    shop = inside.definitions.create_vhost("shop")
    for number in range(MANY):
        shop.declare_queue(f"q {number}", durable=True)
        publish(shop, "", f"q {number}", b"\x10\x00\x02", b"kept")
    inside.sync()
    inside.files.flush()
    inside.definitions.remove_vhost("shop")
    inside.files.flush()
    count = len(shop.queues)
    steps = shop.delete()
    for number in range(1, 11):
        next(steps)
        assert len(shop.queues) == count - number
    inside.sync()
    inside.kill()
    inside = Inside(tmp_path / "data").start()
    assert list(inside.definitions.vhosts) == ["/"]
    assert not Path(shop.directory).exists()
    inside.stop()


def test_a_queue_that_comes_and_goes_takes_no_turn_long(inside: Inside, vhost: VHost) -> None:
    """Nothing of the old one has to be waited for, whatever of it is bound again."""
    vhost.declare_exchange("x", "topic")
    for round in range(3):
        vhost.declare_queue("q")
        vhost.bind("x", "q", "queue", f"round {round}")
        if round < 2:
            bind_often(vhost, "x", "q")
        vhost.bind("x", "q", "queue", "key 3")
        assert publish(vhost, "x", "key 3", PLAIN, b"%d" % round)
        vhost.delete_queue("q")
        inside.ring()
    exchange = vhost.exchanges["x"]
    vhost.declare_queue("q")
    vhost.bind("x", "q", "queue", "key 5")
    assert len(exchange.bindings) > MANY // 2, "what is left of the old ones is still on its way"
    assert not publish(vhost, "x", "key 3", PLAIN, b"")
    assert vhost.unbind("x", "q", "queue", "key 5")
    assert not vhost.unbind("x", "q", "queue", "key 3")
    assert vhost.bind("x", "q", "queue", "key 3")
    assert is_stepwise(go_on(inside, lambda: len(exchange.bindings)))
    assert [each.routing_key for each in exchange.bindings.values()] == ["key 3"]
    assert publish(vhost, "x", "key 3", PLAIN, b"")
    assert [each.routing_key for each in vhost.bindings(destination="q")] == ["q", "key 3"]
