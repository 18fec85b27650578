"""The history in power cuts (`make power ARGS="--history"`): each confirmed message has one record,
which is found by its key, on this disk or in the object store, which loses its power, too.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from broker.schema.message_history import EVENT, HISTORY
from management.broker_client import BrokerClient
from tests.crash.bodies import message_id
from tests.crash.checker import Checker
from tests.crash.journal import Kind, Record

KEY = "message_id"
AUDIT = {"history": "headers", "history-keys": KEY, "history-events": True}
COLD = {"stream-tier": True, "stream-local-max-bytes": 1 << 20}
OPTIONS = [
    *("--segment-size", str(256 << 10)),
    *("--stream-index-items", "4096", "--stream-index-local-max", "0"),
]
"""Of the broker: segments and files of the index are full after a moment."""
AT_ONCE = 10_000
SEARCHED = 40
PATIENCE_S = 120.0


class Noting(Checker):
    """Notes which messages were confirmed, too."""

    def __init__(self, run: int) -> None:
        super().__init__()
        self.run = run
        self.names: list[str] = []

    def publisher_journal(self, records: Iterable[Record]) -> None:
        listed = list(records)
        super().publisher_journal(listed)
        self.names += [
            message_id(self.run, record.publisher, record.sequence)
            for record in listed
            if record.kind is Kind.CONFIRMED
        ]


class KeptHistory:
    """The history of the broker on this data directory, checked again and again; `read` is how many
    records there were."""

    def __init__(self, data: Path, checker: Noting, seed: int) -> None:
        self.socket = data / "control.sock"
        self.checker = checker
        self.chance = random.Random(seed)
        self.next_offset = 0
        self.read = self.checked = self.objects = self.index_objects = 0

    def prepare(self) -> None:
        """Sets the policies."""

        async def put(client: BrokerClient) -> None:
            for name, pattern, definition in (
                ("audit", "^crash", AUDIT),
                ("cold", r"^amq\.history$", COLD),
            ):
                await client.call(
                    "policy.put", vhost="/", name=name, pattern=pattern, definition=definition
                )

        asyncio.run(self._called(put))

    def wrong(self) -> list[str]:
        """What is wrong with the records of the messages that were confirmed since the last call,
        and with searches for some of all messages."""
        found: list[str] = asyncio.run(self._called(self._judged))
        return found

    async def _called(self, act: Any) -> Any:
        client = BrokerClient(self.socket)
        try:
            return await act(client)
        finally:
            await client.close()

    async def _judged(self, client: BrokerClient) -> list[str]:
        names = self.checker.names
        new = names[self.checked :]
        records = await self._records(client)
        wrong = [
            f"{name} was confirmed and has {records[name]} records"
            for name in new
            if records[name] != 1
        ]
        asked = self.chance.sample(new, min(SEARCHED, len(new)))
        asked += self.chance.sample(names, min(SEARCHED, len(names)))
        for name in asked:
            if (found := await self._search(client, name)) != 1:
                wrong.append(f"{name} was confirmed, and a search found {found} records")
        if await self._search(client, "absent"):
            wrong.append("a search found a message that was never published")
        self.checked = len(names)
        figures = await client.call("tiers")
        self.objects = figures["objects"]
        self.index_objects = figures["uploaded_index_files"]
        return wrong

    async def _records(self, client: BrokerClient) -> Counter[str]:
        """How many records there are of each message, among those since the last call."""
        found: Counter[str] = Counter()
        while rows := await client.call(
            "stream.read", vhost="/", name=HISTORY, offset=self.next_offset, count=AT_ONCE
        ):
            self.next_offset = rows[-1]["offset"] + 1
            self.read += len(rows)
            found.update(
                row["properties"][KEY]
                for row in rows
                if EVENT not in row["properties"].get("headers", {})
            )
        return found

    async def _search(self, client: BrokerClient, name: str) -> int:
        """How many records a whole search finds; after a start the object store is not there at
        once."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = await client.call(
                "stream.search", vhost="/", name=HISTORY, key=KEY, value=name
            )
            if answer["complete"]:
                return len(answer["messages"])
            if time.monotonic() > deadline:
                raise AssertionError(f"no whole search in {PATIENCE_S:g} s: {answer['reasons']}")
            await asyncio.sleep(0.2)
