"""Made-up brokers and feeds for the reports' tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.features.usage.feed import Feed, Step
from broker.features.usage.records import QUEUE_COUNTERS

HOUR_MS = 3_600_000
# 2026-11-21 10:00:00 UTC
TEN = 1_795_255_200_000


class FilesystemDisk:
    """The store's door, as far as the feed uses it; `broken` makes the next append half fail."""

    def __init__(self) -> None:
        self.broken = False

    def append(self, path: str, data: bytes) -> None:
        with Path(path).open("ab") as file:
            if self.broken:
                self.broken = False
                file.write(data[: len(data) // 2])
                raise OSError(28, "No space left on device", path)
            file.write(data)

    def rename(self, source: str, target: str) -> None:
        Path(source).rename(target)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)  # noqa: PTH208 (the interface has names, not paths)

    def makedirs(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)


class MadeUpQueue:
    """A queue with counters that tests raise by hand."""

    incarnations = 0

    def __init__(self, vhost_name: str, name: str) -> None:
        MadeUpQueue.incarnations += 1
        self.incarnation = MadeUpQueue.incarnations
        self.vhost_name = vhost_name
        self.name = name
        self.counts = dict.fromkeys(QUEUE_COUNTERS, 0)
        self.bytes_in = self.bytes_out = 0
        self.messages_ready = self.messages_unacknowledged = self.most = 0
        self.message_bytes_ready = self.message_bytes_unacknowledged = 0
        self.consumer_count = 0

    def counters(self) -> dict[str, int]:
        return dict(self.counts)

    def take_most(self) -> int:
        most, self.most = self.most, self.messages_ready
        return most

    def publish(self, count: int, size: int = 16) -> None:
        self.counts["publish"] += count
        self.bytes_in += count * size
        self.messages_ready += count
        self.most = max(self.most, self.messages_ready)
        self.message_bytes_ready += count * size


class MadeUpBroker:
    """One vhost `/` with the queues and exchanges a test puts there."""

    def __init__(self) -> None:
        self.vhost = SimpleNamespace(name="/", incarnation=1, queues={}, exchanges={})
        self.vhosts: dict[str, Any] = {"/": self.vhost}
        self.connections: dict[int, Any] = {}

    def queue(self, name: str) -> MadeUpQueue:
        queue = MadeUpQueue("/", name)
        self.vhost.queues[name] = queue
        return queue

    def exchange(self, name: str) -> SimpleNamespace:
        exchange = SimpleNamespace(name=name, publish_in=0, publish_out=0)
        self.vhost.exchanges[name] = exchange
        return exchange

    def connection(self, number: int, user: str) -> SimpleNamespace:
        connection = SimpleNamespace(
            id=number,
            name=f"127.0.0.1:{number} -> 127.0.0.1:5672",
            user=user,
            vhost="/",
            connected_at_ms=TEN,
            recv_oct=0,
            send_oct=0,
            recv_cnt=0,
            send_cnt=0,
        )
        self.connections[number] = connection
        return connection


def run_round(steps: Iterator[Step] | None) -> int:
    """Step a round to its end as the server does; the number of steps, 0 if none was due."""
    count = 0
    for step in steps or ():
        count += 1
        if step is not None:
            step()
    return count


def lines_of(directory: Path) -> list[dict[str, Any]]:
    """The readable lines of all feed files, in the order of the files' names."""
    found = []
    for path in sorted(directory.glob("*.jsonl*")):
        for line in path.read_text().split("\n"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def published(directory: Path, name: str) -> int:
    """All that the feed says was published to a queue."""
    lines = lines_of(directory)
    return sum(line.get("publish", 0) for line in lines if line.get("name") == name)


def queue_line(name: str, vhost: str = "/", **counters: int) -> str:
    """One line of the feed as text, with its newline."""
    head = {"v": 1, "kind": "queue", "since": TEN, "until": TEN + 60_000}
    return json.dumps({**head, "vhost": vhost, "name": name, **counters}) + "\n"


def feed_of(broker: MadeUpBroker, directory: Path, disk: FilesystemDisk | None = None) -> Feed:
    """A started feed of a made-up broker, whose first minute begins at ten."""
    feed = Feed(broker, disk or FilesystemDisk(), str(directory), interval_ms=60_000)
    feed.start(TEN)
    return feed
