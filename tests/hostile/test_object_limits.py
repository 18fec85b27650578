"""How many objects one user may make: each kind has a limit with a name, and says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from management.broker_client import BrokerClient, BrokerError
from tests.amqp import raw
from tests.appliance import Appliance
from tests.conftest import _maker
from tests.hostile.figures import cpu_seconds

LIMITS = {
    "queues_max": 20,
    "exchanges_max": 20,
    "bindings_max": 30,
    "policies_max": 3,
    "policy_steps_max": 1500,
    "parameters_max": 2,
    "consumers_per_connection_max": 5,
    "consumers_per_queue_max": 7,
    "consumer_arguments_max": 20_000,
    "arguments_max": 56_000,
}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    for make in _maker("broker", tmp_path_factory.mktemp("limited")):
        yield make(**LIMITS)


@pytest.fixture
async def control(limited: Appliance) -> Any:
    client = BrokerClient(limited.control_socket)
    await client.call("vhost.put", name="t")
    everything = dict.fromkeys(("configure", "write", "read"), ".*")
    await client.call("permission.put", vhost="t", user="guest", **everything)
    yield client
    await client.call("vhost.delete", name="t")
    await client.close()


@pytest.fixture
def amqp(limited: Appliance, control: BrokerClient) -> Iterator[raw.Client]:
    with raw.Client.open((limited.host, limited.amqp_port), virtual_host="t") as client:
        yield client


def refused(client: raw.Client, method: str, code: int, **fields: Any) -> str:
    """The text with which a method closes its channel, which is opened again."""
    client.send(raw.method(1, method, **fields))
    closed = client.expect("channel.close", 1)
    assert closed.reply_code == code
    client.send(raw.method(1, "channel.close-ok"))
    client.call(1, "channel.open")
    return str(closed.reply_text)


async def test_a_vhost_has_so_many_queues_and_no_more(amqp: raw.Client) -> None:
    for number in range(20):
        amqp.call(1, "queue.declare", queue=f"q{number}")
    text = refused(amqp, "queue.declare", 406, queue="more")
    assert "20 queues" in text and "queues_max" in text
    amqp.call(1, "queue.declare", queue="q7")  # it is there
    amqp.call(1, "queue.delete", queue="q3")
    amqp.call(1, "queue.declare", queue="more")


async def test_a_vhost_has_so_many_exchanges_and_no_more(amqp: raw.Client) -> None:
    made = 0
    while True:
        amqp.send(raw.method(1, "exchange.declare", exchange=f"x{made}", type="topic"))
        method = amqp.read_method()
        if method.name == "channel.close":
            break
        made += 1
    assert method.reply_code == 406 and "exchanges_max" in method.reply_text
    assert 10 < made < 20


async def test_a_vhost_has_so_many_bindings_and_no_more(amqp: raw.Client) -> None:
    for name in ("a", "b"):
        amqp.call(1, "queue.declare", queue=name)
        for number in range(15):
            amqp.call(1, "queue.bind", queue=name, exchange="amq.topic", routing_key=f"k{number}")
    more = {"queue": "a", "exchange": "amq.topic", "routing_key": "more"}
    assert "bindings_max" in refused(amqp, "queue.bind", 406, **more)
    amqp.call(1, "queue.bind", queue="a", exchange="amq.topic", routing_key="k3")  # it is there
    amqp.call(1, "queue.unbind", queue="a", exchange="amq.topic", routing_key="k3")
    amqp.call(1, "queue.bind", **more)
    # Those of what is deleted are no longer counted, by either end.
    for _ in range(3):
        amqp.call(1, "exchange.declare", exchange="e", type="fanout")
        amqp.call(1, "queue.delete", queue="b")
        amqp.call(1, "queue.declare", queue="b")
        for number in range(15):
            amqp.call(1, "queue.bind", queue="b", exchange="e", routing_key=f"k{number}")
        assert "bindings_max" in refused(
            amqp, "queue.bind", 406, queue="b", exchange="e", routing_key="more"
        )
        amqp.call(1, "exchange.delete", exchange="e")


WIDE = {"x-anything": ["x" * 1000] * 5}
"""Some 16,000 bytes by count: three fit into `arguments_max`, four do not."""


def _some(kind: str, number: int) -> dict[str, Any]:
    """The fields of a declaration or a binding with wide arguments."""
    if kind == "queue.bind":
        return {"exchange": "amq.headers", "queue": "q", "arguments": WIDE | {"n": number}}
    if kind == "exchange.declare":
        return {"exchange": f"w{number}", "type": "topic", "arguments": WIDE}
    return {"queue": f"w{number}", "arguments": WIDE}


@pytest.mark.parametrize("kind", ["queue.declare", "exchange.declare", "queue.bind"])
async def test_the_arguments_of_a_vhost_take_so_much_memory_and_no_more(
    amqp: raw.Client, kind: str
) -> None:
    amqp.call(1, "queue.declare", queue="q")
    for number in range(2):
        amqp.call(1, kind, **_some(kind, number))
    amqp.call(1, kind, **_some(kind, 1))  # it is there
    # They count together, whatever they are of.
    amqp.call(1, "queue.declare", queue="third", arguments=WIDE)
    text = refused(amqp, kind, 406, **_some(kind, 2))
    assert "(arguments_max)" in text and "56000" in text
    refused(amqp, "queue.declare", 406, queue="more", arguments=WIDE)
    amqp.call(1, "queue.declare", queue="without")
    for _ in range(5):  # what has gone makes room
        amqp.call(1, "queue.delete", queue="third")
        amqp.call(1, kind, **_some(kind, 2))
        refused(amqp, "queue.declare", 406, queue="third", arguments=WIDE)
        if kind == "queue.bind":
            amqp.call(1, "queue.unbind", **_some(kind, 2))
        else:
            amqp.call(1, f"{kind[:-8]}.delete", **{kind[:-8]: "w2"})
        amqp.call(1, "queue.declare", queue="third", arguments=WIDE)


async def test_bindings_of_what_is_deleted_give_their_memory_back(
    amqp: raw.Client,
) -> None:
    amqp.call(1, "queue.declare", queue="kept")
    for _ in range(3):
        amqp.call(1, "exchange.declare", exchange="e", type="headers")
        amqp.call(1, "queue.declare", queue="q")
        for number in range(2):
            amqp.call(1, "queue.bind", exchange="e", queue="q", arguments=WIDE | {"n": number})
        more = {"exchange": "e", "queue": "kept", "arguments": WIDE}
        amqp.call(1, "queue.bind", **more)
        assert "arguments_max" in refused(
            amqp, "queue.bind", 406, exchange="amq.topic", queue="kept", arguments=WIDE
        )
        amqp.call(1, "queue.delete", queue="q")
        amqp.call(1, "exchange.delete", exchange="e")


async def test_a_connection_has_so_many_consumers_and_no_more(amqp: raw.Client) -> None:
    amqp.call(1, "queue.declare", queue="q")
    amqp.call(2, "channel.open")
    for number in range(8):  # those that are cancelled make room
        tag = amqp.call(1 + number % 2, "basic.consume", queue="q").consumer_tag
        if number < 4:
            amqp.call(1 + number % 2, "basic.cancel", consumer_tag=tag)
    amqp.call(1, "basic.consume", queue="q")
    amqp.send(raw.method(2, "basic.consume", queue="q"))
    closed = amqp.expect("connection.close", 0)
    assert closed.reply_code == 530
    assert "reached maximum (5) of consumers per connection" in closed.reply_text


async def test_the_arguments_of_a_connections_consumers_take_so_much_memory_and_no_more(
    amqp: raw.Client,
) -> None:
    amqp.call(1, "queue.declare", queue="q")
    wide = {"x-anything": ["x" * 100] * 15}
    for _ in range(20):  # what a cancelled one had may be taken again
        tag = amqp.call(1, "basic.consume", queue="q", arguments=wide).consumer_tag
        amqp.call(1, "basic.cancel", consumer_tag=tag)
    for _ in range(2):
        amqp.call(1, "basic.consume", queue="q", arguments=wide)
    text = refused(amqp, "basic.consume", 406, queue="q", arguments=wide)
    assert "at most 20000 are allowed (consumer_arguments_max)" in text
    # Those of the closed channel have theirs no more.
    amqp.call(1, "basic.consume", queue="q", arguments=wide)


@pytest.mark.parametrize("kind", ["classic", "stream"])
async def test_a_queue_has_so_many_consumers_and_no_more(
    limited: Appliance, amqp: raw.Client, kind: str
) -> None:
    amqp.call(1, "queue.declare", queue="q", durable=True, arguments={"x-queue-type": kind})
    with raw.Client.open((limited.host, limited.amqp_port), virtual_host="t") as other:
        for client, count in ((amqp, 4), (other, 3)):
            client.call(1, "basic.qos", prefetch_count=1)
            for _ in range(count):
                client.call(1, "basic.consume", queue="q")
        text = refused(amqp, "basic.consume", 406, queue="q")
        assert "queue 'q' in vhost 't' has 7 consumers" in text
        assert "consumers_per_queue_max" in text
        # Those of the closed channel make room.
        amqp.call(1, "basic.qos", prefetch_count=1)
        for _ in range(4):
            amqp.call(1, "basic.consume", queue="q")


async def test_many_consumers_of_one_queue_come_and_go_at_little_cost(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    broker = Appliance("broker", tmp_path_factory.mktemp("consumers")).start()
    consume = [
        raw.method(1, "basic.consume", queue="q", consumer_tag=f"{number}", nowait=True)
        for number in range(500)
    ]
    address = (broker.host, broker.amqp_port)
    try:
        with raw.Client.open(address) as watching:
            watching.call(1, "queue.declare", queue="q")
            begun = cpu_seconds(broker.pids["broker"])
            clients = [raw.Client.open(address) for _ in range(20)]
            for client in clients:
                client.send(b"".join(consume))
                client.fence(1)
            for client in clients:
                client.socket.close()
            while watching.call(1, "queue.declare", queue="q", passive=True).consumer_count:
                pass
            # 6 s when each that came or went was looked for among all.
            assert cpu_seconds(broker.pids["broker"]) - begun < 3
    finally:
        broker.close()


async def test_a_vhost_has_so_many_policies_and_parameters(control: BrokerClient) -> None:
    policy = {"vhost": "t", "pattern": "^a", "definition": {"max-length": 1}}
    for verb in ("policy.put", "operator-policy.put"):
        for number in range(3):
            await control.call(verb, name=f"p{number}", **policy)
        await control.call(verb, name="p1", **policy)  # it is there
        with pytest.raises(BrokerError, match="policies_max"):
            await control.call(verb, name="more", **policy)
    slow = {**policy, "pattern": "(?:[ab]{9}){80}"}
    with pytest.raises(BrokerError, match="policy_steps_max"):
        for number in range(3):
            await control.call("policy.put", name=f"p{number}", **slow)
    stored = {"component": "federation-upstream", "vhost": "t", "value": {"uri": "amqp://far"}}
    for number in range(2):
        await control.call("parameter.put", name=f"p{number}", **stored)
    with pytest.raises(BrokerError, match="parameters_max"):
        await control.call("parameter.put", name="more", **stored)


@pytest.mark.parametrize(
    ("section", "row", "count", "setting"),
    [
        ("queues", {"vhost": "t"}, 21, "queues_max"),
        ("exchanges", {"vhost": "t", "type": "topic"}, 21, "exchanges_max"),
        ("bindings", {"vhost": "t", "source": "amq.topic", "destination": "q"}, 31, "bindings_max"),
        ("policies", {"vhost": "t", "pattern": "a", "definition": {"max-length": 1}}, 4,
         "policies_max"),
        ("operator_policies", {"vhost": "t", "pattern": "a", "definition": {"max-length": 1}}, 4,
         "policies_max"),
        ("policies", {"vhost": "t", "pattern": "(?:[ab]{9}){80}",
                      "definition": {"max-length": 1}}, 3, "policy_steps_max"),
        ("queues", {"vhost": "t", "arguments": WIDE}, 4, "arguments_max"),
        ("exchanges", {"vhost": "t", "type": "topic", "arguments": WIDE}, 4, "arguments_max"),
        ("bindings", {"vhost": "t", "source": "amq.headers", "destination": "q",
                      "arguments": WIDE}, 4, "arguments_max"),
        ("parameters", {"vhost": "t", "component": "c", "value": 1}, 3, "parameters_max"),
        ("global_parameters", {"value": 1}, 9, "parameters_max"),
    ],
)  # fmt: skip
async def test_an_import_beyond_a_limit_changes_nothing(
    control: BrokerClient, section: str, row: dict[str, Any], count: int, setting: str
) -> None:
    await control.call("queue.declare", vhost="t", name="q")
    rows = [{**row, "name": f"n{number}"} for number in range(count)]
    if section == "bindings":
        kind = {"destination_type": "queue"}
        rows = [{**row, **kind, "routing_key": f"k{number}"} for number in range(count)]
    before = await control.call("definitions.export", secrets=True)
    with pytest.raises(BrokerError, match=setting) as error:
        await control.call("definitions.import", definitions=json.dumps({section: rows}).encode())
    assert error.value.status == 400
    assert await control.call("definitions.export", secrets=True) == before
