"""A history and its index over starts whose wall clocks jump."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.amqp.raw import Client
from tests.appliance import ROOT, Appliance
from tests.control.test_message_history import HISTORY, keep
from tests.control.test_real_broker import control

CLOCK = Path(__file__).parent / "other_clock"
COUNT = 600
DAY_S, HOUR_S = 86_400, 3600


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Appliance]:
    appliance = Appliance("broker", tmp_path, stream_index_items=1024)
    appliance.environment["PYTHONPATH"] = f"{CLOCK}:{ROOT}"
    yield appliance
    appliance.close()


def publish(broker: Appliance, run: int) -> None:
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "queue.declare", queue="q", durable=True)
        client.call(1, "confirm.select")
        for number in range(COUNT):
            client.publish(1, "", "q", b"x", message_id=str(run), correlation_id=f"{run}-{number}")
        client.expect_confirms(1, COUNT)
        client.close()


async def test_records_are_found_whatever_the_wall_clock_did_between_starts(
    broker: Appliance,
) -> None:
    """A day ahead, then an hour behind: records keep their order, retention takes none of them, and
    the index files, whose spans of time overlap now, are all searched."""
    for run, off in enumerate((0, DAY_S, -HOUR_S)):
        broker.environment["OTHER_CLOCK_S"] = str(off)
        broker.start()
        if run == 0:
            async with control(broker) as client:
                keys = "message_id, correlation_id"
                await keep(client, "/", "headers", "^q$", history_keys=keys, history_retention="2D")
        publish(broker, run)
        if run < 2:
            broker.kill()
    now = time.time_ns() // 1_000_000
    async with control(broker) as client:
        times: list[int] = []
        for run in range(3):
            asked = {"vhost": "/", "name": HISTORY, "key": "message_id", "value": str(run)}
            found = await client.call("stream.search", **asked, max=1000)
            offsets = [message["offset"] for message in found["messages"]]
            assert offsets == list(reversed(range(run * COUNT, (run + 1) * COUNT)))
            assert found["complete"]
            times += [message["timestamp"] for message in reversed(found["messages"])]
            one = {**asked, "key": "correlation_id", "value": f"{run}-{COUNT // 2}"}
            found = await client.call("stream.search", **one)
            assert [message["offset"] for message in found["messages"]] == [
                run * COUNT + COUNT // 2
            ]
            # From yesterday on: all; from tomorrow's noon of the clock that ran ahead on: the
            # records of that run, and the later ones, which keep their order.
            for first, is_there in ((now - DAY_S * 1000, True), (now + HOUR_S * 1000, run > 0)):
                found = await client.call("stream.search", **asked, first=first, max=1000)
                assert len(found["messages"]) == (COUNT if is_there else 0)
        assert times == sorted(times)
