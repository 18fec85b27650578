"""A broker and a tiers process, each of which a test may kill on its own, over AMQP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.amqp import streams
from tests.amqp.raw import Client
from tests.appliance import Appliance

SEGMENT = 4096


class Processes:
    """`store` is the directory that the object store is, unless `object_store` says otherwise."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.store = directory / "store"
        settings = {"object_store": f"file://{self.store}", "tier_retry_max": 0.5, **settings}
        self.broker = Appliance("broker", directory, **settings)
        self.tiers = Appliance("tiers", directory, **settings)

    def start(self) -> Processes:
        self.broker.start()
        self.tiers.start(wait=False)
        return self

    def close(self) -> None:
        self.tiers.close()
        self.broker.close()

    @contextmanager
    def client(self) -> Iterator[Client]:
        with Client.open((self.broker.host, self.broker.amqp_port)) as client:
            yield client

    def tiered(self, client: Client, **arguments: Any) -> str:
        """A stream whose segments leave this disk as soon as an object holds them."""
        given = {
            "x_stream_tier": True,
            "x_stream_local_max_bytes": 0,
            "x_stream_max_segment_size_bytes": SEGMENT,
            **arguments,
        }
        return streams.declare(client, **given)

    def here(self) -> list[Path]:
        """The segments on this disk."""
        return streams.files(self.broker, "msgs.*")

    def objects(self) -> list[Path]:
        """All in the store but the note of its owner."""
        paths = (self.store / "tiers").rglob("*-*")
        return [path for path in paths if path.is_file()]
