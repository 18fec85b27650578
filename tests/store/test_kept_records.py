"""Records that are on disk and stay in memory for consumers, and the memory of those that wait to
be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.amqp import raw
from tests.inside import connect, in_memory, running, until

MIB = 1 << 20
QUEUES, BODY = 60, 30_000


async def test_records_that_wait_for_busy_consumers_hold_up_no_publisher() -> None:
    with in_memory() as directory:
        async with running(directory, tail_memory=MIB) as broker:
            persister = broker.persister
            worker, publisher, other = [await connect(broker, "guest") for _ in range(3)]
            worker.call(1, "basic.qos", prefetch_count=1)
            for number in range(QUEUES):
                name = f"work {number}"
                worker.call(1, "queue.declare", queue=name, durable=True)
                worker.call(1, "basic.consume", queue=name, consumer_tag=name)
            other.call(1, "queue.declare", queue="free", durable=True)
            await worker.fence()
            # Each consumer has a job in hand, and the next one waits for it.
            for number in range(QUEUES):
                for length in (100, BODY):
                    job = raw.publish(1, "", f"work {number}", bytes(length), delivery_mode=2)
                    publisher.feed(job)
            await until(lambda: persister.has_written_all)
            assert QUEUES * BODY > MIB
            assert persister.tail_bytes == 0
            assert 0 < persister.kept_bytes <= MIB // 4
            assert not persister.pressed
            await other.publish("free", 200, bytes(5000), delivery_mode=2)
            # Idle queues give back what is kept.
            for queue in broker.vhosts["/"].queues.values():
                if queue.store is not None:
                    queue.store.rest()
            assert persister.kept_bytes == 0
            await worker.leave()


async def test_publishers_that_wait_for_memory_continue_when_it_empties_without_a_round() -> None:
    with in_memory() as directory:
        async with running(directory) as broker:
            persister = broker.persister
            relieved: list[int] = []
            persister.relieved = lambda: relieved.append(persister.tail_bytes)
            persister.pressed = True
            await until(lambda: persister.has_written_all)
            persister.tick()
            await until(lambda: relieved)
            assert not persister.pressed


@pytest.mark.parametrize("priority", [0, 3])
async def test_a_purge_takes_nothing_that_is_published_behind_it(priority: int) -> None:
    arguments = {"x-max-priority": 3, "x-confirm-on": "ack"}
    with in_memory() as directory:
        async with running(directory) as broker:
            client, other = [await connect(broker, "guest") for _ in range(2)]
            client.call(1, "queue.declare", queue="q", durable=True, arguments=arguments)
            client.call(1, "confirm.select")
            await client.publish("q", 9_000, bytes(100), delivery_mode=2, priority=0)
            queue = broker.vhosts["/"].queues["q"]
            # No round has written this one, so that its position is free when it is purged.
            old = raw.publish(1, "", "q", b"old", delivery_mode=2, priority=priority)
            client.feed(old + raw.method(1, "queue.purge", queue="q"))
            purged = raw.method(1, "queue.purge-ok", message_count=9_001)
            await until(lambda: purged in client.out)
            other.feed(raw.publish(1, "", "q", b"new", delivery_mode=2, priority=priority))
            await until(lambda: queue.messages_ready <= 1)
            await other.fence()
            assert queue.messages_ready == 1


async def test_a_queue_that_is_deleted_while_it_is_written_leaves_nothing_in_memory() -> None:
    with in_memory() as directory:
        async with running(directory) as broker:
            vhost, persister = broker.vhosts["/"], broker.persister
            vhost.declare_queue("q", durable=True)
            client, publisher = [await connect(broker, "guest") for _ in range(2)]
            await client.consume("q", "c", prefetch=1)
            await until(lambda: persister.has_written_all)
            files = f"{vhost.queues_directory}/{vhost.queues['q'].incarnation:016x}"
            publisher.feed(raw.publish(1, "", "q", bytes(5000), delivery_mode=2) * 20)
            await until(lambda: persister.waits_for_disk)
            vhost.delete_queue("q")
            await until(lambda: persister.tail_bytes == 0 and not Path(files).exists())
            assert persister.kept_bytes == 0
