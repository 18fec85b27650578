"""Commands that switch off that clients are served, and that change settings until the next start,
against a real broker; and what the API, its health checks and the page of the node say of it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest
from websockets import Subprotocol
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect as websocket

from tests.amqp import raw
from tests.appliance import Appliance
from tests.bench.processes import free_port
from tests.conftest import Make
from tests.control.test_real_broker import connect
from tests.ctl.conftest import Ctl, Ran

GUEST = ("guest", "guest")


@pytest.fixture(scope="module")
def leveret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """An appliance that every test leaves as it found it."""
    directory = tmp_path_factory.mktemp("service")
    # Its listeners are closed for a while: other programs must not get their ports meanwhile.
    ports = {"amqp_port": free_port(), "ws_port": free_port()}
    made = Appliance("serve", directory, unix_path=directory / "amqp.sock", **ports)
    yield made.start()
    made.close()


@pytest.fixture
def ctl(leveret: Appliance, run: Ctl) -> Iterator[Ctl]:
    def ctl(*words: str, stdin: str = "") -> Ran:
        return run("--data-dir", str(leveret.data_dir), *words, stdin=stdin)

    yield ctl
    assert ctl("start_app").status == 0


def node(leveret: Appliance) -> dict[str, Any]:
    found = httpx.get(f"{leveret.http_url}/api/nodes", auth=GUEST, timeout=60).json()[0]
    assert isinstance(found, dict)
    return found


def check(leveret: Appliance, name: str) -> int:
    url = f"{leveret.http_url}/api/health/checks/{name}"
    return httpx.get(url, auth=GUEST, timeout=60).status_code


def accepts(leveret: Appliance, port: int) -> bool:
    try:
        socket.create_connection((leveret.host, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def closed_with(connection: pika.BlockingConnection) -> tuple[int, str]:
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        connection.process_data_events(20)
    return caught.value.reply_code, caught.value.reply_text


def test_suspended_listeners_refuse_new_clients_and_keep_those_they_have(
    leveret: Appliance, ctl: Ctl
) -> None:
    with closing(connect(leveret)) as connection:
        assert "suspended" in ctl("suspend_listeners").out
        assert "already" in ctl("suspend_listeners").out
        for port in (leveret.amqp_port, leveret.ws_port):
            assert not accepts(leveret, port)
        assert accepts(leveret, leveret.http_port) and accepts(leveret, leveret.metrics_port)
        assert connection.channel().queue_declare("", exclusive=True)
    assert ctl("check_port_listener", str(leveret.amqp_port)).status == 69
    assert check(leveret, f"port-listener/{leveret.amqp_port}") == 503
    assert check(leveret, "protocol-listener/amqp") == 503
    assert check(leveret, "ready-to-serve-clients") == 503
    assert check(leveret, "is-in-service") == 200, "it still serves who is connected"
    assert check(leveret, f"port-listener/{leveret.metrics_port}") == 200
    assert node(leveret)["listeners_suspended"] is True
    assert "accept clients" in ctl("resume_listeners").out
    assert "already" in ctl("resume_listeners").out
    for port in (leveret.amqp_port, leveret.ws_port):
        assert accepts(leveret, port)
    connect(leveret).close()
    assert check(leveret, f"port-listener/{leveret.amqp_port}") == 200
    assert check(leveret, "ready-to-serve-clients") == 200


def test_a_unix_socket_is_suspended_too(leveret: Appliance, ctl: Ctl) -> None:
    path = Path(leveret.settings["unix_path"])
    assert path.exists()
    ctl("suspend_listeners")
    assert not path.exists()
    ctl("resume_listeners")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"AMQP\x00\x00\x09\x01")
        assert client.recv(1) == b"\x01"


def test_a_drained_node_closes_its_clients_and_says_so_until_it_is_revived(
    leveret: Appliance, ctl: Ctl
) -> None:
    connection = connect(leveret)
    connection.channel().queue_declare("kept", durable=True)
    assert "1 connection was closed" in ctl("drain").out
    code, text = closed_with(connection)
    assert (code, "maintenance" in text) == (320, True)
    assert not accepts(leveret, leveret.amqp_port)
    found = node(leveret)
    assert (found["being_drained"], found["running"]) == (True, True)
    assert check(leveret, "is-in-service") == 503
    assert check(leveret, "ready-to-serve-clients") == 503
    assert check(leveret, "alarms") == 200
    shown = ctl("cluster_status", "--format", "json").data
    assert shown["maintenance_status"] == {found["name"]: "maintenance"}
    assert "maintenance" in ctl("status").out
    problems = httpx.get(f"{leveret.http_url}/api/problems", auth=GUEST, timeout=60).json()
    assert ("maintenance", "node") in [(one["trouble"], one["kind"]) for one in problems["items"]]
    assert "ctl revive" in str(problems["items"])
    assert "over" in ctl("revive").out
    assert "not in maintenance" in ctl("revive").out
    assert node(leveret)["being_drained"] is False
    assert check(leveret, "is-in-service") == 200
    with closing(connect(leveret)) as connection:
        assert connection.channel().queue_declare("kept", passive=True)


def test_a_login_under_way_and_a_browser_are_not_let_in(leveret: Appliance, ctl: Ctl) -> None:
    with raw.Client((leveret.host, leveret.amqp_port)) as client:
        client.send(raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)
        ctl("drain")
        client.send(raw.start_ok())
        tune = client.expect("connection.tune", 0)
        client.send_method(
            0,
            "connection.tune-ok",
            channel_max=tune.channel_max,
            frame_max=tune.frame_max,
            heartbeat=0,
        )
        client.send_method(0, "connection.open", virtual_host="/")
        # Not 530: our shovels would stop for a minute, as where a right is lost.
        client.expect_connection_close(320, 10, 40, "drained for maintenance")
    url = f"ws://{leveret.host}:{leveret.http_port}/"
    with (
        pytest.raises(InvalidStatus) as refused,
        websocket(url, subprotocols=[Subprotocol("amqp")], open_timeout=60),
    ):
        pass
    assert refused.value.response.status_code == 503
    ctl("revive")
    with websocket(url, subprotocols=[Subprotocol("amqp")], open_timeout=60) as browser:
        browser.send(raw.PROTOCOL_HEADER)
        assert browser.recv(timeout=30)[0] == 1


def test_a_shovel_waits_for_the_end_of_the_maintenance(leveret: Appliance, ctl: Ctl) -> None:
    for queue in ("from", "to"):
        ctl("create_queue", queue, "--durable")
    definition = {
        "src-uri": "amqp://",
        "src-queue": "from",
        "dest-uri": "amqp://",
        "dest-queue": "to",
        "reconnect-delay": 1,
    }
    assert ctl("add_shovel", "move", json.dumps(definition)).status == 0
    ctl("publish_message", "amq.default", "from", "one")
    assert arrived(ctl, 1)
    ctl("drain")
    ctl("publish_message", "amq.default", "from", "two")
    ctl("revive")
    assert arrived(ctl, 2)
    ctl("delete_shovel", "move")


def arrived(ctl: Ctl, count: int) -> bool:
    """Whether so many messages come into the queue."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        rows = ctl("--format", "json", "list_queues", "name", "messages").data
        if {"name": "to", "messages": count} in rows:
            return True
    return False


def test_a_stopped_application_serves_nobody_and_answers_its_operator(
    leveret: Appliance, ctl: Ctl
) -> None:
    connection = connect(leveret)
    assert ctl("stop_app").status == 0
    code, text = closed_with(connection)
    assert (code, "shutdown" in text) == (320, True)
    assert ctl("ping").status == 0
    assert (ctl("check_running").status, ctl("is_running").status) == (69, 69)
    assert ctl("await_startup", "--timeout", "0.2").status == 75
    assert node(leveret)["running"] is False
    assert check(leveret, "is-in-service") == 503
    for refused in ("resume_listeners", "revive"):
        ran = ctl(refused)
        assert (ran.status, "start_app" in ran.err) == (65, True)
    assert not accepts(leveret, leveret.amqp_port)
    assert ctl("list_queues").status == 0
    assert "is started" in ctl("start_app").out
    assert "already" in ctl("start_app").out
    assert ctl("check_running").status == 0
    assert ctl("await_startup").status == 0
    connect(leveret).close()


def test_a_taken_address_leaves_the_listeners_suspended(leveret: Appliance, ctl: Ctl) -> None:
    ctl("suspend_listeners")
    with socket.create_server((leveret.host, leveret.amqp_port)):
        ran = ctl("resume_listeners")
        assert ran.status == 65
        assert f"port {leveret.amqp_port}: Address already in use" in ran.err
    assert not accepts(leveret, leveret.ws_port)
    assert ctl("resume_listeners").status == 0
    assert accepts(leveret, leveret.amqp_port) and accepts(leveret, leveret.ws_port)


def test_a_restart_ends_the_maintenance(make_leveret: Make, run: Ctl) -> None:
    leveret = make_leveret()
    where = ("--data-dir", str(leveret.data_dir))
    assert run(*where, "drain").status == 0
    assert run(*where, "set_log_level", "debug").status == 0
    assert leveret.stop() == 0
    leveret.start()
    found = node(leveret)
    assert (found["being_drained"], found["overrides"]) == (False, {})
    connect(leveret).close()


def test_limits_change_until_the_next_start_and_outlast_a_reload(
    make_leveret: Make, run: Ctl
) -> None:
    leveret = make_leveret(disk_free_limit="100 MiB")
    where = ("--data-dir", str(leveret.data_dir))
    assert "until the next start" in run(*where, "set_disk_free_limit", "900000GB").out
    limit = 900_000 * 1000**3
    found = node(leveret)
    assert found["disk_free_limit"] == limit
    assert found["overrides"] == {"disk_free_limit": {"value": limit, "configured": 100 * 1024**2}}
    assert run(*where, "reload").status == 0
    assert run(*where, "environment", "--format", "json").data["disk_free_limit"] == limit
    assert "the settings say 104857600" in run(*where, "environment").out
    assert run(*where, "set_disk_free_limit", "mem_relative", "0.001").status == 0
    assert node(leveret)["disk_free_limit"] == int(0.001 * node(leveret)["mem_total"])
    assert run(*where, "set_vm_memory_high_watermark", "absolute", "64GiB").status == 0
    assert node(leveret)["mem_limit"] == 64 * 1024**3
    assert run(*where, "set_vm_memory_high_watermark", "0.25").status == 0
    assert node(leveret)["mem_limit"] == int(0.25 * node(leveret)["mem_total"])
    for words in (
        ("set_vm_memory_high_watermark", "absolute"),
        ("set_vm_memory_high_watermark", "1.5"),
        ("set_disk_free_limit", "much"),
        ("set_disk_free_limit", "mem_relative", "-1"),
        ("set_log_level", "loud"),
    ):
        assert run(*where, *words).status == 65, words


def test_a_raised_limit_of_free_space_stops_publishing(make_broker: Make, run: Ctl) -> None:
    where = ("--data-dir", str(make_broker().data_dir))
    assert run(*where, "check_alarms").status == 0
    run(*where, "set_disk_free_limit", "900000GB")
    assert wait_for(run, 69, *where, "check_alarms")
    run(*where, "set_disk_free_limit", "1MiB")
    assert wait_for(run, 0, *where, "check_alarms")


def wait_for(run: Ctl, status: int, *words: str) -> bool:
    """Whether the command comes to end so."""
    deadline = time.monotonic() + 60
    while run(*words).status != status:
        if time.monotonic() > deadline:
            return False
    return True


def test_the_log_level_changes_at_once(make_broker: Make, run: Ctl) -> None:
    broker = make_broker(log_level="error")
    where = ("--data-dir", str(broker.data_dir))
    connect(broker).close()
    assert "opened vhost" not in run(*where, "log_tail", "-N", "1000").out
    run(*where, "set_log_level", "info")
    connect(broker).close()
    assert "opened vhost" in run(*where, "log_tail").out
    assert "opened vhost" in broker.log()


def test_it_gives_memory_back_and_says_how_much(ctl: Ctl) -> None:
    found = ctl("force_gc", "--format", "json").data
    assert found["before"] > 0 and found["after"] > 0 and found["garbage"] >= 0
    assert found["given_back"] == max(0, found["before"] - found["after"])
    assert "Given back" in ctl("gc_collect").out


def test_the_node_page_shows_maintenance_and_what_was_changed(leveret: Appliance, ctl: Ctl) -> None:
    ctl("drain")
    ctl("set_log_level", "warning")
    with httpx.Client(base_url=leveret.http_url, timeout=60, follow_redirects=True) as page:
        token = page.get("/login").text.partition('name="csrfmiddlewaretoken" value="')[2]
        data = {"username": "guest", "password": "guest"}
        page.post(
            "/login",
            data={**data, "csrfmiddlewaretoken": token.partition('"')[0]},
            headers={"Referer": leveret.http_url},
        )
        text = page.get("/node").text
    assert "the node is being drained for maintenance" in text
    assert "until the next start; the settings say info" in text
    ctl("set_log_level", "info")
