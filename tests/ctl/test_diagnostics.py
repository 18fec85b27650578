"""Commands of rabbitmq-diagnostics and rabbitmq-queues against a real broker."""

from __future__ import annotations

import json
import platform
import threading
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.appliance import Appliance
from tests.conftest import Make
from tests.control.test_real_broker import connect
from tests.ctl.conftest import Ctl
from tests.listeners.certificates import Authority


@pytest.fixture
def name() -> str:
    return f"diag-{uuid.uuid4().hex[:8]}"


def rows(ctl: Ctl, *words: str) -> Any:
    return ctl("--format", "json", *words).data


def test_it_tells_versions(ctl: Ctl) -> None:
    status = ctl("status", "--format", "json").data["overview"]
    assert ctl("-s", "server_version").out == ""
    assert rows(ctl, "server_version") == {"result": status["product_version"]}
    python = f"Python {platform.python_version()}"
    assert ctl("erlang_version").out.splitlines()[-1] == python
    assert "OpenSSL" in ctl("erlang_version", "--details").out
    assert ctl("erlang_version", "--offline").out.splitlines()[-1] == python
    assert rows(ctl, "is_booting") == {"booting": False}


def test_it_shows_the_process_without_secrets(make_broker: Make, run: Ctl) -> None:
    broker = make_broker(default_user="ada", default_password="never-to-be-shown")
    where = ("--data-dir", str(broker.data_dir))
    words = run(*where, "command_line_arguments").out
    assert "--amqp-port" in words and "never-to-be-shown" not in words
    environment = run(*where, "os_env", "--format", "json").data
    assert all(key.startswith("LEVERET_") for key in environment)
    assert "never-to-be-shown" not in json.dumps(environment)
    assert run(*where, "log_location").status == 0


def test_it_breaks_memory_down(ctl: Ctl) -> None:
    found = rows(ctl, "memory_breakdown")
    parts = {key: value for key, value in found.items() if key not in ("total", "strategy")}
    assert {"queue_procs", "connection_writers", "msg_index", "other_system"} <= parts.keys()
    assert 0 < found["total"] == sum(parts.values())
    assert " mb (100.00 %)" in ctl("memory_breakdown", "--unit", "mb").out
    assert ctl("memory_breakdown", "--unit", "furlong").status == 64


def test_it_shows_what_each_thread_uses(ctl: Ctl) -> None:
    found = rows(ctl, "runtime_thread_stats", "--sample-interval", "0.05")
    assert len(found) > 1
    assert all(row["percent"] >= 0 and row["thread"] for row in found)


def test_it_lists_certificates_and_what_tls_offers(
    make_broker: Make, run: Ctl, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "certificates")
    broker = make_broker(
        tls_cert_file=authority.issue("localhost", days=20), amqps_port=0, tls_min_version="1.3"
    )
    where = ("--data-dir", str(broker.data_dir))
    (row, *_) = rows(run, *where, "certificates")
    assert "localhost" in row["names"]
    assert row["not_before"] < row["not_after"]
    assert row["subject"].startswith("CN=")
    assert [one["version"] for one in rows(run, *where, "tls_versions")] == ["tlsv1.3"]
    ciphers = [one["cipher_suite"] for one in rows(run, *where, "cipher_suites")]
    assert "TLS_AES_256_GCM_SHA384" in ciphers
    assert rows(run, *where, "list_ciphers", "--all") == rows(run, *where, "cipher_suites")


def test_a_broker_without_tls_has_no_certificates(ctl: Ctl) -> None:
    assert rows(ctl, "certificates") == []
    offered = [one["version"] for one in rows(ctl, "tls_versions")]
    assert offered == ["tlsv1.3", "tlsv1.2"]
    assert {"hash": "argon2id"} in rows(ctl, "list_hashes")


def test_it_prints_the_end_of_the_log(ctl: Ctl, shared_broker: Appliance) -> None:
    connect(shared_broker).close()
    lines = ctl("log_tail", "--number", "5").out.splitlines()[1:]
    assert 1 <= len(lines) <= 5
    assert any("connection" in line for line in lines)
    assert ctl("log_tail", "-N", "0").status == 65


def followed(ctl: Ctl, *words: str, cause: Callable[[], None], until: Callable[[Any], bool]) -> Any:
    """The JSON lines of a command that follows what happens, which is made to happen all the time,
    since the command does not say when it begins; again until enough of it is seen."""
    stop = threading.Event()

    def go() -> None:
        while not stop.is_set():
            cause()

    writer = threading.Thread(target=go)
    writer.start()
    try:
        for seconds in ("0.5", "2", "8", "30"):
            ran = ctl(*words, "--duration", seconds)
            assert ran.status == 0
            if until(found := [json.loads(line) for line in ran.out.splitlines()]):
                break
    finally:
        stop.set()
        writer.join()
    assert until(found), found[-5:]
    return found


def test_it_prints_lines_of_the_log_as_they_come(ctl: Ctl, shared_broker: Appliance) -> None:
    found = followed(
        ctl,
        *("--format", "json", "log_tail_stream"),
        cause=lambda: connect(shared_broker).close(),
        until=lambda rows: any("connection" in one["text"] for one in rows),
    )
    assert all({"id", "time", "level", "source"} < one.keys() for one in found)
    assert [one["id"] for one in found] == sorted({one["id"] for one in found})


def test_it_prints_events_as_json_lines(ctl: Ctl, shared_broker: Appliance, name: str) -> None:
    with closing(connect(shared_broker)) as connection:
        channel = connection.channel()

        def change() -> None:
            channel.queue_declare(name)
            channel.queue_delete(name)

        found = followed(
            ctl,
            *("consume_event_stream", "--pattern", "^queue"),
            cause=change,
            until=lambda rows: {one["event"] for one in rows} >= {"queue.created", "queue.deleted"},
        )
    assert {one["event"].partition(".")[0] for one in found} == {"queue"}
    assert {(one["vhost"], one["name"]) for one in found} == {("/", name)}
    assert ctl("consume_event_stream", "--pattern", "(").status == 65


def test_it_counts_logins_by_source_until_that_is_switched_off(make_broker: Make, run: Ctl) -> None:
    broker = make_broker()
    where = ("--data-dir", str(broker.data_dir))
    connect(broker).close()
    (row,) = rows(run, *where, "list_node_auth_attempt_stats", "--by-source")
    assert (row["username"], row["auth_attempts_succeeded"]) == ("guest", 1)
    assert run(*where, "reset_node_auth_attempt_metrics").status == 0
    assert rows(run, *where, "list_node_auth_attempt_stats") == []
    assert run(*where, "disable_auth_attempt_source_tracking").status == 0
    connect(broker).close()
    (row,) = rows(run, *where, "list_node_auth_attempt_stats", "--by-source")
    assert (row["username"], row["remote_address"], row["auth_attempts"]) == ("", "", 1)
    assert run(*where, "enable_auth_attempt_source_tracking").status == 0
    connect(broker).close()
    found = rows(run, *where, "list_node_auth_attempt_stats", "--by-source")
    assert {row["username"] for row in found} == {"", "guest"}


def test_it_shows_the_surroundings(ctl: Ctl) -> None:
    assert {"interface": "lo", "address": "127.0.0.1"} in rows(ctl, "list_network_interfaces")
    found = rows(ctl, "resolve_hostname", "localhost", "--address-family", "ipv4")
    assert found == [{"address": "127.0.0.1"}]
    assert ctl("resolve_hostname", "no-such-host.invalid").status == 69
    assert ctl("resolve_hostname", "x" * 300).status == 65
    assert {"nameserver", "search", "options"} <= rows(ctl, "resolver_info").keys()
    node = ctl("status", "--format", "json").data["name"]
    assert rows(ctl, "discover_peers") == [{"node": node}]


def test_it_says_what_the_broker_keeps(ctl: Ctl, name: str) -> None:
    ctl("create_queue", name, "--durable")
    found = {row["name"]: row for row in rows(ctl, "schema_info")}
    assert found["queues"]["size"] >= 1
    assert found["users"]["key"] == ["name"]
    assert rows(ctl, "list_deprecated_features") == []
    ctl("delete_queue", name)


def test_nothing_is_stuck_in_a_broker_that_is_well(ctl: Ctl) -> None:
    assert "Nothing is stuck" in ctl("maybe_stuck").out


def test_it_shows_where_queues_are(ctl: Ctl, name: str) -> None:
    node = ctl("status", "--format", "json").data["name"]
    ctl("create_queue", name, "--durable", "--type", "quorum")
    (row,) = rows(ctl, "quorum_status", name)
    assert (row["node_name"], row["raft_state"], row["messages_ready"]) == (node, "leader", 0)
    refused = ctl("stream_status", name)
    assert (refused.status, "of type quorum, not stream" in refused.err) == (65, True)
    ctl("create_queue", f"{name}-s", "--durable", "--stream-queue")
    (row,) = rows(ctl, "stream_status", f"{name}-s")
    assert (row["role"], row["node"], row["readers"]) == ("writer", node, 0)
    assert rows(ctl, "stream_status", f"{name}-s", "--tracking") == []
    assert ctl("quorum_status", f"{name}-none").status == 69
    for kind in ("all", "quorum"):
        (row,) = rows(ctl, "rebalance", kind)
        assert row["node_name"] == node and row["number_of_queues"] >= 2
    for passing in (
        "check_if_node_is_mirror_sync_critical",
        "check_if_any_deprecated_features_are_used",
        "check_if_metadata_store_is_initialized",
        "check_if_metadata_store_is_initialized_with_data",
        "await_online_quorum_plus_one",
        "await_online_synchronized_mirror",
        "post_upgrade",
    ):
        assert ctl(passing).status == 0, passing
    ctl("delete_queue", name)
    ctl("delete_queue", f"{name}-s")


def test_it_looks_at_one_position_of_a_queue(ctl: Ctl, name: str) -> None:
    ctl("create_queue", name)
    for body in ("one", "two"):
        ctl("publish_message", "amq.default", name, body)
    second = {row["key"]: row["value"] for row in rows(ctl, "peek", name, "2")}
    assert second["payload"] == "two"
    assert ctl("peek", name, "3").status == 69
    assert ctl("peek", name, "0").status == 65
    assert len(rows(ctl, "get_messages", name, "--count", "5")) == 2
    ctl("delete_queue", name)


def test_it_offers_names_of_commands(ctl: Ctl) -> None:
    assert ctl("autocomplete", "list_q").out.split() == ["list_queues"]
