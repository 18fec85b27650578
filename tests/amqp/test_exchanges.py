"""Exchanges: where each type sends a message, and how bindings come and go."""

import itertools
import uuid
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client


class Topology:
    """An exchange and queues bound to it, made through one channel; all names are new."""

    def __init__(self, client: Client, type_: str, **fields: Any) -> None:
        self.client = client
        self.exchange = f"{type_}-{uuid.uuid4().hex[:8]}"
        client.call(1, "exchange.declare", exchange=self.exchange, type=type_, **fields)

    def queue(self, *keys: str, arguments: dict[str, Any] | None = None) -> str:
        """A new queue, bound with each of `keys`."""
        queue: str = self.client.call(1, "queue.declare", exclusive=True).queue
        for key in keys:
            self.bind(queue, key, arguments)
        return queue

    def bind(self, queue: str, key: str = "", arguments: dict[str, Any] | None = None) -> None:
        """Binds a queue."""
        self.client.call(
            1,
            "queue.bind",
            queue=queue,
            exchange=self.exchange,
            routing_key=key,
            arguments=arguments or {},
        )

    def unbind(self, queue: str, key: str = "", arguments: dict[str, Any] | None = None) -> None:
        """Unbinds a queue."""
        self.client.call(
            1,
            "queue.unbind",
            queue=queue,
            exchange=self.exchange,
            routing_key=key,
            arguments=arguments or {},
        )

    def reaches(self, queues: list[str], key: str, **properties: Any) -> list[int]:
        """How many copies of one message each queue got."""
        return copies(self.client, self.exchange, queues, key, **properties)


def copies(
    client: Client, exchange: str, queues: list[str], key: str, **properties: Any
) -> list[int]:
    """Publishes one message and counts its copies in each queue, taking them out."""
    client.publish(1, exchange, key, b"x", **properties)
    counts = []
    for queue in queues:
        count = 0
        while client.get(1, queue, no_ack=True) is not None:
            count += 1
        counts.append(count)
    return counts


def test_the_default_exchange_reaches_the_queue_of_that_name(client: Client) -> None:
    queue = client.call(1, "queue.declare", exclusive=True).queue
    assert copies(client, "", [queue], queue) == [1]
    assert copies(client, "", [queue], queue + "x") == [0]


def test_a_direct_exchange_reaches_equal_keys(client: Client) -> None:
    topology = Topology(client, "direct")
    queues = [topology.queue("a"), topology.queue("a", "b"), topology.queue("c")]
    assert topology.reaches(queues, "a") == [1, 1, 0]
    assert topology.reaches(queues, "b") == [0, 1, 0]
    assert topology.reaches(queues, "A") == [0, 0, 0]


def test_a_fanout_exchange_reaches_every_queue_once(client: Client) -> None:
    topology = Topology(client, "fanout")
    queues = [topology.queue("a", "b"), topology.queue("")]
    assert topology.reaches(queues, "whatever") == [1, 1]


@pytest.mark.parametrize("type_", ["direct", "fanout", "topic", "headers"])
def test_a_queue_bound_twice_gets_one_copy(client: Client, type_: str) -> None:
    topology = Topology(client, type_)
    queue = topology.queue("key", "key")
    topology.bind(queue, "key", {"extra": 1})
    assert topology.reaches([queue], "key", headers={"extra": 1}) == [1]


@pytest.mark.parametrize(
    ("pattern", "keys", "others"),
    [
        ("a.b.c", ["a.b.c"], ["a.b", "a.b.c.d", "a.b.C", ""]),
        ("*", ["a"], ["a.b", ""]),
        ("#", ["", "a", "a.b.c", "..", "."], []),
        ("a.*", ["a.b", "a."], ["a", "a.b.c", ".b"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["b.a", "ab"]),
        ("#.z", ["z", "a.z", "a.b.z"], ["z.a", "az"]),
        ("*.*", ["a.b", "."], ["a", "a.b.c"]),
        ("#.#", ["", "a", "a.b"], []),
        ("#.a.#", ["a", "b.a", "a.b", "x.a.y"], ["b", "ab.c"]),
        ("*.a.#.b.*", ["x.a.b.y", "x.a.q.r.b.y"], ["a.b.y", "x.a.b"]),
        ("#.*", ["a", "a.b", "."], [""]),
        ("", [""], ["a"]),
        ("ä.*", ["ä.ö"], ["a.ö"]),
    ],
)
def test_a_topic_exchange_matches_words(
    client: Client, pattern: str, keys: list[str], others: list[str]
) -> None:
    topology = Topology(client, "topic")
    queue = topology.queue(pattern)
    for key in keys:
        assert topology.reaches([queue], key) == [1], key
    for key in others:
        assert topology.reaches([queue], key) == [0], key


def test_a_topic_exchange_matches_many_hashes_in_reasonable_time(
    client: Client, flavour: str
) -> None:
    if flavour == "rabbitmq":
        pytest.skip("its matching takes exponential time")
    topology = Topology(client, "topic")
    queue = topology.queue(".".join(["#", "a"] * 20) + ".b")
    assert topology.reaches([queue], ".".join(["a"] * 100)) == [0]
    assert topology.reaches([queue], ".".join(["a"] * 100) + ".b") == [1]


@pytest.mark.parametrize(
    ("arguments", "headers", "expected"),
    [
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 3}, 1),
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1}, 0),
        ({"a": 1}, {"a": 1}, 1),
        ({"a": 1}, {"a": 2}, 0),
        ({"x-match": "any", "a": 1, "b": "x"}, {"b": "x"}, 1),
        ({"x-match": "any", "a": 1, "b": "x"}, {"b": "y"}, 0),
        ({"x-match": "any", "a": 1}, {}, 0),
        ({"x-match": "all"}, {"a": 1}, 1),
        ({"x-match": "all"}, {}, 1),
        ({"x-match": "all", "a": None}, {"a": "anything"}, 1),
        ({"x-match": "all", "a": None}, {}, 0),
        ({"x-match": "all", "x-b": 1, "a": 1}, {"a": 1}, 1),
        ({"x-match": "all-with-x", "x-b": 1, "a": 1}, {"a": 1}, 0),
        ({"x-match": "all-with-x", "x-b": 1, "a": 1}, {"a": 1, "x-b": 1}, 1),
        ({"x-match": "any-with-x", "x-b": 1, "a": 1}, {"x-b": 1}, 1),
        ({"x-match": "any", "x-b": 1, "a": 1}, {"x-b": 1}, 0),
    ],
)
def test_a_headers_exchange_matches_arguments(
    client: Client, arguments: dict[str, Any], headers: dict[str, Any], expected: int
) -> None:
    topology = Topology(client, "headers")
    queue = topology.queue("", arguments=arguments)
    assert topology.reaches([queue], "ignored", headers=headers) == [expected]


def test_a_headers_exchange_takes_messages_without_headers(client: Client) -> None:
    topology = Topology(client, "headers")
    queues = [topology.queue("", arguments={"x-match": "any", "a": 1})]
    assert topology.reaches(queues, "") == [0]


def test_an_unbound_queue_gets_nothing_more(client: Client) -> None:
    for type_ in ("direct", "fanout", "topic"):
        topology = Topology(client, type_)
        queue = topology.queue("k.1", "k.2")
        assert topology.reaches([queue], "k.1") == [1]
        topology.unbind(queue, "k.1")
        assert topology.reaches([queue], "k.1") == [1 if type_ == "fanout" else 0]
        topology.unbind(queue, "k.2")
        assert topology.reaches([queue], "k.2") == [0]


def test_bindings_that_differ_in_arguments_are_two(client: Client) -> None:
    topology = Topology(client, "headers")
    queue = topology.queue("", arguments={"a": 1})
    topology.bind(queue, "", {"a": 2})
    topology.unbind(queue, "", {"a": 1})
    assert topology.reaches([queue], "", headers={"a": 1}) == [0]
    assert topology.reaches([queue], "", headers={"a": 2}) == [1]


def test_a_route_learned_is_forgotten_when_bindings_change(client: Client) -> None:
    topology = Topology(client, "direct")
    first, second = topology.queue("k"), topology.queue()
    for _ in range(3):
        assert topology.reaches([first, second], "k") == [1, 0]
    topology.bind(second, "k")
    assert topology.reaches([first, second], "k") == [1, 1]
    client.call(1, "queue.delete", queue=first)
    assert topology.reaches([second], "k") == [1]
    client.call(1, "queue.delete", queue=second)
    client.publish(1, topology.exchange, "k", b"x", mandatory=True)
    assert client.expect_message("basic.return", 1).body == b"x"


def test_a_queue_deleted_takes_its_bindings_along(client: Client) -> None:
    topology = Topology(client, "direct")
    queue = topology.queue("k")
    client.call(1, "queue.delete", queue=queue)
    client.call(1, "queue.declare", queue=queue.replace("amq.", "again."), exclusive=True)
    client.publish(1, topology.exchange, "k", b"x", mandatory=True)
    client.expect_message("basic.return", 1)


def test_an_exchange_deleted_is_gone(client: Client) -> None:
    topology = Topology(client, "direct")
    topology.queue("k")
    client.call(1, "exchange.delete", exchange=topology.exchange)
    client.send_method(
        1, "exchange.declare", exchange=topology.exchange, type="direct", passive=True
    )
    client.expect_channel_close(1, 404, 40, 10)


def test_an_auto_delete_exchange_dies_with_its_last_binding(client: Client) -> None:
    topology = Topology(client, "direct", auto_delete=True)
    queue = topology.queue("a", "b")
    topology.unbind(queue, "a")
    client.call(1, "exchange.declare", exchange=topology.exchange, type="direct", passive=True)
    client.call(1, "queue.delete", queue=queue)
    client.send_method(
        1, "exchange.declare", exchange=topology.exchange, type="direct", passive=True
    )
    client.expect_channel_close(1, 404, 40, 10)


@pytest.mark.parametrize(
    ("exchange", "type_"),
    [
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
    ],
)
def test_it_has_the_exchanges_that_every_vhost_has(
    client: Client, exchange: str, type_: str
) -> None:
    client.call(1, "exchange.declare", exchange=exchange, type=type_, passive=True)
    client.call(1, "exchange.declare", exchange=exchange, type=type_, durable=True)


def test_it_declares_without_an_answer(client: Client, name: str) -> None:
    client.send_method(1, "exchange.declare", exchange=name, type="topic", nowait=True)
    client.call(1, "exchange.declare", exchange=name, type="topic")
    client.send_method(1, "exchange.delete", exchange=name, nowait=True)
    client.send_method(1, "exchange.declare", exchange=name, type="topic", passive=True)
    client.expect_channel_close(1, 404, 40, 10)


def fanout(client: Client, **fields: Any) -> str:
    """A new fanout exchange."""
    return Topology(client, "fanout", **fields).exchange


def join(client: Client, source: str, destination: str, key: str = "") -> None:
    """Binds an exchange to an exchange."""
    client.call(1, "exchange.bind", source=source, destination=destination, routing_key=key)


def test_an_exchange_bound_to_an_exchange_passes_messages_on(client: Client) -> None:
    front, back = Topology(client, "topic"), Topology(client, "direct")
    queue = back.queue("a.b")
    join(client, front.exchange, back.exchange, "a.*")
    assert copies(client, front.exchange, [queue], "a.b") == [1]
    assert copies(client, front.exchange, [queue], "a.c") == [0]
    client.call(
        1,
        "exchange.unbind",
        source=front.exchange,
        destination=back.exchange,
        routing_key="a.*",
    )
    assert copies(client, front.exchange, [queue], "a.b") == [0]


def test_a_queue_reached_by_two_ways_gets_one_copy(client: Client) -> None:
    front, left, right = fanout(client), Topology(client, "fanout"), Topology(client, "fanout")
    queue = left.queue("")
    right.bind(queue)
    for middle in (left, right):
        join(client, front, middle.exchange)
    assert copies(client, front, [queue], "") == [1]


def test_exchanges_bound_in_a_circle_pass_a_message_once(client: Client) -> None:
    ring = [Topology(client, "fanout") for _ in range(3)]
    queues = [exchange.queue("") for exchange in ring]
    for index, exchange in enumerate(ring):
        join(client, exchange.exchange, ring[(index + 1) % 3].exchange)
    join(client, ring[0].exchange, ring[0].exchange)
    assert copies(client, ring[1].exchange, queues, "") == [1, 1, 1]


def test_an_internal_exchange_is_reached_through_another(client: Client) -> None:
    front, inside = fanout(client), Topology(client, "fanout", internal=True)
    queue = inside.queue("")
    join(client, front, inside.exchange)
    assert copies(client, front, [queue], "") == [1]


def test_an_exchange_deleted_takes_its_bindings_to_exchanges_along(client: Client) -> None:
    front, back = fanout(client), Topology(client, "fanout")
    queue = back.queue("")
    join(client, front, back.exchange)
    client.call(1, "exchange.delete", exchange=back.exchange)
    client.call(1, "exchange.declare", exchange=back.exchange, type="fanout")
    back.bind(queue)
    assert copies(client, front, [queue], "") == [0]


@pytest.mark.parametrize("argument", ["alternate-exchange", "x-alternate-exchange"])
def test_what_reaches_no_queue_goes_to_the_alternate_exchange(
    client: Client, argument: str, flavour: str
) -> None:
    if flavour == "rabbitmq" and argument.startswith("x-"):
        pytest.skip("it knows only the name without x-")
    spare = Topology(client, "fanout")
    lost = spare.queue("")
    front = Topology(client, "direct", arguments={argument: spare.exchange})
    found = front.queue("known")
    assert copies(client, front.exchange, [found, lost], "known") == [1, 0]
    assert copies(client, front.exchange, [found, lost], "unknown") == [0, 1]
    client.publish(1, front.exchange, "unknown", b"x", mandatory=True)
    client.fence(1)


def test_alternate_exchanges_form_chains_and_circles(client: Client) -> None:
    names = [f"ae-{uuid.uuid4().hex[:8]}" for _ in range(3)]
    for index, exchange in enumerate(names):
        client.call(
            1,
            "exchange.declare",
            exchange=exchange,
            type="direct",
            arguments={"alternate-exchange": names[(index + 1) % 3]},
        )
    queue = client.call(1, "queue.declare", exclusive=True).queue
    client.call(1, "queue.bind", queue=queue, exchange=names[2], routing_key="k")
    assert copies(client, names[0], [queue], "k") == [1]
    client.publish(1, names[0], "nowhere", b"x", mandatory=True)
    assert client.expect_message("basic.return", 1).method.exchange == names[0]


def test_an_alternate_exchange_that_is_missing_is_no_error(client: Client) -> None:
    front = Topology(client, "direct", arguments={"alternate-exchange": "nobody-made-this"})
    client.publish(1, front.exchange, "k", b"x", mandatory=True)
    client.expect_message("basic.return", 1)


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_a_message_goes_to_the_keys_of_its_cc_and_bcc(client: Client, header: str) -> None:
    topology = Topology(client, "direct")
    queues = [topology.queue("a"), topology.queue("b"), topology.queue("c", "b")]
    client.publish(1, topology.exchange, "a", b"x", headers={header: ["b", "nobody"], "h": 1})
    for queue in queues:
        got = client.get(1, queue, no_ack=True)
        assert got is not None
        assert got.method.routing_key == "a"
        shown = {"h": 1} if header == "BCC" else {"CC": ["b", "nobody"], "h": 1}
        assert got.properties["headers"] == shown
        assert client.get(1, queue) is None


@pytest.mark.parametrize("header", ["CC", "BCC"])
@pytest.mark.parametrize("type", ["direct", "x-delayed-message"])
def test_what_is_no_text_among_those_keys_is_passed_over(
    client: Client, type: str, header: str
) -> None:
    arguments = {"x-delayed-type": "direct"} if type != "direct" else {}
    topology = Topology(client, type, arguments=arguments)
    queue = topology.queue("b")
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    headers = {header: [7, "b", None, ["b"], {"b": "b"}], "x-delay": 1}
    client.publish(1, topology.exchange, "a", b"x", headers=headers)
    assert client.expect_message().body == b"x"


@pytest.mark.parametrize("start", ["the queue goes", "the first is unbound"])
def test_a_long_chain_of_auto_delete_exchanges_goes_as_a_whole(
    client: Client, name: str, start: str
) -> None:
    names = [f"{name}-{number}" for number in range(600)]
    client.call(1, "queue.declare", queue=name)
    client.send(
        b"".join(
            raw.method(
                1, "exchange.declare", exchange=each, type="fanout", auto_delete=True, nowait=True
            )
            for each in names
        )
        + b"".join(
            raw.method(1, "exchange.bind", destination=to, source=each, nowait=True)
            for each, to in itertools.pairwise(names)
        )
    )
    client.call(1, "queue.bind", queue=name, exchange=names[-1])
    client.publish(1, names[0], "k", b"through all")
    got = client.get(1, name, no_ack=True)
    assert got is not None
    if start == "the queue goes":
        client.call(1, "queue.delete", queue=name)
    else:
        client.call(1, "queue.unbind", queue=name, exchange=names[-1])
        client.call(1, "queue.delete", queue=name)
    client.send_method(1, "exchange.declare", exchange=names[0], type="fanout", passive=True)
    client.expect_channel_close(1, 404, 40, 10, "no exchange")
