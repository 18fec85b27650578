"""What waits for the firehose of a vhost: how much of it, and what one failure costs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker.fields.properties import encode
from broker.settings.bounds import TRACED_BYTES_MAX
from broker.vhosts.tracing import Tracer

WHO = ("127.0.0.1:1 -> 127.0.0.1:2", 1, "guest")


class Firehose:
    """A tracer whose loop turns when told; `keys` are what it published under."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.headers: dict[str, Any] = {}
        self.frame = 0
        self.fails = 0
        self._due: list[Callable[[], None]] = []
        self.tracer = Tracer("/", self._publish, lambda _, callback: self._due.append(callback))

    def _publish(self, key: str, found: dict[str, Any], body: bytes) -> None:
        if self.fails:
            self.fails -= 1
            raise RuntimeError("out of order")
        self.keys.append(key)
        self.headers = found["headers"]
        self.frame = len(encode(found))

    def published(self, exchange: str, properties: dict[str, Any]) -> None:
        self.tracer.published(WHO, exchange, "key", encode(properties), b"", ())

    def turn(self) -> None:
        while self._due:
            self._due.pop(0)()


@pytest.fixture
def firehose() -> Firehose:
    return Firehose()


def test_properties_count_for_what_waits(firehose: Firehose) -> None:
    size = 100_000
    fitting = TRACED_BYTES_MAX // size
    for _ in range(2 * fitting):
        firehose.published("logs", {"headers": {"pad": "x" * size}})
    assert firehose.tracer.lost >= fitting
    firehose.turn()
    assert len(firehose.keys) + firehose.tracer.lost == 2 * fitting
    firehose.published("logs", {})
    firehose.turn()
    assert len(firehose.keys) + firehose.tracer.lost == 2 * fitting + 1


def test_a_copy_that_fails_does_not_end_the_tracing(firehose: Firehose) -> None:
    firehose.fails = 1
    for exchange in ("first", "second"):
        firehose.published(exchange, {})
    with pytest.raises(RuntimeError):
        firehose.turn()
    firehose.published("third", {})
    firehose.turn()
    assert firehose.keys == ["publish.second", "publish.third"]


def test_a_key_has_255_octets_at_most(firehose: Firehose) -> None:
    firehose.published("ü" * 127, {})
    firehose.turn()
    (key,) = firehose.keys
    octets = key.encode("utf-8", "surrogateescape")
    assert octets == b"publish." + ("ü" * 124).encode()[:247]


@pytest.mark.parametrize("length", [4, 250])
def test_what_the_headers_cannot_hold_is_counted(firehose: Firehose, length: int) -> None:
    listed = encode({"headers": {"pad": "x" * 120_000}})
    queues = [SimpleNamespace(name=f"{number:0{length}}") for number in range(5000)]
    firehose.tracer.published(WHO, "logs", "key", listed, b"", queues)
    firehose.turn()
    assert firehose.frame < 128 * 1024 - 1000
    assert firehose.headers["properties"] == {}
    assert firehose.headers["properties_bytes_left_out"] == len(listed)
    named = firehose.headers["routed_queues"]
    assert named == [queue.name for queue in queues[: len(named)]]
    assert 100 < len(named) <= 1000
    assert firehose.headers["routed_queues_left_out"] == 5000 - len(named)
