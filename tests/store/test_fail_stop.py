"""The first operation of the store that fails ends all confirming, and the process."""

from __future__ import annotations

import errno
import os
import struct
import sys
import time
from pathlib import Path

import pytest

from broker.store.commit.sync_method import ALL
from tests.bench.client import Client, Confirm, ConnectionLost, Delivery, publish
from tests.bench.leveret import Leveret

EXIT_DISK_FAILED = 74


def broker_with_failpoint(directory: Path, failure: str, *more: str) -> Leveret:
    command = [sys.executable, "-m", "tests.store.recorded", "broker"]
    broker = Leveret(directory, command=command, extra=["--segment-size", "65536", *more])
    broker.environment["WRITE_RECORDING_TO"] = str(directory / "recording")
    broker.environment["FAIL_DISK"] = failure
    broker.start()
    deadline = time.monotonic() + 60
    while not (directory / "data/run/failpoint-set").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return broker


def publish_until_lost(broker: Leveret, queue: str) -> int:
    """Publishes numbered messages with confirms until the broker goes away.

    Returns how many were confirmed, from the first on.
    """
    confirmed = 0
    client = Client(broker.port, timeout=30)
    try:
        client.declare_queue(queue)
        client.select_confirms()
        for number in range(1, 100_000):
            client.send(publish("", queue, struct.pack(">Q", number) + bytes(1000), True))
            while confirmed < number - 50:
                client.receive()
                confirmed = newest(client, confirmed)
    except ConnectionLost:
        confirmed = newest(client, confirmed)
    client.abort()
    return confirmed


def newest(client: Client, confirmed: int) -> int:
    for event in client.events:
        if isinstance(event, Confirm):
            assert event.ack
            confirmed = max(confirmed, event.delivery_tag)
    client.events.clear()
    return confirmed


def drain(broker: Leveret, queue: str) -> list[int]:
    """The numbers of all messages in the queue."""
    client = Client(broker.port, timeout=30)
    ready = client.declare_queue(queue)
    client.consume(queue, "all", no_ack=True)
    numbers: list[int] = []
    while len(numbers) < ready:
        for event in client.events:
            if isinstance(event, Delivery):
                numbers.append(struct.unpack_from(">Q", event.body)[0])
        client.events.clear()
        if len(numbers) < ready:
            client.receive()
    client.close()
    return numbers


@pytest.mark.parametrize(
    ("kind", "nth"),
    [
        ("sync", 3),
        ("sync", 40),
        ("write", 5),
        ("write", 60),
        ("open", 3),
        ("mkdir", 1),
        ("sync_directory", 2),
    ],
)
def test_the_first_failure_ends_confirming_and_the_process(
    tmp_path: Path, kind: str, nth: int
) -> None:
    broker = broker_with_failpoint(tmp_path, f"{kind}:{nth}:{errno.EIO}")
    assert broker.server is not None
    confirmed = publish_until_lost(broker, "fail")
    assert broker.server.wait(60) == EXIT_DISK_FAILED
    output = (tmp_path / "output").read_text()
    assert "Traceback" not in output
    assert "Input/output error" in output
    starts_again_with(broker, confirmed)


def starts_again_with(broker: Leveret, confirmed: int) -> None:
    """On a disk that is well again, all that was confirmed is there."""
    broker.stop()
    broker.environment.pop("FAIL_DISK")
    (broker.directory / "data/run/failpoint-set").unlink()
    broker.start()
    try:
        numbers = drain(broker, "fail")
    finally:
        broker.stop()
    assert numbers[:confirmed] == list(range(1, confirmed + 1))


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_sync_of_the_file_system_that_fails_is_never_tried_again(
    tmp_path: Path, error: int
) -> None:
    """Whatever it is told, also that there is no space: what it was told of may be gone, and the
    next sync would not hear of it. The next start writes and syncs what is in doubt."""
    # The first ones are those of the declaration and of the clock, more of them on a slow machine.
    failure = f"sync_file_system:20:{error}"
    broker = broker_with_failpoint(tmp_path, failure, "--sync-method", ALL)
    assert broker.server is not None
    confirmed = publish_until_lost(broker, "fail")
    assert confirmed > 0
    assert broker.server.wait(60) == EXIT_DISK_FAILED
    output = (tmp_path / "output").read_text()
    assert f"{os.strerror(error)} in sync_file_system" in output
    assert (tmp_path / "data/sync_failed").exists()
    starts_again_with(broker, confirmed)
    assert not (tmp_path / "data/sync_failed").exists()
