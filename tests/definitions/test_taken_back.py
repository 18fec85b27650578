"""An import that fails at its last object: all that was made before is taken back, in slices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.definitions.applying import Failed, carry_out
from broker.definitions.document import Fault, give_up, parse
from broker.definitions.exporting import Export
from broker.definitions.plan import Step
from broker.server.app import Broker
from broker.server.importing import PENDING, Importing
from broker.settings.config import Config
from broker.vhosts.vhost import VHost

QUEUES = 1500
LAST = "the last one"


def document() -> bytes:
    """A vhost, many queues in it, each bound, and one binding more behind them."""
    names = [f"q{number}" for number in range(QUEUES)]
    facts = {"vhost": "v", "durable": True, "arguments": {}}
    ends = {"source": "amq.direct", "destination_type": "queue", "vhost": "v", "arguments": {}}
    return json.dumps(
        {
            "vhosts": [{"name": "v"}],
            "permissions": [
                {"user": "guest", "vhost": "v", "configure": ".*", "write": ".*", "read": ".*"}
            ],
            "queues": [{"name": name, **facts} for name in names],
            "bindings": [
                {"destination": name, "routing_key": key, **ends}
                for name, key in [*zip(names, names, strict=True), ("q0", LAST)]
            ],
        }
    ).encode()


def exported(broker: Any) -> dict[str, list[Any]]:
    vhosts = list(broker.vhosts.values())
    export = Export(broker, vhosts, scoped=False, target=None, secrets=True)
    return {name: [row for row in rows if row is not None] for name, rows in export.sections()}


async def resume_with_a_password(directory: Path) -> None:
    config = Config(
        data_dir=directory, amqp_port=0, ws_port=0, metrics_port=0, no_sync=True, disk_reserve=0
    )
    broker = Broker(config)
    broker.recover()
    await broker.start()
    value = {"uri": "amqp://ann:s3cret@h"}
    row = {"component": "colour", "vhost": "/", "name": "c", "value": value}
    definitions = {"parameters": [row], "global_parameters": [{"name": "g", "value": value}]}
    try:
        with pytest.MonkeyPatch.context() as patch:
            # As a crash leaves it.
            patch.setattr(Importing, "_forget", lambda self: None)
            await broker.importing.run(definitions)
        assert b"s3cret" not in (directory / PENDING).read_bytes()
        broker.access.parameters.delete("colour", "/", "c")
        broker.access.parameters.delete_global("g")
        await broker.importing.resume()
        found = broker.access.parameters.get("colour", "/", "c")
        assert found is not None
        assert found.value == value
        assert broker.access.parameters.node["g"] == value
    finally:
        await broker.stop()


def test_the_note_of_an_import_holds_no_passwords_and_a_start_still_has_them(
    tmp_path: Path,
) -> None:
    asyncio.run(resume_with_a_password(tmp_path / "data"))


async def fail_at_the_last(directory: Path) -> int:
    """The turns of the loop that it took to take all back."""
    config = Config(
        data_dir=directory, amqp_port=0, ws_port=0, metrics_port=0, no_sync=True, disk_reserve=0
    )
    broker = Broker(config)
    broker.recover()
    await broker.start()
    turns = 0
    failed = asyncio.Event()
    bind = VHost.bind

    def failing(self: VHost, **binding: Any) -> Any:
        if binding["routing_key"] == LAST:
            failed.set()
            raise OSError("the disk is full")
        return bind(self, **binding)

    async def count(importing: asyncio.Task[Any]) -> None:
        nonlocal turns
        await failed.wait()
        while not importing.done():
            turns += 1
            await asyncio.sleep(0)

    try:
        before = exported(broker)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(VHost, "bind", failing)
            importing = asyncio.create_task(broker.importing.run(document()))
            counting = asyncio.create_task(count(importing))
            with pytest.raises(Failed, match="the disk is full"):
                await importing
            await counting
        assert exported(broker) == before
        assert not (directory / PENDING).exists()
        # It can be imported afterwards: nothing is in its way.
        plan = await broker.importing.run(document())
        assert plan.counts["queues"] == {"created": QUEUES, "changed": 0, "unchanged": 0}
    finally:
        await broker.stop()
    return turns


def test_an_import_that_fails_at_its_last_object_changes_nothing(tmp_path: Path) -> None:
    turns = asyncio.run(fail_at_the_last(tmp_path / "data"))
    assert turns > 20


def test_changes_are_taken_back_one_a_step() -> None:
    there: list[int] = []

    def step(number: int) -> Step:
        def do() -> Callable[[], object]:
            if number == 50:
                raise OSError("no space left on device")
            there.append(number)
            return there.pop

        return Step("queues", {"name": str(number)}, do)  # type: ignore[arg-type]

    plan = SimpleNamespace(steps=[step(number) for number in range(51)], made=0)
    steps: Iterator[None] = carry_out(plan)  # type: ignore[arg-type]
    seen = []
    with pytest.raises(Failed):
        while True:
            next(steps)
            seen.append(len(there))
    assert seen == [*range(1, 51), *range(49, -1, -1)]


def test_a_document_is_given_up_a_part_a_step() -> None:
    members = {"queues": [{"name": str(number)} for number in range(1000)], "product_name": "L"}
    left = [len(members["queues"]) for _ in give_up(members.values())]
    assert left == list(range(990, -1, -10))
    text = json.dumps({"queues": [{}] * 1000, "users": [{}] * 10}).encode()[:-1]
    steps = list_steps(text + b"]")
    assert steps > 1010 + 5


def list_steps(text: bytes) -> int:
    """Steps until a document is refused."""
    reading = parse(text)
    steps = 0
    with pytest.raises(Fault):
        while True:
            next(reading)
            steps += 1
    return steps


def _nested(levels: int) -> bytes:
    return b'{"a": ' * levels + b"[]" + b"}" * levels


def test_a_row_that_is_too_deep_ends_the_reading_before_the_next_is_in_memory() -> None:
    rows = b'{"name": "q"}, {"arguments": ' + _nested(500) + b"}, " + b"{}, " * 1000 + b"{}"
    steps = parse(b'{"queues": [' + rows + b"]}")
    count = 0
    with pytest.raises(Fault, match=r"^definitions: queues\[1\] is nested over 64 levels$"):
        for _ in steps:
            count += 1
    assert count <= 3


def test_a_row_may_be_as_deep_as_its_members_may() -> None:
    wide = b'{"x": [' + b"{}, " * 500 + b"[]]}"
    for row in (_nested(64), wide):
        text = b'{"queues": [{"arguments": ' + row + b"}]}"
        with pytest.raises(StopIteration) as end:
            steps = parse(text)
            while True:
                next(steps)
        (found,) = end.value.value["queues"]
        assert found == json.loads(text)["queues"][0]
