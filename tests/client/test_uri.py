"""URIs of endpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.uri import TLS, BadURI, Endpoint, parse


@pytest.mark.parametrize(
    ("uri", "endpoint"),
    [
        ("amqp://", Endpoint()),
        ("amqp://far", Endpoint(host="far")),
        ("amqp://far:1234/", Endpoint(host="far", port=1234)),
        (
            "amqp://a%40b:p%2Fw@[::1]/v%2Fw",
            Endpoint(host="::1", user="a@b", password="p/w", vhost="v/w"),
        ),
        ("amqp://far/%2F", Endpoint(host="far", vhost="/")),
        ("amqps://far", Endpoint(host="far", port=5671, tls=TLS())),
        (
            "amqps://far?verify=verify_none&cacertfile=/ca.pem&server_name_indication=n",
            Endpoint(host="far", port=5671, tls=TLS(False, Path("/ca.pem"), None, None, "n")),
        ),
        (
            "amqps://far?server_name_indication=disable",
            Endpoint(host="far", port=5671, tls=TLS(server_name="")),
        ),
        (
            "amqp://far?heartbeat=5&frame_max=4096&channel_max=7&connection_timeout=1500"
            "&auth_mechanism=external",
            Endpoint(
                host="far",
                heartbeat=5,
                frame_max=4096,
                channel_max=7,
                connect_timeout=1.5,
                mechanism="EXTERNAL",
            ),
        ),
        ("amqp+unix:///run/l.sock?vhost=v", Endpoint(path="/run/l.sock", vhost="v")),
    ],
)
def test_it_reads(uri: str, endpoint: Endpoint) -> None:
    assert parse(uri) == endpoint


@pytest.mark.parametrize(
    ("query", "name"),
    [("", "far"), ("?server_name_indication=n", "n"), ("?server_name_indication=disable", "")],
)
def test_it_asks_for_the_name_that_the_uri_says(query: str, name: str) -> None:
    assert parse(f"amqps://far{query}").server_name == name


@pytest.mark.parametrize(
    "uri",
    [
        "http://far",
        "far:5672",
        "amqp://user:secret@far:port",
        "amqp://user:secret@far?heartbeat=-1",
        "amqp://user:secret@far?heartbeat=soon",
        "amqp://user:secret@far?colour=red",
        "amqp://user:secret@far?cacertfile=/ca.pem",
        "amqps://user:secret@far?verify=maybe",
        "amqp://user:secret@far?auth_mechanism=scram",
        "amqp+unix://",
    ],
)
def test_it_refuses_without_telling_the_password(uri: str) -> None:
    with pytest.raises(BadURI) as caught:
        parse(uri)
    assert "secret" not in str(caught.value)


def test_it_shows_no_password() -> None:
    endpoint = parse("amqps://user:secret@far:1/v")
    assert "secret" not in repr(endpoint)
    assert endpoint.shown == "amqps://far:1"
