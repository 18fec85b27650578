"""SIGHUP: settings are read again, and those that can change do."""

from __future__ import annotations

import json
import os
import signal
import ssl
from pathlib import Path

import pytest

from broker.serving import reloading
from broker.settings import config
from broker.settings.config import load
from tests.amqp import raw
from tests.appliance import Appliance
from tests.conftest import Make
from tests.listeners.certificates import Authority
from tests.listeners.conftest import hang_up
from tests.listeners.test_tls import until

Start = tuple[Appliance, Path]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An INI file that brokers of this test read."""
    return tmp_path / "leveret.ini"


@pytest.fixture
def broker(make_broker: Make, file: Path) -> Appliance:
    """A broker that has read the file."""
    file.write_text("[amqp]\nheartbeat = 7\nmax_message_size = 1000\n")
    return make_broker(config=file)


def address(broker: Appliance) -> tuple[str, int]:
    return broker.host, broker.amqp_port


def reload(broker: Appliance, said: str, name: str | None = None) -> None:
    broker.signal(signal.SIGHUP, name)
    until(said, broker)


def test_new_connections_and_channels_get_the_new_values(broker: Appliance, file: Path) -> None:
    with raw.Client.open(address(broker)) as old:
        assert old.tune is not None and old.tune.heartbeat == 7
        file.write_text("[amqp]\nheartbeat = 9\nmax_message_size = 10\nframe_max = 8192\n")
        reload(broker, "settings: max_message_size is 10 now, was 1000")
        until("settings: heartbeat is 9 now, was 7", broker)
        with raw.Client.open(address(broker)) as new:
            assert new.tune is not None
            assert (new.tune.heartbeat, new.tune.frame_max) == (9, 8192)
            new.publish(1, "", "nowhere", bytes(11))
            new.expect_channel_close(1, 406, 60, 40, "larger than configured max size 10")
        old.publish(1, "", "nowhere", bytes(11))
        old.fence(1)
        old.call(2, "channel.open")
        old.publish(2, "", "nowhere", bytes(11))
        old.expect_channel_close(2, 406, 60, 40)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[amqp]\nheartbeat = often\n", "heartbeat: 'often' is not a whole number"),
        ("[amqq]\n", "unknown section [amqq]"),
        ("no sections\n", "line 1 stands before the first [section]"),
        (None, "No such file or directory"),
    ],
)
def test_a_file_it_cannot_use_changes_nothing(
    broker: Appliance, file: Path, text: str | None, told: str
) -> None:
    if text is None:
        file.unlink()
    else:
        file.write_text(f"{text}\n[log]\nlog_level = debug\n")
    reload(broker, "settings are not read again, the old ones stay: ")
    assert told in broker.log()
    with raw.Client.open(address(broker)) as client:
        assert client.tune is not None and client.tune.heartbeat == 7


def test_what_cannot_change_waits_for_the_next_start(broker: Appliance, file: Path) -> None:
    file.write_text("[amqp]\namqp_port = 1\nheartbeat = 7\n[store]\nsegment_size = 64 KiB\n")
    reload(broker, "settings: segment_size changed; takes effect after a restart")
    with raw.Client.open(address(broker)) as client:
        client.fence(1)


def test_an_option_still_wins_over_the_file(make_broker: Make, file: Path) -> None:
    file.write_text("")
    broker = make_broker(config=file, heartbeat=5)
    file.write_text("[amqp]\nheartbeat = 9\n")
    reload(broker, "settings read again")
    with raw.Client.open(address(broker)) as client:
        assert client.tune is not None and client.tune.heartbeat == 5


def test_the_log_says_more_when_it_is_told_to(broker: Appliance, file: Path) -> None:
    file.write_text("[log]\nlog_level = debug\nlog_format = json\n")
    reload(broker, '"text": "settings: log_level is debug now, was info"')
    line = next(line for line in broker.log().splitlines() if "log_level is debug" in line)
    assert json.loads(line)["part"] == "broker"


def test_trusted_proxies_change_at_once(broker: Appliance, file: Path) -> None:
    file.write_text("[amqp]\nproxy_protocol_sources = 127.0.0.1\n")
    reload(broker, "settings: proxy_protocol_sources is 127.0.0.1/32 now, was none")
    assert hang_up(address(broker), raw.PROTOCOL_HEADER) == b""


def test_the_room_for_connections_changes_at_once(broker: Appliance, file: Path) -> None:
    with raw.Client.open(address(broker)) as client:
        file.write_text("[amqp]\nconnections_max = 1\n")
        reload(broker, "settings: connections_max is 1 now, was 0")
        assert hang_up(address(broker), raw.PROTOCOL_HEADER) == b""
        client.fence(1)


def test_many_signals_at_once_do_no_harm(broker: Appliance, file: Path) -> None:
    file.write_text("[amqp]\nheartbeat = 9\n")
    for _ in range(20):
        broker.signal(signal.SIGHUP)
    until("settings: heartbeat is 9 now, was 7", broker)
    with raw.Client.open(address(broker)) as client:
        client.fence(1)


def test_every_part_of_the_appliance_reads_again(
    make_leveret: Make, file: Path, authority: Authority, tmp_path: Path
) -> None:
    certificate = tmp_path / "certificate.pem"
    certificate.write_bytes((authority.directory / "server.pem").read_bytes())
    file.write_text(f"[tls]\ntls_cert_file = {certificate}\n")
    leveret = make_leveret(config=file, amqps_port=0, https_port=0)
    assert common_name(leveret, "https", authority) == "server"
    pids = dict(leveret.pids)
    renewed = authority.issue("renewed-for-all", subject="/CN=renewed", san="DNS:localhost")
    certificate.write_bytes(renewed.read_bytes())
    file.write_text(f"[tls]\ntls_cert_file = {certificate}\n[log]\nlog_level = debug\n")
    leveret.signal(signal.SIGHUP)
    until("certificates are read again", leveret)
    for part in ("web", "reports", "serve"):
        until(f"{part}: settings are read again", leveret)
    assert common_name(leveret, "https", authority) == "renewed"
    assert common_name(leveret, "amqps", authority) == "renewed"
    file.write_text("[log]\nlog_level = loud\n")
    leveret.signal(signal.SIGHUP)
    until("serve: settings are not read again, the old ones stay", leveret)
    assert "broker: settings are not read again" not in leveret.log()
    for pid in pids.values():
        os.kill(pid, 0)


def common_name(leveret: Appliance, listener: str, authority: Authority) -> str:
    """Of the certificate that a listener shows now."""
    import socket

    host, port = leveret.addresses[listener]
    context: ssl.SSLContext = authority.client_context()
    with (
        socket.create_connection((host, port), 60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        subject = (tls.getpeercert() or {})["subject"]
    return next(value for each in subject for name, value in each if name == "commonName")


# The rule by itself.

NO_FILE = {"LEVERET_CONFIG": ""}


def test_it_takes_over_only_what_is_marked() -> None:
    for item in config.settings():
        assert isinstance(item.reload, bool)
    old = load([], NO_FILE)
    new = load(["--heartbeat=1", "--amqp-port=1", "--data-dir=/elsewhere"], NO_FILE)
    reloaded = reloading.merged(old, new)
    assert (reloaded.at_once, reloaded.waiting) == (["heartbeat"], ["data_dir", "amqp_port"])
    assert (reloaded.config.heartbeat, reloaded.config.amqp_port) == (1, 5672)


def test_a_first_certificate_waits_for_the_next_start() -> None:
    old = load([], NO_FILE)
    new = load(["--tls-cert-file=/c.pem", "--tls-key-file=/k.pem"], NO_FILE)
    for before, after in ((old, new), (new, old)):
        reloaded = reloading.merged(before, after)
        assert reloaded.waiting == ["tls_cert_file", "tls_key_file"]
        assert reloaded.config.tls_cert_file == before.tls_cert_file
