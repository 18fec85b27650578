"""What the destination refuses: held and published again, dead-lettered, or dropped."""

from __future__ import annotations

from broker.client.aio import Connection
from broker.client.message import Message
from tests.appliance import Appliance
from tests.bridges.conftest import Bench, declare, ready, taken

MARK = "x-shovel-redelivered"


def is_marked(message: Message) -> bool:
    return (message.decoded().get("headers") or {}).get(MARK) is True


async def test_what_a_full_queue_refuses_is_held_until_there_is_room(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    async with there.channel() as channel:
        await declare(channel, bench.target, x_max_length=10, x_overflow="reject-publish")
    bodies = await bench.publish(30)
    await bench.put(dest_uri=far.amqp_url, dest_queue=bench.target)
    row = await bench.until_state("blocked")
    assert "basic.nack" in row["reason"]
    assert row["next_try"] is not None
    found: list[Message] = []
    async with there.channel() as channel:

        def keep(channel: object, batch: object) -> None:
            found.extend(batch.messages())  # type: ignore[attr-defined]

        await channel.consume(bench.target, keep, no_ack=True)
        await bench.until(lambda row: len(found) == 30 and row["state"] == "running")
    assert sorted(message.body for message in found) == bodies, "none is lost, none is double"
    refused = [message for message in found if is_marked(message)]
    assert refused, "what was published again says so"
    assert found[0].body == bodies[0]
    assert not is_marked(found[0])
    row = await bench.until(lambda row: row["pending"] == 0)
    assert row["message_count"] == 30
    assert await ready(bench.here, bench.queue) == 0


async def test_what_no_queue_takes_is_held(bench: Bench, there: Connection, far: Appliance) -> None:
    await bench.put(dest_uri=far.amqp_url, dest_queue=bench.target)
    await bench.until_state("running")
    async with there.channel() as channel:
        await channel.call("queue.delete", queue=bench.target)
    bodies = await bench.publish(20)
    row = await bench.until_state("blocked")
    assert "312" in row["reason"]
    found = await taken(there, bench.target, 20)
    assert sorted(message.body for message in found) == bodies
    row = await bench.until(lambda row: row["state"] == "running" and row["pending"] == 0)
    assert row["message_count"] == 20


async def test_an_exchange_without_queues_drops_and_counts(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    async with there.channel() as channel:
        await channel.call("exchange.declare", exchange=bench.target, type="fanout")
    await bench.publish(50)
    await bench.put(dest_uri=far.amqp_url, dest_exchange=bench.target)
    row = await bench.until(lambda row: row["counts"]["dropped"] == 50)
    assert row["counts"]["moved"] == 0
    assert row["state"] == "running"
    assert await ready(bench.here, bench.queue) == 0


async def test_refused_messages_go_to_the_dead_letter_exchange_of_the_source(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    letters = f"{bench.queue}-dead"
    source = f"{bench.queue}-dlx"
    await bench.declare(letters)
    await bench.declare(source, x_dead_letter_exchange="", x_dead_letter_routing_key=letters)
    async with there.channel() as channel:
        await declare(channel, bench.target, x_max_length=5, x_overflow="reject-publish")
    await bench.publish(12, source)
    await bench.put(
        src_queue=source,
        dest_uri=far.amqp_url,
        dest_queue=bench.target,
        on_refused="dead-letter",
    )
    await bench.until(lambda row: row["counts"]["dead_lettered"] == 7 and row["pending"] == 0)
    found = await taken(bench.here, letters, 7)
    assert found[0].decoded()["headers"]["x-death"][0]["queue"] == source
    assert await ready(there, bench.target) == 5


async def test_it_does_not_start_where_refused_messages_would_be_lost(
    bench: Bench, far: Appliance
) -> None:
    await bench.publish(3)
    await bench.put(dest_uri=far.amqp_url, dest_queue=bench.target, on_refused="dead-letter")
    row = await bench.until_state("stopped")
    assert f"the queue {bench.queue} has no dead-letter exchange" in row["reason"]
    assert await ready(bench.here, bench.queue) == 3


async def test_refused_messages_stay_when_the_dead_letter_exchange_goes_away(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    """What is nacked at a queue without one is lost."""
    async with bench.here.channel() as channel, there.channel() as away:
        await channel.call("exchange.declare", exchange=bench.target, type="fanout")
        await bench.declare(f"{bench.queue}-dlx", x_dead_letter_exchange=bench.target)
        await declare(away, bench.target, x_max_length=0, x_overflow="reject-publish")
        await bench.put(
            src_queue=f"{bench.queue}-dlx",
            dest_uri=far.amqp_url,
            dest_queue=bench.target,
            on_refused="dead-letter",
        )
        await bench.until_state("running")
        await channel.call("exchange.delete", exchange=bench.target)
        await bench.publish(3, f"{bench.queue}-dlx")
        row = await bench.until_state("stopped")
        assert "has no dead-letter exchange" in row["reason"]
        assert await ready(bench.here, f"{bench.queue}-dlx") == 3


async def test_refused_messages_count_for_how_many_a_shovel_takes(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    """Else it would take more behind a lost connection, or wait for ever for those."""
    letters = f"{bench.queue}-dead"
    await bench.declare(letters)
    async with there.channel() as channel:
        await declare(channel, bench.target, x_max_length=5, x_overflow="reject-publish")
    await bench.publish(12)
    await bench.put(
        dest_uri=far.amqp_url,
        dest_queue=bench.target,
        src_delete_after=20,
        on_refused="dead-letter",
        dead_letter_queue=letters,
    )
    row = await bench.until(lambda row: row["counts"]["dead_lettered"] == 7 and row["pending"] == 0)
    assert row["remaining"] == 8


async def test_refused_messages_go_to_the_queue_that_the_shovel_names(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    letters = f"{bench.queue}-dead"
    await bench.declare(letters)
    async with there.channel() as channel:
        await declare(channel, bench.target, x_max_length=5, x_overflow="reject-publish")
    bodies = await bench.publish(12)
    await bench.put(
        dest_uri=far.amqp_url,
        dest_queue=bench.target,
        on_refused="dead-letter",
        dead_letter_queue=letters,
    )
    await bench.until(lambda row: row["counts"]["dead_lettered"] == 7 and row["pending"] == 0)
    found = await taken(bench.here, letters, 7)
    kept = await taken(there, bench.target, 5, is_there=True)
    assert sorted(message.body for message in [*found, *kept]) == bodies


async def test_refused_messages_beyond_the_limit_of_a_shovel_stay_at_the_source(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    letters, source = f"{bench.queue}-dead", f"{bench.queue}-limited"
    await bench.declare(letters)
    await bench.declare(source)
    await bench.publish(10, source)
    async with there.channel() as channel:
        await declare(channel, bench.target, x_max_length=0, x_overflow="reject-publish")
    await bench.put(
        src_queue=source,
        dest_uri=far.amqp_url,
        dest_queue=bench.target,
        on_refused="dead-letter",
        dead_letter_queue=letters,
        src_delete_after=3,
    )
    await bench.until_gone()
    assert await ready(bench.here, letters) == 3
    assert await ready(bench.here, source) == 7
