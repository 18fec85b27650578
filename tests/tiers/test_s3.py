"""Tiers in an S3 store: put, read by ranges, deleted; and a store that is away, slow, full, or
wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.queues.stream_arguments import Start
from management.tiers import work
from management.tiers.work import Work
from tests.tiers.rig import Tiered
from tests.tiers.s3 import BUCKET, FailingS3

COUNT = 20


@pytest.fixture(scope="module")
def server() -> Iterator[FailingS3]:
    server = FailingS3()
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "anna")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
        httpx.put(f"{server.address}/{BUCKET}", timeout=60).raise_for_status()
        yield server
    server.stop()


class InS3(Tiered):
    """Each in a prefix of its own."""

    def __init__(self, directory: Path, server: FailingS3, **settings: Any) -> None:
        super().__init__(directory, directory / "unused", **settings)
        self.server = server
        self.prefix = directory.parent.name
        url = f"s3://{BUCKET}/{self.prefix}/tiers"
        self.work = Work(url, server.address, "us-east-1", timeout=0.5)

    def keys(self) -> list[str]:
        """Of the segments in the store."""
        address = f"{self.server.address}/{BUCKET}?list-type=2&prefix={self.prefix}/"
        text = httpx.get(address, timeout=60).text
        keys = [part.split("</Key>")[0] for part in text.split("<Key>")[1:]]
        return [key for key in keys if not key.endswith("/owner")]


@pytest.fixture
def rig(tmp_path: Path, server: FailingS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[InS3]:
    # Segments are small here: an upload need not get minutes.
    monkeypatch.setattr(work, "SEGMENT_MOST", work.UPLOAD_SLOWEST // 4)
    server.fault = ""
    server.requests.clear()
    server.released.clear()
    made = InS3(tmp_path / "data", server, tier_grace=0.0)
    made.start()
    made.declare()
    yield made
    server.fault = ""
    server.released.set()
    made.kill()


def all_cold(rig: Tiered) -> None:
    rig.until(lambda: rig.cold() == len(rig.stream.store.summaries) - 1)


def test_segments_go_to_s3_are_read_by_ranges_and_deleted(rig: InS3) -> None:
    rig.publish(COUNT)
    rig.connect()
    all_cold(rig)
    assert len(rig.keys()) == rig.cold()
    rig.server.requests.clear()
    assert rig.offsets() == list(range(COUNT))
    assert len(rig.server.requests) == rig.cold(), "one request for each segment of one block"
    rig.stream.store.retain(1, -1, -1)
    rig.until(lambda: rig.keys() == [])


def test_an_object_of_the_same_name_is_never_replaced(rig: InS3) -> None:
    rig.connect()
    rig.publish(COUNT)
    all_cold(rig)
    name = rig.stream.store.summaries[0].tiered.name
    store = rig.work._opened()
    before = store.get(name)
    assert not store.create(name, b"something else")
    assert store.get(name) == before


@pytest.mark.parametrize("fault", ["denies", "full", "slow", "away"])
def test_uploads_wait_for_a_store_that_fails_and_say_why(rig: InS3, fault: str) -> None:
    rig.publish(COUNT)
    fails(rig, fault)
    rig.connect()
    rig.until(lambda: (kind_of(fault), "store") in rig.done)
    assert rig.cold() == 0 and rig.offsets() == list(range(COUNT))
    ((_, name, text),) = rig.tiers.problems()
    assert name == "object store"
    assert {"denies": "privileges", "full": "507"}.get(fault, "s3://") in text, text
    recovers(rig, fault)
    all_cold(rig)
    assert rig.tiers.problems() == []
    assert rig.offsets() == list(range(COUNT))
    assert len(rig.keys()) == rig.cold()


@pytest.mark.parametrize("fault", ["denies", "slow", "garbage", "older", "away"])
def test_a_reader_waits_for_a_store_that_fails_and_gets_nothing_wrong(
    rig: InS3, fault: str
) -> None:
    rig.publish(COUNT)
    rig.connect()
    all_cold(rig)
    fails(rig, fault)
    rig.done.clear()
    told: list[list[Any]] = []
    # Not the first segment: an older store answers with that one.
    rig.stream.browse(Start("offset", 8), COUNT, 1 << 30, told.append)
    rig.until(lambda: any(kind == "get" for kind, _ in rig.done))
    assert told == [] and {what for kind, what in rig.done if kind == "get"} <= {"store", "wrong"}
    recovers(rig, fault)
    rig.until(lambda: bool(told))
    assert [row[0] for row in told[0]] == list(range(8, COUNT))


def kind_of(fault: str) -> str:
    """Of the task that fails first."""
    return "open" if fault == "away" else "put"


def fails(rig: InS3, fault: str) -> None:
    if fault == "away":
        rig.server.stop()
    else:
        rig.server.fault = fault


def recovers(rig: InS3, fault: str) -> None:
    rig.server.fault = ""
    rig.server.released.set()
    if fault == "away":
        rig.server.start()
