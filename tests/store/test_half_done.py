"""Mistakes of our own, planted: what fails is not there at all, and costs nobody else anything."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.features.interface import Feature
from broker.queues import stream
from broker.queues.stream_arguments import Retention
from broker.vhosts.policies import Policy
from tests.crash.inside import Inside
from tests.crash.stream_script import PERSISTENT


class Broken(Feature):
    """A feature that fails for the name `odd` from the moment when `fails` is set."""

    fails = False

    def exchange_configured(self, vhost: Any, exchange: Any) -> None:
        self._look_at(exchange)

    def queue_configured(self, vhost: Any, queue: Any) -> None:
        self._look_at(queue)

    def _look_at(self, found: Any) -> None:
        if self.fails and found.name == "odd":
            raise RuntimeError("planted")


def put(inside: Inside, queue: str) -> None:
    inside.vhost.queues[queue].put(b"", queue.encode(), PERSISTENT, b"kept" * 100, True)


def test_a_declaration_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Neither now nor at the next start, and its name is free."""
    inside, broken = Inside(tmp_path / "data"), Broken()
    inside.features.append(broken)
    inside.start()
    broken.fails = True
    with pytest.raises(RuntimeError, match="planted"):
        inside.vhost.declare_queue("odd", durable=True)
    with pytest.raises(RuntimeError, match="planted"):
        inside.vhost.declare_exchange("odd", durable=True)
    inside.vhost.declare_queue("even", durable=True)
    assert list(inside.vhost.queues) == ["even"]
    assert "odd" not in inside.vhost.exchanges
    inside.sync()
    inside.kill()

    inside = Inside(tmp_path / "data").start()
    assert list(inside.vhost.queues) == ["even"]
    assert "odd" not in inside.vhost.exchanges
    assert inside.problems == []
    inside.vhost.declare_queue("odd", durable=True)
    put(inside, "odd")
    inside.sync()
    inside.kill()


def test_a_policy_that_fails_for_one_queue_reaches_the_others(tmp_path: Path) -> None:
    inside, broken = Inside(tmp_path / "data"), Broken()
    inside.features.append(broken)
    inside.start()
    for name in ("first", "odd", "last"):
        inside.vhost.declare_queue(name, durable=True)
    broken.fails = True
    inside.policies.put(Policy("/", "short", "", {"max-length": 1}, apply_to="queues"))
    for _ in inside.vhost.apply_policies():
        pass
    for name in ("first", "last"):
        assert inside.vhost.queues[name].limits.max_length == 1
    inside.kill()


def test_retention_that_fails_ends_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream keeps what could go; what is published to it and to others is confirmed."""
    inside = Inside(tmp_path / "data", 2048).start()
    endless = SimpleNamespace(of=lambda _: Retention(max_age=2**80))
    monkeypatch.setattr(stream, "Retention", endless)
    inside.vhost.declare_queue("odd", durable=True, arguments={"x-queue-type": "stream"})
    inside.vhost.declare_queue("even", durable=True)
    for _ in range(12):
        put(inside, "odd")
        put(inside, "even")
        inside.sync()
    assert inside.failed is None
    assert [inside.vhost.queues[name].messages_ready for name in ("odd", "even")] == [12, 12]
    inside.kill()
