"""A data directory of an earlier version: `fixtures/schema_1.tar.gz`, written by the broker as it
was before there were summaries, holes and a schema version.

In it: the topic exchange `orders`; the queue `all` bound by `#` with 300 messages, of which 100
were delivered and 75 acknowledged; the queue `some` (x-max-length 1000) bound by `a.*` with every
third.
Segments are of 64 KiB. Bodies are `message <n>` and dots.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.amqp.raw import Client

FIXTURE = Path(__file__).parent / "fixtures/schema_1.tar.gz"
LEFT = [number for number in range(300) if number >= 100 or (number + 1) % 4 == 0]


def body(number: int) -> bytes:
    return b"message %d " % number + b"." * (number % 7 * 70)


@pytest.fixture
def upgraded(make_broker: Any) -> Any:
    broker = make_broker(start=False, segment_size=65536)
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(broker.data_dir, filter="data")
    return broker.start()


def test_it_starts_on_an_old_directory_and_finds_everything(upgraded: Any) -> None:
    assert (upgraded.data_dir / "schema_version").read_text() == "2\n"
    with Client.open((upgraded.host, upgraded.amqp_port)) as client:
        for queue, numbers in (("all", LEFT), ("some", list(range(0, 300, 3)))):
            got = client.call(1, "queue.declare", queue=queue, passive=True)
            assert got.message_count == len(numbers)
            for number in numbers:
                message = client.get(1, queue, no_ack=True)
                assert message is not None
                assert message.body == body(number)
                assert message.properties["message_id"] == str(number)
                assert message.redelivered, "how the old broker ended is not known"
        client.call(1, "confirm.select")
        client.publish(1, "orders", "a.new", b"new", delivery_mode=2)
        client.expect("basic.ack", 1)
        for queue in ("all", "some"):
            message = client.get(1, queue, no_ack=True)
            assert message is not None
            assert message.body == b"new"
        client.close()
    assert "error" not in upgraded.log().lower()


def test_an_upgraded_directory_has_an_appliance_and_a_node_that_stay(upgraded: Any) -> None:
    names = ("appliance_id", "node_id")
    first = [(upgraded.data_dir / name).read_text() for name in names]
    assert first[0] != first[1]
    upgraded.kill()
    upgraded.start()
    assert [(upgraded.data_dir / name).read_text() for name in names] == first


def test_an_upgraded_directory_survives_kills(upgraded: Any) -> None:
    for _ in range(2):
        upgraded.kill()
        upgraded.start()
    with Client.open((upgraded.host, upgraded.amqp_port)) as client:
        for number in LEFT:
            message = client.get(1, "all", no_ack=True)
            assert message is not None
            assert message.body == body(number)
        assert client.get(1, "all") is None
        client.close()
