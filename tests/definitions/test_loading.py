"""`load_definitions`: files imported at every start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.access.passwords import SHA256, rabbit_hash
from tests.amqp.raw import Client
from tests.appliance import Appliance, NotReadyError
from tests.control.test_real_broker import control
from tests.definitions.conftest import FIXTURES

Make = Callable[..., Appliance]

USER = {
    "name": "boss",
    "tags": ["administrator"],
    "password_hash": rabbit_hash("secret"),
    "hashing_algorithm": SHA256,
}
WHOLE = {
    "users": [USER],
    "vhosts": [{"name": "shop"}],
    "permissions": [
        {"user": "boss", "vhost": "shop", "configure": ".*", "write": ".*", "read": ".*"}
    ],
    "queues": [{"vhost": "shop", "name": "orders"}],
}


def written(path: Path, definitions: Any) -> Path:
    path.write_text(json.dumps(definitions))
    return path


async def names(broker: Appliance, noun: str) -> list[str]:
    async with control(broker) as client:
        return sorted(row["name"] for row in (await client.call("list", noun=noun))["items"])


async def test_a_new_broker_begins_with_what_the_file_brings(
    make_broker: Make, tmp_path: Path
) -> None:
    """No default user and no default vhost beside them."""
    broker = make_broker(load_definitions=written(tmp_path / "d.json", WHOLE))
    assert await names(broker, "users") == ["boss"]
    assert await names(broker, "vhosts") == ["shop"]
    address = broker.host, broker.amqp_port
    with Client.open(address, virtual_host="shop", user="boss", password="secret") as amqp:
        amqp.call(1, "queue.declare", queue="orders", passive=True)
    broker.kill()
    broker.start()
    assert await names(broker, "vhosts") == ["shop"]
    assert await names(broker, "queues") == ["orders"]


async def test_a_file_without_users_leaves_the_default_user(
    make_broker: Make, tmp_path: Path
) -> None:
    definitions = {"queues": [{"vhost": "/", "name": "q"}]}
    broker = make_broker(load_definitions=written(tmp_path / "d.json", definitions))
    assert await names(broker, "users") == ["guest"]
    assert await names(broker, "queues") == ["q"]


async def test_a_real_export_is_loaded_and_tells_what_it_left_out(make_broker: Make) -> None:
    broker = make_broker(load_definitions=FIXTURES / "rabbitmq-4.3.6.json")
    assert len(await names(broker, "queues")) == 21
    log = broker.log()
    assert "left out" in log
    assert "amq.rabbitmq.log" in log


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not_json"),
        (json.dumps({"queues": [{"name": "q"}]}), "queues[0]: 'vhost' is missing"),
        (None, "there is no such file"),
    ],
)
def test_a_fault_ends_the_start_with_one_line_and_changes_nothing(
    make_broker: Make, tmp_path: Path, content: str | None, problem: str
) -> None:
    file = tmp_path / "d.json"
    if content is not None:
        file.write_text(content)
    broker = make_broker(start=False, load_definitions=file)
    with pytest.raises(NotReadyError, match="ended with 78"):
        broker.start()
    (line,) = [line for line in broker.log().splitlines() if line.startswith("leveret broker: ")]
    assert str(file) in line
    assert problem in line
    assert "Traceback" not in broker.log()
    broker.process = None
    file.write_text("{}")
    broker.start()
    with Client.open((broker.host, broker.amqp_port)):
        pass


async def test_every_start_loads_it_again_or_only_a_changed_one(
    make_broker: Make, tmp_path: Path
) -> None:
    file = written(tmp_path / "d.json", {"queues": [{"vhost": "/", "name": "q"}]})
    broker = make_broker(load_definitions=file)
    await delete(broker, "q")
    broker.stop()
    broker.start()
    assert await names(broker, "queues") == ["q"], "by default it is loaded at each start"
    await delete(broker, "q")
    broker.stop()
    broker.settings["load_definitions_if_changed"] = "yes"
    broker.start()
    assert await names(broker, "queues") == []
    broker.stop()
    written(file, {"queues": [{"vhost": "/", "name": "q2"}]})
    broker.start()
    assert await names(broker, "queues") == ["q2"]


async def test_a_directory_is_loaded_as_one(make_broker: Make, tmp_path: Path) -> None:
    directory = tmp_path / "definitions"
    directory.mkdir()
    written(directory / "10-vhosts.json", {"vhosts": [{"name": "/"}, {"name": "shop"}]})
    written(directory / "20-queues.json", {"queues": [{"vhost": "shop", "name": "q"}]})
    (directory / "README").write_text("not loaded")
    broker = make_broker(load_definitions=directory)
    assert await names(broker, "queues") == ["q"]
    broker.stop()
    written(directory / "30-wrong.json", {"queues": [{"vhost": "nope", "name": "q"}]})
    written(directory / "15-new.json", {"vhosts": [{"name": "new"}]})
    with pytest.raises(NotReadyError, match=r"30-wrong.json: definitions: queues\[0\]"):
        broker.start()
    broker.process = None
    broker.settings["load_definitions"] = None
    broker.start()
    assert await names(broker, "vhosts") == ["/", "shop"], "nothing of it was taken"


async def delete(broker: Appliance, queue: str) -> None:
    async with control(broker) as client:
        await client.call("queue.delete", vhost="/", name=queue)


def test_the_start_does_not_name_a_user_that_was_not_made(
    make_leveret: Make, tmp_path: Path
) -> None:
    leveret = make_leveret(load_definitions=written(tmp_path / "d.json", WHOLE))
    assert "guest" not in leveret.log()
    assert "with the users of this data directory" in leveret.log()
