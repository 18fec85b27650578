"""Messages carried from broker to broker."""

from __future__ import annotations

from broker.client.aio import Connection
from tests.appliance import Appliance
from tests.bridges.conftest import Bench, ready, taken


async def test_it_moves_what_is_there_and_what_comes(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    first = await bench.publish(500, headers={"kept": "byte for byte"}, message_id="m")
    await bench.put(dest_uri=far.amqp_url, dest_queue=bench.target)
    found = await taken(there, bench.target, 500)
    assert [message.body for message in found] == first
    assert found[0].decoded()["headers"] == {"kept": "byte for byte"}
    row = await bench.until(lambda row: row["message_count"] == 500)
    assert row["state"] == "running"
    later = await bench.publish(300)
    assert [message.body for message in await taken(there, bench.target, 300)] == later
    assert await ready(bench.here, bench.queue) == 0
