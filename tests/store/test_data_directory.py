"""The schema version, and what a failed disk leaves for the next start."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import pytest

from broker.store.commit.sync_method import ALL, EACH, TRY_EVERY, SyncMethod
from broker.store.directory import data_directory
from broker.store.directory.data_directory import SCHEMA_VERSION, SchemaError, check_schema
from management.broker_client import BrokerClient
from tests.amqp.raw import Client
from tests.store.test_fail_stop import (
    EXIT_DISK_FAILED,
    broker_with_failpoint,
    drain,
    publish_until_lost,
)


def test_a_new_directory_has_this_programs_version(tmp_path: Path) -> None:
    assert check_schema(str(tmp_path)) == SCHEMA_VERSION
    assert (tmp_path / "schema_version").read_text() == f"{SCHEMA_VERSION}\n"


def test_a_directory_from_before_versions_is_version_1(tmp_path: Path) -> None:
    (tmp_path / "boots").write_text("7\n")
    assert check_schema(str(tmp_path)) == 1
    assert check_schema(str(tmp_path)) == SCHEMA_VERSION


@pytest.mark.parametrize("text", ["", "two", "-1", "0", "1.5"])
def test_a_version_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "schema_version").write_text(text)
    with pytest.raises(SchemaError, match="is not a schema version"):
        check_schema(str(tmp_path))


def test_a_newer_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "schema_version").write_text("99\n")
    with pytest.raises(SchemaError, match=r"schema version 99.*start the newer program"):
        check_schema(str(tmp_path))
    assert (tmp_path / "schema_version").read_text() == "99\n"


def test_a_broker_does_not_start_on_a_newer_directory(make_broker: Any) -> None:
    broker = make_broker(start=False)
    broker.data_dir.mkdir(exist_ok=True)
    (broker.data_dir / "schema_version").write_text("99\n")
    with pytest.raises(AssertionError, match="schema version 99"):
        broker.start()


def test_what_is_written_again_is_the_same(tmp_path: Path) -> None:
    files = {
        "vhosts.json": b"[]",
        "boots": b"3\n",
        "vhosts/0000000100000001/definitions.journal": b"LVRJ\1\0\0\0",
        "vhosts/0000000100000001/queues/x/msgs.1": b"sealed",
        "vhosts/0000000100000001/queues/x/meta.1": b"LVRMetc",
        "vhosts/0000000100000001/queues/x/acks.1": b"acks",
        "vhosts/0000000100000001/queues/x/msgs.2": b"not sealed",
        "other": b"not ours",
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "vhosts.json").chmod(0o600)
    before = {name: (tmp_path / name).stat().st_ino for name in files}
    data_directory.note_failed_sync(str(tmp_path), "a reason")
    assert data_directory.failed_sync(str(tmp_path))
    data_directory.write_again(str(tmp_path))
    data_directory.forget_failed_sync(str(tmp_path))
    assert not data_directory.failed_sync(str(tmp_path))
    for name, data in files.items():
        assert (tmp_path / name).read_bytes() == data
        again = (tmp_path / name).stat().st_ino != before[name]
        assert again == (data not in (b"sealed", b"LVRMetc", b"not ours")), name
    assert (tmp_path / "vhosts.json").stat().st_mode & 0o777 == 0o600


def test_the_start_after_a_failed_sync_writes_again_and_says_so(tmp_path: Path) -> None:
    broker = broker_with_failpoint(tmp_path, f"sync:5:{errno.EIO}")
    assert broker.server is not None
    confirmed = publish_until_lost(broker, "fail")
    assert broker.server.wait(60) == EXIT_DISK_FAILED
    broker.stop()
    mark = tmp_path / "data/sync_failed"
    assert "Input/output error" in mark.read_text()
    broker.environment.pop("FAIL_DISK")
    (tmp_path / "data/run/failpoint-set").unlink()
    segments = {
        path: path.stat().st_ino
        for path in (tmp_path / "data").glob("vhosts/**/msgs.*")
        if not path.with_name(path.name.replace("msgs", "meta")).exists()
    }
    assert segments
    broker.start()
    assert not mark.exists()
    assert "writing everything again" in (tmp_path / "output").read_text()
    assert all(not path.exists() or path.stat().st_ino != segments[path] for path in segments)
    assert drain(broker, "fail")[:confirmed] == list(range(1, confirmed + 1))
    broker.stop()


# -- how a round is synced -------------------------------------------------------------------------


def test_one_file_is_always_synced_alone() -> None:
    method = SyncMethod()
    for _ in range(10 * TRY_EVERY):
        assert method.choose(1) == EACH
        method.took(EACH, 1, 0.001)
    assert method.crossover is None


@pytest.mark.parametrize(("per_file", "whole", "crossover"), [(1.0, 3.5, 4), (1.0, 0.5, 2)])
def test_it_learns_which_method_is_faster(per_file: float, whole: float, crossover: int) -> None:
    method, chance = SyncMethod(), random.Random(1)
    chosen = {count: {EACH: 0, ALL: 0} for count in (2, 3, 4, 8)}
    for _ in range(40 * TRY_EVERY):
        count = chance.choice((2, 3, 4, 8))
        choice = method.choose(count)
        chosen[count][choice] += 1
        method.took(choice, count, whole if choice == ALL else per_file * count)
    assert method.crossover == crossover
    for count, choices in chosen.items():
        right, wrong = (ALL, EACH) if count >= crossover else (EACH, ALL)
        assert choices[right] > 9 * choices[wrong]
    assert all(chosen[8].values())  # the slower one is tried again now and then


def test_it_changes_its_mind_when_the_disk_does() -> None:
    method = SyncMethod()
    for whole in (0.5, 50.0):
        for _ in range(60 * TRY_EVERY):
            choice = method.choose(8)
            method.took(choice, 8, whole if choice == ALL else 8.0)
        assert method.better(8) == (ALL if whole < 8 else EACH)


@pytest.mark.parametrize("setting", [EACH, ALL])
def test_a_setting_says_once_and_for_all(setting: str) -> None:
    method = SyncMethod(setting)
    for files in (1, 2, 4, 100) * TRY_EVERY:
        assert method.choose(files) == setting
        method.took(setting, files, 1.0)
    assert sum(method.rounds.values()) == method.rounds[setting]


async def test_a_broker_syncs_as_it_was_told(make_broker: Any) -> None:
    broker = make_broker(sync_method=ALL)
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "confirm.select")
        client.call(1, "queue.declare", queue="told", durable=True)
        # So many rounds that the loop itself would write them, if it might.
        for number in range(1, 101):
            client.publish(1, "", "told", b"x", delivery_mode=2)
            client.expect_confirms(1, number, first=number)
        client.close()
    control = BrokerClient(broker.control_socket)
    (node,) = await control.call("nodes")
    await control.close()
    assert node["sync_method"]["setting"] == ALL
    assert node["sync_method"]["each_file_rounds"] == 0
    assert node["sync_method"]["file_system_rounds"] >= 100


async def test_the_node_tells_how_its_rounds_were_synced(make_broker: Any) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "confirm.select")
        client.call(1, "exchange.declare", exchange="f", type="fanout", durable=True)
        for name in "abcdefgh":
            client.call(1, "queue.declare", queue=name, durable=True)
            client.call(1, "queue.bind", queue=name, exchange="f")
        for number in range(1, 20):
            client.publish(1, "f", "", b"x", delivery_mode=2)
            client.expect_confirms(1, number, first=number)
        client.close()
    control = BrokerClient(broker.control_socket)
    (node,) = await control.call("nodes")
    await control.close()
    method = node["sync_method"]
    assert method["each_file_rounds"] >= 1
    assert method["file_system_rounds"] >= 1
    assert method["crossover_files"] >= 2
    assert node["hole_punching"] is True
    assert (node["quarantine"], node["recovery_problems"]) == ([], [])
