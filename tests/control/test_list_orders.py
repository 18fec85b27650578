"""Lists in their order: what is kept between requests, what is read, and for whom."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from array import array
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from itertools import compress
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.access.patterns import Pattern
from broker.kernel.through import long_list
from broker.server.app import Broker
from broker.server.control import picking, rosters
from broker.server.control.queue_fields import PLAIN, QueueRows
from broker.server.control.rosters import Kept, Roster, in_order, last_first, move, those_at
from broker.server.freeing import Freeing
from broker.server.pace import Pace
from broker.stats.ordering import first_places, numbers
from broker.wire.clients import Clients
from management.broker_client import BrokerClient
from tests.appliance import Appliance
from tests.inside import publish

VHOST = "ordered"


class Thing:
    def __init__(self, name: str) -> None:
        self.name = name


@given(st.lists(st.floats(allow_nan=False) | st.sampled_from([0.0, 1.0])), st.integers(0, 60))
def test_the_first_places_are_those_of_a_stable_sort(keys: list[float], wanted: int) -> None:
    up = sorted(range(len(keys)), key=lambda place: keys[place])
    down = sorted(range(len(keys)), key=lambda place: -keys[place])
    assert list(first_places(array("d", keys), wanted)) == up[:wanted]
    assert list(first_places(array("d", keys), wanted, True)) == down[:wanted]


@given(st.lists(st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats()))
def test_keys_that_are_numbers_are_read_as_they_are(keys: list[Any]) -> None:
    found = array("d", bytes(8 * len(keys)))
    assert numbers(keys, lambda key: key, 0, len(keys) + 1, found)
    expected = [float("-inf") if key is None else float(key) for key in keys]
    assert list(map(repr, found)) == list(map(repr, expected))


@pytest.mark.parametrize("other", ["7", (7,), {}, 10**400])
def test_keys_that_are_no_numbers_are_told_apart(other: Any) -> None:
    assert not numbers([1, other], lambda key: key, 0, 2, array("d", bytes(16)))


async def test_a_roster_follows_what_comes_and_goes() -> None:
    chance = random.Random(7)
    present: dict[str, Any] = {}
    roster = Roster(Freeing(asyncio.create_task))
    for version in range(60):
        for _ in range(chance.randrange(400)):
            name = f"{chance.randrange(1500)}"
            if chance.random() < 0.4:
                present.pop(name, None)
            else:
                # One of the same name in its place is another one.
                present[name] = Thing(name)
        things = await roster.bring_up(present, version, Pace())
        assert things == [present[name] for name in sorted(present)]


async def test_things_are_sorted_in_chunks() -> None:
    chance = random.Random(8)
    numbers = [chance.randrange(1000) for _ in range(3000)]
    assert await in_order(numbers, lambda one: one, Pace()) == sorted(numbers)


@pytest.fixture
async def client(shared_broker: Appliance) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(shared_broker.data_dir / "control.sock")
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def filled(client: BrokerClient) -> AsyncIterator[BrokerClient]:
    """Twenty queues in a vhost, declared from the last to the first, each bound once."""
    await client.call("vhost.put", name=VHOST)
    for number in range(19, -1, -1):
        name = f"q{number:02}"
        await client.call("queue.declare", vhost=VHOST, name=name, durable=True)
        await bind(client, name, f"k{19 - number:02}")
    yield client
    await client.call("vhost.delete", name=VHOST)


async def bind(client: BrokerClient, name: str, key: str) -> None:
    await client.call(
        "binding.create",
        vhost=VHOST,
        source="amq.direct",
        destination=name,
        destination_type="queue",
        routing_key=key,
    )


async def names(client: BrokerClient, **arguments: Any) -> list[str]:
    found = await client.call("list", noun="queues", vhost=VHOST, columns=["name"], **arguments)
    return [row["name"] for row in found["items"]]


async def keys(client: BrokerClient, **arguments: Any) -> list[str]:
    found = await client.call("list", noun="bindings", vhost=VHOST, **arguments)
    return [row["routing_key"] for row in found["items"]]


async def test_a_list_shows_what_was_declared_and_deleted_since_the_last(
    filled: BrokerClient,
) -> None:
    assert await names(filled) == [f"q{number:02}" for number in range(20)]
    await filled.call("queue.delete", vhost=VHOST, name="q07")
    await filled.call("queue.declare", vhost=VHOST, name="q055", durable=True)
    await filled.call("queue.delete", vhost=VHOST, name="q11")
    await filled.call("queue.declare", vhost=VHOST, name="q11", durable=False)
    found = await names(filled)
    assert found == sorted(({f"q{number:02}" for number in range(20)} - {"q07"}) | {"q055"})
    flags = await filled.call(
        "list", noun="queues", vhost=VHOST, columns=["name", "durable"], name="q11"
    )
    assert flags["items"] == [{"name": "q11", "durable": False}]
    assert await names(filled, sort="name", sort_reverse=True) == found[::-1]


@pytest.mark.parametrize("pattern", [{"name": "q1"}, {"name": "^q1.$", "use_regex": True}])
async def test_a_filter_by_name_follows_what_was_declared_and_deleted(
    filled: BrokerClient, pattern: dict[str, Any]
) -> None:
    expected = [f"q{number}" for number in range(10, 20)]
    for _ in range(2):
        assert await names(filled, **pattern) == expected
    assert await names(filled, **pattern, sort="name", sort_reverse=True) == expected[::-1]
    await filled.call("queue.declare", vhost=VHOST, name="q1x", durable=True)
    await filled.call("queue.delete", vhost=VHOST, name="q12")
    expected = [name for name in [*expected, "q1x"] if name != "q12"]
    for _ in range(2):
        assert await names(filled, **pattern) == expected
    assert await keys(filled, name="q1", source="") == expected
    assert await names(filled, name="q0", state="idle") == [f"q0{number}" for number in range(10)]


async def test_a_list_of_bindings_shows_what_was_bound_and_unbound_since_the_last(
    filled: BrokerClient,
) -> None:
    by_key = {"sort": "routing_key", "page": 1, "page_size": 500}
    expected = sorted([f"q{n:02}" for n in range(20)] + [f"k{n:02}" for n in range(20)])
    assert await keys(filled, **by_key) == expected
    await bind(filled, "q03", "another")
    assert await keys(filled, **by_key) == sorted([*expected, "another"])
    await filled.call("queue.delete", vhost=VHOST, name="q03")
    left = [key for key in expected if key not in ("q03", "k16")]
    assert await keys(filled, **by_key) == left
    # In the kept order: those of the default exchange first, then by destination.
    assert (await keys(filled))[:3] == ["q00", "q01", "q02"]
    assert (await keys(filled))[-1] == "k00"
    assert await keys(filled, source="amq.direct", page=1, page_size=2) == ["k19", "k18"]


async def test_the_order_kept_for_one_caller_is_not_shown_to_another(
    filled: BrokerClient,
) -> None:
    """Both see as many queues, in different vhosts."""
    await filled.call("vhost.put", name="ordered-too")
    for user, vhost in (("mine", VHOST), ("theirs", "ordered-too")):
        await filled.call("user.put", name=user, password="x", tags=["management"])
        await filled.call(
            "permission.put", vhost=vhost, user=user, configure=".*", write=".*", read=".*"
        )
    for number in range(20):
        await filled.call("queue.declare", vhost="ordered-too", name=f"z{number:02}", durable=True)
    seen = {}
    for user in ("mine", "theirs"):
        for sort in ("type", "durable", "name"):
            found = await filled.call("list", as_user=user, noun="queues", sort=sort)
            seen[user] = {row["vhost"] for row in found["items"]}
            assert len(found["items"]) == 20
    assert seen == {"mine": {VHOST}, "theirs": {"ordered-too"}}
    await filled.call("vhost.delete", name="ordered-too")
    for user in ("mine", "theirs"):
        await filled.call("user.delete", name=user)


async def test_a_list_by_messages_is_as_of_now(filled: BrokerClient) -> None:
    for number in (3, 9, 9, 12, 12, 12):
        key = f"q{number:02}"
        await filled.call("exchange.publish", vhost=VHOST, name="", routing_key=key, payload=b"x")
    most = {"sort": "messages", "sort_reverse": True, "page": 1, "page_size": 4}
    assert await names(filled, **most) == ["q12", "q09", "q03", "q00"]
    assert (await names(filled, sort="messages"))[:2] == ["q00", "q01"]
    worst = {"sort": "trouble", "page": 1, "page_size": 4}
    assert await names(filled, **worst) == ["q12", "q09", "q03", "q00"]
    await filled.call("queue.purge", vhost=VHOST, name="q12")
    assert await names(filled, state="not served") == ["q03", "q09"]
    assert (await names(filled, **most))[0] == "q09"
    await filled.call("queue.pause", vhost=VHOST, name="q00")
    assert await names(filled, state="paused") == ["q00"]


@pytest.fixture
async def inner(broker: Broker) -> AsyncIterator[BrokerClient]:
    """A client of a broker in this process."""
    client = BrokerClient(broker.config.control_socket)
    yield client
    await client.close()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of queues of which a row was built, by a broker in this process."""
    found: list[str] = []
    build = QueueRows.build

    def noted(self: QueueRows, queue: Any) -> dict[str, Any]:
        found.append(queue.name)
        return build(self, queue)

    monkeypatch.setattr(QueueRows, "build", noted)
    yield found


@pytest.mark.parametrize(
    "sort",
    [
        None,
        "name",
        "messages",
        "trouble",
        "consumers",
        "message_stats.publish_details.rate",
        "net_rate",
    ],
)
async def test_it_builds_the_rows_of_the_page_only(
    broker: Broker, inner: BrokerClient, built: list[str], sort: str | None
) -> None:
    for number in range(1000):
        broker.vhosts["/"].declare_queue(f"q{number}")
    found = await inner.call("list", noun="queues", page=3, page_size=10, sort=sort)
    assert [row["name"] for row in found["items"]] == built
    assert len(built) == 10


async def test_plain_columns_are_those_of_the_row_without_building_it(
    broker: Broker, inner: BrokerClient, built: list[str]
) -> None:
    broker.vhosts["/"].declare_queue("q", durable=True)
    publish(broker.vhosts["/"], "q", body=b"xyz")
    (row,) = (await inner.call("list", noun="queues"))["items"]
    assert built == ["q"]
    columns = [name for name in PLAIN if name in row]
    (picked,) = (await inner.call("list", noun="queues", columns=columns))["items"]
    assert built == ["q"]
    (after,) = (await inner.call("list", noun="queues"))["items"]
    # What changed meanwhile, such as the memory of the queue, cannot be compared.
    stable = {name for name in columns if row[name] == after[name]}
    assert {name: picked[name] for name in stable} == {name: row[name] for name in stable}
    assert {"name", "messages", "message_bytes_ready", "consumers"} <= stable
    assert picked.keys() == set(columns)
    assert set(PLAIN) <= row.keys()


async def test_a_list_is_answered_while_queues_come_without_a_pause() -> None:
    """A pass over many queues takes turns; in each of them one more is declared."""
    present = {name: Thing(name) for name in ("a", "b")}

    class Churn(Pace):
        async def __call__(self) -> None:
            name = f"q{len(present):05}"
            present[name] = Thing(name)
            if len(present) > 1000:
                raise AssertionError("the list is never answered")

    found = await Roster(Freeing(asyncio.create_task)).bring_up(present, 1, Churn())
    names = [one.name for one in found]
    assert names == sorted(names)
    assert {"a", "b"} < set(names)


def any_order(value: Any) -> tuple[int, Any]:
    if value is None:
        return (0, 0)
    return (1, value) if isinstance(value, int | float) else (2, value)


@given(
    st.one_of(
        st.lists(st.integers(-3, 3) | st.booleans() | st.none()),
        st.lists(st.sampled_from(["", "a", "b", "é"])),
        st.lists(st.none() | st.text(max_size=2) | st.integers(0, 3)),
    ),
    st.integers(0, 8),
    st.booleans(),
    st.integers(1, 4),
    st.sampled_from([1, picking._FEW]),
)
async def test_the_first_by_any_key_are_those_of_a_stable_sort(
    keys: list[Any], enough: int, reverse: bool, step: int, few: int
) -> None:
    things = list(range(len(keys)))
    expected = sorted(things, key=lambda place: any_order(keys[place]), reverse=reverse)[:enough]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(picking, "_STEP", step)
        patched.setattr(picking, "_FEW", few)  # more of them are chunks that are merged
        patched.setattr(rosters, "_CHUNK", step)
        found = await picking.first_by_key(things, keys.__getitem__, enough, reverse, Pace())
    assert list(found) == expected


@given(
    st.lists(st.none() | st.text(max_size=2) | st.dictionaries(st.text(max_size=1), st.none())),
    st.integers(0, 9),
    st.booleans(),
)
async def test_the_first_by_what_is_compared_as_text_are_those_of_a_stable_sort(
    keys: list[Any], enough: int, reverse: bool
) -> None:
    key = picking.AsText(lambda thing: thing)
    expected = sorted(range(len(keys)), key=lambda place: str(keys[place] or ""), reverse=reverse)
    assert await picking.first_by_key(keys, key, enough, reverse, Pace()) == expected[:enough]


async def test_what_a_pattern_found_is_remembered_for_few_patterns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    things = [Thing(f"q{number}") for number in range(300)]
    asked: list[str] = []
    matches = Pattern.matches

    def noted(self: Pattern, name: str) -> bool:
        asked.append(name)
        return matches(self, name)

    monkeypatch.setattr(Pattern, "matches", noted)
    monkeypatch.setattr(picking, "_found", OrderedDict())
    name = attrgetter("name")

    async def found(text: str) -> list[str]:
        asked.clear()
        names = list(map(name, things))
        return list(compress(names, await picking.found_by(Pattern(text), names, Pace())))

    assert await found("7$") == [f"q{number}" for number in range(7, 300, 10)]
    assert len(asked) == 300
    things[5:6] = [Thing("new-7"), Thing("other")]
    assert "new-7" in await found("7$")
    assert asked == ["new-7", "other"]
    for text in "abcd":
        await found(text)
    await found("7$")
    assert len(asked) == 301


@pytest.mark.parametrize("sort", ["destination", "routing_key", "properties_key"])
async def test_bindings_of_one_exchange_are_those_of_all(filled: BrokerClient, sort: str) -> None:
    """Picked, sorted as a whole the second time, kept the third; then one more comes."""
    page = {"page": 2, "page_size": 7, "sort": sort}
    for more in ({}, {}, {}, {"another": 1}):
        if more:
            await bind(filled, "q05", "k05another")
        whole = [
            row["routing_key"]
            for row in (await filled.call("list", noun="bindings", vhost=VHOST, sort=sort))["items"]
            if row["source"] == "amq.direct"
        ]
        assert await keys(filled, source="amq.direct", **page) == whole[7:14]
        reverse = {**page, "sort_reverse": True}
        shown = await keys(filled, source="amq.direct", **reverse)
        assert sorted(shown) == sorted(whole[::-1][7:14])
    await filled.call(
        "binding.delete",
        vhost=VHOST,
        source="amq.direct",
        destination="q05",
        destination_type="queue",
        properties_key="k05another",
    )
    assert "k05another" not in await keys(filled, source="amq.direct")


async def test_nothing_of_a_client_that_left_is_held_by_the_lists_of_clients() -> None:
    clients = Clients()
    kept = Kept(clients.kept, lambda: clients.version, Freeing(asyncio.create_task))
    there = [Thing("one"), Thing("other")]
    made = []

    async def make() -> list[Thing]:
        made.append(len(there))
        return list(there)

    for _ in range(2):
        assert len(await kept.kept("all", make)) == 2
    assert made == [2]
    left = weakref.ref(there.pop())
    clients.changed()
    assert left() is None
    assert len(await kept.kept("all", make)) == 1
    assert made == [2, 1]


async def test_a_list_that_was_out_of_date_before_it_was_made_is_not_held() -> None:
    clients = Clients()
    kept = Kept(clients.kept, lambda: clients.version, Freeing(asyncio.create_task))

    async def make() -> list[str]:
        clients.changed()
        return ["old"]

    assert await kept.kept("all", make) == ["old"]
    assert not clients.kept


@given(st.lists(st.integers()), st.lists(st.integers()), st.integers(0, 9))
async def test_what_is_done_in_steps_is_what_is_done_at_once(
    things: list[int], more: list[int], count: int
) -> None:
    count = min(count, len(things))
    moved, to = more[:], things[:]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rosters, "_STEP", 2)
        assert await last_first(things, count, Pace()) == things[::-1][:count]
        assert await those_at(things, range(count), Pace()) == things[:count]
        await move(moved, to, Pace())
    assert (moved, to) == ([], things + more)


def test_the_collector_does_not_look_into_a_long_list() -> None:
    things: list[list[int]] = long_list()
    things += [[number] for number in range(1000)]
    things.append([0])
    things.sort(reverse=True)
    things.reverse()
    del things[-10:]
    assert not gc.is_tracked(things)
