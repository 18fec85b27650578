"""A message with several routing keys, its own and those of CC and BCC: they are one set, and all
exchanges on its way look at all of them."""

from typing import Any

import pytest

from tests.amqp.raw import Client
from tests.amqp.test_exchanges import Topology, copies, join

HEADERS = ("CC", "BCC")


def keyed(*keys: str, header: str = "CC") -> dict[str, Any]:
    """The properties that add routing keys."""
    return {"headers": {header: list(keys)}}


@pytest.fixture
def front(client: Client) -> Topology:
    """A direct exchange that has an alternate one (`spare`)."""
    spare = Topology(client, "fanout")
    front = Topology(client, "direct", arguments={"alternate-exchange": spare.exchange})
    front.spare = spare.queue("")  # type: ignore[attr-defined]
    return front


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("kind", ["direct", "topic"])
@pytest.mark.parametrize(("own", "added"), [("outer", "inner"), ("inner", "outer")])
def test_one_key_leads_to_the_next_exchange_and_another_on_from_there(
    client: Client, header: str, kind: str, own: str, added: str
) -> None:
    front, back = Topology(client, kind), Topology(client, kind)
    queue = back.queue("inner")
    join(client, front.exchange, back.exchange, "outer")
    assert copies(client, front.exchange, [queue], own) == [0]
    properties = keyed(added, header=header)
    assert copies(client, front.exchange, [queue], own, **properties) == [1]


def test_they_combine_behind_a_delay(client: Client, flavour: str) -> None:
    if flavour == "rabbitmq":
        pytest.skip("it needs a plugin")
    front = Topology(client, "x-delayed-message", arguments={"x-delayed-type": "topic"})
    back = Topology(client, "direct")
    queue = back.queue("inner")
    join(client, front.exchange, back.exchange, "out.#")
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    headers = {"CC": ["inner"], "x-delay": 1}
    client.publish(1, front.exchange, "out.er", b"x", headers=headers)
    assert client.expect_message().body == b"x"
    client.fence(1)


def test_they_combine_for_a_dead_letter(client: Client) -> None:
    front, back = Topology(client, "direct"), Topology(client, "direct")
    grave = back.queue("inner")
    join(client, front.exchange, back.exchange, "outer")
    queue = client.call(
        1, "queue.declare", exclusive=True, arguments={"x-dead-letter-exchange": front.exchange}
    ).queue
    client.call(1, "queue.bind", queue=queue, exchange="amq.fanout", routing_key="")
    client.publish(1, "amq.fanout", "outer", b"x", **keyed("inner"))
    got = client.get(1, queue)
    assert got is not None
    client.call(1, "basic.consume", queue=grave, no_ack=True)
    client.send_method(1, "basic.reject", delivery_tag=got.tag, requeue=False)
    assert client.expect_message().body == b"x"


@pytest.mark.parametrize("header", HEADERS)
def test_an_alternate_exchange_gets_what_no_key_has_a_queue_for(
    client: Client, front: Any, header: str
) -> None:
    found = front.queue("known")
    queues = [found, front.spare]
    assert front.reaches(queues, "known", **keyed("x", "y", header=header)) == [1, 0]
    assert front.reaches(queues, "x", **keyed("known", "y", header=header)) == [1, 0]
    assert front.reaches(queues, "x", **keyed("y", "z", header=header)) == [0, 1]


def test_an_alternate_exchange_behind_another_is_asked_with_all_keys(
    client: Client, front: Any
) -> None:
    outer = Topology(client, "fanout")
    join(client, outer.exchange, front.exchange)
    queues = [front.queue("known"), front.spare]
    assert outer.reaches(queues, "x", **keyed("known")) == [1, 0]
    assert outer.reaches(queues, "x", **keyed("y")) == [0, 1]


def test_an_alternate_exchange_gets_what_ends_at_an_exchange_without_a_queue(
    client: Client, front: Any, flavour: str
) -> None:
    if flavour == "rabbitmq":
        pytest.skip("there a binding that matches is enough, and the message is lost")
    join(client, front.exchange, Topology(client, "direct").exchange, "k")
    assert front.reaches([front.spare], "k") == [1]
    assert front.reaches([front.spare], "x", **keyed("k")) == [1]


def test_it_is_returned_once_and_only_if_no_key_has_a_queue(client: Client) -> None:
    topology = Topology(client, "direct")
    queue = topology.queue("known")
    client.publish(1, topology.exchange, "x", b"1", mandatory=True, **keyed("known", "y"))
    client.fence(1)
    client.publish(1, topology.exchange, "x", b"2", mandatory=True, **keyed("y", "z"))
    assert client.expect_message("basic.return", 1).body == b"2"
    client.fence(1)
    assert client.call(1, "queue.purge", queue=queue).message_count == 1


def test_the_default_exchange_gives_each_named_queue_one_copy(client: Client) -> None:
    first, second = (client.call(1, "queue.declare", exclusive=True).queue for _ in range(2))
    assert copies(client, "", [first, second], first, **keyed(second, first, second)) == [1, 1]


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-random"])
def test_an_exchange_that_picks_one_picks_one_for_the_message(
    client: Client, kind: str, flavour: str
) -> None:
    if flavour == "rabbitmq":
        pytest.skip("it needs a plugin")
    topology = Topology(client, kind)
    queues = [topology.queue("1") for _ in range(4)]
    others = [f"other.{number}" for number in range(20)]
    for number in range(20):
        alone = topology.reaches(queues, f"key.{number}")
        together = topology.reaches(queues, f"key.{number}", **keyed(*others))
        assert sum(together) == 1
        if kind == "x-consistent-hash":
            assert together == alone
