"""Delayed messages: when they come, in which order, and that no restart loses them."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.amqp.streams import until
from tests.amqp.test_exchanges import Topology
from tests.appliance import Appliance


def delayed(client: Client, kind: str = "direct", **fields: Any) -> Topology:
    """A new delayed exchange that routes like `kind`."""
    arguments = {"x-delayed-type": kind, **fields.pop("arguments", {})}
    return Topology(client, "x-delayed-message", arguments=arguments, **fields)


def send(client: Client, exchange: str, key: str, body: bytes, delay: Any, **values: Any) -> None:
    client.publish(1, exchange, key, body, headers={"x-delay": delay}, **values)


def durable(client: Client, name: str = "later", **arguments: Any) -> None:
    """A durable delayed exchange and a durable queue of the same name, bound, and confirms on."""
    client.call(
        1,
        "exchange.declare",
        exchange=name,
        type="x-delayed-message",
        durable=True,
        arguments={"x-delayed-type": "fanout", **arguments},
    )
    client.call(1, "queue.declare", queue=name, durable=True)
    client.call(1, "queue.bind", queue=name, exchange=name)
    client.call(1, "confirm.select")


def test_it_holds_a_message_back_and_never_delivers_early(client: Client) -> None:
    topology = delayed(client)
    queue = topology.queue("k")
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    for delay in (1, 37, 250):
        started = time.monotonic()
        send(client, topology.exchange, "k", b"later", delay)
        message = client.expect_message(channel=1)
        assert time.monotonic() - started >= delay / 1000
        assert message.body == b"later"
        assert message.properties["headers"] == {"x-delay": -delay}
        assert (message.method.exchange, message.method.routing_key) == (topology.exchange, "k")


def test_a_message_that_asks_twice_for_a_delay_comes_once(client: Client) -> None:
    topology = delayed(client)
    client.call(1, "basic.consume", queue=topology.queue("k"), no_ack=True)
    headers = {"x-delay": 20, "y-delay": 500}
    sent = raw.publish(1, topology.exchange, "k", b"twice", headers=headers)
    client.send(sent.replace(b"y-delay", b"x-delay"))
    assert client.expect_message(channel=1).body == b"twice"
    send(client, topology.exchange, "k", b"then", 20)
    assert client.expect_message(channel=1).body == b"then"


def test_due_times_decide_the_order_and_equal_ones_keep_that_of_publishing(client: Client) -> None:
    topology = delayed(client)
    client.call(1, "basic.consume", queue=topology.queue("k"), no_ack=True)
    batch = [(300, b"c1"), (100, b"a1"), (200, b"b"), (300, b"c2"), (100, b"a2"), (300, b"c3")]
    client.send(
        b"".join(
            raw.publish(1, topology.exchange, "k", body, headers={"x-delay": delay})
            for delay, body in batch
        )
    )
    bodies = [message.body for message in client.expect_messages(6, 1)]
    assert bodies == [b"a1", b"a2", b"b", b"c1", b"c2", b"c3"]


@pytest.mark.parametrize(
    "value", [None, 0, -5, -(2**63), True, "soon", b"\x01", [5], {"ms": 5}, float("nan"), 0.5]
)
def test_it_routes_at_once_what_asks_for_no_delay(client: Client, value: Any) -> None:
    topology = delayed(client)
    queue = topology.queue("k")
    client.call(1, "confirm.select")
    send(client, topology.exchange, "k", b"now", value)
    client.expect_confirms(1, 1)
    got = client.get(1, queue, no_ack=True)
    assert got is not None
    assert got.body == b"now"


@pytest.mark.parametrize("value", [20, 20.9, "20", 2**33 // 2**33 * 20])
def test_it_takes_any_number_for_a_delay(client: Client, value: Any) -> None:
    topology = delayed(client)
    client.call(1, "basic.consume", queue=topology.queue("k"), no_ack=True)
    started = time.monotonic()
    send(client, topology.exchange, "k", b"x", value)
    assert client.expect_message(channel=1).properties["headers"] == {"x-delay": -20}
    assert time.monotonic() - started >= 0.02


@pytest.mark.parametrize("value", [2**31, 2**32, 2**40, 2**63 - 1, 1e300])
def test_a_huge_delay_does_not_overflow(client: Client, value: Any) -> None:
    topology = delayed(client)
    queue = topology.queue("k")
    client.call(1, "confirm.select")
    send(client, topology.exchange, "k", b"x", value)
    send(client, topology.exchange, "k", b"soon", 1)
    client.expect_confirms(1, 2)
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    assert client.expect_message(channel=1).body == b"soon"
    client.call(1, "basic.qos", prefetch_count=1)
    assert client.get(1, queue) is None


def test_a_message_without_headers_is_not_delayed(client: Client) -> None:
    topology = delayed(client)
    queue = topology.queue("k")
    assert topology.reaches([queue], "k") == [1]


@pytest.mark.parametrize(
    ("kind", "bound", "hit", "missed"),
    [
        ("direct", "a.b", "a.b", "a.c"),
        ("topic", "a.*", "a.b", "b.a"),
        ("fanout", "", "anything", None),
        ("x-consistent-hash", "1", "anything", None),
    ],
)
def test_any_type_may_route(
    client: Client, kind: str, bound: str, hit: str, missed: str | None
) -> None:
    topology = delayed(client, kind)
    queue = topology.queue(bound)
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    if missed is not None:
        send(client, topology.exchange, missed, b"missed", 10)
    send(client, topology.exchange, hit, b"hit", 20)
    assert client.expect_message(channel=1).body == b"hit"


def test_a_headers_exchange_may_route(client: Client) -> None:
    topology = delayed(client, "headers")
    queue = topology.queue("", arguments={"x-match": "all", "colour": "red"})
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    for colour in ("blue", "red"):
        client.publish(
            1, topology.exchange, "", colour.encode(), headers={"x-delay": 20, "colour": colour}
        )
    assert client.expect_message(channel=1).body == b"red"


def test_any_exchange_is_delayed_by_argument(client: Client) -> None:
    topology = Topology(client, "topic", arguments={"x-delayed-exchange": True})
    client.call(1, "basic.consume", queue=topology.queue("a.#"), no_ack=True)
    send(client, topology.exchange, "a.b", b"second", 60)
    client.publish(1, topology.exchange, "a.b", b"first")
    assert [m.body for m in client.expect_messages(2, 1)] == [b"first", b"second"]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"x-delayed-type": "nothing"},
        {"x-delayed-type": "x-delayed-message"},
        {"x-delayed-type": 5},
        {"x-delayed-type": "fanout", "x-delayed-exchange": "yes"},
    ],
)
def test_bad_arguments_are_refused(client: Client, name: str, arguments: dict[str, Any]) -> None:
    client.send_method(
        1, "exchange.declare", exchange=name, type="x-delayed-message", arguments=arguments
    )
    client.expect_channel_close(1, 406, 40, 10)


def test_a_redeclaration_has_to_name_the_same_type(client: Client) -> None:
    topology = delayed(client, "topic")
    client.call(
        1,
        "exchange.declare",
        exchange=topology.exchange,
        type="x-delayed-message",
        arguments={"x-delayed-type": "topic"},
    )
    client.send_method(
        1,
        "exchange.declare",
        exchange=topology.exchange,
        type="x-delayed-message",
        arguments={"x-delayed-type": "direct"},
    )
    client.expect_channel_close(1, 406, 40, 10, "inequivalent arg 'x-delayed-type'")


def test_mandatory_asks_the_bindings_of_now(client: Client) -> None:
    topology = delayed(client)
    send(client, topology.exchange, "k", b"x", 20, mandatory=True)
    returned = client.expect_message("basic.return", channel=1)
    assert returned.properties["headers"] == {"x-delay": 20}
    queue = topology.queue("k")
    send(client, topology.exchange, "k", b"y", 20, mandatory=True)
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    assert client.expect_message(channel=1).body == b"y"


def test_bindings_at_the_due_time_decide(client: Client) -> None:
    topology = delayed(client)
    send(client, topology.exchange, "k", b"x", 150)
    client.call(1, "basic.consume", queue=topology.queue("k"), no_ack=True)
    assert client.expect_message(channel=1).body == b"x"


def test_what_has_no_queue_when_due_goes_to_the_alternate_exchange(client: Client) -> None:
    fallback = Topology(client, "fanout")
    client.call(1, "basic.consume", queue=fallback.queue(""), no_ack=True)
    topology = delayed(client, arguments={"alternate-exchange": fallback.exchange})
    send(client, topology.exchange, "nobody", b"x", 20)
    assert client.expect_message(channel=1).body == b"x"


def test_cc_and_bcc_are_kept_until_it_is_due(client: Client) -> None:
    topology = delayed(client)
    for key in ("to", "cc", "bcc"):
        client.call(1, "basic.consume", queue=topology.queue(key), no_ack=True)
    headers = {"x-delay": 20, "CC": ["cc"], "BCC": ["bcc"]}
    client.publish(1, topology.exchange, "to", b"x", headers=headers)
    for message in client.expect_messages(3, 1):
        assert message.properties["headers"] == {"x-delay": -20, "CC": ["cc"]}


def test_a_delayed_exchange_behind_another_holds_back_too(client: Client) -> None:
    behind, before = delayed(client, "fanout"), Topology(client, "fanout")
    client.call(
        1, "exchange.bind", destination=behind.exchange, source=before.exchange, routing_key=""
    )
    client.call(1, "basic.consume", queue=behind.queue(""), no_ack=True)
    started = time.monotonic()
    send(client, before.exchange, "", b"x", 50)
    message = client.expect_message(channel=1)
    assert time.monotonic() - started >= 0.05
    assert message.properties["headers"] == {"x-delay": -50}


def test_the_expiration_counts_from_the_due_time(client: Client) -> None:
    topology = delayed(client)
    queue = topology.queue("k")
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    send(client, topology.exchange, "k", b"x", 120, expiration="50")
    assert client.expect_message(channel=1).body == b"x"


def test_a_transaction_may_hold_messages_back(client: Client) -> None:
    topology = delayed(client)
    queue = topology.queue("k")
    client.call(1, "tx.select")
    send(client, topology.exchange, "k", b"x", 30)
    client.call(1, "tx.commit")
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    assert client.expect_message(channel=1).body == b"x"


def test_a_full_queue_gets_it_when_there_is_room(client: Client) -> None:
    topology = delayed(client)
    queue = client.call(
        1,
        "queue.declare",
        exclusive=True,
        arguments={"x-max-length": 1, "x-overflow": "reject-publish"},
    ).queue
    topology.bind(queue, "k")
    client.publish(1, "", queue, b"first")
    send(client, topology.exchange, "k", b"second", 20)
    send(client, topology.exchange, "k", b"third", 30)
    client.call(1, "basic.qos", prefetch_count=1)
    client.call(1, "basic.consume", queue=queue)
    bodies = []
    for _ in range(3):
        message = client.expect_message(channel=1)
        bodies.append(message.body)
        client.send_method(1, "basic.ack", delivery_tag=message.tag)
    assert bodies == [b"first", b"second", b"third"]


def test_deleting_the_exchange_drops_what_it_holds(client: Client) -> None:
    topology = delayed(client, "fanout")
    queue = topology.queue("")
    send(client, topology.exchange, "", b"x", 50)
    client.call(1, "exchange.delete", exchange=topology.exchange)
    client.call(
        1,
        "exchange.declare",
        exchange=topology.exchange,
        type="x-delayed-message",
        arguments={"x-delayed-type": "fanout"},
    )
    topology.bind(queue)
    send(client, topology.exchange, "", b"y", 100)
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    assert client.expect_message(channel=1).body == b"y"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_it_survives_a_restart(make_broker: Callable[..., Appliance], how: str) -> None:
    broker = make_broker(segment_size=65536)
    with Client.open((broker.host, broker.amqp_port)) as client:
        durable(client)
        client.send(
            b"".join(
                raw.publish(
                    1,
                    "later",
                    "k",
                    b"%d" % n,
                    headers={"x-delay": 1500 + 200 * (n % 5)},
                    delivery_mode=2,
                )
                for n in range(2000)
            )
        )
        client.expect_confirms(1, 2000)
    broker.stop() if how == "stop" else broker.kill()
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "basic.consume", queue="later", no_ack=True)
        bodies = [int(message.body) for message in client.expect_messages(2000, 1)]
        assert sorted(bodies) == list(range(2000))
        # A message is due before each later one with the same or a longer delay; the others depend
        # on how fast the broker took them.
        place = {number: at for at, number in enumerate(bodies)}
        latest = [-1] * 5
        for number in range(2000):
            assert place[number] > max(latest[: number % 5 + 1])
            latest[number % 5] = place[number]
    broker.stop()


def test_what_was_due_while_the_broker_was_down_comes_at_its_start(
    make_broker: Callable[..., Appliance],
) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        durable(client)
        send(client, "later", "", b"x", 50, delivery_mode=2)
        client.expect_confirms(1, 1)
        broker.kill()
    time.sleep(0.06)
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "basic.consume", queue="later", no_ack=True)
        assert client.expect_message(channel=1).body == b"x"


def test_what_was_released_does_not_come_again_after_a_clean_restart(
    make_broker: Callable[..., Appliance],
) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        durable(client)
        send(client, "later", "", b"now", 20, delivery_mode=2)
        send(client, "later", "", b"much later", 600000, delivery_mode=2)
        client.expect_confirms(1, 2)
        client.call(1, "basic.consume", queue="later", no_ack=True)
        assert client.expect_message(channel=1).body == b"now"
    broker.stop()
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        send_on(client)
        client.call(1, "basic.consume", queue="later", no_ack=True)
        assert client.expect_message(channel=1).body == b"fence"


def send_on(client: Client) -> None:
    """Through the same exchange, for a moment."""
    send(client, "later", "", b"fence", 20, delivery_mode=2)


def test_nothing_of_a_transient_exchange_survives(make_broker: Callable[..., Appliance]) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        topology = delayed(client)
        send(client, topology.exchange, "k", b"x", 60000, delivery_mode=2)
        client.call(1, "basic.qos", prefetch_count=1)
    broker.stop()
    broker.start()
    vhost = next((broker.data_dir / "vhosts").iterdir())
    assert not list((vhost / "delayed").iterdir())
    assert [path.name for path in (vhost / "transient").iterdir()] == ["schedule"]


def test_a_deleted_exchange_leaves_no_files(make_broker: Callable[..., Appliance]) -> None:
    broker = make_broker()
    vhost = next((broker.data_dir / "vhosts").iterdir())
    with Client.open((broker.host, broker.amqp_port)) as client:
        durable(client)
        client.send(
            b"".join(
                raw.publish(1, "later", "", b"x", headers={"x-delay": 60000 + n}, delivery_mode=2)
                for n in range(40000)
            )
        )
        client.expect_confirms(1, 40000)
        assert any((vhost / "delayed").iterdir())
        until(lambda: any((vhost / "schedule").iterdir()))
        client.call(1, "exchange.delete", exchange="later")
        client.call(1, "queue.purge", queue="later")
    broker.stop()
    assert not any((vhost / "delayed").iterdir())
    assert not any((vhost / "schedule").iterdir())
