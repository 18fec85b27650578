"""Messages carried from broker to broker: every key of the table that says which and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.aio import Connection
from tests.appliance import Appliance
from tests.bridges.conftest import Bench, declare, ready, taken, until


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


@pytest.mark.parametrize("ack_mode", ["on-confirm", "on-publish", "no-ack"])
async def test_it_acknowledges_in_each_of_three_ways(
    bench: Bench, there: Connection, far: Appliance, ack_mode: str
) -> None:
    bodies = await bench.publish(400)
    await bench.put(
        dest_uri=far.amqp_url, dest_queue=bench.target, ack_mode=ack_mode, src_prefetch_count=7
    )
    assert [message.body for message in await taken(there, bench.target, 400)] == bodies
    await bench.until(lambda row: row["message_count"] == 400 and row["pending"] == 0)
    await bench.control.call("shovel.pause", vhost="/", name=bench.shovel)
    await bench.until_state("paused")
    assert await ready(bench.here, bench.queue) == 0


async def test_it_moves_from_an_exchange_to_an_exchange(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    async with there.channel() as channel:
        await declare(channel, bench.target)
        await channel.call("exchange.declare", exchange=bench.target, type="topic")
        await channel.call(
            "queue.bind", queue=bench.target, exchange=bench.target, routing_key="kept.key"
        )
    await bench.put(
        src_exchange="amq.topic",
        src_exchange_key=f"{bench.queue}.#",
        dest_uri=far.amqp_url,
        dest_exchange=bench.target,
        dest_exchange_key="kept.key",
    )
    await bench.until_state("running")
    async with bench.here.channel() as channel:
        key = f"{bench.queue}.a.b".encode()
        channel.core.publish(b"amq.topic", key, b"\0\0", b"body")
        bench.here.flush()
    (message,) = await taken(there, bench.target, 1)
    assert (message.routing_key, message.body) == (b"kept.key", b"body")


async def test_without_a_target_each_message_keeps_its_exchange_and_key(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    async with there.channel() as channel:
        await declare(channel, bench.queue)
    bodies = await bench.publish(3)
    await bench.put(dest_uri=far.amqp_url)
    assert [message.body for message in await taken(there, bench.queue, 3)] == bodies


@pytest.mark.parametrize("prefetch", [1000, 10])
async def test_it_ends_when_so_many_are_moved_and_takes_no_more(
    bench: Bench, there: Connection, far: Appliance, prefetch: int
) -> None:
    bodies = await bench.publish(100)
    await bench.put(
        dest_uri=far.amqp_url,
        dest_queue=bench.target,
        src_delete_after=40,
        src_prefetch_count=prefetch,
    )
    await bench.until_gone()
    assert [message.body for message in await taken(there, bench.target, 40)] == bodies[:40]
    left = await taken(bench.here, bench.queue, 60)
    assert [message.body for message in left] == bodies[40:]
    assert not any(message.redelivered for message in left), "no other message was touched"


async def test_it_ends_with_what_was_in_the_queue(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    await bench.publish(25)
    await bench.put(dest_uri=far.amqp_url, dest_queue=bench.target, src_delete_after="queue-length")
    await bench.until_gone()
    assert await ready(there, bench.target) == 25
    await bench.put(dest_uri=far.amqp_url, dest_queue=bench.target, src_delete_after="queue-length")
    await bench.until_gone()
    assert await ready(there, bench.target) == 25, "an empty queue ends it at once"


async def test_it_adds_headers_and_properties(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    await bench.publish(2, headers={"own": 7}, app_id="shop")
    await bench.put(
        dest_uri=far.amqp_url,
        dest_queue=bench.target,
        dest_add_forward_headers=True,
        dest_add_timestamp_header=True,
        dest_publish_properties={"content_type": "text/plain", "headers": {"more": "x"}},
    )
    for message in await taken(there, bench.target, 2):
        properties = message.decoded()
        assert (properties["app_id"], properties["content_type"]) == ("shop", "text/plain")
        headers = properties["headers"]
        assert (headers["own"], headers["more"]) == (7, "x")
        assert headers["x-shovelled-timestamp"] > 1_700_000_000
        (trail,) = headers["x-shovelled"]
        assert trail["shovel-name"] == bench.shovel
        assert trail["dest-queue"] == bench.target
        assert "guest" not in str(trail), "no password, and no user"


async def test_it_moves_large_messages_within_its_memory(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    bodies = await bench.publish(30, size=3_000_000)
    await bench.put(dest_uri=far.amqp_url, dest_queue=bench.target, src_prefetch_count=0)
    found = await taken(there, bench.target, 30)
    assert [message.body for message in found] == bodies
    assert peak_of(bench) < 250_000, "kB; without a bound all 90 MB would be held, more than once"


def peak_of(bench: Bench) -> int:
    """The most memory that the process of shovels had, in kB."""
    assert bench.pair.bridges.process is not None
    status = Path(f"/proc/{bench.pair.bridges.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line)


async def test_of_several_addresses_the_next_is_tried(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    bodies = await bench.publish(2)
    nowhere = "amqp://guest:guest@127.0.0.1:1"
    await bench.put(
        src_uri=[nowhere, "amqp://"], dest_uri=[nowhere, far.amqp_url], dest_queue=bench.target
    )
    assert [message.body for message in await taken(there, bench.target, 2)] == bodies


async def test_it_moves_within_this_broker_in_the_name_of_who_wrote_it(bench: Bench) -> None:
    bodies = await bench.publish(5)
    await bench.put(dest_queue=bench.target)
    assert [message.body for message in await taken(bench.here, bench.target, 5)] == bodies
    row = await bench.until_state("running")
    assert (row["owner"], row["src_uri"]) == ("guest", "amqp:///")


async def test_pause_holds_over_restarts_and_resume_ends_it(bench: Bench) -> None:
    await bench.put(dest_queue=bench.target)
    await bench.until_state("running")
    await bench.control.call("shovel.pause", vhost="/", name=bench.shovel)
    await bench.until_state("paused")
    bench.pair.bridges.kill()
    await bench.publish(3)
    bench.pair.bridges.start(wait=False)
    assert (await bench.until_state("paused"))["paused"] is True
    assert await ready(bench.here, bench.queue) == 3
    await bench.control.call("shovel.resume", vhost="/", name=bench.shovel)
    await taken(bench.here, bench.target, 3)


async def test_a_queue_that_must_exist_is_not_declared(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    await bench.put(dest_uri=far.amqp_url, dest_queue=bench.target, dest_predeclared=True)
    row = await bench.until_state("error")
    assert f"no queue '{bench.target}'" in row["reason"]
    async with there.channel() as channel:
        await declare(channel, bench.target)
    await bench.until_state("running")


async def test_a_new_definition_takes_the_place_of_the_old_one(bench: Bench) -> None:
    await bench.put(dest_queue=bench.target)
    await bench.until_state("running")
    await bench.put(dest_queue=f"{bench.target}-2")
    await bench.publish(4)
    assert len(await taken(bench.here, f"{bench.target}-2", 4)) == 4

    async def has_one_consumer() -> bool:
        async with bench.here.channel() as channel:
            reply = await channel.call("queue.declare", queue=bench.queue, passive=True)
            return bool(reply["consumer_count"] == 1)

    await until(has_one_consumer)
