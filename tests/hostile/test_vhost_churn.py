"""Virtual hosts that come and go, as `make soak` found: nothing of them is kept open."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from management.broker_client import BrokerClient
from tests.amqp import raw
from tests.appliance import Appliance


def files(broker: Appliance) -> list[Path]:
    return [path for path in broker.data_dir.glob("vhosts/**/*") if path.is_file()]


def descriptors(broker: Appliance) -> int:
    return sum(1 for _ in Path(f"/proc/{broker.pids['broker']}/fd").iterdir())


async def test_a_deleted_vhost_leaves_no_file_and_no_descriptor(broker: Appliance) -> None:
    client = BrokerClient(broker.control_socket)

    async def come_and_go(name: str) -> None:
        await client.call("vhost.put", name=name)
        everything = dict.fromkeys(("configure", "write", "read"), ".*")
        await client.call("permission.put", vhost=name, user="guest", **everything)
        address = (broker.host, broker.amqp_port)
        with raw.Client.open(address, virtual_host=name) as amqp:
            amqp.call(1, "queue.declare", queue="q", durable=True)
            amqp.call(1, "confirm.select")
            amqp.publish(1, "", "q", b"x", delivery_mode=2)
            amqp.expect("basic.ack", 1)
            amqp.call(0, "connection.close")
        await client.call("vhost.delete", name=name)

    await come_and_go("first")
    before = len(files(broker)), descriptors(broker)
    for number in range(10):
        await come_and_go(f"v{number}")
    # The server closes a connection after its client.
    deadline = time.monotonic() + 30
    while (found := (len(files(broker)), descriptors(broker))) != before:
        assert time.monotonic() < deadline, (found, before)
        await asyncio.sleep(0.02)
    await client.close()
    broker.stop()
    broker.start()
    assert len(list(broker.data_dir.glob("vhosts/*"))) == 1
