"""Arguments at the ends of what they may be: whatever a declaration is answered, the broker serves
on, starts again, and has what it said it has."""

import itertools
from typing import Any

import pytest

from broker.fields.codec import DEPTH_MAX, ELEMENTS_MAX
from broker.schema.arguments import QUEUE
from management.broker_client import BrokerError
from tests.amqp import streams
from tests.amqp.field_tables import Typed
from tests.amqp.raw import Client
from tests.amqp.test_permissions import ask
from tests.appliance import Appliance

LONGEST_AGE = "9" * 12 + "Y"
EXTREMES: tuple[Any, ...] = (
    2**63 - 1, -(2**63), 2**32, Typed("T", 2**64 - 1), Typed("T", 0),
    Typed("D", (255, -(2**31))), float("inf"), LONGEST_AGE,
)  # fmt: skip
DEAD_LETTERED = ("x-dead-letter-routing-key",)


def restarted(broker: Appliance) -> Client:
    """A connection to the broker after a restart, which was clean on both sides."""
    assert broker.stop() == 0
    broker.start()
    assert "Traceback" not in broker.log()
    return streams.connect(broker)


def declare(client: Client, queue: str, arguments: dict[str, Any]) -> bool:
    """Declares a durable queue; False if it was refused with 406."""
    client.send_method(1, "queue.declare", queue=queue, durable=True, arguments=arguments)
    if client.read_method().name == "queue.declare-ok":
        return True
    client.send_method(1, "channel.close-ok")
    client.call(1, "channel.open")
    return False


def test_whatever_an_argument_is_the_broker_starts_again_with_what_it_took(
    broker: Appliance,
) -> None:
    """Every argument of a queue with every extreme: declared, published to, restarted."""
    client = streams.connect(broker)
    client.call(2, "channel.open")
    client.call(2, "confirm.select")
    taken = []
    for number, (row, value) in enumerate(itertools.product(QUEUE, EXTREMES)):
        queue = f"{number}-{row.name}"
        arguments = {row.name: value}
        if row.only:
            arguments["x-queue-type"] = row.only
        if row.name in DEAD_LETTERED:
            arguments["x-dead-letter-exchange"] = ""
        if declare(client, queue, arguments):
            taken.append(queue)
    for queue in taken:
        client.publish(2, "", queue, b"kept" * 100, delivery_mode=2)
    assert set(client.expect_confirms(2, len(taken)).values()) == {"basic.ack"}
    client.cut()
    client = restarted(broker)
    for queue in taken:
        client.call(1, "queue.declare", queue=queue, passive=True)


def test_no_age_of_a_stream_or_its_policy_is_too_long(broker: Appliance) -> None:
    """Neither the round after which retention looks, nor the start after it, minds the age."""
    client = streams.connect(broker)
    bodies = [b"%03d" % i * 400 for i in range(20)]
    small = {"x_stream_max_segment_size_bytes": 4096}
    declared = streams.declare(client, x_max_age=LONGEST_AGE, **small)
    governed = streams.declare(client, "governed", **small)
    ask(
        broker, "policy.put", vhost="/", name="aged", pattern="^governed", priority=0,
        definition={"max-age": LONGEST_AGE}, apply_to="queues",
    )  # fmt: skip
    for stream in (declared, governed):
        streams.fill(client, stream, *bodies)
    client.cut()
    client = restarted(broker)
    for stream in (declared, governed):
        assert streams.kept(client, stream) == len(bodies)
    log = broker.log()
    assert "did not reach everything" not in log


def nested(depth: int) -> dict[str, Any]:
    """Arguments whose innermost value is this deep."""
    table: dict[str, Any] = {"innermost": 1}
    for _ in range(depth - 1):
        table = {"table": table}
    return table


def test_what_is_declared_over_http_can_be_read_at_the_next_start(broker: Appliance) -> None:
    """JSON has no bounds of its own: AMQP's hold for it, to the last value that fits."""
    shapes: dict[str, tuple[dict[str, Any], bool]] = {
        "deepest": (nested(DEPTH_MAX), True),
        "too deep": (nested(DEPTH_MAX + 1), False),
        "most": ({"list": [0] * (ELEMENTS_MAX - 1)}, True),
        "too many": ({"list": [0] * ELEMENTS_MAX}, False),
        "longest key": ({"k" * 255: 1}, True),
        "too long a key": ({"k" * 256: 1}, False),
        "too wide": ({"number": 2**63}, False),
    }
    for name, (arguments, fits) in shapes.items():
        for durable in (True, False):
            declaration = {"vhost": "/", "name": name, "durable": durable, "arguments": arguments}
            if fits and durable:
                ask(broker, "queue.declare", **declaration)
            elif not fits:
                with pytest.raises(BrokerError, match=r"queue\.declare cannot be kept") as refused:
                    ask(broker, "queue.declare", **declaration)
                assert refused.value.status == 400
    client = restarted(broker)
    for name, (_, fits) in shapes.items():
        if fits:
            client.call(1, "queue.declare", queue=name, passive=True)
