"""The ids of a deduplicating queue on a full disk."""

from __future__ import annotations

from broker.features.dedup.duplicates import Duplicates
from broker.features.dedup.id_log import IdLog
from broker.fields import properties
from tests.disks import SmallDisk
from tests.store.driven import INCARNATION, Driven

IDS, ROUNDS = 1_100, 8


def test_ids_that_wait_for_space_keep_their_files_and_those_of_before(
    small_disk: SmallDisk,
) -> None:
    directory = small_disk.path / "data"
    (directory / "dedup").mkdir(parents=True)
    driven = Driven(directory, 8 << 20)
    log = IdLog(driven.persister, str(directory / "dedup"), INCARNATION, 1024)
    driven.queue.duplicates = Duplicates(size=128, durable=True, log=log)
    number = 0

    def publish(count: int) -> None:
        nonlocal number
        for _ in range(count):
            number += 1
            headers = {"x-deduplication-header": number}
            listed = properties.encode({"headers": headers, "delivery_mode": 2})
            driven.queue.put(b"", b"q", listed, bytes(200), True)

    def end_round() -> None:
        told: list[bool] = []
        driven.persister.after_round(lambda: told.append(True), True, False)
        driven.pump(lambda: bool(told))

    publish(10)
    driven.sync()
    small_disk.fill(leave=200 << 10)
    for _ in range(ROUNDS):
        publish(IDS)
        end_round()
    assert driven.persister.writer.full
    small_disk.clear()
    driven.sync()
    driven.sync()
    assert driven.failed is None
    publish(1)
    driven.sync()
    driven.kill()
    again = Driven(directory, 8 << 20)
    problems: list[str] = []
    found = IdLog(again.persister, str(directory / "dedup"), INCARNATION, 1024).recover(problems)
    assert problems == []
    assert len(found) >= 1024
    # The newest is there, and none is missing before it.
    newest = [identity for identity, _, _ in found]
    assert len(set(newest)) == len(newest)
    again.recover()
    assert again.queue.messages_ready == number
    again.kill()
