"""Messages that cannot be published at the destination: headers without room for what is added to
them, or longer than a frame there. They count as refused, and do not stop what is behind them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from broker.client.aio import Connection, connect
from broker.client.properties import decode, encode
from management.bridges.federation_headers import ExchangeHeaders, QueueHeaders, UserId
from management.bridges.plan import Plan, ShovelFailed
from management.bridges.properties import KNOWN_BYTES_MOST
from management.bridges.rewrite import Rewrite
from tests.appliance import Appliance
from tests.bridges.conftest import (
    Bench,
    Pair,
    declare,
    endpoint_of,
    name,
    publish,
    ready,
    taken,
    until,
)
from tests.bridges.federated import (
    Downstream,
    bind,
    consume,
    declare_exchange,
    downstream_of,
    send,
)

FULL = {"pad": "x" * 131_000}
"""A publisher may send them, and nothing has room beside them."""
MANY = {"x-shovelled": [None] * 64_505}
"""As many values as a publisher may send, but for a few."""


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """A broker whose frames are small."""
    broker = Appliance("broker", tmp_path_factory.mktemp("narrow"), frame_max=8192)
    yield broker.start()
    broker.close()


@pytest.fixture
async def down(pair: Pair) -> AsyncIterator[Downstream]:
    async with downstream_of(pair) as found:
        yield found


# Shovels.


@pytest.mark.parametrize("headers", [FULL, MANY], ids=["full", "many"])
async def test_a_message_without_room_for_its_forward_header_is_dropped_and_counted(
    bench: Bench, there: Connection, far: Appliance, headers: dict[str, Any]
) -> None:
    async with there.channel() as channel:
        await channel.call("exchange.declare", exchange=bench.target, type="fanout")
    await bind(there, bench.target, bench.target)
    await bench.publish(1, headers=headers)
    bodies = await bench.publish(3)
    await bench.put(
        dest_uri=far.amqp_url, dest_exchange=bench.target, dest_add_forward_headers=True
    )
    found = await taken(there, bench.target, 3, is_there=True)
    assert [message.body for message in found] == bodies
    row = await bench.until(lambda row: row["counts"]["moved"] == 3)
    assert (row["counts"]["refused"], row["counts"]["dropped"]) == (1, 1)
    assert (row["state"], row["counts"]["connects"]) == ("running", 1)
    assert await ready(bench.here, bench.queue) == 0


async def test_a_message_without_room_goes_to_the_dead_letter_queue_as_it_was(
    bench: Bench, far: Appliance, there: Connection
) -> None:
    letters = f"{bench.queue}-dead"
    await bench.declare(letters)
    await bench.publish(1, headers=FULL, user_id="guest")
    bodies = await bench.publish(3)
    await bench.put(
        dest_uri=far.amqp_url,
        dest_queue=bench.target,
        dest_add_forward_headers=True,
        on_refused="dead-letter",
        dead_letter_queue=letters,
    )
    (letter,) = await taken(bench.here, letters, 1)
    assert letter.decoded()["headers"] == FULL
    found = await taken(there, bench.target, 3)
    assert [message.body for message in found] == bodies
    await bench.until(lambda row: row["counts"]["dead_lettered"] == 1 and row["pending"] == 0)
    assert await ready(bench.here, bench.queue) == 0


async def test_a_message_without_room_is_held_and_the_reason_says_why(bench: Bench) -> None:
    await bench.publish(1, headers=FULL)
    await bench.put(dest_queue=bench.target, dest_add_forward_headers=True)
    row = await bench.until(lambda row: row["counts"]["refused"] >= 2)
    assert row["state"] == "blocked"
    assert "are longer than a frame of 131072 bytes" in row["reason"]
    assert (row["held"], row["counts"]["connects"], row["counts"]["moved"]) == (1, 1, 0)


@pytest.mark.parametrize("mode", ["on-publish", "no-ack"])
async def test_what_is_not_confirmed_is_dropped_where_it_has_no_room(
    bench: Bench, far: Appliance, there: Connection, mode: str
) -> None:
    await bench.publish(1, headers=FULL)
    bodies = await bench.publish(3)
    await bench.put(
        dest_uri=far.amqp_url,
        dest_queue=bench.target,
        dest_add_forward_headers=True,
        ack_mode=mode,
    )
    found = await taken(there, bench.target, 3)
    assert [message.body for message in found] == bodies
    row = await bench.until(lambda row: row["counts"]["moved"] == 3)
    assert (row["counts"]["dropped"], row["state"]) == (1, "running")
    assert await ready(bench.here, bench.queue) == 0


async def test_a_shovel_that_moves_a_number_ends_when_the_last_one_has_no_room(
    bench: Bench, far: Appliance, there: Connection
) -> None:
    async with there.channel() as channel:
        await channel.call("exchange.declare", exchange=bench.target, type="fanout")
    await bench.publish(1, headers=FULL)
    await bench.put(
        dest_uri=far.amqp_url,
        dest_exchange=bench.target,
        dest_add_forward_headers=True,
        src_delete_after=1,
    )
    await bench.until_gone()
    assert await ready(bench.here, bench.queue) == 0


async def test_headers_that_dead_lettering_made_longer_than_a_frame_are_read_and_refused(
    bench: Bench, far: Appliance, there: Connection
) -> None:
    async with there.channel() as channel:
        await channel.call("exchange.declare", exchange=bench.target, type="fanout")
    await bind(there, bench.target, bench.target)
    before = f"{bench.queue}-before"
    await bench.declare(
        before,
        x_message_ttl=0,
        x_dead_letter_exchange="",
        x_dead_letter_routing_key=bench.queue,
    )
    await bench.publish(1, before, headers=FULL)

    async def is_dead() -> bool:
        return await ready(bench.here, bench.queue) == 1

    await until(is_dead)
    bodies = await bench.publish(2)
    await bench.put(dest_uri=far.amqp_url, dest_exchange=bench.target)
    found = await taken(there, bench.target, 2, is_there=True)
    assert [message.body for message in found] == bodies
    row = await bench.until(lambda row: row["counts"]["moved"] == 2)
    assert (row["counts"]["dropped"], row["counts"]["connects"]) == (1, 1)


async def test_a_source_that_does_not_take_a_refused_message_back_is_named(
    bench: Bench, far: Appliance
) -> None:
    """It stays where it is: there is no other place for it."""
    before, letters = f"{bench.queue}-before", f"{bench.queue}-dead"
    await bench.declare(letters)
    dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": bench.queue}
    await bench.declare(before, x_message_ttl=0, **dead)
    await bench.publish(1, before, headers=FULL)
    await bench.put(
        dest_uri=far.amqp_url,
        dest_queue=bench.target,
        on_refused="dead-letter",
        dead_letter_queue=letters,
    )
    row = await bench.until(lambda row: "dead-letter-queue" in row["reason"])
    assert f"{letters} does not take a message: properties of 131" in row["reason"]


async def test_a_destination_with_smaller_frames_gets_what_fits(
    bench: Bench, narrow: Appliance
) -> None:
    async with await connect(endpoint_of(narrow)) as there:
        await declare_exchange(there, bench.target, "fanout")
        await bind(there, bench.target, bench.target)
        await bench.publish(1, headers={"pad": "x" * 10_000})
        bodies = await bench.publish(2, size=20_000, headers={"pad": "x" * 8_000})
        await bench.put(dest_uri=narrow.amqp_url, dest_exchange=bench.target)
        found = await taken(there, bench.target, 2, is_there=True)
        assert [message.body for message in found] == bodies
    row = await bench.until(lambda row: row["counts"]["moved"] == 2)
    assert (row["counts"]["dropped"], row["counts"]["connects"]) == (1, 1)


# Links of federation.


@pytest.mark.parametrize("headers", [FULL, MANY], ids=["full", "many"])
async def test_a_link_leaves_out_and_logs_what_has_no_room_for_its_trail(
    down: Downstream, far: Appliance, there: Connection, headers: dict[str, Any]
) -> None:
    await declare_exchange(down.here, down.name)
    await bind(down.here, down.name, down.name, "k")
    await down.upstream(far.amqp_url)
    await down.policy()
    await down.until_running()
    assert await send(there, down.name, "k", b"full", headers=headers)
    assert await send(there, down.name, "k", b"next")
    (message,) = await taken(down.here, down.name, 1)
    assert message.body == b"next"
    (row,) = await down.until(lambda rows: rows[0]["counts"]["moved"] == 1)
    counts = row["counts"]
    assert (counts["refused"], counts["dropped"], counts["connects"]) == (1, 1, 1)
    assert "a message cannot be published and is left out" in down.pair.bridges.log()


async def test_a_queues_link_has_the_upstream_dead_letter_what_has_no_room(
    down: Downstream, far: Appliance, there: Connection
) -> None:
    letters = f"{down.name}-dead"
    async with there.channel() as channel:
        await declare(channel, letters)
        named = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": letters}
        await declare(channel, down.name, **named)
        await publish(channel, down.name, 1, headers=FULL)
    async with there.channel() as channel:
        bodies = await publish(channel, down.name, 3)
    async with down.here.channel() as channel:
        await declare(channel, down.name)
    await down.upstream(far.amqp_url)
    await down.policy("queues")
    found: list[Any] = []
    await consume(down.here, down.name, found)

    async def came() -> bool:
        return len(found) == 3

    await until(came)
    assert [message.body for message in found] == bodies
    (letter,) = await taken(there, letters, 1)
    assert letter.decoded()["headers"]["pad"] == FULL["pad"]
    (row,) = await down.until(lambda rows: rows[0]["counts"]["moved"] == 3)
    assert (row["counts"]["refused"], row["counts"]["connects"]) == (1, 1)


KEEPS_NONE = UserId(None, trusts=False, impersonates=False)
UNREADABLE = b"\x20\x00\x00\x00\x00\x03\x01a?"
"""Properties with a header of a type that AMQP does not have."""


def of_exchange() -> ExchangeHeaders:
    return ExchangeHeaders({"uri": "u"}, KEEPS_NONE, max_hops=9, cluster="here", vhost="/")


@pytest.mark.parametrize("listed", [UNREADABLE, b"\x80\x00"], ids=["headers", "properties"])
def test_what_cannot_have_its_trail_never_goes_without_it(listed: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        of_exchange()(listed, False)
    with pytest.raises(ValueError, match="cannot be read"):
        QueueHeaders({"uri": "u"}, KEEPS_NONE)(listed, False, b"x", b"k")


def test_a_trail_that_is_full_is_not_cut() -> None:
    passed = [{"cluster-name": "c", "vhost": "/"}] * 21_845
    headers = ExchangeHeaders({"uri": "u"}, KEEPS_NONE, max_hops=10**6, cluster="h", vhost="/")
    with pytest.raises(ValueError, match="values"):
        headers(encode({"headers": {"x-received-from": passed}}), False)


def test_visits_are_counted_as_far_as_their_type_goes() -> None:
    headers = QueueHeaders({"uri": "u"}, KEEPS_NONE)
    before = {"x-received-from": [{"uri": "u", "visit-count": 2**63 - 1}]}
    changed = headers(encode({"headers": before}), False, b"x", b"k")
    assert decode(changed)["headers"]["x-received-from"][0]["visit-count"] == 2**63 - 1


# What a shovel makes of properties.


def rewrite(user: str | None = "guest", **given: Any) -> Rewrite:
    named = {key.replace("_", "-"): value for key, value in given.items()}
    value = {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "q", **named}
    order = {"vhost": "/", "owner": "guest", "on_behalf_of": {}, "value": value}
    return Rewrite(Plan.of(order), "amqp:///", "amqp:///", user)


def test_what_is_published_again_has_its_forward_header_once() -> None:
    """Each time more of it would in the end leave no room for it."""
    changes = rewrite(dest_add_forward_headers=True)
    first = changes(encode({}), False)
    again = changes.again(changes.again(first))
    headers = decode(again)["headers"]
    assert headers["x-shovel-redelivered"] is True
    assert len(headers["x-shovelled"]) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"priority": 300},
        {"no-such": 1},
        {"headers": 5},
        {"headers": {"n": 2**64}},
        {"app-id": "a" * 256},
    ],
)
def test_properties_that_no_message_can_have_refuse_none_but_stop_the_shovel(
    given: dict[str, Any],
) -> None:
    with pytest.raises(ShovelFailed, match="dest-publish-properties") as caught:
        rewrite(dest_publish_properties=given)
    assert caught.value.stops


def test_a_property_of_null_is_none() -> None:
    changed = rewrite(dest_publish_properties={"app-id": None, "type": "t"})(
        encode({"app_id": "own"}), False
    )
    assert decode(changed) == {"app_id": "own", "type": "t"}


def test_long_properties_are_not_remembered() -> None:
    changes = rewrite(dest_add_forward_headers=True)
    for number in range(3):
        changes(encode({"headers": {"pad": f"{number}" * KNOWN_BYTES_MOST}}), False)
    changes(encode({"message_id": "short"}), False)
    assert [len(listed) < 100 for listed, _ in changes._known] == [True]


# Users.


async def other_user(bench: Bench) -> str:
    """One who may do everything."""
    user, call = name(), bench.control.call
    await call("user.put", name=user, password="p", tags=[])
    await call("permission.put", user=user, vhost="/", configure=".*", write=".*", read=".*")
    return user


@pytest.mark.parametrize(
    ("user", "given", "kept"),
    [
        ("ada", {}, "ada"),
        ("guest", {}, None),
        (None, {}, None),
        ("guest", {"dest_publish_properties": {"user-id": "guest"}}, "guest"),
        ("guest", {"dest_publish_properties": {"user_id": "third"}}, "third"),
    ],
)
def test_a_user_id_stays_where_it_is_of_the_user_who_publishes(
    user: str | None, given: dict[str, Any], kept: str | None
) -> None:
    changed = rewrite(user, **given)(encode({"user_id": "ada", "app_id": "a"}), False)
    found = decode(changed)
    assert found.get("user_id") == kept
    assert found["app_id"] == "a"


async def test_a_user_id_of_another_user_does_not_stop_a_shovel(
    bench: Bench, far: Appliance, there: Connection
) -> None:
    user = await other_user(bench)
    letters = f"{bench.queue}-dead"
    await bench.declare(letters)
    async with there.channel() as channel:
        await declare(channel, bench.target, x_max_length=2, x_overflow="reject-publish")
    endpoint = dataclasses.replace(endpoint_of(bench.pair.broker), user=user, password="p")
    async with await connect(endpoint) as other, other.channel() as channel:
        await publish(channel, bench.queue, 1, user_id=user)
    await bench.publish(1, user_id="guest")
    async with await connect(endpoint) as other, other.channel() as channel:
        await publish(channel, bench.queue, 1, user_id=user)
    await bench.put(
        dest_uri=far.amqp_url,
        dest_queue=bench.target,
        on_refused="dead-letter",
        dead_letter_queue=letters,
    )
    await bench.until(lambda row: row["counts"]["dead_lettered"] == 1)
    first, second = await taken(there, bench.target, 2, is_there=True)
    assert "user_id" not in first.decoded()
    assert second.decoded()["user_id"] == "guest", "the login at the destination is of this user"
    (letter,) = await taken(bench.here, letters, 1)
    assert "user_id" not in letter.decoded()
    row = await bench.until(lambda row: row["pending"] == 0)
    assert row["counts"]["connects"] == 1


async def test_what_is_refused_as_it_came_keeps_no_user_id_of_another_user(
    bench: Bench, far: Appliance, there: Connection
) -> None:
    """It is published to the dead-letter-queue, by the shovel's own user."""
    user = await other_user(bench)
    letters = f"{bench.queue}-dead"
    await bench.declare(letters)
    endpoint = dataclasses.replace(endpoint_of(bench.pair.broker), user=user, password="p")
    async with await connect(endpoint) as other, other.channel() as channel:
        await publish(channel, bench.queue, 1, user_id=user, headers=FULL)
    await bench.put(
        dest_uri=far.amqp_url,
        dest_queue=bench.target,
        dest_add_forward_headers=True,
        on_refused="dead-letter",
        dead_letter_queue=letters,
    )
    (letter,) = await taken(bench.here, letters, 1)
    assert "user_id" not in letter.decoded()
    assert letter.decoded()["headers"] == FULL
