"""Clients that show a certificate, and log in by it (mechanism EXTERNAL)."""

from __future__ import annotations

import contextlib
import signal
import ssl
from pathlib import Path
from typing import Any

import pytest

from broker.serving.certificates import distinguished_name, login_name
from tests.amqp import raw
from tests.amqp.test_permissions import ALL, ask
from tests.appliance import Appliance
from tests.conftest import Make
from tests.listeners.certificates import Authority
from tests.listeners.conftest import TLSClient
from tests.listeners.test_tls import address, until


@pytest.fixture
def make(make_broker: Make, authority: Authority) -> Make:
    """Starts a broker that asks clients for certificates."""

    def make(**settings: Any) -> Appliance:
        given = {
            "tls_cert_file": authority.directory / "server.pem",
            "tls_ca_file": authority.file,
            "tls_verify": "required",
            "amqps_port": 0,
            **settings,
        }
        return make_broker(**given)

    return make


@pytest.fixture(scope="module")
def till(authority: Authority) -> Path:
    """A client's certificate."""
    return authority.issue("till", subject="/O=Shop/CN=till", san="DNS:till.shop,email:till@shop")


def connect(broker: Appliance, authority: Authority, certificate: Path | None) -> TLSClient:
    return TLSClient(address(broker), authority.client_context(certificate))


def is_shut_out(broker: Appliance, authority: Authority, certificate: Path | None) -> None:
    """The handshake fails; with TLS 1.3 the client learns it only when it reads."""
    with (
        pytest.raises((ssl.SSLError, ConnectionError, raw.ConnectionEndedError)),
        contextlib.closing(connect(broker, authority, certificate).socket) as peer,
    ):
        peer.sendall(raw.PROTOCOL_HEADER)
        if not peer.recv(10):
            raise ConnectionError


def mechanisms(client: raw.Client) -> list[bytes]:
    client.send(raw.PROTOCOL_HEADER)
    return list(client.expect("connection.start", 0).mechanisms.split())


def enter(client: TLSClient, **more: Any) -> TLSClient:
    """Logs in with EXTERNAL."""
    return client.use(mechanism="EXTERNAL", response=b"", **more)


def make_user(broker: Appliance, name: str) -> None:
    """A user without a password."""
    ask(broker, "user.put", name=name, password_hash="", tags="")
    ask(broker, "permission.put", vhost="/", user=name, **ALL)


def test_who_shows_no_certificate_does_not_get_in_where_one_is_required(
    make: Make, authority: Authority, tmp_path: Path
) -> None:
    broker = make()
    stranger = Authority(tmp_path / "stranger").issue("stranger")
    for certificate in (None, stranger):
        is_shut_out(broker, authority, certificate)
    until("TLS with 127.0.0.1 failed in the handshake", broker)


@pytest.mark.parametrize(
    ("source", "san", "name"),
    [
        ("distinguished_name", "dns", "CN=till,O=Shop"),
        ("common_name", "dns", "till"),
        ("subject_alternative_name", "dns", "till.shop"),
        ("subject_alternative_name", "email", "till@shop"),
    ],
)
def test_the_certificate_names_the_user(
    make: Make, authority: Authority, till: Path, source: str, san: str, name: str
) -> None:
    broker = make(tls_login_from=source, tls_login_san=san)
    make_user(broker, name)
    with enter(connect(broker, authority, till)) as client:
        (row,) = ask(broker, "list", noun="connections")["items"]
        assert (row["user"], row["auth_mechanism"]) == (name, "EXTERNAL")
        assert row["peer_cert_subject"] == "CN=till,O=Shop"
        assert row["peer_cert_issuer"] == "CN=Test Authority"
        assert " - " in row["peer_cert_validity"]
        client.call(1, "queue.declare", queue="q")
        client.close()


def test_it_offers_external_only_where_a_certificate_would_log_in(
    make: Make, authority: Authority, till: Path
) -> None:
    broker = make(tls_verify="optional", tls_login_from="common_name")
    with connect(broker, authority, None) as client:
        assert mechanisms(client) == [b"PLAIN", b"AMQPLAIN"]
    with connect(broker, authority, till) as client:
        assert mechanisms(client) == [b"PLAIN", b"AMQPLAIN"]
    make_user(broker, "till")
    with connect(broker, authority, till) as client:
        assert mechanisms(client) == [b"PLAIN", b"AMQPLAIN", b"EXTERNAL"]
    with raw.Client((broker.host, broker.amqp_port)) as client:
        assert mechanisms(client) == [b"PLAIN", b"AMQPLAIN"]
    listed = ask(broker, "nodes")[0]["auth_mechanisms"]
    assert [each["name"] for each in listed] == ["PLAIN", "AMQPLAIN", "EXTERNAL"]


def test_plain_works_beside_it(make: Make, authority: Authority, till: Path) -> None:
    with connect(make(), authority, till).use() as client:
        client.close()


def refuse(client: TLSClient) -> None:
    """The login must be refused as with a wrong password."""
    client.send(raw.PROTOCOL_HEADER)
    client.expect("connection.start", 0)
    client.send(raw.start_ok("EXTERNAL", b"", client_properties={"capabilities": raw.CAPABILITIES}))
    client.expect_connection_close(
        403, 0, 0, "ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL"
    )


def test_a_certificate_of_nobody_is_refused(make: Make, authority: Authority, till: Path) -> None:
    broker = make(tls_login_from="common_name")
    with connect(broker, authority, till) as client:
        refuse(client)
    until("the client's certificate names no user", broker)
    make_user(broker, "till")
    with enter(connect(broker, authority, till)) as client:
        client.close()


def test_no_certificate_is_nobody_s(make: Make, authority: Authority) -> None:
    broker = make(tls_verify="optional", tls_login_from="common_name")
    with connect(broker, authority, None) as client:
        refuse(client)


def test_a_refused_client_that_announced_nothing_is_told_nothing(
    make: Make, authority: Authority, till: Path
) -> None:
    broker = make()
    with connect(broker, authority, till) as client:
        client.send(raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)
        client.send(raw.start_ok("EXTERNAL", b"", client_properties={}))
        with contextlib.suppress(raw.ConnectionEndedError, OSError):
            client.expect_end()


def test_external_on_a_listener_without_tls_is_an_unknown_mechanism(make: Make) -> None:
    broker = make()
    with raw.Client((broker.host, broker.amqp_port)) as client:
        client.send(raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)
        client.send(
            raw.start_ok("EXTERNAL", b"guest", client_properties={"capabilities": raw.CAPABILITIES})
        )
        client.expect_end()


def test_a_whole_session_in_one_packet_is_taken_after_external(
    make: Make, authority: Authority, till: Path
) -> None:
    broker = make(tls_login_from="common_name")
    make_user(broker, "till")
    with connect(broker, authority, till) as client:
        client.send(
            raw.PROTOCOL_HEADER
            + raw.method(0, "connection.start-ok", mechanism="EXTERNAL", locale="en_US")
            + raw.method(0, "connection.tune-ok", channel_max=9, frame_max=131072, heartbeat=0)
            + raw.method(0, "connection.open", virtual_host="/")
            + raw.method(1, "channel.open")
        )
        for due in ("connection.start", "connection.tune", "connection.open-ok", "channel.open-ok"):
            client.expect(due)


def test_an_authority_that_is_taken_away_counts_for_new_connections(
    make: Make, authority: Authority, till: Path, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.file.read_bytes())
    broker = make(tls_ca_file=ca, tls_login_from="common_name")
    make_user(broker, "till")
    with enter(connect(broker, authority, till)) as old:
        ca.write_bytes(Authority(tmp_path / "newer").file.read_bytes())
        broker.signal(signal.SIGHUP)
        until("certificates are read again", broker)
        with pytest.raises((ssl.SSLError, ConnectionError, raw.ConnectionEndedError)):
            mechanisms(connect(broker, authority, till))
        old.fence(1)


SUBJECT = (
    (("countryName", "SE"),),
    (("organizationName", "Eggs, Hens & Co"),),
    (("commonName", "#1 hen "), ("userId", "a+b")),
    (("commonName", "second\\"),),
)


def test_it_writes_distinguished_names_as_rfc_4514_does() -> None:
    assert (
        distinguished_name(SUBJECT) == r"CN=second\\,CN=\#1 hen\ +UID=a\+b,O=Eggs\, Hens & Co,C=SE"
    )


def test_it_joins_several_common_names() -> None:
    assert login_name({"subject": SUBJECT}, "common_name", "dns") == "#1 hen ,second\\"


def test_a_certificate_that_names_none_of_the_kind_is_nobody_s() -> None:
    certificate = {"subject": ((("organizationName", "Shop"),),), "subjectAltName": ()}
    assert login_name(certificate, "common_name", "dns") == ""
    assert login_name(certificate, "subject_alternative_name", "ip") == ""
    certificate["subjectAltName"] = (("DNS", "a"), ("IP Address", "10.0.0.1"), ("URI", "urn:x"))
    assert login_name(certificate, "subject_alternative_name", "ip") == "10.0.0.1"
    assert login_name(certificate, "subject_alternative_name", "uri") == "urn:x"
