"""Passwords of stored parameters, encrypted in the file."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from broker.access import Access, Parameter
from broker.settings.files import SettingsError, SettingsFiles
from tests.control.disks import MemoryDisk

FILE = "/data/parameters.json"
KEY = "/data/secrets_key"
SHOVEL = Parameter(
    "shovel",
    "/",
    "s",
    {
        "src-uri": ["amqp://ann:s3cret-a@h", "amqp://plain"],
        "src-queue": "q",
        "dest-uri": "https://bob:s3cret-b@h/p?token=s3cret-c",
        "dest-headers": {"Authorization": "Bearer s3cret-d", "X-Team": "x"},
        "dest-signature-secret": "s3cret-e",
    },
    owner="ann",
)


def access_on(disk: MemoryDisk) -> Access:
    access = Access(SettingsFiles("/data", disk))
    access.load()
    return access


def stored(disk: MemoryDisk) -> Any:
    return json.loads(disk.files[FILE])


@pytest.fixture
def disk() -> MemoryDisk:
    """With one shovel and one global parameter that have passwords."""
    disk = MemoryDisk()
    access = access_on(disk)
    access.parameters.put(SHOVEL)
    access.parameters.put_global("mirror", {"uri": "amqp://eve:s3cret-f@h"})
    access._files.flush()
    return disk


def test_the_file_shows_stars_and_a_restart_finds_the_passwords(disk: MemoryDisk) -> None:
    assert b"s3cret" not in disk.files[FILE]
    shown = stored(disk)["parameters"][0]["value"]
    assert shown["src-uri"] == ["amqp://ann:***@h", "amqp://plain"]
    assert shown["dest-headers"] == {"Authorization": "***", "X-Team": "x"}
    access = access_on(disk)
    assert access.parameters.get("shovel", "/", "s") == SHOVEL
    assert access.parameters.node["mirror"] == {"uri": "amqp://eve:s3cret-f@h"}
    assert not access.parameters.unreadable


def test_a_file_of_an_older_version_is_encrypted_at_the_start(disk: MemoryDisk) -> None:
    row = {"component": "shovel", "vhost": "/", "name": "s", "value": SHOVEL.value, "owner": "ann"}
    disk.files[FILE] = json.dumps({"parameters": [row]}).encode()
    del disk.files[KEY]
    access = access_on(disk)
    assert access.parameters.get("shovel", "/", "s") == SHOVEL
    access._files.flush()
    assert b"s3cret" not in disk.files[FILE]
    assert access_on(disk).parameters.get("shovel", "/", "s") == SHOVEL


def test_what_was_edited_by_hand_counts(disk: MemoryDisk) -> None:
    content = stored(disk)
    value = content["parameters"][0]["value"]
    value["src-uri"][0] = "amqp://zoe:s3cret-new@h"
    value["dest-uri"] = "https://bob:***@other/"
    disk.files[FILE] = json.dumps(content).encode()
    found = access_on(disk).parameters.get("shovel", "/", "s")
    assert found is not None
    assert found.value["src-uri"][0] == "amqp://zoe:s3cret-new@h"
    assert found.value["dest-uri"] == "https://bob:***@other/"
    assert found.value["dest-signature-secret"] == "s3cret-e"


def test_another_key_opens_nothing_and_loses_nothing(disk: MemoryDisk) -> None:
    key = disk.files.pop(KEY)
    access = access_on(disk)
    assert len(access.parameters.unreadable) == 2
    assert "does not hold the key" in access.parameters.unreadable[0]
    kept = access.parameters.get("shovel", "/", "s")
    assert kept is not None
    assert kept.sealed
    access.parameters.put(Parameter("colour", "/", "c", {"uri": "amqp://u:s3cret-g@h"}))
    access._files.flush()
    # Both keys, the new one first: everything is there, and sealed with the first.
    disk.files[KEY] += key
    access = access_on(disk)
    assert access.parameters.get("shovel", "/", "s") == SHOVEL
    assert access.parameters.get("colour", "/", "c") is not None
    assert not access.parameters.unreadable
    access._files.flush()
    disk.files[KEY] = disk.files[KEY].splitlines()[0]
    assert access_on(disk).parameters.get("shovel", "/", "s") == SHOVEL


def test_sealed_passwords_do_not_fit_another_parameter(disk: MemoryDisk) -> None:
    content = stored(disk)
    content["parameters"][0]["name"] = "other"
    disk.files[FILE] = json.dumps(content).encode()
    (found,) = access_on(disk).parameters.unreadable
    assert "moved from something of another name" in found


@pytest.mark.parametrize("content", [b"", b"short\n", b"zz" * 32, b"\xff" * 64])
def test_a_file_that_holds_no_key_is_named(disk: MemoryDisk, content: bytes) -> None:
    disk.files[KEY] = content
    with pytest.raises(SettingsError, match=re.escape(f"secrets_key {KEY}: each line is a key")):
        access_on(disk)


def test_a_parameter_that_did_not_change_is_not_encrypted_again(disk: MemoryDisk) -> None:
    access = access_on(disk)
    access.parameters.put_global("colour", "red")
    access._files.flush()
    before = stored(disk)["parameters"][0]["sealed"]
    access.parameters.put_global("colour", "blue")
    access._files.flush()
    assert stored(disk)["parameters"][0]["sealed"] == before
