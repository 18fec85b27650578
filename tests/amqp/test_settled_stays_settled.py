"""What was settled and answered for stays away after kill -9, also where whole segments went."""

from collections.abc import Callable

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.appliance import Appliance


@pytest.mark.parametrize("how", ["ack", "purge", "get without ack"])
@pytest.mark.parametrize("size", [10, 1000])
def test_settled_messages_stay_away(
    make_broker: Callable[..., Appliance], how: str, size: int
) -> None:
    broker = make_broker(segment_size=65536)
    data = b"".join(raw.publish(1, "", "q", bytes(size), delivery_mode=2) for _ in range(150))
    for _ in range(2):
        with Client.open((broker.host, broker.amqp_port)) as client:
            client.call(1, "confirm.select")
            client.call(1, "queue.declare", queue="q", durable=True)
            client.send(data)
            client.expect_confirms(1, 150)
            if how == "purge":
                client.call(1, "queue.purge", queue="q")
            elif how == "ack":
                client.call(1, "basic.consume", queue="q")
                client.expect_messages(150, 1)
                client.send_method(1, "basic.ack", delivery_tag=0, multiple=True)
                client.call(1, "basic.qos")
            else:
                for _ in range(150):
                    client.get(1, "q", no_ack=True)
            broker.kill()
        broker.start()
        with Client.open((broker.host, broker.amqp_port)) as client:
            got = client.call(1, "queue.declare", queue="q", passive=True)
            assert got.message_count == 0
            client.call(1, "queue.delete", queue="q")
