"""What the broker writes, read by a plain reader; and the other way round."""

import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.kernel import checksum
from broker.store.directory import journal
from tests.amqp import arguments
from tests.amqp.raw import Client
from tests.oracles import segment_files
from tests.oracles.segment_files import Record


@given(st.binary(max_size=1000), st.integers(0, 2**32 - 1))
@example(bytes(range(200)), 0)
@example(random.Random(1).randbytes(383), 7)
@example(random.Random(1).randbytes(384), 7)
@example(random.Random(1).randbytes(2000), 7)
def test_checksums_are_those_of_the_plain_one(data: bytes, seed: int) -> None:
    assert checksum.crc32c(data) == segment_files.crc32c(data)
    assert checksum.crc32c(data, seed) == segment_files.crc32c(data, seed)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_seeds_of_places_are_those_of_the_plain_one(a: int, b: int, c: int) -> None:
    assert checksum.seed_of(a, b, c) == segment_files.place_seed(a, b, c)


@given(st.lists(st.binary(max_size=50), max_size=10), st.data())
def test_a_journal_reads_what_is_whole(payloads: list[bytes], data: st.DataObject) -> None:
    parts = [journal.encode(payload) for payload in payloads]
    whole = journal.MAGIC + b"".join(parts)
    assert journal.entries(whole) == (payloads, len(whole))
    cut = data.draw(st.integers(0, len(whole)))
    got, sound = journal.entries(whole[:cut])
    assert got == payloads[: len(got)]
    assert sound == (0 if cut < 8 else 8 + sum(len(part) for part in parts[: len(got)]))
    assert cut < 8 or len(got) == len(payloads) or cut < sound + len(parts[len(got)])


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=6), st.data())
def test_a_journal_never_reads_a_flipped_entry(payloads: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(journal.MAGIC + b"".join(journal.encode(each) for each in payloads))
    at = data.draw(st.integers(8, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    got, _ = journal.entries(bytes(whole))
    assert got == payloads[: len(got)]
    assert len(got) < len(payloads)


def queue_directories(broker: Any) -> list[Path]:
    """The directories of durable queues that have files."""
    return [path for path in broker.data_dir.glob("vhosts/*/queues/*") if any(path.iterdir())]


def read_queue(directory: Path) -> list[tuple[int, Record, bool]]:
    """Segment, record and whether it is settled, for every record of a queue, in order."""
    incarnation = int(directory.name, 16)
    rows = []
    for path in sorted(directory.glob("msgs.*")):
        number = int(path.suffix[1:])
        found = segment_files.records(path.read_bytes(), incarnation, number)
        acks = directory / f"acks.{number:010}"
        data = acks.read_bytes() if acks.exists() else b""
        gone = segment_files.settled(data, found, incarnation, number)
        rows += [(number, record, record.position in gone) for record in found]
    return rows


def test_a_plain_reader_finds_what_was_published(make_broker: Any) -> None:
    broker = make_broker(segment_size=65536)
    chance = random.Random(7)
    sent = []
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "confirm.select")
        client.call(1, "queue.declare", queue="q", durable=True)
        client.call(1, "queue.bind", queue="q", exchange="amq.topic", routing_key="#")
        for number in range(60):
            body = chance.randbytes(chance.choice((0, 1, 100, 8000)))
            values = {"message_id": str(number), "headers": {"n": number}, "delivery_mode": 2}
            key = "k." * (number % 5)
            client.publish(1, "amq.topic", key, body, **values)
            sent.append((b"amq.topic", key.encode(), arguments.properties(values), body))
        client.expect_confirms(1, 60)
        for tag in range(1, 31):
            assert client.get(1, "q") is not None
            if tag % 3 == 0:
                client.send_method(1, "basic.ack", delivery_tag=tag)
        client.close()
    assert broker.stop() == 0
    (directory,) = queue_directories(broker)
    rows = read_queue(directory)
    assert len({number for number, _, _ in rows}) > 1
    left = [
        (row.exchange, row.routing_key, row.properties, row.body)
        for _, row, gone in rows
        if not gone
    ]
    assert left == [each for index, each in enumerate(sent, 1) if index > 30 or index % 3]
    assert all(row.flags & segment_files.PERSISTENT for _, row, _ in rows)
    broker.start()


@pytest.mark.parametrize("damage", ["none", "flip", "tail", "garbage between"])
def test_the_broker_reads_what_a_plain_writer_wrote(make_broker: Any, damage: str) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "confirm.select")
        client.call(1, "queue.declare", queue="q", durable=True)
        client.publish(1, "", "q", b"first", delivery_mode=2)
        client.expect("basic.ack", 1)
        client.close()
    assert broker.stop() == 0
    (directory,) = queue_directories(broker)
    incarnation = int(directory.name, 16)
    for path in directory.iterdir():
        path.unlink()
    number = 9
    data, rows = bytearray(segment_files.MESSAGES_HEADER), []
    for index in range(40):
        properties = arguments.properties({"message_id": str(index), "delivery_mode": 2})
        if damage == "garbage between" and index % 10 == 5:
            data += random.Random(index).randbytes(100)
        row = Record(
            len(data), 1_700_000_000_000, 8, b"", b"q", properties, bytes([index]) * (index * 7)
        )
        rows.append(row)
        data += row.encode(incarnation, number)
    expected = {index for index in range(40) if index % 4}
    if damage == "flip":
        data[rows[21].position + 40] ^= 4
        expected.remove(21)
    elif damage == "tail":
        del data[rows[39].position + 30 :]
        expected.remove(39)
    (directory / f"msgs.{number:010}").write_bytes(data)
    acks = segment_files.ACKS_HEADER
    for row in rows[::4]:
        acks += segment_files.ack_entry(
            row.position, segment_files.SETTLED, row.bytes, incarnation, number
        )
    acks += struct.pack("<III", rows[1].position, rows[1].bytes, 12345)
    (directory / f"acks.{number:010}").write_bytes(acks)
    for _ in range(2):
        broker.start()
        with Client.open((broker.host, broker.amqp_port)) as client:
            got = client.call(1, "queue.declare", queue="q", passive=True)
            assert got.message_count == len(expected)
        broker.kill()
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        for index in sorted(expected):
            message = client.get(1, "q", no_ack=True)
            assert message is not None
            assert message.properties["message_id"] == str(index)
            assert message.body == bytes([index]) * (index * 7)
        assert client.get(1, "q") is None
