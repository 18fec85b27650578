"""Made-up brokers and feeds for the reports' tests."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from broker.features.usage.accounts import EXCHANGE
from broker.features.usage.feed import Feed, Step
from broker.kernel.contracts import Exchange
from broker.kernel.turn import Turn
from broker.settings.bounds import DEFAULTS
from tests.counted import CountedConnection, CountedQueue

HOUR_MS = 3_600_000
# 2026-11-21 10:00:00 UTC
TEN = 1_795_255_200_000


class FilesystemDisk:
    """The store's access to files, as far as the feed uses it. `broken` makes the next append half
    fail, and what it wrote is taken back if the disk `cuts`; `makes_nothing`: there is no room for
    a file."""

    def __init__(self) -> None:
        self.broken = self.cuts = self.makes_nothing = False

    def size(self, path: str) -> int:
        return Path(path).stat().st_size

    def truncate(self, path: str, length: int) -> None:
        os.truncate(path, length)

    def read_part(self, path: str, offset: int, length: int) -> bytes:
        return Path(path).read_bytes()[offset : offset + length]

    def append(self, path: str, data: bytes) -> None:
        if self.makes_nothing:
            raise OSError(28, "No space left on device", path)
        with Path(path).open("ab") as file:
            if self.broken:
                self.broken = False
                file.write(data[: 0 if self.cuts else len(data) // 2])
                raise OSError(28, "No space left on device", path)
            file.write(data)

    def rename(self, source: str, target: str) -> None:
        Path(source).rename(target)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)  # noqa: PTH208 (the interface has names, not paths)

    def makedirs(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)


class MadeUpConnection(CountedConnection):
    """A connection with counters (`use`) that tests raise by hand."""

    def __init__(self, **facts: Any) -> None:
        super().__init__(Turn(), None)
        self.use: Counter[str] = Counter()
        self.counted = self.use
        vars(self).update(facts)


class MadeUpExchange(Exchange):
    """An exchange whose counters are also to be had under the names of the feed's columns."""

    @property
    def use(self) -> ExchangeUses:
        return ExchangeUses(self)


class ExchangeUses:
    """`uses[column] = count`."""

    COUNTERS: ClassVar = dict(
        zip(
            EXCHANGE,
            (
                "publish_in",
                "bytes_in",
                "publish_out",
                "bytes_out",
                "returned",
                "bytes_returned",
                "dropped",
                "bytes_dropped",
                "refused",
                "bytes_refused",
            ),
            strict=True,
        )
    )

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __setitem__(self, column: str, count: int) -> None:
        setattr(self._exchange, self.COUNTERS[column], count)


class MadeUpQueue(CountedQueue):
    """A queue that holds what it was given."""

    def __init__(self, vhost_name: str, name: str) -> None:
        super().__init__(
            vhost_name,
            name,
            1,
            durable=False,
            exclusive=False,
            auto_delete=False,
            arguments=None,
            owner=None,
            bounds=DEFAULTS,
        )
        self.use: Counter[str] = Counter()
        self.counted = self.use
        self.most = 0

    def take_most(self) -> int:
        most, self.most = self.most, self.messages
        return most

    def publish(self, count: int, size: int = 16) -> None:
        self.use["publish"] += count
        self.use["publish_bytes"] += count * size
        self.messages += count
        self.most = max(self.most, self.messages)
        self.message_bytes += count * size

    def hold(self, ms: int) -> None:
        """Time passes."""
        self.use["messages_ms"] += self.messages * ms
        self.use["message_bytes_ms"] += self.message_bytes * ms


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

    def exchange(self, name: str) -> MadeUpExchange:
        exchange = MadeUpExchange(name)
        self.vhost.exchanges[name] = exchange
        return exchange

    def connection(self, number: int, user: str, client: str = "pika") -> MadeUpConnection:
        connection = MadeUpConnection(
            id=number,
            name=f"127.0.0.1:{number} -> 127.0.0.1:5672",
            user=user,
            vhost="/",
            client=client,
            client_version="1",
            connected_at_ms=TEN,
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
        try:
            text = path.read_text()
        except FileNotFoundError:  # its hour is over, and it has another name
            return lines_of(directory)
        for line in text.split("\n"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def about(directory: Path, *kinds: str) -> list[dict[str, Any]]:
    """The lines of some kinds."""
    return [line for line in lines_of(directory) if line.get("kind") in kinds]


def published(directory: Path, name: str) -> int:
    """All that the feed says was published to a queue."""
    lines = about(directory, "queue")
    return sum(line.get("publish", 0) for line in lines if line.get("name") == name)


def queue_line(name: str, vhost: str = "/", **counters: int) -> str:
    """One line of the feed as text, with its newline."""
    head = {"v": 1, "kind": "queue", "since": TEN, "until": TEN + 60_000}
    return json.dumps({**head, "vhost": vhost, "name": name, **counters}) + "\n"


def feed_of(
    broker: MadeUpBroker,
    directory: Path,
    disk: FilesystemDisk | None = None,
    *,
    interval_ms: int = 60_000,
    now_ms: int = TEN,
) -> Feed:
    """A started feed of a made-up broker, whose first minute begins at ten."""
    feed = Feed(broker, disk or FilesystemDisk(), str(directory), interval_ms)
    feed.start(now_ms)
    return feed
