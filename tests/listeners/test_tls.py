"""AMQP over TLS: what is spoken, whose certificate is shown, and when it changes."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import statistics
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.amqp import raw
from tests.appliance import Appliance, NotReadyError
from tests.conftest import Make
from tests.listeners.certificates import Authority
from tests.listeners.conftest import TLSClient, hang_up


def address(broker: Appliance, name: str = "amqps") -> tuple[str, int]:
    host, port = broker.addresses[name]
    return host, port


@pytest.fixture
def make(make_broker: Make, authority: Authority) -> Make:
    """Starts a broker that has a certificate."""

    def make(**settings: Any) -> Appliance:
        settings.setdefault("tls_cert_file", authority.directory / "server.pem")
        return make_broker(amqps_port=0, **settings)

    return make


def until(log: str, broker: Appliance) -> None:
    """Waits until the broker's log says so."""
    deadline = time.monotonic() + 60
    while log not in broker.log():
        assert time.monotonic() < deadline, f"{log!r} is not in the log:\n{broker.log()}"
        time.sleep(0.02)


def test_it_carries_messages_of_all_sizes(make: Make, authority: Authority) -> None:
    broker = make()
    with TLSClient(address(broker), authority.client_context()).use() as client:
        client.call(1, "queue.declare", queue="q")
        client.call(1, "confirm.select")
        client.call(1, "basic.consume", queue="q", no_ack=True, consumer_tag="t")
        for body in (b"", b"x", b"y" * 16384, b"z" * 3_000_000):
            client.publish(1, "", "q", body)
            message = client.expect_message("basic.deliver", 1)
            client.expect("basic.ack", 1)
            assert message.body == body
        client.close()


class Pieces:
    """A socket with TLS that can hold back what it is given: the test sends `held` in parts."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext) -> None:
        self.plain = plain
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.held: bytes | None = None
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.send(self.outgoing.read())
                self.incoming.write(plain.recv(65536))
        self.send(self.outgoing.read())

    def send(self, data: bytes) -> None:
        self.plain.sendall(data)

    def sendall(self, data: bytes) -> None:
        for at in range(0, len(data), 16384):
            self.tls.write(data[at : at + 16384])
        if self.held is None:
            self.send(self.outgoing.read())
        else:
            self.held += self.outgoing.read()

    def recv(self, count: int) -> bytes:
        while True:
            try:
                return self.tls.read(count)
            except ssl.SSLWantReadError:
                if not (data := self.plain.recv(65536)):
                    return b""
                self.incoming.write(data)

    def settimeout(self, timeout: float | None) -> None:
        self.plain.settimeout(timeout)

    def close(self) -> None:
        self.plain.close()


class PiecesClient(TLSClient):
    """A client whose records can be held back and cut."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        raw.Client.__init__(self, address)
        self.socket: Any = Pieces(self.socket, context)


def test_records_that_come_in_parts_beside_others_are_kept_apart(
    make: Make, authority: Authority
) -> None:
    """All connections are deciphered in the same memory, one at a time: a record that has come
    half stays with its own, whatever comes of others meanwhile, and whoever of them leaves."""
    broker = make()
    context = authority.client_context()
    first = PiecesClient(address(broker), context).use()
    second = PiecesClient(address(broker), context).use()
    bodies = [bytes([number]) * (1 + number * 4001) for number in range(12)]
    with TLSClient(address(broker), context).use() as other:
        for client, name in ((first, "a"), (second, "b")):
            other.call(1, "queue.declare", queue=name)
            client.socket.held = b""
            for body in bodies:
                client.publish(1, "", name, body)
        for number in range(20):
            for client in (first, second):
                data = client.socket.held
                length = len(data) // (20 - number)
                client.socket.send(data[:length])
                client.socket.held = data[length:]
            if number == 7:
                with PiecesClient(address(broker), context).use() as faulty:
                    faulty.socket.send(b"\x17\x03\x03\x00\x20" + b"?" * 32)
            if number == 13:
                TLSClient(address(broker), context).use().close()
            other.call(1, "basic.qos", prefetch_count=number)
        for client, name in ((first, "a"), (second, "b")):
            client.socket.held = None
            client.call(1, "confirm.select")
            for body in bodies:
                message = other.get(1, name, no_ack=True)
                assert message is not None and message.body == body
            client.close()
        other.close()
    until("TLS with 127.0.0.1 failed after the handshake", broker)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_it_speaks_nothing_older_than_tls_1_2(make: Make, authority: Authority) -> None:
    broker = make()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = authority.client_context()
        context.minimum_version = context.maximum_version = version
        with TLSClient(address(broker), context).use() as client:
            assert client.socket.version() == version.name.replace("_", ".")
            assert client.socket.compression() is None
    context = authority.client_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        TLSClient(address(broker), context)


def test_it_can_be_told_to_speak_1_3_only(make: Make, authority: Authority) -> None:
    broker = make(tls_min_version="1.3")
    context = authority.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        TLSClient(address(broker), context)
    with TLSClient(address(broker), authority.client_context()).use() as client:
        client.close()


def test_it_refuses_to_renegotiate(make: Make) -> None:
    host, port = address(make())
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"{host}:{port}", "-tls1_2"],
        input=b"R\n",
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert b"RENEGOTIATING" in done.stderr + done.stdout
    assert b"no renegotiation" in done.stderr


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01", b"\x16"])
def test_a_handshake_that_does_not_end_is_dropped(make: Make, said: bytes) -> None:
    broker = make(tls_handshake_timeout="200 ms")
    assert hang_up(address(broker), said) == b""
    until("no TLS handshake", broker)


def test_who_says_nothing_after_the_handshake_is_dropped(make: Make, authority: Authority) -> None:
    broker = make(handshake_timeout="300 ms")
    client = TLSClient(address(broker), authority.client_context())
    with contextlib.suppress(OSError):
        assert client.socket.recv(10) == b""


@pytest.mark.parametrize("said", [b"AMQP\x00\x00\x09\x01", b"GET / HTTP/1.1\r\n\r\n", bytes(100)])
def test_what_is_no_tls_gets_an_alert_and_the_end(make: Make, said: bytes) -> None:
    broker = make()
    answer = hang_up(address(broker), said)
    assert not answer or answer[0] == 0x15
    until("TLS with 127.0.0.1 failed in the handshake", broker)


def test_it_ends_when_the_peer_says_goodbye(make: Make, authority: Authority) -> None:
    broker = make()
    client = TLSClient(address(broker), authority.client_context()).use()
    plain = client.socket.unwrap()
    assert plain.recv(10) == b""
    with TLSClient(address(broker), authority.client_context()).use() as other:
        other.close()


def test_a_consumer_that_does_not_read_holds_up_nobody(make: Make, authority: Authority) -> None:
    broker = make()
    context = authority.client_context()
    with (
        TLSClient(address(broker), context).use() as slow,
        TLSClient(address(broker), context).use() as other,
    ):
        slow.call(1, "queue.declare", queue="q")
        slow.call(1, "basic.consume", queue="q", no_ack=True, consumer_tag="t")
        for _ in range(200):
            other.publish(1, "", "q", bytes(100_000))
        other.fence(1)
        for _ in range(200):
            assert len(slow.expect_message("basic.deliver", 1).body) == 100_000
        slow.close()


def test_it_says_in_the_listings_what_is_spoken(make: Make, authority: Authority) -> None:
    from tests.amqp.test_permissions import ask

    broker = make()
    with TLSClient(address(broker), authority.client_context()).use():
        (row,) = ask(broker, "list", noun="connections")["items"]
    assert row["ssl"] is True
    assert row["ssl_protocol"] == "tlsv1.3"
    assert row["ssl_cipher"].startswith("TLS_")
    assert row["peer_cert_subject"] is None
    listeners = ask(broker, "overview")["listeners"]
    assert ("amqp/ssl", broker.addresses["amqps"][1]) in {
        (each["protocol"], each["port"]) for each in listeners
    }


# Certificates by name.


@pytest.fixture
def names(authority: Authority, tmp_path: Path) -> Path:
    """A directory with certificates for shop.example and every name below farm.example."""
    directory = tmp_path / "names"
    directory.mkdir()
    for name, file in (("shop.example", "shop.example"), ("*.farm.example", "_.farm.example")):
        made = authority.issue(f"made-{file}", subject=f"/CN={name}", san=f"DNS:{name}")
        (directory / f"{file}.pem").write_bytes(made.read_bytes())
    return directory


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("localhost", "server"),
        ("shop.example", "shop.example"),
        ("SHOP.example", "shop.example"),
        ("hen.farm.example", "*.farm.example"),
        ("red.hen.farm.example", "server"),
        ("other.example", "server"),
        ("", "server"),
    ],
)
def test_it_shows_the_certificate_of_the_name_that_is_asked_for(
    make: Make, authority: Authority, names: Path, asked: str, shown: str
) -> None:
    broker = make(tls_names_dir=names)
    context = authority.client_context()
    context.check_hostname = False
    with TLSClient(address(broker), context, asked or None) as client:  # type: ignore[arg-type]
        assert client.common_name() == shown


def test_it_takes_the_key_from_a_file_beside_the_certificate(
    make: Make, authority: Authority, names: Path
) -> None:
    file = names / "shop.example.pem"
    certificate, mark, key = file.read_text().partition("-----BEGIN PRIVATE KEY-----")
    file.write_text(certificate)
    file.with_suffix(".key").write_text(mark + key)
    broker = make(tls_names_dir=names)
    with TLSClient(address(broker), authority.client_context(), "shop.example") as client:
        assert client.common_name() == "shop.example"


# Reading again.


def test_new_connections_get_the_new_certificate_and_old_ones_stay(
    make: Make, authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "certificate.pem"
    file.write_bytes((authority.directory / "server.pem").read_bytes())
    broker = make(tls_cert_file=file)
    context = authority.client_context()
    with TLSClient(address(broker), context).use() as old:
        renewed = authority.issue("renewed", subject="/CN=renewed", san="DNS:localhost")
        file.write_bytes(renewed.read_bytes())
        broker.signal(signal.SIGHUP)
        until("certificates are read again", broker)
        with TLSClient(address(broker), context).use() as new:
            assert new.common_name() == "renewed"
            new.close()
        old.call(1, "queue.declare", queue="q")
        assert old.common_name() == "server"
        old.close()


def test_a_bad_certificate_leaves_the_old_one_in_use(
    make: Make, authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "certificate.pem"
    file.write_bytes((authority.directory / "server.pem").read_bytes())
    broker = make(tls_cert_file=file)
    file.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n")
    broker.signal(signal.SIGHUP)
    until("the old ones stay: cannot use the certificate", broker)
    with TLSClient(address(broker), authority.client_context()).use() as client:
        assert client.common_name() == "server"
        client.close()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tls_cert_file": "/nonexistent.pem"}, "cannot use the certificate /nonexistent.pem: No"),
        ({"tls_ciphers": "nonsense"}, "tls_ciphers: OpenSSL knows no cipher of 'nonsense'"),
        ({"tls_names_dir": "/nonexistent"}, "tls_names_dir /nonexistent is no directory"),
        (
            {"tls_verify": "required", "tls_ca_file": "/nonexistent.pem"},
            "cannot use the authorities /nonexistent.pem: No such file",
        ),
    ],
)
def test_it_does_not_start_with_what_it_cannot_use(
    make: Make, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(NotReadyError, match="ended with 78") as caught:
        make(**settings)
    assert told in str(caught.value)


def test_it_says_that_a_key_is_another_certificate_s(make: Make, authority: Authority) -> None:
    other = authority.issue("other-key")
    with pytest.raises(NotReadyError, match="the key is not this certificate's"):
        make(tls_key_file=other)


def test_without_a_certificate_nothing_listens_for_tls(make_broker: Make) -> None:
    assert "amqps" not in make_broker().addresses


# WebSocket over TLS.


def test_a_browser_speaks_amqp_over_wss(make: Make, authority: Authority) -> None:
    from tests.websocket.test_doors import Client

    broker = make(wss_port=-1)
    host, port = address(broker, "wss")
    with Client(f"wss://{host}:{port}/amqp", ssl=authority.client_context()).use() as client:
        client.call(1, "queue.declare", queue="q")
        client.publish(1, "", "q", b"x" * 100_000)
        message = client.get(1, "q", no_ack=True)
        assert message is not None and message.body == b"x" * 100_000
        client.close()


def test_a_name_that_is_no_name_ends_the_handshake_and_leaves_one_line(
    make: Make, authority: Authority
) -> None:
    broker = make(tls_names_dir=authority.directory)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = authority.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    bad = outgoing.read().replace(b"localhost", b"local\xff\n\xff\xff")
    answer = hang_up(address(broker), bad)
    assert answer[:1] == b"\x15", "an alert"
    until("TLS with 127.0.0.1 failed in the handshake", broker)
    assert "Traceback" not in broker.log() and "ignored in" not in broker.log()


def test_it_counts_sockets_back_after_failed_handshakes(make: Make, authority: Authority) -> None:
    broker = make(connections_max=5)
    for _ in range(20):
        hang_up(address(broker), b"nonsense" * 10)
    with TLSClient(address(broker), authority.client_context()).use() as client:
        client.close()


@pytest.mark.parametrize("carried", [0, 150_000])
def test_an_idle_connection_costs_at_most_48_kib(
    make: Make, authority: Authority, carried: int
) -> None:
    broker = make()
    context = authority.client_context()
    clients: list[TLSClient] = []

    def connect(count: int) -> int:
        """The broker's memory in bytes with so many more connections."""
        for _ in range(count):
            client = TLSClient(address(broker), context).use()
            clients.append(client)
            if carried:
                client.call(1, "queue.declare", queue="q")
                client.publish(1, "", "q", bytes(carried))
                assert client.get(1, "q", no_ack=True) is not None
        assert broker.process is not None
        text = Path(f"/proc/{broker.process.pid}/smaps_rollup").read_text()
        return sum(
            int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")
        )

    # The first ones take what the start has freed. A group shares pages with what comes and goes.
    sizes = [connect(count) for count in (300, 150, 150, 150, 150, 150)]
    for client in clients:
        client.cut()
    grown = statistics.median(after - before for before, after in pairwise(sizes))
    assert grown / 150 <= 48 * 1024
