"""What is done in slices keeps the order of messages, wherever a slice ends."""

from __future__ import annotations

import pytest

from broker.server.app import Broker
from broker.vhosts import slices
from tests.amqp import raw
from tests.inside import Peer, connect, until

MANY, MORE = 50, 5
COMMITTED = 2000


def delivered(client: Peer, read: int = 0) -> list[int]:
    """The numbers in the bodies that came, from an octet on."""
    numbers = []
    while read < len(client.out):
        kind, size = client.out[read], int.from_bytes(client.out[read + 3 : read + 7])
        if kind == raw.BODY:
            numbers.append(int(client.out[read + 7 : read + 7 + size]))
        read += size + 8
    return numbers


@pytest.mark.parametrize("how", ["channel.close", "connection.close", "cut"])
async def test_the_consumer_that_takes_over_gets_what_comes_back_before_what_is_newer(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0)
    active, other = await connect(broker, "anna"), await connect(broker, "anna")
    queue = f"taken over after {how}"
    active.call(1, "queue.declare", queue=queue, arguments={"x-single-active-consumer": True})
    await active.consume(queue, "first", prefetch=MANY)
    await other.consume(queue, "second")
    for number in range(MANY + MORE):
        await other.publish(queue, body=b"%d" % number)
    assert delivered(active) == list(range(MANY))
    if how == "cut":
        await active.leave()
    else:
        channel = 1 if how == "channel.close" else 0
        active.call(channel, how, reply_code=200, reply_text="", class_id=0, method_id=0)
    await until(lambda: len(delivered(other)) == MANY + MORE)
    assert delivered(other) == list(range(MANY + MORE))
    await active.leave()
    other.call(1, "queue.delete", queue=queue)
    await other.fence()
    await other.leave()


@pytest.mark.parametrize("is_multiple", [True, False])
async def test_what_a_commit_gives_back_comes_before_what_is_published_meanwhile(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_multiple: bool
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0)
    client, other = await connect(broker, "anna"), await connect(broker, "anna")
    queue = f"given back by a commit, multiple {is_multiple}"
    client.call(1, "queue.declare", queue=queue)
    await client.consume(queue, "first")
    for number in range(COMMITTED):
        await other.publish(queue, body=b"%d" % number)
    begun = len(client.out)
    client.call(1, "tx.select")
    for tag in [0] if is_multiple else range(1, COMMITTED + 1):
        client.call(1, "basic.nack", delivery_tag=tag, multiple=is_multiple, requeue=True)
    client.call(1, "tx.commit")
    await other.publish(queue, body=b"%d" % COMMITTED)
    await until(lambda: len(delivered(client, begun)) == COMMITTED + 1)
    assert delivered(client, begun) == list(range(COMMITTED + 1))
    client.call(1, "queue.delete", queue=queue)
    await client.leave()
    await other.leave()
