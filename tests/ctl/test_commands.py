"""Commands against a real broker."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pika
import pytest

from broker.schema.control_schema import NOUNS, VERBS
from management.ctl import commands as commands
from management.ctl.table import COMMANDS
from tests.appliance import ROOT, Appliance
from tests.conftest import Make
from tests.control.test_real_broker import connect
from tests.ctl.conftest import Ctl


@pytest.fixture
def name() -> str:
    return f"ctl-{uuid.uuid4().hex[:8]}"


def rows(ctl: Ctl, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ctl("--format", "json", *words).data
    return found


def test_it_keeps_users(ctl: Ctl, name: str) -> None:
    assert ctl("add_user", name, "first").status == 0
    assert ctl("authenticate_user", name, "first").out.splitlines()[-1] == "Success"
    assert ctl("set_user_tags", name, "monitoring", "management").status == 0
    assert {"user": name, "tags": ["monitoring", "management"]} in rows(ctl, "list_users")
    assert ctl("authenticate_user", name, "first").status == 0, "tags change no password"
    assert ctl("change_password", name, "second").status == 0
    assert ctl("authenticate_user", name, "first").status == 65
    assert ctl("authenticate_user", name, "second").status == 0
    assert {"user": name, "tags": ["monitoring", "management"]} in rows(ctl, "list_users")
    assert ctl("set_user_limits", name, '{"max-connections": 7}').status == 0
    (limited,) = rows(ctl, "list_user_limits", "--user", name)
    assert limited["limits"] == {"max-connections": 7}
    assert ctl("clear_user_limits", name, "all").status == 0
    assert rows(ctl, "list_user_limits", "--user", name) == []
    assert ctl("clear_password", name).status == 0
    assert ctl("authenticate_user", name, "second").status == 65
    assert ctl("delete_user", name).status == 0
    assert name not in ctl("list_users").out


def test_it_reads_a_password_from_standard_input(ctl: Ctl, name: str) -> None:
    assert ctl("add_user", name, stdin="from a pipe\n").status == 0
    assert ctl("authenticate_user", name, stdin="from a pipe\nand more\n").status == 0
    assert ctl("change_password", name).status == 65, "no password at all"
    hashed = ctl("-q", "hash_password", stdin="hashed\n").out.strip()
    other = f"{name}-2"
    assert ctl("add_user", other, "--pre-hashed-password", stdin=hashed).status == 0
    assert ctl("authenticate_user", other, "hashed").status == 0


def test_it_keeps_permissions(ctl: Ctl, name: str) -> None:
    ctl("add_user", name, "secret")
    ctl("add_vhost", name)
    assert ctl("set_permissions", "-p", name, name, "^a", "^b", "-c").status == 64, "an option"
    assert ctl("set_permissions", "-p", name, "--", name, "^a", "^b", "-c").status == 0
    expected = {"configure": "^a", "write": "^b", "read": "-c"}
    assert rows(ctl, "list_permissions", "-p", name) == [{"user": name, **expected}]
    assert rows(ctl, "list_user_permissions", name) == [{"vhost": name, **expected}]
    ctl("set_topic_permissions", "-p", name, name, "amq.topic", "w", "r")
    topic = {"exchange": "amq.topic", "write": "w", "read": "r"}
    assert rows(ctl, "list_topic_permissions", "-p", name) == [{"user": name, **topic}]
    assert rows(ctl, "list_user_topic_permissions", name) == [{"vhost": name, **topic}]
    assert ctl("clear_topic_permissions", "-p", name, name).status == 0
    assert ctl("clear_permissions", "-p", name, name).status == 0
    assert rows(ctl, "list_user_permissions", name) == []
    assert ctl("set_permissions_globally", name, "1", "2", "3").status == 0
    held = {row["vhost"] for row in rows(ctl, "list_user_permissions", name)}
    assert held == {row["name"] for row in rows(ctl, "list_vhosts")}
    ctl("delete_vhost", name)
    ctl("delete_user", name)


def test_it_keeps_virtual_hosts(ctl: Ctl, name: str) -> None:
    words = ("--description", "for tests", "--tags", "a,b", "--default-queue-type", "quorum")
    assert ctl("add_vhost", name, *words).status == 0
    columns = ("name", "description", "tags", "default_queue_type")
    expected = dict(zip(columns, (name, "for tests", ["a", "b"], "quorum"), strict=True))
    assert expected in rows(ctl, "list_vhosts", *columns)
    ctl("set_vhost_tags", name, "c")
    assert {**expected, "tags": ["c"]} in rows(ctl, "list_vhosts", *columns)
    ctl("set_vhost_limits", "-p", name, '{"max-queues": 1}')
    assert {"vhost": name, "limits": {"max-queues": 1}} in rows(ctl, "list_vhost_limits")
    ctl("clear_vhost_limits", "-p", name)
    assert name not in ctl("list_vhost_limits").out
    assert ctl("delete_vhost", name).status == 0
    assert ctl("delete_vhost", name).status == 65


def test_it_handles_queues_and_messages(ctl: Ctl, name: str) -> None:
    made = ctl("create_queue", name, "--durable", "--max-length", "5", "--reject-on-overflow")
    assert made.status == 0
    for body in ("one", "two"):
        assert ctl("publish_message", "amq.default", name, body).out == "Message published\n"
    nowhere = ctl("publish_message", "amq.default", f"{name}-none", "x")
    assert nowhere.out == "Message published; it reached no queue\n"
    columns = ("name", "durable", "arguments", "messages")
    arguments = {"x-max-length": 5, "x-overflow": "reject-publish"}
    expected = {"name": name, "durable": True, "arguments": arguments, "messages": 2}
    assert expected in rows(ctl, "list_queues", *columns)
    assert [row["payload"] for row in rows(ctl, "get_messages", name, "--count", "5")] == [
        "one",
        "two",
    ]
    (taken,) = rows(ctl, "get_messages", name, "--ack")
    assert (taken["payload"], taken["redelivered"]) == ("one", False), "a look changes nothing"
    assert ctl("delete_queue", name, "--if-empty").status != 0
    ctl("pause_queue", name)
    assert {"name": name, "state": "paused"} in rows(ctl, "list_queues", "name", "state")
    ctl("resume_queue", name)
    assert {"name": name, "state": "running"} in rows(ctl, "list_queues", "name", "state")
    assert "1 messages purged" in ctl("purge_queue", name).out
    assert ctl("delete_queue", name, "-e", "-u").status == 0
    assert ctl("delete_queue", name).status == 69


def test_it_handles_exchanges_and_bindings(ctl: Ctl, name: str) -> None:
    assert ctl("create_exchange", "topic", name, "--durable", "--delayed").status == 0
    shown = rows(ctl, "list_exchanges", "name", "type", "arguments")
    delayed = {"x-delayed-type": "topic"}
    assert {"name": name, "type": "x-delayed-message", "arguments": delayed} in shown
    ctl("create_queue", name)
    ctl("create_binding", name, name, "a.# /~")
    ctl("create_binding", name, name, "a.# /~", "--arguments", '{"k": 1}')
    columns = ("source_name", "source_kind", "routing_key", "arguments")
    bound = {"source_name": name, "source_kind": "exchange", "routing_key": "a.# /~"}
    found = [row for row in rows(ctl, "list_bindings", *columns) if row["source_name"] == name]
    assert sorted(found, key=str) == [{**bound, "arguments": {"k": 1}}, {**bound, "arguments": {}}]
    assert ctl("delete_binding", name, name, "a.# /~").status == 0
    assert ctl("delete_binding", name, name, "a.# /~").status == 69
    left = [row for row in rows(ctl, "list_bindings", *columns) if row["source_name"] == name]
    assert left == [{**bound, "arguments": {"k": 1}}]
    assert ctl("delete_exchange", name, "--if-unused").status != 0
    assert ctl("delete_exchange", name).status == 0
    ctl("delete_queue", name)


@pytest.mark.parametrize("kind", ["policy", "operator_policy"])
def test_it_keeps_policies(ctl: Ctl, name: str, kind: str) -> None:
    words = (name, f"^{name}", '{"max-length": 3}', "--priority", "4", "--apply-to", "queues")
    assert ctl(f"set_{kind}", *words).status == 0
    plural = kind.replace("policy", "policies")
    (row,) = rows(ctl, f"list_{plural}")
    assert row == {
        "vhost": "/",
        "name": name,
        "pattern": f"^{name}",
        "apply-to": "queues",
        "definition": {"max-length": 3},
        "priority": 4,
    }
    assert ctl(f"clear_{kind}", name).status == 0
    gone = ctl(f"clear_{kind}", name)
    assert gone.status == 69
    assert f"'{name}' does not exist" in gone.err
    assert ctl(f"set_{kind}", name, "(", "{}").status == 65


def test_it_keeps_parameters(ctl: Ctl, name: str) -> None:
    ctl("set_parameter", "vhost-limits", "limits", '{"max-queues": 1000}')
    parameter = {"component": "vhost-limits", "name": "limits", "value": {"max-queues": 1000}}
    assert parameter in rows(ctl, "list_parameters")
    ctl("clear_parameter", "vhost-limits", "limits")
    assert parameter not in rows(ctl, "list_parameters")
    ctl("set_global_parameter", name, '["a", 1]')
    assert {"name": name, "value": ["a", 1]} in rows(ctl, "list_global_parameters")
    ctl("clear_global_parameter", name)
    assert name not in ctl("list_global_parameters").out


def test_it_acts_on_consumers(ctl: Ctl, shared_broker: Appliance, name: str) -> None:
    connection = connect(shared_broker)
    channel = connection.channel()
    channel.queue_declare(name)
    channel.basic_qos(prefetch_count=2)
    tag = channel.basic_consume(name, lambda *_: None)
    for _ in range(5):
        channel.basic_publish("", name, b"x")
    connection.process_data_events(0.2)
    held = rows(ctl, "list_unacked", name)
    assert [row["delivery_tag"] for row in held] == [1, 2]
    where = held[0]["channel_name"]
    assert ctl("set_channel_prefetch", where, "4").status == 0
    connection.process_data_events(0.2)
    assert len(rows(ctl, "list_unacked", name)) == 4
    of, _, number = where.removesuffix(")").rpartition(" (")
    assert ctl("cancel_consumer", of, number, tag).status == 0
    assert ctl("cancel_consumer", of, number, tag).status == 69
    consumers = rows(ctl, "list_consumers", "queue_name")
    assert {"queue_name": name} not in consumers
    channel.queue_delete(name)
    connection.close()


def test_it_protects_virtual_hosts(ctl: Ctl, name: str) -> None:
    ctl("add_vhost", name)
    assert ctl("enable_vhost_protection_from_deletion", name).status == 0
    refused = ctl("delete_vhost", name)
    assert refused.status != 0 and "protected" in refused.err
    assert ctl("disable_vhost_protection_from_deletion", name).status == 0
    assert ctl("delete_vhost", name).status == 0


def test_it_turns_tracing_on_and_off(ctl: Ctl, name: str) -> None:
    has_tracing = "tracing" in VERBS["vhost.put"].arguments.__struct_fields__
    ctl("add_vhost", name)
    for command, state in (("trace_on", True), ("trace_off", False)):
        assert ctl(command, "-p", name).status == (0 if has_tracing else 70)
        shown = {row["name"]: row["tracing"] for row in rows(ctl, "list_vhosts", "name", "tracing")}
        assert shown[name] is (state and has_tracing)
    assert ctl("trace_on", "-p", f"{name}-none").status == (65 if has_tracing else 70)
    ctl("delete_vhost", name)


def test_it_shows_settings_and_flags(ctl: Ctl, shared_broker: Appliance) -> None:
    settings = ctl("environment", "--format", "json").data
    assert settings["data_dir"] == str(shared_broker.data_dir)
    assert str(shared_broker.data_dir) in ctl("environment").out
    assert "default_password" not in settings
    flags = {row["name"]: row["state"] for row in rows(ctl, "list_feature_flags")}
    assert set(flags.values()) <= {"enabled", "unavailable"}
    assert flags["quorum_queue"] == "enabled"
    assert ctl("enable_feature_flag", "all").status == 0
    assert ctl("enable_feature_flag", "no_such_flag").status == 65
    assert ctl("reset_statistics").status == 0


def test_its_report_holds_every_list_and_no_secret(ctl: Ctl, name: str) -> None:
    ctl("add_user", name, "secret-of-the-report")
    report = ctl("report")
    assert {"status", "settings", "queues", "connections", "policies"} <= report.data.keys()
    assert "secret-of-the-report" not in report.out and "argon2" not in report.out
    ctl("delete_user", name)


def test_it_closes_connections(ctl: Ctl, shared_broker: Appliance, name: str) -> None:
    ctl("add_vhost", name)
    ctl("add_user", name, "secret")
    ctl("set_permissions", "-p", name, name, ".*", ".*", ".*")
    open_ones = [connect(shared_broker, name, "secret", name) for _ in range(3)]
    channel = open_ones[0].channel()
    channel.queue_declare(name)
    channel.basic_qos(prefetch_count=9)
    channel.basic_consume(name, lambda *_: None, consumer_tag="mine")
    found = [row["name"] for row in rows(ctl, "list_connections") if row["user"] == name]
    assert len(found) == 3
    (consumer,) = rows(ctl, "list_consumers", "-p", name, "queue_name", "consumer_tag")
    assert consumer == {"queue_name": name, "consumer_tag": "mine"}
    channels = rows(ctl, "list_channels", "connection", "number", "user", "consumer_count")
    of_mine = [row for row in channels if row["user"] == name]
    assert [(row["number"], row["consumer_count"]) for row in of_mine] == [(1, 1)]
    assert ctl("close_connection", found[0], "for a reason").status == 0
    assert "Closed 1 connections" in ctl("close_all_connections", "-p", name, "--limit", "1").out
    assert ctl("close_all_user_connections", name, "bye").status == 0
    closed = []
    for connection in open_ones:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            connection.process_data_events(10)
        closed.append((caught.value.reply_code, caught.value.reply_text))
    assert sorted(closed) == sorted(
        (320, f"CONNECTION_FORCED - {text}") for text in ("for a reason", "Closed via ctl", "bye")
    )
    ctl("delete_vhost", name)
    ctl("delete_user", name)


def test_it_carries_definitions(ctl: Ctl, name: str, tmp_path: Path) -> None:
    ctl("add_vhost", name)
    ctl("create_queue", name, "--durable", "-p", name)
    file = tmp_path / "definitions.json"
    assert ctl("export_definitions", str(file), "-p", name).status == 0
    assert file.stat().st_mode & 0o777 == 0o600
    printed = ctl("export_definitions", "-", "-p", name)
    assert printed.data == json.loads(file.read_text())
    assert [queue["name"] for queue in printed.data["queues"]] == [name]
    ctl("delete_queue", name, "-p", name)
    assert ctl("import_definitions", "-p", name, stdin=printed.out).status == 0
    assert rows(ctl, "list_queues", "-p", name, "name") == [{"name": name}]
    assert "users" in ctl("export_definitions", "-").data
    argon2 = ctl("export_definitions", "--for", "rabbitmq").out
    assert "argon2" not in argon2 and "argon2" in ctl("export_definitions").out
    omitted = ctl("export_definitions", "--for", "rabbitmq", "--dry-run").data["omitted"]
    assert any("guest" in json.dumps(one) for one in omitted)
    assert ctl("import_definitions", str(tmp_path / "none.json")).status == 65
    assert ctl("import_definitions", stdin="{").status == 65
    assert ctl("import_definitions", stdin="[]").status == 65
    assert ctl("export_definitions", str(tmp_path)).status == 65
    ctl("delete_vhost", name)


def test_it_shows_the_node(ctl: Ctl, shared_broker: Appliance) -> None:
    shown = ctl("status").out
    assert str(shared_broker.data_dir) in shown
    assert f"{shared_broker.host}:{shared_broker.amqp_port}" in shown
    data = ctl("status", "--format=json").data
    assert data["os_pid"] == str(shared_broker.pids["broker"])
    assert ctl("cluster_status", "--formatter", "json").data["running_nodes"] == [data["name"]]
    assert ["amqp", shared_broker.host, str(shared_broker.amqp_port)] in ctl("listeners").lines


def test_its_health_checks_pass_and_fail(ctl: Ctl, shared_broker: Appliance) -> None:
    for check in (
        ("ping",),
        ("check_alarms",),
        ("check_local_alarms",),
        ("check_virtual_hosts",),
        ("check_certificate_expiration", "--within", "2", "--unit", "months"),
        ("check_certificate_expiration",),
        ("check_port_connectivity",),
        ("check_port_listener", str(shared_broker.amqp_port)),
        ("check_protocol_listener", "amqp"),
        ("check_running",),
        ("node_health_check",),
        ("await_startup",),
        ("await_online_nodes", "1"),
    ):
        assert ctl(*check).status == 0, check
    failed = ctl("check_port_listener", "1")
    assert failed.status == 69
    assert "No active listener" in failed.err
    assert ctl("check_protocol_listener", "mqtt").status == 69
    assert ctl("await_online_nodes", "2").status == 65


def test_it_lists_what_needs_attention(make_broker: Make, run: Ctl) -> None:
    broker = make_broker(problem_grace=0)
    where = ("--data-dir", str(broker.data_dir))
    for command in (("create_queue", "stopped"), ("pause_queue", "stopped")):
        assert run(*where, *command).status == 0
    run(*where, "publish_message", "amq.default", "stopped", "x")
    found: list[Any] = []
    deadline = time.monotonic() + 60
    while not found and time.monotonic() < deadline:
        found = rows(run, *where, "list_problems")
    assert [(one["vhost"], one["name"], one["trouble"]) for one in found] == [
        ("/", "stopped", "paused")
    ]


def test_it_fails_checks_while_an_alarm_is_in_effect(make_broker: Make, run: Ctl) -> None:
    where = ("--data-dir", str(make_broker(disk_free_limit="900000 GB").data_dir))
    for check in ("check_alarms", "check_local_alarms", "node_health_check"):
        failed = run(*where, check)
        assert failed.status == 69, check
        assert "disk" in failed.err
    (alarm,) = rows(run, *where, "alarms")
    assert "disk" in alarm["resource"]
    assert run(*where, "publish_message", "amq.default", "q", "x").status == 75


def test_it_says_what_is_wrong_and_ends_with_its_status(ctl: Ctl, name: str) -> None:
    for words, status, text in (
        (("nonsense",), 64, "unknown command 'nonsense'"),
        (("list_queue",), 64, "did you mean list_queues"),
        (("set_permissions", "ada", "1"), 64, "usage: manage.py ctl set_permissions"),
        (("list_queues", "colour"), 64, "has no column colour"),
        (("list_queues", "--frobnicate"), 64, "--frobnicate"),
        (("--format", "yaml", "list_queues"), 64, "'yaml'"),
        (("--timeout", "0", "ping"), 64, "more than 0"),
        (("set_policy", "p", "x", "{bad"), 65, "not valid JSON"),
        (("set_vhost_limits", '{"max-things": 1}'), 65, "max-things"),
        (("set_vhost_limits", '{"max-queues": "1"}'), 65, "whole number"),
        (("list_queues", "-p", name), 65, f"Virtual host '{name}' does not exist"),
        (("delete_user", name), 67, f'User "{name}" does not exist'),
        (("set_user_tags", name), 67, f'User "{name}" does not exist'),
        (("change_password", name, "x"), 67, f'User "{name}" does not exist'),
        (("set_permissions", name, "1", "2", "3"), 67, "does not exist"),
        (("purge_queue", name), 69, f"no queue '{name}' in vhost '/'"),
        (("close_connection", name), 69, f"connection '{name}' does not exist"),
        (("add_user", "guest", "x"), 70, "already exists"),
        (("eval", "1 + 1."), 70, "no counterpart"),
        (("join_cluster", "rabbit@other"), 70, "one node"),
    ):
        ran = ctl(*words)
        assert (ran.status, text in ran.err) == (status, True), (words, ran)
        assert len(ran.out.splitlines()) <= 1, "nothing but what it was about to do"


def test_it_prints_only_the_answer_when_asked_to_be_quiet(ctl: Ctl, name: str) -> None:
    ctl("add_vhost", name)
    assert ctl("list_vhosts").lines[:2] == [["Listing", "vhosts", "..."], ["name"]]
    assert ctl("-q", "list_vhosts").lines[0] == ["name"]
    assert [name] in ctl("-s", "list_vhosts").lines
    assert ["name"] not in ctl("-s", "list_vhosts").lines
    assert ctl("--quiet", "ping").out == ""
    both = ctl("list_vhosts", "name", "tags", "--formatter", "tsv").out.splitlines()
    assert both[0] == "name\ttags"
    assert f"{name}\t[]" in both
    assert f"{name},[]" in ctl("list_vhosts", "name", "tags", "--formatter", "csv").out
    assert f"│ {name} │" in ctl("list_vhosts", "--formatter", "pretty_table").out.replace("  ", "")
    ctl("delete_vhost", name)


def test_it_lets_no_name_move_the_cursor(ctl: Ctl, name: str) -> None:
    hostile = f"{name}\x1b[2J\u202e\t"
    assert ctl("create_queue", hostile).status == 0
    shown = ctl("list_queues", "name").out
    assert "\x1b" not in shown and "\u202e" not in shown
    assert f"{name}\\x1b[2J\\u202e\\t" in shown
    assert {"name": hostile} in rows(ctl, "list_queues", "name")
    refused = ctl("purge_queue", f"{hostile}?")
    assert "\x1b" not in refused.out + refused.err
    ctl("delete_queue", hostile)


def test_it_completes_names_of_objects(ctl: Ctl, name: str) -> None:
    ctl("create_queue", name)
    assert name in ctl("-q", "list_names", "queues").out.split()
    kinds = {one.names for command in COMMANDS.values() for one in command.parameters} - {""}
    for kind in kinds:
        assert NOUNS[kind]
        assert ctl("list_names", kind).status == 0, kind
    ctl("delete_queue", name)


def test_it_is_a_command_of_manage_py(shared_broker: Appliance) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "ctl", "list_vhosts", "--format", "json"],
        cwd=ROOT,
        env={"LEVERET_DATA_DIR": str(shared_broker.data_dir), "LEVERET_CONFIG": "", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert {"name": "/"} in json.loads(done.stdout)


def test_it_waits_for_a_start_and_stops_the_broker(make_broker: Make, run: Ctl) -> None:
    broker = make_broker(start=False)
    where = ("--data-dir", str(broker.data_dir))
    away = run(*where, "ping")
    assert away.status == 69
    assert "no broker answers" in away.err
    assert run(*where, "stop").status == 69
    assert run(*where, "await_startup", "-t", "1").status == 75
    broker.start(wait=False)
    assert run(*where, "await_startup").status == 0
    broker.wait_ready()
    assert run(*where, "reload").status == 0
    assert run(*where, "stop").status == 0
    assert broker.wait() == 0


def test_it_names_the_owner_of_a_socket_it_may_not_open(
    shared_broker: Appliance, run: Ctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    socket = tmp_path / "control.sock"
    socket.touch()
    monkeypatch.setattr("os.access", lambda *_: False)
    refused = run("--socket", str(socket), "ping")
    assert refused.status == 77
    assert f"user id {socket.stat().st_uid}" in refused.err


def test_it_refuses_settings_that_cannot_be_read(run: Ctl, tmp_path: Path) -> None:
    assert run("--config", str(tmp_path / "none.ini"), "ping").status == 78


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_reads_its_script(run: Ctl) -> None:
    script = run("completion", "fish").out
    subprocess.run(["fish", "--no-execute"], input=script, text=True, check=True, timeout=20)
