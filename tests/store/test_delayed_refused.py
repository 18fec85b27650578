"""Delayed messages that are due and cannot leave: none is lost, and what an operator repairs holds
for them, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.fields import properties
from broker.vhosts.policies import Policy
from tests.crash.inside import Inside, publish

LATER = properties.encode({"delivery_mode": 2, "headers": {"x-delay": 1}})
PLAIN = properties.encode({"delivery_mode": 2})
FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    """A broker with a delayed exchange that is bound to a full queue and to an empty one."""
    inside = Inside(tmp_path / "data").start()
    vhost = inside.vhost
    vhost.declare_exchange(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    for name, arguments in (("full", FULL), ("empty", {})):
        vhost.declare_queue(name, durable=True, arguments=arguments)
        vhost.bind("later", name, "queue", "")
    publish(vhost, "", "full", PLAIN, b"in the way")
    return inside


def held(inside: Inside) -> Any:
    return inside.vhost.exchanges["later"].holding


def refuse(inside: Inside) -> None:
    """Publishes a delayed message, and lets it be refused."""
    publish(inside.vhost, "later", "", LATER, b"late")
    inside.pump(lambda: inside.ring() is None and held(inside).messages == 0)
    assert held(inside).messages_leaving == 1


def leave(inside: Inside) -> None:
    """Lets what is held leave."""
    inside.pump(lambda: inside.ring() is None and not inside.held)


def bodies(inside: Inside, name: str) -> list[bytes | None]:
    return [taker.body for taker in inside.drain(name)]


def test_a_queue_declared_again_gets_what_the_full_one_refused(inside: Inside) -> None:
    refuse(inside)
    vhost = inside.vhost
    vhost.delete_queue("full")
    vhost.declare_queue("full", durable=True)
    vhost.bind("later", "full", "queue", "")
    leave(inside)
    assert bodies(inside, "full") == [b"late"]
    assert bodies(inside, "empty") == [b"late"], "who has it is not offered it again"


def test_a_queue_that_is_bound_instead_gets_what_the_full_one_refused(inside: Inside) -> None:
    refuse(inside)
    vhost = inside.vhost
    vhost.declare_queue("instead", durable=True)
    vhost.bind("later", "instead", "queue", "")
    vhost.unbind("later", "full", "queue", "")
    leave(inside)
    assert bodies(inside, "instead") == [b"late"]
    assert bodies(inside, "empty") == [b"late"]
    assert bodies(inside, "full") == [b"in the way"]


def test_a_message_that_an_error_keeps_is_tried_again_and_told_of_once(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    inside.vhost.unbind("later", "full", "queue", "")
    route = inside.vhost.routes.routing
    errors = iter([MemoryError("no memory"), MemoryError("no memory")])

    def failing(*given: Any, **named: Any) -> Any:
        for error in errors if "due" in named else ():
            raise error
        return route(*given, **named)

    monkeypatch.setattr(inside.vhost.routes, "routing", failing)
    for body in (b"one", b"two"):
        publish(inside.vhost, "later", "", LATER, body)
    leave(inside)
    assert sorted(body or b"" for body in bodies(inside, "empty")) == [b"one", b"two"]
    told = [record.getMessage() for record in caplog.records if "cannot leave" in record.msg]
    assert 1 <= len(told) <= 2
    assert all("exchange 'later'" in text for text in told)


def test_an_exchange_deleted_after_a_start_that_found_it_empty_leaves_no_directory(
    tmp_path: Path, inside: Inside
) -> None:
    inside.vhost.unbind("later", "full", "queue", "")
    publish(inside.vhost, "later", "", LATER, b"late")
    leave(inside)
    inside.tick()
    held(inside).rest_if_empty()
    inside.tick()
    inside.stop()
    (directory,) = tmp_path.glob("data/vhosts/*/delayed")
    (empty,) = directory.iterdir()
    assert not list(empty.iterdir())
    inside = Inside(tmp_path / "data").start()
    inside.vhost.delete_exchange("later")
    inside.tick()
    assert not list(directory.iterdir())


def test_an_exchange_that_is_delayed_no_more_and_holds_nothing_has_no_directory_after_a_start(
    tmp_path: Path,
) -> None:
    inside = Inside(tmp_path / "data").start()
    vhost = inside.vhost
    inside.policies.put(Policy("/", "p", "^x$", {"delayed-message": True}, "exchanges"))
    vhost.declare_exchange("x", "fanout", durable=True)
    publish(vhost, "x", "", LATER, b"held")
    (directory,) = tmp_path.glob("data/vhosts/*/delayed")
    inside.sync()
    assert list(directory.iterdir())
    inside.policies.delete("/", "p")
    for _ in vhost.apply_policies():
        pass
    inside.pump(lambda: inside.ring() is None and not inside.held)
    inside.tick()
    inside.files.flush()
    inside.kill()
    inside = Inside(tmp_path / "data").start()
    assert inside.vhost.exchanges["x"].holding is None
    assert not list(directory.iterdir())
    assert inside.problems == []
    inside.tick()
    inside.stop()
