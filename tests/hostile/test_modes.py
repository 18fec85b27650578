"""Whatever an appliance makes in its data directory is its owner's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import httpx
import pytest

from management.reports.runs import Runs
from tests.amqp import raw
from tests.api.conftest import path
from tests.appliance import Appliance


@pytest.fixture
def used(make_leveret: object, tmp_path: Path) -> Appliance:
    """An appliance after use of everything, under the usual umask of a login."""
    before = os.umask(0o022)
    try:
        appliance: Appliance = make_leveret(  # type: ignore[operator]
            unix_path=tmp_path / "sockets" / "amqp.sock", segment_size=65_536
        )
    finally:
        os.umask(before)
    with raw.Client.open((appliance.host, appliance.amqp_port)) as client:
        client.call(1, "confirm.select")
        for number, arguments in enumerate(
            ({}, {"x-queue-type": "stream"}, {"x-max-priority": 3}, {"x-expires": 1_000_000})
        ):
            client.call(1, "queue.declare", queue=f"q{number}", durable=True, arguments=arguments)
            client.call(1, "queue.bind", queue=f"q{number}", exchange="amq.fanout")
        client.call(1, "exchange.declare", exchange="later", type="x-delayed-message",
                    durable=True, arguments={"x-delayed-type": "fanout"})  # fmt: skip
        for _ in range(4):
            client.publish(1, "amq.fanout", "", b"x" * 50_000, delivery_mode=2)
        client.publish(1, "later", "", b"x", delivery_mode=2, headers={"x-delay": 3_600_000})
        client.expect_confirms(1, 5)
    with httpx.Client(base_url=appliance.http_url, auth=("guest", "guest"), timeout=60) as api:
        api.put(path("vhosts", "another"), json={}).raise_for_status()
        rules = {"pattern": "^q", "definition": {"max-length": 1000}}
        api.put(path("policies", "/", "p"), json=rules).raise_for_status()
        api.put(path("operator-policies", "/", "p"), json=rules).raise_for_status()
        api.put(path("vhost-limits", "/", "max-queues"), json={"value": 99}).raise_for_status()
        document = api.get("/api/definitions").raise_for_status().json()
        api.post("/api/definitions", json=document).raise_for_status()
        api.get("/login").raise_for_status()
    runs = Runs(appliance.data_dir / "reports")
    assert runs.directory.is_dir()
    return appliance


def test_every_file_and_directory_is_the_owners_alone(used: Appliance) -> None:
    found = [used.data_dir, *used.data_dir.rglob("*")]
    names = {one.name for one in found}
    assert {"run", "reports", "vhosts", "users.json", "control.sock", "secret_key"} <= names
    open_to_others = [
        f"{stat.S_IMODE(one.lstat().st_mode):o} {one}"
        for one in found
        if stat.S_IMODE(one.lstat().st_mode) & 0o077
    ]
    assert not open_to_others, "\n".join(open_to_others)
    assert any(one.suffix == ".sock" for one in found)


def test_the_socket_for_clients_stays_open_to_its_group(used: Appliance) -> None:
    path = Path(used.settings["unix_path"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert path.parent.stat().st_mode & 0o055 == 0o055
