"""Dead lettering: what goes where when a queue gives a message up, and what is written on it."""

from collections.abc import Callable
from typing import Any

import pytest

from broker.fields import properties
from broker.fields.headers import ListedProperties
from broker.vhosts.dead_letters import written_deaths
from tests.amqp import raw
from tests.amqp.field_tables import Typed
from tests.amqp.raw import Client, Message
from tests.appliance import Appliance


@pytest.fixture
def graves(client: Client, name: str) -> str:
    """A queue bound to a fanout exchange of the same name, for dead letters."""
    client.call(1, "exchange.declare", exchange=name, type="fanout")
    client.call(1, "queue.declare", queue=name, durable=True)
    client.call(1, "queue.bind", queue=name, exchange=name)
    return name


def declare(client: Client, queue: str, graves: str, **arguments: Any) -> str:
    """A durable queue whose dead letters go to the exchange `graves`."""
    table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    table.setdefault("x-dead-letter-exchange", graves)
    client.call(1, "queue.declare", queue=queue, durable=True, arguments=table)
    return queue


def await_letter(client: Client, queue: str) -> Message:
    """The next message of a queue, waited for."""
    tag = client.call(1, "basic.consume", queue=queue, no_ack=True).consumer_tag
    letter = client.expect_message(channel=1)
    client.call(1, "basic.cancel", consumer_tag=tag)
    return letter


def ready(client: Client, queue: str) -> int:
    found: int = client.call(1, "queue.declare", queue=queue, passive=True).message_count
    return found


def test_it_moves_a_rejected_message_and_says_what_happened(client: Client, graves: str) -> None:
    queue = declare(client, f"{graves}-source", graves)
    client.publish(
        1,
        "",
        queue,
        b"bad",
        delivery_mode=2,
        headers={"CC": ["nobody"], "n": 7},
        expiration="60000",
    )
    got = client.get(1, queue)
    assert got is not None
    client.send_method(1, "basic.reject", delivery_tag=got.tag, requeue=False)
    letter = await_letter(client, graves)
    assert letter.body == b"bad"
    assert (letter.method.exchange, letter.method.routing_key) == (graves, queue)
    headers = letter.properties["headers"]
    (death,) = headers["x-death"]
    assert death.pop("time") > 1_500_000_000
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": queue,
        "exchange": "",
        "routing-keys": [queue, "nobody"],
        "original-expiration": "60000",
    }
    assert {key: headers[key] for key in headers if key.startswith("x-first")} == {
        "x-first-death-reason": "rejected",
        "x-first-death-queue": queue,
        "x-first-death-exchange": "",
    }
    assert {key: headers[key] for key in headers if key.startswith("x-last")} == {
        "x-last-death-reason": "rejected",
        "x-last-death-queue": queue,
        "x-last-death-exchange": "",
    }
    assert (headers["n"], headers["CC"]) == (7, ["nobody"])
    assert "expiration" not in letter.properties
    assert letter.properties["delivery_mode"] == 2
    assert not letter.redelivered


def test_it_moves_expired_messages_in_order(client: Client, graves: str) -> None:
    queue = declare(client, f"{graves}-source", graves, message_ttl=20)
    client.send(b"".join(raw.publish(1, "", queue, b"%d" % n) for n in range(50)))
    client.call(1, "basic.consume", queue=graves, no_ack=True)
    letters = client.expect_messages(50, channel=1)
    assert [letter.body for letter in letters] == [b"%d" % n for n in range(50)]
    assert letters[0].properties["headers"]["x-death"][0]["reason"] == "expired"


def test_it_moves_what_expires_before_anybody_could_take_it(client: Client, graves: str) -> None:
    queue = declare(client, f"{graves}-source", graves, message_ttl=0)
    client.call(1, "confirm.select")
    client.publish(1, "", queue, b"late", delivery_mode=2)
    assert client.expect_confirms(1, 1) == {1: "basic.ack"}
    assert await_letter(client, graves).properties["headers"]["x-death"][0]["reason"] == "expired"


def test_it_moves_the_heads_of_a_full_queue(client: Client, graves: str) -> None:
    queue = declare(client, f"{graves}-source", graves, max_length=2)
    client.send(b"".join(raw.publish(1, "", queue, b"%d" % n) for n in range(5)))
    client.call(1, "basic.consume", queue=graves, no_ack=True)
    letters = client.expect_messages(3, channel=1)
    assert [letter.body for letter in letters] == [b"0", b"1", b"2"]
    assert letters[0].properties["headers"]["x-death"][0]["reason"] == "maxlen"


def test_it_moves_what_a_full_queue_refuses_and_nacks_it(client: Client, graves: str) -> None:
    queue = declare(client, f"{graves}-source", graves, max_length=1, overflow="reject-publish-dlx")
    client.call(1, "confirm.select")
    client.send(b"".join(raw.publish(1, "", queue, b"%d" % n) for n in range(2)))
    assert client.expect_confirms(1, 2) == {1: "basic.ack", 2: "basic.nack"}
    letter = await_letter(client, graves)
    assert letter.body == b"1"
    assert letter.properties["headers"]["x-death"][0]["reason"] == "maxlen"
    assert ready(client, queue) == 1


def test_it_uses_the_dead_letter_routing_key_and_then_drops_cc(client: Client, name: str) -> None:
    for queue in (f"{name}-key", f"{name}-cc"):
        client.call(1, "queue.declare", queue=queue)
    source = declare(client, f"{name}-source", "", dead_letter_routing_key=f"{name}-key")
    client.publish(1, "", source, b"x", headers={"CC": [f"{name}-cc"]})
    client.get(1, f"{name}-cc", no_ack=True)
    got = client.get(1, source)
    assert got is not None
    client.send_method(1, "basic.nack", delivery_tag=got.tag, requeue=False)
    letter = await_letter(client, f"{name}-key")
    assert letter.method.routing_key == f"{name}-key"
    assert "CC" not in letter.properties["headers"]
    assert ready(client, f"{name}-cc") == 0


def test_it_routes_a_dead_letter_by_its_cc_keys_too(client: Client, name: str) -> None:
    for queue in (f"{name}-1", f"{name}-2"):
        client.call(1, "queue.declare", queue=queue)
        client.call(1, "queue.bind", queue=queue, exchange="amq.direct", routing_key=queue)
    source = declare(client, f"{name}-source", "amq.direct")
    client.call(1, "queue.bind", queue=source, exchange="amq.fanout")
    client.publish(1, "amq.fanout", f"{name}-1", b"x", headers={"CC": [f"{name}-2"]})
    got = client.get(1, source)
    assert got is not None
    client.send_method(1, "basic.reject", delivery_tag=got.tag, requeue=False)
    assert await_letter(client, f"{name}-1").body == b"x"
    assert await_letter(client, f"{name}-2").body == b"x"
    client.call(1, "queue.delete", queue=source)


def test_it_counts_deaths_of_the_same_kind_and_keeps_the_first(client: Client, name: str) -> None:
    work, retry = f"{name}-work", f"{name}-retry"
    declare(client, work, "", dead_letter_routing_key=retry)
    declare(client, retry, "", dead_letter_routing_key=work, message_ttl=5)
    client.publish(1, "", work, b"again")
    client.call(1, "basic.consume", queue=work)
    for _ in range(3):
        letter = client.expect_message(channel=1)
        client.send_method(1, "basic.reject", delivery_tag=letter.tag, requeue=False)
    headers = client.expect_message(channel=1).properties["headers"]
    told = [(death["queue"], death["reason"], death["count"]) for death in headers["x-death"]]
    assert told == [(retry, "expired", 3), (work, "rejected", 3)]
    assert headers["x-first-death-queue"] == work
    assert headers["x-last-death-queue"] == retry


def test_it_drops_what_goes_round_without_being_rejected(client: Client, name: str) -> None:
    one, two = f"{name}-1", f"{name}-2"
    declare(client, one, "", dead_letter_routing_key=two, message_ttl=1)
    declare(client, two, "", dead_letter_routing_key=one, message_ttl=1)
    end = f"{name}-end"
    client.call(1, "queue.declare", queue=end)
    client.publish(1, "", one, b"round")
    # What came later and expires later shows that the first one had its time.
    marker = declare(client, f"{name}-marker", "", dead_letter_routing_key=end, message_ttl=60)
    client.publish(1, "", marker, b"marker")
    assert await_letter(client, end).body == b"marker"
    assert (ready(client, one), ready(client, two)) == (0, 0)


@pytest.mark.parametrize("voids", [64_400, 64_506])
@pytest.mark.parametrize("where", ["x-death", "other"])
def test_a_message_with_full_headers_goes_round_once_only(
    client: Client, name: str, where: str, voids: int
) -> None:
    one, two = f"{name}-1", f"{name}-2"
    declare(client, one, "", dead_letter_routing_key=two, message_ttl=0)
    declare(client, two, "", dead_letter_routing_key=one, message_ttl=0)
    death = {"queue": "elsewhere", "reason": "expired", "count": 1, "big": [None] * voids}
    headers = {where: [death] if where == "x-death" else death["big"]}
    client.publish(1, "", one, b"round", headers=headers, delivery_mode=2)
    client.fence(1)
    assert (ready(client, one), ready(client, two)) == (0, 0)


@pytest.mark.parametrize(("queues", "copies"), [(4, 250), (12, 40)])
def test_a_message_with_full_headers_and_many_keys_goes_round_once_only(
    client: Client, name: str, queues: int, copies: int
) -> None:
    names = [f"{name}-{number}" for number in range(queues)]
    for number, queue in enumerate(names):
        behind = f"{name}-x{number}"
        client.call(1, "exchange.declare", exchange=behind, type="fanout")
        declare(client, queue, behind, message_ttl=0)
    for number in range(queues):
        following = names[(number + 1) % queues]
        client.call(1, "queue.bind", queue=following, exchange=f"{name}-x{number}")
    keys = [f"k{number}" for number in range(copies)]
    headers = {"full": [None] * (64_510 - copies), "CC": keys}
    client.publish(1, "", names[0], b"round", headers=headers, delivery_mode=2)
    client.fence(1)
    assert [ready(client, queue) for queue in names] == [0] * queues


@pytest.mark.parametrize(
    ("voids", "older", "keys", "left", "kept"),
    [
        (65_000, 3, 1, (1, 3), 2),
        (65_000, 600, 1, (1, 0), 2),
        (65_000, 600, 600, (0, 0), 2),
        (65_533, 1, 1, (0,), 1),
        (100, 0, 65_600, (0, 0), 2),
    ],
    ids=["all fits", "the older keys do not", "nor the others", "nor the older death", "no key"],
)
def test_keys_and_the_oldest_deaths_give_room_in_full_headers(
    voids: int, older: int, keys: int, left: tuple[int, ...], kept: int
) -> None:
    old = {
        "queue": "elsewhere",
        "reason": "expired",
        "big": [None] * voids,
        "routing-keys": ["k"] * older,
    }
    new = {"queue": "here", "reason": "expired", "routing-keys": ["k"] * keys}
    deaths = [new, old]
    listed = written_deaths(ListedProperties(properties.encode({"headers": {"a": 1}})), deaths)
    assert properties.decode(listed)["headers"] == {"a": 1, "x-death": deaths}
    assert [death["queue"] for death in deaths] == ["here", "elsewhere"][:kept]
    assert tuple(len(death["routing-keys"]) for death in deaths) == left


def test_headers_without_room_for_any_death_are_refused() -> None:
    listed = properties.encode({"headers": {"big": [None] * 65_530}})
    deaths = [{"queue": "here", "reason": "expired", "count": 1, "routing-keys": ["k"]}]
    with pytest.raises(ValueError, match="values in one table"):
        written_deaths(ListedProperties(listed), deaths)


def test_it_drops_dead_letters_without_an_exchange_or_a_queue(client: Client, name: str) -> None:
    for exchange in ("no-such-exchange", "amq.direct"):
        queue = declare(client, f"{name}-{exchange}", exchange)
        client.publish(1, "", queue, b"x")
        got = client.get(1, queue)
        assert got is not None
        client.send_method(1, "basic.reject", delivery_tag=got.tag, requeue=False)
        client.call(1, "queue.delete", queue=queue, if_empty=True)


def declare_full(client: Client, queue: str) -> str:
    """A queue that refuses whatever comes behind its first message, `filler`."""
    client.call(
        1, "queue.declare", queue=queue, durable=True,
        arguments={"x-max-length": 1, "x-overflow": "reject-publish"},
    )  # fmt: skip
    client.publish(1, "", queue, b"filler", delivery_mode=2)
    return queue


def reject_three(client: Client, queue: str) -> None:
    """Publishes 0, 1 and 2 to a queue and rejects them; they have died when it returns."""
    client.send(b"".join(raw.publish(1, "", queue, b"%d" % n, delivery_mode=2) for n in range(3)))
    for _ in range(3):
        got = client.get(1, queue)
        assert got is not None
        client.send_method(1, "basic.reject", delivery_tag=got.tag, requeue=False)
    client.fence(1)


def test_it_keeps_dead_letters_until_a_full_queue_takes_them(client: Client, name: str) -> None:
    full = declare_full(client, f"{name}-full")
    source = declare(client, f"{name}-source", "", dead_letter_routing_key=full)
    reject_three(client, source)
    client.call(1, "basic.consume", queue=full, no_ack=True)
    letters = client.expect_messages(4, channel=1)
    assert [letter.body for letter in letters] == [b"filler", b"0", b"1", b"2"]


def test_it_keeps_what_a_full_queue_refused_for_the_queue_that_replaces_it(
    client: Client, name: str
) -> None:
    full = declare_full(client, f"{name}-full")
    source = declare(client, f"{name}-source", "", dead_letter_routing_key=full)
    reject_three(client, source)
    # In one write: a letter that finds no queue at all would be gone.
    client.send(
        raw.method(1, "queue.delete", queue=full)
        + raw.method(1, "queue.declare", queue=full, durable=True)
    )
    assert client.read_names(2) == ["queue.delete-ok", "queue.declare-ok"]
    client.call(1, "basic.consume", queue=full, no_ack=True)
    assert [letter.body for letter in client.expect_messages(3, channel=1)] == [b"0", b"1", b"2"]


def test_it_gives_each_dead_letter_once_to_a_queue_beside_a_full_one(
    client: Client, graves: str
) -> None:
    full = declare_full(client, f"{graves}-full")
    client.call(1, "queue.bind", queue=full, exchange=graves)
    reject_three(client, declare(client, f"{graves}-source", graves))
    client.call(1, "basic.consume", queue=full, no_ack=True)
    letters = client.expect_messages(4, channel=1)
    assert [letter.body for letter in letters] == [b"filler", b"0", b"1", b"2"]
    client.call(1, "basic.consume", queue=graves, consumer_tag="graves", no_ack=True)
    assert [letter.body for letter in client.expect_messages(3, channel=1)] == [b"0", b"1", b"2"]
    assert ready(client, graves) == 0


def test_it_does_not_move_what_is_purged_or_deleted(client: Client, graves: str) -> None:
    queue = declare(client, f"{graves}-source", graves)
    client.publish(1, "", queue, b"x")
    client.call(1, "queue.purge", queue=queue)
    client.publish(1, "", queue, b"y")
    client.call(1, "queue.delete", queue=queue)
    assert ready(client, graves) == 0


def test_it_keeps_headers_byte_for_byte(client: Client, graves: str) -> None:
    queue = declare(client, f"{graves}-source", graves)
    # A short short integer (b) and a short one (s), which decoding would widen.
    table = b"\x01ab\x05\x01bs\x00\x07"
    listed = b"\x20\x00" + len(table).to_bytes(4, "big") + table
    client.send(
        raw.method(1, "basic.publish", exchange="", routing_key=queue)
        + raw.frame(2, 1, b"\x00\x3c\x00\x00" + bytes(8) + listed)
    )
    got = client.get(1, queue)
    assert got is not None
    client.send_method(1, "basic.reject", delivery_tag=got.tag, requeue=False)
    client.send_method(1, "basic.consume", queue=graves, no_ack=True)
    client.expect("basic.consume-ok", 1)
    client.expect("basic.deliver", 1)
    assert table in client.read_frame().payload


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (
            {"x-dead-letter-exchange": 5},
            "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue '",
        ),
        (
            {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": True},
            "{unacceptable_type,bool}",
        ),
        ({"x-dead-letter-routing-key": "k"}, "routing_key_but_no_dlx_defined"),
        ({"x-overflow": "reject"}, "invalid_overflow"),
    ],
)
def test_it_refuses_wrong_dead_letter_arguments(
    client: Client, name: str, arguments: dict[str, Any], wrong: str
) -> None:
    client.send_method(1, "queue.declare", queue=name, arguments=arguments)
    assert wrong in client.expect_channel_close(1, 406, 50, 10).reply_text


def test_it_loses_no_dead_letter_over_a_restart(
    make_broker: Callable[..., Appliance], kill: bool
) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "queue.declare", queue="graves", durable=True)
        declare(client, "source", "", dead_letter_routing_key="graves")
        client.call(1, "confirm.select")
        client.send(
            b"".join(raw.publish(1, "", "source", b"%d" % n, delivery_mode=2) for n in range(500))
        )
        client.expect_confirms(1, 500)
        client.call(1, "basic.consume", queue="source")
        last = client.expect_messages(500, channel=1)[-1].tag
        client.send_method(1, "basic.nack", delivery_tag=last, multiple=True, requeue=False)
        client.fence(1)
        broker.end(kill=kill)
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        found = set()
        for queue in ("graves", "source"):
            while (got := client.get(1, queue, no_ack=True)) is not None:
                found.add(got.body)
        assert found == {b"%d" % n for n in range(500)}


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (["work"], [("work", 1)]),
        (["work", "work", "work"], [("work", 4)]),
        (["a", "b", "a", "work"], [("work", 2), ("a", 2), ("b", 1)]),
        ([("work", 5), ("work", 7), "work"], [("work", 6)]),
        ([("a", 9), "b"], [("work", 1), ("a", 9), ("b", 1)]),
    ],
    ids=["one", "three", "others", "counted", "no death here"],
)
def test_it_merges_deaths_that_a_client_wrote_without_a_count(
    client: Client, name: str, sent: list[Any], told: list[tuple[str, int]]
) -> None:
    grave = f"{name}-grave"
    client.call(1, "queue.declare", queue=grave)
    work = declare(client, f"{name}-work", "", dead_letter_routing_key=grave)
    names = {"work": work, "a": "a", "b": "b"}
    deaths = []
    for each in sent:
        queue, count = each if isinstance(each, tuple) else (each, None)
        death: dict[str, Any] = {"queue": names[queue], "reason": "rejected"}
        deaths.append(death if count is None else {**death, "count": Typed("l", count)})
    client.publish(1, "", work, b"again", headers={"x-death": deaths})
    got = client.get(1, work)
    assert got is not None
    client.send_method(1, "basic.reject", delivery_tag=got.tag, requeue=False)
    headers = await_letter(client, grave).properties["headers"]
    assert [(death["queue"], death["count"]) for death in headers["x-death"]] == [
        (names[queue], count) for queue, count in told
    ]
