"""Settings of a running appliance: what a crash, a reload and a full disk do to them."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from management import web
from management.broker_client import BrokerClient
from tests.appliance import Appliance
from tests.conftest import Make
from tests.listeners.certificates import Authority


def until(what: Callable[[], bool], log: Callable[[], str]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, log()
        time.sleep(0.02)


def settings_of(appliance: Appliance) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        client = BrokerClient(appliance.control_socket)
        try:
            answer: dict[str, Any] = await client.call("settings")
            return answer
        finally:
            await client.close()

    return asyncio.run(ask())


def kill_broker(appliance: Appliance) -> None:
    """Kills it, and waits until it is there again."""
    before = appliance.log().count("broker: listening")
    note = json.loads((appliance.data_dir / "run" / "addresses.json").read_text())
    os.kill(note["pid"]["broker"], signal.SIGKILL)
    until(lambda: appliance.log().count("broker: listening") > before, appliance.log)


def test_a_part_that_is_started_again_has_the_settings_in_force(
    make_leveret: Make, tmp_path: Path
) -> None:
    file = tmp_path / "leveret.ini"
    file.write_text("[store]\nsegment_size = 1 MiB\n[amqp]\nheartbeat = 11\n")
    leveret = make_leveret(config=file)
    file.write_text("[store]\nsegment_size = 2 MiB\n[amqp]\nheartbeat = 22\n")
    leveret.signal(signal.SIGHUP)
    until(lambda: "segment_size changed; takes effect after" in leveret.log(), leveret.log)
    kill_broker(leveret)
    found = settings_of(leveret)
    assert (found["segment_size"], found["heartbeat"]) == (1024 * 1024, 22)
    file.write_text("[store\n")
    kill_broker(leveret)
    found = settings_of(leveret)
    assert (found["segment_size"], found["heartbeat"]) == (1024 * 1024, 22)


def shakes_hands(port: int) -> bool:
    """Whether a client that speaks TLS 1.2 at most is served."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", port), 30) as plain:
        try:
            context.wrap_socket(plain).close()
        except (ssl.SSLError, ConnectionError):
            return False
    return True


def is_as_told(port: int, served: bool) -> bool:
    return shakes_hands(port) == served


def test_the_lowest_version_of_tls_changes_on_every_port(
    make_leveret: Make, tmp_path: Path
) -> None:
    certificate = Authority(tmp_path / "authority").issue("server")
    file = tmp_path / "leveret.ini"
    text = f"[tls]\ntls_cert_file = {certificate}\n"
    file.write_text(text)
    leveret = make_leveret(config=file, amqps_port=0, https_port=0)
    ports = [int(leveret.addresses[name][1]) for name in ("amqps", "https")]
    for version, served in (("1.3", False), ("1.2", True)):
        file.write_text(f"{text}tls_min_version = {version}\n")
        leveret.signal(signal.SIGHUP)
        for port in ports:
            until(functools.partial(is_as_told, port, served), leveret.log)


def test_the_web_process_notes_where_it_is_as_soon_as_the_disk_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    note, obstacle = tmp_path / "web.json", tmp_path / "web.new"
    obstacle.mkdir()
    tries: list[float] = []

    async def wait(seconds: float) -> None:
        tries.append(seconds)
        if len(tries) == 3:
            obstacle.rmdir()

    monkeypatch.setattr(asyncio, "sleep", wait)
    asyncio.run(web._keep_noting(note, []))
    assert json.loads(note.read_text()) == {"pid": {"web": os.getpid()}}
    assert tries == [web.NOTE_AGAIN_S] * 3
    assert [record.message for record in caplog.records] == [
        f"cannot write {note}: Is a directory; it is tried again every 1 s"
    ]
