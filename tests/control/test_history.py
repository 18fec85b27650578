"""The long history: what its files hold, what survives, and what it is bounded by."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.server.app import Broker
from broker.server.control.past import Samples, _continued, aged
from broker.stats import History, Stats
from broker.stats.history import COLUMNS, DAY_MS, HOUR_MS, NODE_KEY, TIERS
from broker.stats.history_file import (
    Damaged,
    Frame,
    decode,
    encode_frame,
    encode_header,
    section_of,
    width_of,
)
from broker.store.files import disk
from management.broker_client import BrokerClient
from tests.appliance import Appliance
from tests.sampled import COUNTERS, SampledQueue

MINUTE_MS = 60_000
BEGIN = 20_000 * DAY_MS
BYTES_MAX = 64 * 1024 * 1024


@dataclass
class Sampled:
    """A virtual host and the broker, as far as samples are taken of them."""

    name: str = "/"
    incarnation: int = 7
    queues: dict[str, SampledQueue] = field(default_factory=dict)
    exchanges: dict[str, Any] = field(default_factory=dict)
    connections: dict[int, Any] = field(default_factory=dict)

    @property
    def vhosts(self) -> dict[str, Any]:
        return {self.name: self}


class House:
    """A broker's statistics with a clock, and the history of them in files."""

    def __init__(self, directory: Path, bytes_max: int = BYTES_MAX) -> None:
        self.directory = directory / "history"
        self.bytes_max = bytes_max
        self.now = BEGIN
        self.vhost = Sampled()
        self.start()

    def start(self) -> None:
        """Begins as a new process does: nothing is counted yet."""
        self.stats = Stats(lambda: self.now)
        self.stats.keeps_steps = True
        for queue in self.vhost.queues.values():
            queue.gauge = None
            queue.sampled.update(dict.fromkeys(COUNTERS, 0))
        self.history = History(disk, str(self.directory), self.bytes_max)
        self.history.start(self.now)
        self.history.begin([self.vhost])

    def queue(self, name: str) -> SampledQueue:
        queue = SampledQueue(name, 100 + len(self.vhost.queues))
        self.vhost.queues[name] = queue
        return queue

    def pass_time(self, milliseconds: int) -> None:
        """One sample at the end of it."""
        self.now += milliseconds
        for _ in self.stats.sample(self.vhost):
            pass
        if self.history.is_due(self.now):
            self.write()

    def write(self) -> None:
        for step in self.history.steps(self.stats, [self.vhost], self.now):
            if step is not None:
                step()

    def chart(self, queue: Any, milliseconds: int) -> dict[str, Any]:
        now = {"messages_ready": float(queue.messages_ready)}
        return self.history.chart(
            "queue", queue.incarnation, self.now - milliseconds, self.now, now
        )

    def files(self, tier: str) -> list[Path]:
        return sorted(self.directory.glob(f"{tier}-*.hist"))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_very_many_objects_without_a_record_are_passed_over_in_steps(house: House) -> None:
    """There may be 100,000, which were one step."""
    queues = [house.queue(f"q{number}") for number in range(2000)]
    house.pass_time(1000)
    for queue in queues:
        queue.sampled["publish"] += 1
    house.pass_time(1000)
    for queue in queues[57:]:
        house.stats.churn.end("queue", queue, house.vhost.name)
    steps = list(house.history.steps(house.stats, [house.vhost], house.now))
    assert steps.count(None) >= 20


def run(house: House, queue: Any, minutes: int, publishes: int) -> None:
    for _ in range(minutes):
        queue.sampled["publish"] += publishes
        queue.sampled["messages_ready"] += 3
        house.pass_time(MINUTE_MS)


def test_a_day_is_kept_by_the_minute_and_survives_a_restart(house: House) -> None:
    queue = house.queue("q")
    run(house, queue, 90, 120)
    house.start()
    run(house, queue, 30, 60)
    found = house.chart(queue, DAY_MS)
    assert found["step_ms"] == MINUTE_MS
    assert len(found["times"]) == 120
    assert found["series"]["publish"] == [2.0] * 90 + [1.0] * 30
    assert found["series"]["messages_ready"] == [3.0 * (n + 1) for n in range(120)]


def test_a_month_is_made_of_the_minutes_also_of_those_before_a_restart(house: House) -> None:
    queue = house.queue("q")
    run(house, queue, 25, 120)
    house.start()
    run(house, queue, 25, 60)
    found = house.chart(queue, 5 * DAY_MS)
    assert found["step_ms"] == 10 * MINUTE_MS
    # Ten minutes each; the third has five of both.
    assert found["series"]["publish"] == [2.0, 2.0, 1.5, 1.0, 1.0]
    assert found["series"]["messages_ready"] == [30, 60, 90, 120, 150]
    run(house, queue, 70, 60)
    year = house.chart(queue, 100 * DAY_MS)
    assert year["step_ms"] == HOUR_MS
    assert year["series"]["publish"] == [pytest.approx((25 * 2 + 35) / 60, abs=0.001), 1.0]


def test_a_time_without_a_broker_is_a_gap(house: House) -> None:
    queue = house.queue("q")
    run(house, queue, 5, 60)
    house.now += 30 * MINUTE_MS
    house.start()
    run(house, queue, 5, 60)
    publish = house.chart(queue, DAY_MS)["series"]["publish"]
    assert publish == [1.0] * 5 + [None] + [1.0] * 5


def test_a_queue_that_rests_has_flat_levels_and_no_rates(house: House) -> None:
    queue = house.queue("q")
    house.pass_time(5 * MINUTE_MS)
    run(house, queue, 1, 60)
    for _ in range(5):
        house.pass_time(MINUTE_MS)
    found = house.chart(queue, DAY_MS)["series"]
    assert found["publish"] == [0, 1.0, 0, 0, 0, 0, 0]
    assert found["messages_ready"] == [0, 3, 3, 3, 3, 3, 3]
    house.start()
    for _ in range(3):
        house.pass_time(MINUTE_MS)
    # Nothing changed within the range: what it holds now it held then.
    assert house.chart(queue, 2 * MINUTE_MS)["series"]["messages_ready"] == [3, 3, 3]


def test_the_files_are_bounded_and_the_busiest_are_kept(tmp_path: Path) -> None:
    house = House(tmp_path, bytes_max=8 * 1024 * 1024)
    queues = [house.queue(f"q{number}") for number in range(60)]
    for _ in range(3):
        for number, queue in enumerate(queues):
            queue.sampled["publish"] += number + 1
        house.pass_time(MINUTE_MS)
    for path in house.files("minute"):
        data = path.read_bytes()
        _, frames, _ = decode(data)
        for frame in frames:
            size = sum(
                len(section.keys) * (8 + 4 * section.width) for section in frame.sections.values()
            )
            assert size <= house.history.frame_bytes
            assert frame.left_out > 0
            assert queues[59].incarnation in frame.sections["queue"].keys
            assert queues[0].incarnation not in frame.sections["queue"].keys
    # Not known is not zero.
    assert set(house.chart(queues[0], DAY_MS)["series"]["publish"]) == {None}
    assert set(house.chart(queues[59], DAY_MS)["series"]["publish"]) == {1.0}
    # One that has all its records has no gap, whatever others have.
    assert house.chart(queues[0], DAY_MS)["left_out"] > 0
    assert house.chart(queues[59], DAY_MS)["left_out"] == 0


def test_old_files_go(house: House) -> None:
    queue = house.queue("q")
    run(house, queue, 2, 60)
    first = house.files("minute")
    assert len(first) == 1
    house.now += 3 * DAY_MS
    run(house, queue, 2, 60)
    assert first[0] not in house.files("minute")
    assert len(house.files("minute")) == 1


def test_frames_of_all_tiers_fit_the_bound() -> None:
    history = History(disk, "/nowhere", BYTES_MAX)
    kept = sum(tier.frames * history.frame_bytes for tier in TIERS)
    assert BYTES_MAX * 0.95 < kept <= BYTES_MAX
    assert [tier.span_ms // tier.step_ms for tier in TIERS] == [1440, 31 * 144, 366 * 24]


def cut(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])


def test_a_torn_frame_is_cut_off_and_the_others_are_read(house: House) -> None:
    queue = house.queue("q")
    run(house, queue, 5, 60)
    (path,) = house.files("minute")
    cut(path, path.stat().st_size - 7)
    house.start()
    run(house, queue, 2, 60)
    assert house.chart(queue, DAY_MS)["series"]["publish"] == [1.0] * 4 + [None] + [1.0] * 2


@pytest.mark.parametrize("length", [0, 3, 20])
def test_a_file_without_a_whole_header_is_removed(house: House, length: int) -> None:
    queue = house.queue("q")
    run(house, queue, 5, 60)
    (path,) = house.files("minute")
    cut(path, length)
    house.start()
    run(house, queue, 2, 60)
    assert house.chart(queue, DAY_MS)["series"]["publish"] == [1.0] * 2


def test_damage_within_a_file_costs_the_frames_it_hits(house: House) -> None:
    queue = house.queue("q")
    run(house, queue, 9, 60)
    (path,) = house.files("minute")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    publish = house.chart(queue, DAY_MS)["series"]["publish"]
    assert 4 <= publish.count(1.0) <= 8
    assert set(publish) <= {1.0, None}


@pytest.mark.parametrize("data", [b"", b"LVHIST01", b"LVHIST99" + bytes(99), b"x" * 5000])
def test_what_is_no_history_file_is_told(data: bytes) -> None:
    with pytest.raises(Damaged):
        decode(data)


def test_a_frame_comes_back_as_it_was() -> None:
    width = width_of(COLUMNS["queue"])
    records = {key: array("f", [float(key % 97)] * width).tobytes() for key in (2**64 - 1, 5, 77)}
    frame = Frame(BEGIN, 60_000, 3, {"queue": section_of(width, records)})
    header, frames, whole = decode(encode_header(60_000, COLUMNS) + encode_frame(frame, COLUMNS))
    assert list(frames) == [frame]
    assert header.step_ms == 60_000
    assert whole[0] > 0
    found = frame.sections["queue"].of(77)
    assert found is not None
    assert found.tobytes() == records[77]
    assert frame.sections["queue"].of(6) is None


def test_a_clock_that_is_set_back_loses_steps_and_mixes_none(house: House) -> None:
    queue = house.queue("q")
    run(house, queue, 5, 60)
    house.now -= 3 * MINUTE_MS
    run(house, queue, 6, 60)
    times = house.chart(queue, DAY_MS)["times"]
    assert times == sorted(set(times))


def test_a_full_disk_loses_the_step_and_says_so_once(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue = house.queue("q")
    run(house, queue, 2, 60)

    def full(path: str, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(house.history, "_disk", SimpleNamespace(**{**vars(disk), "append": full}))
        run(house, queue, 3, 60)
    assert caplog.text.count("this step of it is lost") == 1
    run(house, queue, 2, 60)
    publish = house.chart(queue, DAY_MS)["series"]["publish"]
    assert publish == [1.0, 1.0, None, 1.0, 1.0]


def test_a_disk_that_fills_within_a_frame_costs_no_other_frame(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = house.queue("q")
    run(house, queue, 2, 60)
    write, written = os.write, []

    def half(fd: int, data: Any) -> int:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(write(fd, bytes(data)[: len(data) // 2]))
        return written[0]

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        run(house, queue, 1, 60)
    assert written
    run(house, queue, 2, 60)
    publish = house.chart(queue, DAY_MS)["series"]["publish"]
    assert publish == [1.0, 1.0, None, 1.0, 1.0]


def test_what_only_the_node_knows_is_kept_too(house: House) -> None:
    house.stats.node.levels["mem_used"] = 5e9
    house.pass_time(MINUTE_MS)
    found = house.history.chart("node", NODE_KEY, BEGIN, house.now, {})
    assert found["series"]["mem_used"] == [pytest.approx(5e9)]


def test_what_a_new_virtual_host_holds_did_not_stand_before_it(house: House) -> None:
    house.pass_time(MINUTE_MS)
    queue = house.queue("q")
    house.vhost.incarnation = 8  # another one of this name
    queue.sampled["messages_ready"] = 5
    house.pass_time(MINUTE_MS)
    house.pass_time(MINUTE_MS)
    now = dict(house.stats.vhost("/").levels)
    found = house.history.chart("vhost", 8, BEGIN, house.now, now)
    assert found["series"]["messages_ready"] == [0.0, 5.0, 5.0]


def test_a_level_within_a_gap_is_what_it_was_before() -> None:
    past = {"times": [1000, 2000, 3000, 4000], "series": {"ready": [None, 6.0, None, 7.0]}}
    samples = Samples(past, {}).samples("ready", 4000, 3, 1)
    assert [one.sample for one in samples] == [7.0, 6.0, 6.0, 6.0]


def test_what_memory_knows_goes_before_the_files() -> None:
    found = {
        "times": [0, 60, 120],
        "covered_ms": [60, 50, 0],
        "series": {"ready": [1, 2, None], "ack": [0.0, 0.5, None]},
    }
    recent = {
        "step_ms": 10,
        "times": [70, 80, 130],
        "series": {"ready": [3, 4, 5], "ack": [None, 1.0, 2.0]},
    }
    assert _continued(found, recent) == {
        "times": [0, 60, 70, 80, 130],
        "covered_ms": [60, 50, 10, 10, 50],
        "series": {"ready": [1, 2, 3, 4, 5], "ack": [0.0, 0.5, None, 1.0, 2.0]},
    }
    assert _continued(found, {"times": [], "series": {}}) is found


@pytest.mark.parametrize("days", [1, 5, 100])
def test_nothing_is_counted_while_the_broker_was_down(house: House, days: int) -> None:
    queue = house.queue("q")
    run(house, queue, 180, 600)
    house.now += 59 * MINUTE_MS
    house.start()
    run(house, queue, 121, 600)
    found = house.chart(queue, days * DAY_MS)
    samples = Samples(found, {"publish": 121 * 600}).samples("publish", house.now, 6 * 3600, 3600)
    told = samples[0].sample - samples[-1].sample
    # The steps at both ends may be missing; nothing may be counted that never came.
    assert 170 * 600 <= told <= 301 * 600


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Appliance]:
    appliance = Appliance("broker", tmp_path).start()
    yield appliance
    appliance.stop()


async def traffic(appliance: Appliance) -> None:
    client = BrokerClient(appliance.data_dir / "control.sock")
    try:
        await client.call("queue.declare", vhost="/", name="kept", durable=True)
        for _ in range(30):
            await client.call(
                "exchange.publish",
                vhost="/",
                name="",
                routing_key="kept",
                payload=b"x",
                properties={"delivery_mode": 2},
            )
        while True:
            row = await client.call("item", noun="queues", vhost="/", name="kept")
            overview = await client.call("overview")
            if (
                row["message_stats"]["publish_details"]["rate"]
                and overview["message_stats"]["publish"] >= 30
            ):
                break
            await asyncio.sleep(0.1)
    finally:
        await client.close()


async def first_sample(client: BrokerClient) -> int:
    """When it was taken; waits for it."""
    pushes = client.subscribe(topic="overview", history_s=1)
    async with contextlib.aclosing(pushes):
        async for push in pushes:
            at = (await client.call("overview"))["at"]
            if at and push.event in ("start", "delta"):
                return int(at)
    raise AssertionError("no push came")


def test_charts_and_samples_reach_back_over_a_restart(kept: Appliance) -> None:
    asyncio.run(traffic(kept))
    assert kept.stop() == 0
    kept.start()

    async def look() -> tuple[Any, ...]:
        client = BrokerClient(kept.data_dir / "control.sock")
        try:
            # After the first sample of this run.
            now = await first_sample(client)
            span = {"from_ms": now - DAY_MS, "to_ms": now}
            ages = {"msg_rates": (600, 60), "lengths": (600, 60)}
            return (
                await client.call("history", what="queue", key=["/", "kept"], **span),
                await client.call("history", what="overview", **span),
                await client.call("history", what="vhost", key=["/"], **span),
                await client.call("item", noun="queues", vhost="/", name="kept", ages=ages),
                await client.call("overview", ages=ages),
                await client.call("item", noun="vhosts", name="/", ages=ages),
            )
        finally:
            await client.close()

    queue, node, vhost, row, overview, host = asyncio.run(look())
    for found in (queue, node, vhost):
        assert found["step_ms"] == MINUTE_MS
        assert max(rate or 0 for rate in found["series"]["publish"]) > 0
        assert found["series"]["messages_ready"][-1] == 30
    assert max(level or 0 for level in queue["series"]["messages_ready"]) == 30
    for stats in (row["message_stats"], overview["message_stats"]):
        samples = [one["sample"] for one in stats["publish_details"]["samples"]]
        assert len(samples) == 11
        assert samples == sorted(samples, reverse=True)
    assert len(row["messages_details"]["samples"]) == 11
    assert max(one["sample"] for one in host["messages_details"]["samples"]) == 30


async def test_memory_tells_what_lies_within_one_step_of_the_files() -> None:
    asked: list[tuple[int, int]] = []

    async def past(from_ms: int, to_ms: int) -> dict[str, Any]:
        asked.append((from_ms, to_ms))
        times = [from_ms, to_ms]
        told = {"times": times, "covered_ms": [MINUTE_MS] * 2, "series": {"ack": [0, 0]}}
        return {"step_ms": MINUTE_MS, "begins": 1, **told}

    begun_now: Any = SimpleNamespace(first=time.time_ns() // 1_000_000)
    short, long = {"msg_rates": (10, 1)}, {"msg_rates": (600, 60)}
    assert await aged(short, begun_now, past, {}) is short
    assert len((await aged(long, begun_now, past, {}))["msg_rates"]) == 3
    assert [round((to - since) / 1000) for since, to in asked] == [10, 600]


def test_a_broker_that_keeps_no_history_writes_none_when_it_ends(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    assert broker.history.bytes_max == 0
    # The fixture has ended its sampling.
    messages = [record.getMessage() for record in caplog.get_records("setup")]
    assert not [text for text in messages if "history" in text]
