"""Exchanges that give each message to one of their queues: x-random and x-consistent-hash."""

from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.amqp.test_exchanges import Topology, copies, join
from tests.appliance import Appliance

HASH, RANDOM = "x-consistent-hash", "x-random"
KEYS = [f"order.{number}" for number in range(60)]


def spread(client: Client, exchange: str, queues: list[str], count: int) -> list[int]:
    """How many of `count` messages with different keys each queue got."""
    client.send(b"".join(raw.publish(1, exchange, f"key.{n}", b"") for n in range(count)))
    return [client.call(1, "queue.purge", queue=queue).message_count for queue in queues]


def homes(topology: Topology, queues: list[str], **properties: Any) -> list[int]:
    """The index of the one queue that each of KEYS reaches."""
    found = []
    for key in KEYS:
        counts = topology.reaches(queues, key, **properties)
        assert sorted(counts) == [0] * (len(queues) - 1) + [1]
        found.append(counts.index(1))
    return found


def test_a_random_exchange_gives_each_message_to_one_queue(client: Client) -> None:
    topology = Topology(client, RANDOM)
    queues = [topology.queue("a"), topology.queue("b"), topology.queue("")]
    counts = spread(client, topology.exchange, queues, 900)
    assert sum(counts) == 900
    assert min(counts) > 200


def test_a_random_exchange_counts_a_queue_once_however_often_it_is_bound(client: Client) -> None:
    topology = Topology(client, RANDOM)
    queues = [topology.queue("a", "b", "c", "d", "e", "f", "g"), topology.queue("a")]
    assert min(spread(client, topology.exchange, queues, 600)) > 200


def test_a_random_exchange_follows_its_bindings(client: Client) -> None:
    topology = Topology(client, RANDOM)
    client.publish(1, topology.exchange, "k", b"x", mandatory=True)
    assert client.expect_message("basic.return", 1).body == b"x"
    first, second = topology.queue("a"), topology.queue("a")
    topology.unbind(first, "a")
    assert spread(client, topology.exchange, [first, second], 50) == [0, 50]


def test_a_random_exchange_behind_another_is_asked_for_each_message(client: Client) -> None:
    front, back = Topology(client, "fanout"), Topology(client, RANDOM)
    queues = [back.queue(""), back.queue("")]
    join(client, front.exchange, back.exchange)
    client.send(b"".join(raw.publish(1, front.exchange, "same", b"") for _ in range(200)))
    counts = [client.call(1, "queue.purge", queue=queue).message_count for queue in queues]
    assert sum(counts) == 200
    assert min(counts) > 50


@pytest.mark.parametrize("algorithm", [None, "ring", "jump"])
def test_a_consistent_hash_sends_a_key_to_one_queue_always(
    client: Client, algorithm: str | None
) -> None:
    arguments = {"x-algorithm": algorithm} if algorithm else {}
    topology = Topology(client, HASH, arguments=arguments)
    queues = [topology.queue("1") for _ in range(3)]
    first = homes(topology, queues)
    assert set(first) == {0, 1, 2}
    assert homes(topology, queues) == first


@pytest.mark.parametrize("algorithm", ["ring", "jump"])
def test_a_consistent_hash_spreads_by_weight(client: Client, algorithm: str) -> None:
    topology = Topology(client, HASH, arguments={"x-algorithm": algorithm})
    queues = [topology.queue(weight) for weight in ("1", "2", "5")]
    counts = spread(client, topology.exchange, queues, 4000)
    assert sum(counts) == 4000
    for count, weight in zip(counts, (1, 2, 5), strict=True):
        assert 0.6 < count / (500 * weight) < 1.5


def test_a_consistent_hash_moves_only_the_keys_of_a_queue_that_goes(client: Client) -> None:
    topology = Topology(client, HASH)
    queues = [topology.queue("1") for _ in range(4)]
    before = homes(topology, queues)
    topology.unbind(queues[1], "1")
    after = homes(topology, queues)
    assert all(new == old for new, old in zip(after, before, strict=True) if old != 1)
    assert 1 not in after
    topology.bind(queues[1], "1")
    assert homes(topology, queues) == before


@pytest.mark.parametrize("argument", ["hash-header", "x-hash-on"])
def test_a_consistent_hash_can_look_at_a_header(client: Client, argument: str) -> None:
    topology = Topology(client, HASH, arguments={argument: "customer"})
    queues = [topology.queue("1") for _ in range(3)]
    found = homes(topology, queues, headers={"customer": "anna"})
    assert len(set(found)) == 1, "the routing key does not count"
    reached = {homes(topology, queues, headers={"customer": n})[0] for n in range(30)}
    assert reached == {0, 1, 2}
    assert len(set(homes(topology, queues))) == 1, "messages without it go the same way"
    for odd in ([1, 2], {"a": 1}, None, True, 1.5):
        assert sum(topology.reaches(queues, "k", headers={"customer": odd})) == 1


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("message_id", [f"m{n}" for n in range(30)]),
        ("correlation_id", [f"c{n}" for n in range(30)]),
        ("timestamp", list(range(1_700_000_000, 1_700_000_030))),
    ],
)
def test_a_consistent_hash_can_look_at_a_property(
    client: Client, name: str, values: list[Any]
) -> None:
    topology = Topology(client, HASH, arguments={"hash-property": name})
    queues = [topology.queue("1") for _ in range(3)]
    assert len(set(homes(topology, queues, **{name: values[0]}))) == 1
    reached = {tuple(topology.reaches(queues, "k", **{name: value})) for value in values}
    assert reached == {(1, 0, 0), (0, 1, 0), (0, 0, 1)}
    assert sum(topology.reaches(queues, "k")) == 1


def test_a_consistent_hash_behind_another_exchange_hashes_the_message(client: Client) -> None:
    front = Topology(client, "topic")
    back = Topology(client, HASH, arguments={"hash-property": "message_id"})
    queues = [back.queue("1"), back.queue("1")]
    join(client, front.exchange, back.exchange, "#")
    counts = [copies(client, front.exchange, queues, "k", message_id=f"m{n}") for n in range(30)]
    assert {tuple(count) for count in counts} == {(1, 0), (0, 1)}


def test_a_consistent_hash_sends_a_dead_letter_where_its_property_belongs(
    client: Client, name: str
) -> None:
    topology = Topology(client, HASH, arguments={"hash-property": "message_id"})
    queues = [topology.queue("1"), topology.queue("1")]
    ids = [f"m{number}" for number in range(30)]
    belong = {
        each: queues[copies(client, topology.exchange, queues, "k", message_id=each).index(1)]
        for each in ids
    }
    assert set(belong.values()) == set(queues)
    client.call(
        1, "queue.declare", queue=name, arguments={"x-dead-letter-exchange": topology.exchange}
    )
    for each in ids:
        client.publish(1, "", name, message_id=each)
        got = client.get(1, name)
        assert got is not None
        client.send_method(1, "basic.reject", delivery_tag=got.tag, requeue=False)
    for queue in queues:
        client.send_method(
            1, "basic.consume", queue=queue, consumer_tag=queue, no_ack=True, nowait=True
        )
    letters = client.expect_messages(len(ids), channel=1)
    assert {
        letter.properties["message_id"]: letter.method.consumer_tag for letter in letters
    } == belong


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("", "must be an integer"),
        ("heavy", 'The binding key must be an integer: <<"heavy">>'),
        ("1.5", "must be an integer"),
        (" 1", "must be an integer"),
        ("٣", "must be an integer"),
        ("0", "The binding key must be greater than 0"),
        ("-1", "The binding key must be greater than 0"),
        ("257", "must not be greater than 256"),
        ("1000000000", "must not be greater than 256"),
        ("9" * 255, "must not be greater than 256"),
    ],
)
def test_a_consistent_hash_refuses_a_weight_that_is_none(
    client: Client, key: str, text: str
) -> None:
    topology = Topology(client, HASH)
    queue = client.call(1, "queue.declare", exclusive=True).queue
    client.send_method(1, "queue.bind", queue=queue, exchange=topology.exchange, routing_key=key)
    client.expect_channel_close(1, 406, 50, 20, text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-algorithm": "rendezvous"}, "invalid arg 'x-algorithm'"),
        ({"x-algorithm": 1}, "invalid arg 'x-algorithm'"),
        ({"x-hash-on": 1}, "invalid arg 'x-hash-on'"),
        ({"hash-header": ["a"]}, "invalid arg 'hash-header'"),
        ({"hash-property": True}, "invalid arg 'hash-property'"),
        ({"hash-property": "app_id"}, "Unsupported property: app_id"),
        (
            {"hash-property": "message_id", "hash-header": "a"},
            "hash-header and hash-property are mutually exclusive",
        ),
        (
            {"hash-property": "message_id", "x-hash-on": "a"},
            "hash-header and hash-property are mutually exclusive",
        ),
    ],
)
def test_a_consistent_hash_refuses_arguments_that_make_no_sense(
    client: Client, name: str, arguments: dict[str, Any], text: str
) -> None:
    client.send_method(1, "exchange.declare", exchange=name, type=HASH, arguments=arguments)
    client.expect_channel_close(1, 406, 40, 10, text)


def test_a_jump_takes_any_weight(client: Client) -> None:
    topology = Topology(client, HASH, arguments={"x-algorithm": "jump"})
    queues = [topology.queue("4294967295"), topology.queue("4294967295")]
    assert min(spread(client, topology.exchange, queues, 400)) > 100


@pytest.mark.parametrize("algorithm", ["ring", "jump"])
def test_a_consistent_hash_is_the_same_after_a_restart(broker: Appliance, algorithm: str) -> None:
    queues = ["one", "two", "three", "four"]

    def found(client: Client) -> list[list[int]]:
        return [copies(client, "hash", queues, key) for key in KEYS]

    def connected() -> Client:
        return Client.open((broker.host, broker.amqp_port))

    with connected() as client:
        arguments = {"x-algorithm": algorithm}
        client.call(
            1, "exchange.declare", exchange="hash", type=HASH, durable=True, arguments=arguments
        )
        for queue in queues:
            client.call(1, "queue.declare", queue=queue, durable=True)
            client.call(1, "queue.bind", queue=queue, exchange="hash", routing_key="2")
        client.call(1, "queue.unbind", queue="two", exchange="hash", routing_key="2")
        client.call(1, "queue.bind", queue="two", exchange="hash", routing_key="1")
        before = found(client)
    broker.kill()
    broker.start()
    with connected() as client:
        assert found(client) == before
    assert broker.stop() == 0
    broker.start()
    with connected() as client:
        assert found(client) == before
