"""What a stream and its consumers' places survive: restarts, kill -9, lost summaries; and what
retention takes."""

from collections.abc import Iterator

import pytest

from tests.amqp import streams
from tests.amqp.raw import Client
from tests.amqp.streams import Reader, connect, files, until
from tests.appliance import Appliance

SMALL = 4096


def restart(broker: Appliance, client: Client, kill: bool) -> Client:
    client.cut()
    broker.end(kill=kill)
    broker.start()
    return connect(broker)


def test_it_goes_on_after_a_restart(broker: Appliance, kill: bool) -> None:
    client = connect(broker)
    stream = streams.declare(client, x_stream_max_segment_size_bytes=SMALL)
    bodies = [b"%03d" % i * 200 for i in range(40)]
    streams.fill(client, stream, *bodies[:20])
    client = restart(broker, client, kill)
    assert streams.kept(client, stream) == 20
    streams.fill(client, stream, *bodies[20:])
    client = restart(broker, client, kill)
    assert streams.kept(client, stream) == 40
    assert streams.read(client, stream, 40) == list(enumerate(bodies))
    assert "unreadable" not in broker.log()


def test_it_goes_on_counting_where_everything_was_purged(broker: Appliance, kill: bool) -> None:
    client = connect(broker)
    stream = streams.declare(client)
    streams.fill(client, stream, b"a", b"b", b"c")
    client.call(1, "queue.purge", queue=stream)
    client = restart(broker, client, kill)
    assert streams.kept(client, stream) == 0
    streams.fill(client, stream, b"d")
    assert streams.read(client, stream, 1) == [(3, b"d")]


def test_it_keeps_a_consumers_place(broker: Appliance, kill: bool) -> None:
    client = connect(broker)
    stream = streams.declare(client)
    streams.fill(client, stream, *(b"%d" % i for i in range(10)))
    reader = Reader(
        client,
        stream,
        tag="mine",
        x_stream_offset="first",
        x_stream_automatic_offset_tracking=True,
    )
    reader.take(4)
    reader.close()
    client = restart(broker, client, kill)
    again = Reader(client, stream, tag="mine")
    assert [streams.offset(message) for message in again.take(3)] == [4, 5, 6]
    again.close()
    client = restart(broker, client, kill)
    # It wins over what the consumer asks for, where tracking is asked for too.
    again = Reader(
        client,
        stream,
        tag="mine",
        x_stream_offset="first",
        x_stream_automatic_offset_tracking=True,
    )
    assert [streams.offset(message) for message in again.take(3)] == [7, 8, 9]


def test_it_keeps_the_place_of_the_first_message_not_acked(client: Client) -> None:
    stream = streams.declare(client)
    streams.fill(client, stream, *(b"%d" % i for i in range(6)))
    reader = Reader(
        client,
        stream,
        tag="mine",
        x_stream_offset="first",
        x_stream_automatic_offset_tracking="true",
    )
    got = reader.take(6, ack=False)
    for index in (0, 1, 3, 4):
        reader.ack(got[index])
    reader.close()
    again = Reader(client, stream, tag="mine")
    assert [streams.offset(message) for message in again.take(4)] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "given",
    [
        {"tag": "mine", "x_stream_offset": "first"},
        {"tag": "", "x_stream_offset": "first"},
        {"tag": "mine", "x_stream_offset": 0, "x_stream_automatic_offset_tracking": False},
    ],
    ids=["offset given", "server's tag", "tracking off"],
)
def test_it_keeps_no_place_unless_asked(client: Client, given: dict[str, object]) -> None:
    stream = streams.declare(client)
    streams.fill(client, stream, b"a", b"b")
    for _ in range(2):
        reader = Reader(client, stream, **given)  # type: ignore[arg-type]
        assert [streams.offset(message) for message in reader.take(2)] == [0, 1]
        reader.close()


def test_it_rewrites_a_long_file_of_places(broker: Appliance) -> None:
    client = connect(broker)
    stream = streams.declare(client)
    streams.fill(client, stream, *[b""] * 4000)
    reader = Reader(
        client,
        stream,
        tag="t" * 200,
        prefetch=1,
        x_stream_offset="first",
        x_stream_automatic_offset_tracking=True,
    )
    reader.take(1, ack=False)
    sizes = set()
    names = set()
    for tag in range(1, 700):
        # A reply comes after what was acked before is written.
        client.send_method(reader.channel, "basic.ack", delivery_tag=tag)
        client.send_method(reader.channel, "basic.qos", prefetch_count=1)
        assert set(client.read_names(2)) == {"basic.qos-ok", "basic.deliver"}
        (newest,) = files(broker, "offsets.*")[-1:]
        sizes.add(newest.stat().st_size)
        names.add(newest.name)
    assert len(names) > 1
    assert max(sizes) < 100_000


def test_it_finds_its_way_without_summaries(broker: Appliance, kill: bool) -> None:
    client = connect(broker)
    stream = streams.declare(client, x_stream_max_segment_size_bytes=SMALL)
    bodies = [b"%03d" % i * 200 for i in range(40)]
    streams.fill(client, stream, *bodies, headers={"x-stream-filter-value": "v"})
    until(lambda: len(files(broker, "meta.*")) >= 4)
    client.cut()
    broker.end(kill=kill)
    for number, path in enumerate(files(broker, "meta.*")):
        data = path.read_bytes()
        if number % 3 == 0:
            path.unlink()
        elif number % 3 == 1:
            path.write_bytes(data[: len(data) // 2])
        else:
            # A kill may have left less of it.
            path.write_bytes(data[:20] + bytes(each ^ 1 for each in data[20:21]) + data[21:])
    broker.start()
    client = connect(broker)
    assert streams.read(client, stream, 40, x_stream_filter="v") == list(enumerate(bodies))


# -- retention -------------------------------------------------------------------------------------


def offsets(client: Client, stream: str) -> list[int]:
    """Every offset that is kept, in order."""
    return [offset for offset, _ in streams.read(client, stream, streams.kept(client, stream))]


def rising(client: Client, stream: str, count: int) -> Iterator[bytes]:
    """Fills a stream with messages of 1 KiB, each confirmed by itself."""
    for number in range(count):
        body = b"%04d" % number * 256
        streams.fill(client, stream, body)
        yield body


@pytest.mark.parametrize("argument", ["x_max_length", "x_max_length_bytes"])
def test_it_keeps_no_more_than_its_limit(client: Client, argument: str) -> None:
    limit = 10 if argument == "x_max_length" else 10 * 1024
    stream = streams.declare(client, **{argument: limit, "x_stream_max_segment_size_bytes": SMALL})
    for number, _ in enumerate(rising(client, stream, 30), 1):
        # Whole segments of three messages go, and never the active one.
        assert min(number, 7) <= streams.kept(client, stream) <= 13
    until(lambda: streams.kept(client, stream) <= 10)
    kept = offsets(client, stream)
    assert kept == list(range(30 - len(kept), 30))


def test_it_never_drops_the_active_segment(client: Client) -> None:
    stream = streams.declare(client, x_max_length=0, x_max_age="1s")
    streams.fill(client, stream, *(b"%d" % i for i in range(10)))
    assert streams.kept(client, stream) == 10


def test_it_drops_what_is_too_old(client: Client) -> None:
    stream = streams.declare(client, x_max_age="1s", x_stream_max_segment_size_bytes=SMALL)
    for _ in rising(client, stream, 10):
        pass
    until(lambda: streams.kept(client, stream) <= 3)
    assert offsets(client, stream)[-1] == 9


def test_it_survives_restarts_with_retention(broker: Appliance, kill: bool) -> None:
    client = connect(broker)
    stream = streams.declare(client, x_max_length=6, x_stream_max_segment_size_bytes=SMALL)
    for _ in rising(client, stream, 20):
        pass
    until(lambda: streams.kept(client, stream) <= 6)
    kept = offsets(client, stream)
    client = restart(broker, client, kill)
    assert offsets(client, stream) == kept
    assert len(files(broker, "msgs.*")) <= 3
    until(lambda: len(files(broker, "meta.*")) <= 3)


def test_it_takes_a_slow_reader_to_what_is_left(client: Client, other: Client) -> None:
    stream = streams.declare(client, x_max_length=6, x_stream_max_segment_size_bytes=SMALL)
    reader = Reader(other, stream, prefetch=1, x_stream_offset="first")
    for _ in rising(client, stream, 20):
        pass
    until(lambda: streams.kept(client, stream) <= 6)
    first = offsets(client, stream)[0]
    assert streams.offset(reader.take(1)[0]) == 0
    found = streams.offset(reader.take(1)[0])
    assert found in (1, 2, first)
    while found < first:
        found = streams.offset(reader.take(1)[0])
    assert found == first


def test_it_gives_nothing_back_that_retention_took(client: Client, other: Client) -> None:
    stream = streams.declare(client, x_max_length=6, x_stream_max_segment_size_bytes=SMALL)
    streams.fill(client, stream, *[b"first" * 200] * 3)
    reader = Reader(other, stream, prefetch=3, x_stream_offset="first")
    given = reader.take(3, ack=False)
    for _ in rising(client, stream, 20):
        pass
    until(lambda: streams.kept(client, stream) <= 6)
    first = offsets(client, stream)[0]
    assert first > 3
    other.send_method(
        reader.channel, "basic.nack", delivery_tag=given[2].tag, multiple=True, requeue=True
    )
    got = reader.take(23 - first)
    assert [streams.offset(message) for message in got] == list(range(first, 23))
    assert not any(message.redelivered for message in got)


def test_it_removes_its_files(broker: Appliance) -> None:
    client = connect(broker)
    stream = streams.declare(client, x_stream_max_segment_size_bytes=SMALL)
    for _ in rising(client, stream, 10):
        pass
    reader = Reader(client, stream, tag="t", x_stream_offset="first",
                    x_stream_automatic_offset_tracking=True)  # fmt: skip
    reader.take(10)
    reader.close()
    assert files(broker, "offsets.*")
    assert client.call(1, "queue.delete", queue=stream).message_count == 10
    until(lambda: not list(broker.data_dir.glob("vhosts/*/queues/*")))
