"""Shovels that read a stream: they go on where they were, and mark what may be there twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from broker.client.aio import Connection, connect
from broker.client.message import Message
from tests.appliance import Appliance
from tests.bridges.conftest import Bench, Pair, bench_of, declare, endpoint_of, ready, taken, until
from tests.bridges.federated import consume
from tests.bridges.test_faults import all_of, check_none_lost
from tests.bridges.test_web import Site, site

__all__ = ["site"]

FIRST = {"x-stream-offset": "first"}


async def stream(bench: Bench) -> str:
    """A stream of the test's own."""
    name = f"{bench.queue}-stream"
    await bench.declare(name, x_queue_type="stream")
    return name


async def test_it_goes_on_behind_what_it_has_moved(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    source = await stream(bench)
    first = await bench.publish(700, source)
    given: dict[str, Any] = {"dest_uri": far.amqp_url, "dest_queue": bench.target}
    await bench.put(src_queue=source, src_consumer_args=FIRST, **given)
    await bench.until(lambda row: row["counts"]["moved"] == 700 and row["pending"] == 0)
    await bench.control.call("shovel.pause", vhost="/", name=bench.shovel)
    await bench.until_state("paused")
    rest = await bench.publish(300, source, size=17)
    await bench.control.call("shovel.resume", vhost="/", name=bench.shovel)
    found = await taken(there, bench.target, 1000)
    assert [message.body for message in found] == first + rest
    # What is not settled yet comes again.
    await bench.until(lambda row: row["counts"]["moved"] == 1000 and row["pending"] == 0)
    # Another target of the same stream changes nothing; another start begins anew.
    await bench.put(src_queue=source, src_consumer_args=FIRST, **given, src_prefetch_count=10)
    (last,) = await bench.publish(1, source, size=18)
    assert [one.body for one in await taken(there, bench.target, 1)] == [last]
    await bench.until(lambda row: row["counts"]["moved"] == 1001 and row["pending"] == 0)
    await bench.put(src_queue=source, src_consumer_args={"x-stream-offset": 990}, **given)
    assert len(await taken(there, bench.target, 11)) == 11


async def test_nothing_of_a_stream_is_lost_when_its_process_is_killed(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    source = await stream(bench)
    bodies = await bench.publish(4000, source)
    async with there.channel() as channel:
        await declare(channel, bench.target)
    await bench.put(
        src_queue=source,
        src_consumer_args=FIRST,
        dest_uri=far.amqp_url,
        dest_queue=bench.target,
        src_prefetch_count=100,
    )

    async def some_are_there() -> bool:
        return await ready(there, bench.target) >= len(bodies) // 5

    await until(some_are_there)
    bench.pair.bridges.kill()
    bench.pair.bridges.start(wait=False)

    found: list[Message] = []
    await consume(there, bench.target, found)

    async def have_all_come() -> bool:
        return {message.body for message in found} == set(bodies)

    await until(have_all_come, lambda: f"{len(found)} messages came")
    await bench.until(lambda row: row["pending"] == 0 and row["state"] == "running")
    check_none_lost(found, bodies)
    # It did not begin anew.
    assert len(found) < 2 * len(bodies)


async def test_the_place_survives_a_kill_of_the_broker(tmp_path: Path, far: Appliance) -> None:
    pair = Pair(tmp_path).start()
    try:
        async with bench_of(pair) as bench, await connect(endpoint_of(far)) as there:
            source = await stream(bench)
            first = await bench.publish(3000, source)
            given: dict[str, Any] = {"dest_uri": far.amqp_url, "dest_queue": bench.target}
            await bench.put(src_queue=source, src_consumer_args=FIRST, **given)
            await bench.until(lambda row: row["counts"]["moved"] >= 1000)
            shovel, target, bench.shovel = bench.shovel, bench.target, "none"
            pair.broker.kill()
            pair.broker.start()
            async with bench_of(pair) as again:
                again.shovel = shovel
                rest = await again.publish(10, source, size=17)
                found = await taken(there, target, 3010)
                await again.until(lambda row: row["state"] == "running" and not row["pending"])
                found += await all_of(there, target)
            check_none_lost(found, first + rest)
    finally:
        pair.close()


async def test_a_stream_that_is_declared_again_begins_anew(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    source = await stream(bench)
    await bench.publish(50, source)
    await bench.put(
        src_queue=source,
        src_consumer_args=FIRST,
        src_predeclared=True,
        dest_uri=far.amqp_url,
        dest_queue=bench.target,
    )
    assert len(await taken(there, bench.target, 50)) == 50
    async with bench.here.channel() as channel:
        await channel.call("queue.delete", queue=source)
    await stream(bench)
    await bench.publish(3, source)
    assert len(await taken(there, bench.target, 3)) == 3


async def test_a_stream_goes_over_http_and_on_behind_it(bench: Bench, site: Site) -> None:
    source = await stream(bench)
    first = await bench.publish(5, source)
    given: dict[str, Any] = {"src_queue": source, "src_consumer_args": FIRST}
    await bench.put(dest_uri=site.url, dest_concurrency=3, **given)
    await bench.until(lambda row: row["message_count"] == 5)
    await bench.put(dest_uri=site.url, **given)
    (last,) = await bench.publish(1, source, size=17)

    async def came() -> bool:
        return any(asked.body == last for asked in site.asked)

    await until(came)
    bodies = Counter(asked.body for asked in site.asked)
    assert set(bodies) == {*first, last}
    for asked in site.asked[5:-1]:
        assert asked.headers.get("x-shovel-redelivered") == "true"


@pytest.mark.parametrize("said", [{"src_consumer_args": FIRST}, {}])
async def test_a_queue_that_is_called_a_stream_and_is_none_is_said(
    bench: Bench, far: Appliance, there: Connection, said: dict[str, Any]
) -> None:
    """At another broker nobody can ask: the definition says it. A queue without it just moves."""
    async with there.channel() as channel:
        await declare(channel, bench.target)
    async with there.channel() as channel:
        await channel.select_confirms()
        channel.core.publish(b"", bench.target.encode(), b"\0\0", b"body")
        there.flush()
        await channel.confirms_below(1)
    await bench.put(src_uri=far.amqp_url, src_queue=bench.target, dest_queue=bench.queue, **said)
    if said:
        row = await bench.until_state("stopped", "error")
        assert "stream" in row["reason"]
        assert await ready(there, bench.target) <= 1
    else:
        assert len(await taken(bench.here, bench.queue, 1)) == 1
