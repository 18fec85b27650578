"""What happens beside an import, or before it is over."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.definitions.applying import Failed
from broker.server.app import Broker
from broker.server.importing import PENDING, Importing
from broker.settings.config import Config
from broker.vhosts.vhost import VHost


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Broker]:
    ports = dict.fromkeys(("amqp_port", "ws_port", "metrics_port"), 0)
    broker = Broker(Config(data_dir=directory, no_sync=True, disk_reserve=0, **ports))
    broker.recover()
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def policy(vhost: str, name: str) -> dict[str, Any]:
    definition = {"message-ttl": 1000}
    return {"vhost": vhost, "name": name, "pattern": "^app", "definition": definition}


async def test_nothing_of_a_vhost_is_stored_that_is_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.importing.run({"vhosts": [{"name": "v"}]})
        put = broker.policies.put

        def put_and_delete(*arguments: Any, **more: Any) -> None:
            put(*arguments, **more)
            vhost = broker.definitions.remove_vhost("v")
            for _ in broker.policies.forget_vhost("v"):
                pass
            for _ in vhost.delete():
                pass

        monkeypatch.setattr(broker.policies, "put", put_and_delete)
        rows = [policy("v", f"p{number}") for number in range(3)]
        with pytest.raises(Failed, match="vhost 'v' was deleted meanwhile"):
            await broker.importing.run({"policies": rows})
        monkeypatch.undo()
        assert broker.policies.how_many("v", operator=False) == 0


async def test_policies_that_are_taken_back_leave_what_was_declared_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "data") as broker:
        swept: list[str] = []
        begin = broker.policy_sweep.begin

        def begun(vhost: str) -> None:
            swept.append(vhost)
            begin(vhost)

        def failing(self: VHost, **binding: Any) -> Any:
            raise OSError("the disk is full")

        monkeypatch.setattr(broker.policy_sweep, "begin", begun)
        monkeypatch.setattr(VHost, "bind", failing)
        binding = {"source": "amq.direct", "vhost": "/", "destination": "q", "routing_key": "k"}
        document = {
            "policies": [policy("/", "p")],
            "queues": [{"vhost": "/", "name": "q", "durable": True, "arguments": {}}],
            "bindings": [{**binding, "destination_type": "queue", "arguments": {}}],
        }
        with pytest.raises(Failed, match="the disk is full"):
            await broker.importing.run(document)
        assert broker.policies.get("/", "p", operator=False) is None
        assert swept == ["/"]


async def test_users_with_passwords_are_left_out_of_one_vhost(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        document = {
            "users": [{"name": "u", "password": "secret", "tags": ""}],
            "queues": [{"name": "q", "durable": True, "arguments": {}}],
        }
        await broker.importing.run(document, "/")
        assert "q" in broker.vhosts["/"].queues
        assert "u" not in broker.access.users


async def test_a_shovel_that_a_crash_interrupted_belongs_to_who_imported_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "data"
    async with running(directory) as broker:
        value = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}
        row = {"component": "shovel", "vhost": "/", "name": "s", "value": value}
        # As a crash leaves it.
        monkeypatch.setattr(Importing, "_forget", lambda self: None)
        await broker.importing.run({"parameters": [row]}, owner="guest")
        monkeypatch.undo()
        assert json.loads((directory / PENDING).read_bytes())["owner"] == "guest"
        broker.access.parameters.delete("shovel", "/", "s")
        await broker.importing.resume()
        found = broker.access.parameters.get("shovel", "/", "s")
        assert found is not None
        assert found.owner == "guest"
