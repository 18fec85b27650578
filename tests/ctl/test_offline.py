"""Definitions of a data directory that no broker serves."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pika

from tests.appliance import Appliance
from tests.conftest import Make
from tests.control.test_real_broker import connect
from tests.ctl.conftest import Ctl

SHOVEL = {
    "src-uri": "amqp://ada:s3cret@192.0.2.1",
    "src-queue": "a",
    "dest-uri": "amqp://",
    "dest-queue": "b",
}


def filled(broker: Appliance, run: Ctl) -> None:
    """Something of each section, and messages, which definitions do not hold."""
    where = ("--data-dir", str(broker.data_dir))
    for words in (
        ("add_vhost", "orders"),
        ("add_user", "ada", "secret"),
        ("set_permissions", "-p", "orders", "ada", "^a", "^b", "^c"),
        ("set_permissions", "-p", "orders", "guest", ".*", ".*", ".*"),
        ("set_topic_permissions", "-p", "orders", "ada", "amq.topic", "w", "r"),
        ("create_queue", "-p", "orders", "jobs", "--durable", "--max-length", "5"),
        ("create_queue", "-p", "orders", "log", "--durable", "--stream-queue"),
        ("create_exchange", "-p", "orders", "topic", "in", "--durable"),
        ("create_binding", "-p", "orders", "in", "jobs", "a.#"),
        ("set_policy", "-p", "orders", "limits", "^j", '{"max-length": 3}'),
        ("set_operator_policy", "-p", "orders", "most", "^j", '{"max-length": 9}'),
        ("set_parameter", "shovel", "move", json.dumps(SHOVEL)),
        ("set_global_parameter", "colour", '"blue"'),
    ):
        ran = run(*where, *words)
        assert ran.status == 0, (words, ran)
    connection = connect(broker, vhost="orders", user="guest", password="guest")
    channel = connection.channel()
    channel.confirm_delivery()
    for number in range(3):
        channel.basic_publish(
            "in", "a.b", b"%d" % number, pika.BasicProperties(delivery_mode=2), mandatory=True
        )
    connection.close()


def contents(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_it_prints_what_the_broker_exports_and_changes_nothing(make_broker: Make, run: Ctl) -> None:
    broker = make_broker()
    filled(broker, run)
    exported = {
        secrets: run("--data-dir", str(broker.data_dir), "export_definitions", *secrets).data
        for secrets in ((), ("--secrets",))
    }
    assert broker.stop() == 0
    before = contents(broker.data_dir)
    for secrets, expected in exported.items():
        ran = run("definitions", str(broker.data_dir), *secrets)
        assert (ran.status, ran.err) == (0, "")
        assert sorted_rows(ran.data) == sorted_rows(expected)
    assert "s3cret" in run("definitions", str(broker.data_dir), "--secrets").out
    assert "s3cret" not in run("--data-dir", str(broker.data_dir), "definitions").out
    assert contents(broker.data_dir) == before
    broker.start()
    after = run("--data-dir", str(broker.data_dir), "export_definitions", "--secrets").data
    assert sorted_rows(after) == sorted_rows(exported["--secrets",])


def sorted_rows(document: dict[str, object]) -> dict[str, object]:
    """Order is no part of definitions."""
    return {
        key: sorted(value, key=json.dumps) if isinstance(value, list) else value
        for key, value in document.items()
    }


def test_it_refuses_a_directory_in_use_and_names_the_other_command(
    make_broker: Make, run: Ctl
) -> None:
    broker = make_broker()
    refused = run("definitions", str(broker.data_dir))
    assert (refused.status, refused.out) == (69, "")
    assert "in use by a broker" in refused.err and "export_definitions" in refused.err


def test_it_reads_what_a_killed_broker_left(make_broker: Make, run: Ctl) -> None:
    broker = make_broker()
    filled(broker, run)
    broker.kill()
    found = run("definitions", str(broker.data_dir)).data
    assert {queue["name"] for queue in found["queues"]} == {"jobs", "log"}
    assert {binding["routing_key"] for binding in found["bindings"]} == {"a.#"}


def test_it_leaves_an_interrupted_import_to_a_start(make_broker: Make, run: Ctl) -> None:
    broker = make_broker()
    assert broker.stop() == 0
    (broker.data_dir / "definitions_import.json").write_text("{}")
    refused = run("definitions", str(broker.data_dir))
    assert (refused.status, refused.out) == (69, "")
    assert "start a broker on it" in refused.err


def test_it_says_what_is_no_data_directory(run: Ctl, tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        refused = run("definitions", str(directory))
        assert (refused.status, "is no data directory" in refused.err) == (69, True)
        assert list(tmp_path.iterdir()) == []


def test_it_tells_of_damage_and_prints_the_rest(make_broker: Make, run: Ctl) -> None:
    broker = make_broker()
    filled(broker, run)
    assert broker.stop() == 0
    for journal in broker.data_dir.glob("vhosts/*/definitions.journal"):
        content = journal.read_bytes()
        journal.write_bytes(content.replace(b"jobs", b"j?bs", 1))
    ran = run("definitions", str(broker.data_dir))
    assert ran.status == 0
    assert ran.err.startswith("Warning: ")
    assert {vhost["name"] for vhost in ran.data["vhosts"]} == {"/", "orders"}
    users = broker.data_dir / "users.json"
    users.write_text("{")
    refused = run("definitions", str(broker.data_dir))
    assert refused.status == 69
    assert f"{users}: line 1" in refused.err
