"""Stored parameters across a restart, and what of them is secret."""

from __future__ import annotations

from typing import Any

import pytest

from broker.access import Access, BadSetting, Parameter
from broker.access.parameters import SHOVEL
from broker.access.secrets import without_secrets
from broker.server.app import Broker
from broker.settings.files import SettingsError, SettingsFiles
from tests.control.disks import MemoryDisk


def access_on(disk: MemoryDisk) -> Access:
    access = Access(SettingsFiles("/data", disk))
    access.load()
    return access


def test_stored_parameters_survive_a_restart_beside_limits() -> None:
    disk = MemoryDisk()
    access = access_on(disk)
    upstream = Parameter("federation-upstream", "/", "fu1", {"uri": "amqp://h", "max-hops": 1})
    access.parameters.put(upstream)
    access.parameters.put(Parameter("colour", "shop", "c", [1]))
    access.parameters.put_vhost_limit("shop", "max-queues", 3)
    access._files.flush()
    access = access_on(disk)
    assert access.parameters.get("federation-upstream", "/", "fu1") == upstream
    assert len(list(access.parameters.all())) == 3
    access.forget_vhost("shop")
    assert list(access.parameters.all()) == [upstream]
    access.parameters.delete("federation-upstream", "/", "fu1")
    access._files.flush()
    assert not list(access_on(disk).parameters.all())


def test_a_change_of_one_parameter_works_on_that_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    parameters = access_on(disk).parameters
    many = [Parameter(SHOVEL, "/", f"s{number}", shovel(number)) for number in range(50)]
    for one in many:
        parameters.put(one)
    worked_on: list[Any] = []

    def count(value: Any) -> bool:
        worked_on.append(value)
        return bool(without_secrets(value) is not value)

    monkeypatch.setattr("broker.access.parameters.has_secrets", count)
    changed: list[Any] = []
    parameters.watchers.append(changed.append)
    parameters.put(Parameter(SHOVEL, "/", "s7", shovel(99)))
    parameters.pause("/", "s8", True)
    parameters.delete(SHOVEL, "/", "s9")
    parameters.put_global("colour", "amqp://u:secret@h")
    parameters.put_vhost_limit("/", "max-queues", 3)
    assert worked_on == [shovel(99), "amqp://u:secret@h"]
    assert changed == [
        (SHOVEL, "/", "s7"),
        (SHOVEL, "/", "s8"),
        (SHOVEL, "/", "s9"),
        ("", "", "colour"),
        ("vhost-limits", "/", "limits"),
    ]
    assert parameters.count("/") == 49
    parameters._files.flush()
    assert b"secret@" not in disk.files["/data/parameters.json"]
    again = access_on(disk).parameters
    assert list(again.all()) == list(parameters.all())
    assert again.node == {"colour": "amqp://u:secret@h"}
    assert again.count("/") == 49
    parameters.forget_vhost("/")
    assert changed[-1] is None
    assert parameters.count("/") == 0


async def test_a_shovel_that_is_deleted_while_shovels_are_listed_is_left_out(
    broker: Broker,
) -> None:
    parameters, shovels = broker.access.parameters, broker.shovels
    assert shovels is not None
    for name in ("a", "b", "c"):
        parameters.put(Parameter(SHOVEL, "/", name, shovel(1)))
    rows = shovels.rows(lambda vhost, name: True)
    names = [next(rows)["name"]]
    parameters.delete(SHOVEL, "/", "b")
    assert names + [row["name"] for row in rows] == ["a", "c"]
    assert [row["name"] for row in shovels.rows(lambda vhost, name: name == "c")] == ["c"]


def shovel(number: int) -> dict[str, Any]:
    return {"src-uri": "amqp://", "src-queue": "a", "dest-uri": f"amqp://u:secret@h{number}"}


def test_it_starts_with_no_parameters_file_that_is_wrong() -> None:
    disk = MemoryDisk()
    disk.files["/data/parameters.json"] = (
        b'{"parameters": [{"component": "shovel", "vhost": "/", "name": "s", "value": {}}]}'
    )
    with pytest.raises(SettingsError, match=r"parameters.json: shovel 's': Key \"src-uri\""):
        access_on(disk)


def test_a_parameter_without_a_name_is_refused() -> None:
    with pytest.raises(BadSetting, match="component and a name"):
        access_on(MemoryDisk()).parameters.put(Parameter("colour", "/", "", 1))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("amqp://u:p@h:5672/v", "amqp://u@h:5672/v"),
        ("amqp://u:p@ss@h", "amqp://u@h"),
        ("amqp://u:p/s@h", "amqp://u@h"),
        ("amqp://:p@h", "amqp://@h"),
        ("amqps://h?cacertfile=/a&password=x", "amqps://h?cacertfile=/a"),
        ("amqps://h?password=x&verify=verify_peer", "amqps://h?verify=verify_peer"),
        ({"a": {"password": "x", "b": 1}}, {"a": {"b": 1}}),
        ({"private_key": "-----BEGIN", "src-exchange-key": "k"}, {"src-exchange-key": "k"}),
        ([{"uri": "amqp://u:p@h"}], [{"uri": "amqp://u@h"}]),
    ],
)
def test_passwords_and_keys_are_secret(value: Any, shown: Any) -> None:
    assert without_secrets(value) == shown
    assert without_secrets(value) is not value


@pytest.mark.parametrize(
    "value",
    [
        "amqp://",
        "amqp://h:5672/v@st",
        "amqp://u@h",
        "amqp://[::1]:5672",
        "a:b@c",
        {"src-queue": "tokens", "routing-key": "k", "ack-mode": "on-confirm"},
        ["x", 1, None],
        "amqps://h?verify=verify_peer&",
    ],
)
def test_what_holds_no_secret_is_shown_as_it_is(value: Any) -> None:
    assert without_secrets(value) is value
    assert without_secrets(value) is value
