"""Streams whose files were damaged: the broker starts, tells it, and goes on behind the damage."""

import os
import random
from pathlib import Path

import pytest

from tests.amqp import streams
from tests.amqp.raw import Client
from tests.amqp.streams import Reader, connect, files, until
from tests.appliance import Appliance

SMALL = 4096


@pytest.mark.parametrize("seed", range(2))
def test_it_passes_over_flipped_bits(broker: Appliance, seed: int) -> None:
    """One message is lost, the offsets of the others stay, and it is told."""
    client = connect(broker)
    stream = streams.declare(client, x_stream_max_segment_size_bytes=SMALL)
    bodies = [b"%03d" % i * 100 for i in range(40)]
    streams.fill(client, stream, *bodies)
    until(lambda: len(files(broker, "meta.*")) >= 3)
    broker.kill()
    generator = random.Random(seed)
    segments = files(broker, "msgs.*")
    path = segments[generator.randrange(len(segments) - 1)]
    data = bytearray(path.read_bytes())
    data[generator.randrange(8, len(data))] ^= 1 << generator.randrange(8)
    path.write_bytes(data)
    if seed % 2:
        for meta in files(broker, "meta.*"):
            meta.unlink()
    broker.start()
    client = connect(broker)
    got = streams.read(client, stream, 39)
    assert len({offset for offset, _ in got}) == 39
    assert all(bodies[offset] == body for offset, body in got)
    assert len(list((broker.data_dir / "quarantine").glob("*.bin"))) == 1
    assert "/quarantine/" in broker.log()
    streams.fill(client, stream, b"new")
    assert streams.read(client, stream, 1, x_stream_offset="last")[0][0] == 40


def test_it_never_gives_an_offset_twice(broker: Appliance) -> None:
    """Where the end of the log is damaged, the offsets that it may have held are passed over."""
    client = connect(broker)
    stream = streams.declare(client)
    streams.fill(client, stream, *(b"%d" % i for i in range(10)))
    broker.kill()
    (path,) = files(broker, "msgs.*")
    data = path.read_bytes()
    path.write_bytes(data[:-100] + bytes(100))
    broker.start()
    client = connect(broker)
    count = streams.kept(client, stream)
    assert 0 < count < 10
    streams.fill(client, stream, b"new")
    got = streams.read(client, stream, count + 1)
    assert [offset for offset, _ in got[:count]] == list(range(count))
    assert got[-1][0] >= 10
    assert got[-1][1] == b"new"


@pytest.mark.parametrize("seed", range(3))
def test_it_reads_what_is_left_of_any_file(broker: Appliance, seed: int) -> None:
    """Bits are flipped in files of every kind, ends are cut off, files are missing."""
    generator = random.Random(seed)
    client = connect(broker)
    stream = streams.declare(client, x_stream_max_segment_size_bytes=SMALL)
    bodies = [b"%03d" % i * 100 for i in range(60)]
    streams.fill(client, stream, *bodies, headers={"x-stream-filter-value": "v"})
    keep_places(client, stream, "one", "two")
    until(lambda: len(files(broker, "meta.*")) >= 5)
    broker.kill()
    kinds = ("msgs", "meta", "offsets")
    newest = files(broker, "msgs.*")[-1]
    for path in (path for kind in kinds for path in files(broker, f"{kind}.*")):
        # Nothing tells which offsets were given where the end of the log is just not there.
        damage(path, generator, cuts=path != newest)
    for start in range(2):
        broker.start()
        client = connect(broker)
        end = b"new in start %d" % start
        streams.fill(client, stream, end, headers={"x-stream-filter-value": "v"})
        for arguments in ({}, {"x_stream_filter": "v"}):
            reader = Reader(client, stream, x_stream_offset="first", **arguments)
            got: dict[int, bytes] = {}
            while end not in got.values():
                (message,) = reader.take(1)
                assert streams.offset(message) > max(got, default=-1)
                got[streams.offset(message)] = message.body
            reader.close()
            old = {offset: body for offset, body in got.items() if body[:3] != b"new"}
            assert all(bodies[offset] == body for offset, body in old.items())
            assert min(set(got) - set(old)) >= len(bodies)
        if start == 0 and len(old) < len(bodies):
            assert any(word in broker.log() for word in ("quarantine", "cut", "missing"))
        client.cut()
        assert broker.stop() == 0


def damage(path: Path, generator: random.Random, *, cuts: bool) -> None:
    """Does one thing to a file, or nothing."""
    data = bytearray(path.read_bytes())
    what = generator.randrange(5)
    if what in (1, 3) and not cuts:
        return
    if what == 0:
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
    elif what == 1:
        del data[generator.randrange(len(data)) :]
    elif what == 2:
        start = generator.randrange(len(data))
        data[start : start + 200] = bytes(len(data[start : start + 200]))
    elif what == 3 and generator.randrange(4) == 0:
        path.unlink()
        return
    path.write_bytes(data)


def keep_places(client: Client, stream: str, *tags: str) -> None:
    """Each consumer is done with as many messages as its place in the list tells."""
    for count, tag in enumerate(tags, 1):
        reader = Reader(
            client, stream, tag, x_stream_offset="first", x_stream_automatic_offset_tracking=True
        )
        reader.take(count)
        reader.close()


def test_it_keeps_the_places_around_a_damaged_one(broker: Appliance) -> None:
    client = connect(broker)
    stream = streams.declare(client)
    streams.fill(client, stream, *(b"%d" % i for i in range(10)))
    keep_places(client, stream, "one", "two", "three")
    broker.kill()
    (path,) = files(broker, "offsets.*")
    data = bytearray(path.read_bytes())
    data[data.index(b"two")] ^= 1
    path.write_bytes(data)
    broker.start()
    client = connect(broker)
    streams.fill(client, stream, b"new")
    for tag, first in (("one", 1), ("three", 3)):
        reader = Reader(client, stream, tag)
        assert streams.offset(reader.take(1)[0]) == first
        reader.close()
    assert "are no places of consumers" in broker.log()


def test_it_tells_of_files_that_it_does_not_know(broker: Appliance) -> None:
    client = connect(broker)
    stream = streams.declare(client)
    streams.fill(client, stream, b"a")
    client.cut()
    assert broker.stop() == 0
    (path,) = files(broker, "msgs.*")
    strangers = [path.with_name(name) for name in ("notes.txt", "msgs.1", "acks.0000000001")]
    for stranger in strangers:
        stranger.write_bytes(b"mine")
    path.with_name("meta.0000000009.tmp").write_bytes(b"left over")
    broker.start()
    assert streams.read(connect(broker), stream, 1) == [(0, b"a")]
    for stranger in strangers:
        assert stranger.read_bytes() == b"mine"
        assert f"{stranger} is not known here; it was left alone" in broker.log()
    assert not files(broker, "*.tmp")


def test_a_reader_survives_a_file_that_shrinks(broker: Appliance) -> None:
    """The file of a sealed segment is cut while the broker runs: what is left of it is read, and
    what comes behind."""
    client = connect(broker)
    stream = streams.declare(client, x_stream_max_segment_size_bytes=SMALL)
    bodies = [b"%03d" % i * 100 for i in range(40)]
    streams.fill(client, stream, *bodies)
    path = files(broker, "msgs.*")[1]
    os.truncate(path, 1000)
    reader = Reader(client, stream, x_stream_offset="first")
    got = []
    while not got or got[-1] != 39:
        got.append(streams.offset(reader.take(1)[0]))
    assert got == sorted(set(got))
    assert 25 < len(got) < 40
