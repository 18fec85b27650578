"""Shovels and links over TLS, and https: whom they believe, and what they say of others."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from broker.client.aio import Connection, connect
from tests.appliance import Appliance
from tests.bridges.conftest import Bench, Pair, bench_of, endpoint_of, taken
from tests.bridges.federated import bind, declare_exchange, downstream_of, until_routed
from tests.bridges.test_web import Site
from tests.listeners.certificates import Authority

NAMES = {"expired": -1, "server": 30}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority(tmp_path_factory.mktemp("ours"))
    for name, days in NAMES.items():
        san = "DNS:localhost,IP:127.0.0.1"
        authority.issue(name, subject="/CN=server", san=san, days=days)
    authority.issue("named", subject="/CN=named", san="DNS:broker.example")
    authority.issue("shovel", subject="/CN=shovel")
    return authority


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority(tmp_path_factory.mktemp("other"), "Another Authority")
    authority.issue("shovel", subject="/CN=shovel")
    return authority


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, other: Authority
) -> Iterator[Pair]:
    named = {
        "ours": authority.file,
        "other": other.file,
        "shovel": authority.directory / "shovel.pem",
        "stranger": other.directory / "shovel.pem",
    }
    certificates = ",".join(f"{name}={path}" for name, path in named.items())
    pair = Pair(tmp_path_factory.mktemp("here"), bridges_certificates=certificates).start()
    yield pair
    pair.close()


@pytest.fixture(scope="module")
def far(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[dict[str, Appliance]]:
    """Brokers with certificates of all kinds; one of them wants one of its clients."""
    found: dict[str, Appliance] = {}
    for name in ("server", "expired", "named", "strict"):
        settings: dict[str, Any] = {"amqps_port": 0}
        file = authority.directory / f"{'server' if name == 'strict' else name}.pem"
        if name == "strict":
            settings |= {"tls_ca_file": authority.file, "tls_verify": "required"}
        broker = Appliance("broker", tmp_path_factory.mktemp(name), tls_cert_file=file, **settings)
        found[name] = broker.start()
    yield found
    for broker in found.values():
        broker.close()


@pytest.fixture
async def bench(pair: Pair) -> AsyncIterator[Bench]:
    async with bench_of(pair) as bench:
        yield bench


@pytest.fixture
async def there(far: dict[str, Appliance]) -> AsyncIterator[dict[str, Connection]]:
    found = {name: await connect(endpoint_of(broker)) for name, broker in far.items()}
    yield found
    for connection in found.values():
        await connection.close()


def uri_of(broker: Appliance, query: str, host: str = "127.0.0.1") -> str:
    return f"amqps://guest:guest@{host}:{broker.addresses['amqps'][1]}/?{query}"


FINE = [
    ("server", "cacertfile=ours"),
    ("server", "verify=verify_none"),
    ("expired", "verify=verify_none"),
    ("named", "cacertfile=ours&server_name_indication=broker.example"),
    ("named", "cacertfile=ours&server_name_indication=disable"),
    ("strict", "cacertfile=ours&certfile=shovel&keyfile=shovel"),
]
REFUSED = [
    ("server", "", "the server's certificate is not accepted: unable to get local issuer"),
    ("server", "cacertfile=other", "name the certificate of its authority with cacertfile"),
    ("expired", "cacertfile=ours", "certificate has expired"),
    ("named", "cacertfile=ours", "not valid for '127.0.0.1'"),
    ("named", "cacertfile=other&server_name_indication=disable", "is not accepted"),
    ("server", "cacertfile=ours&server_name_indication=else.example", "not valid for 'else"),
    ("strict", "cacertfile=ours", "the server wants a client certificate"),
    (
        "strict",
        "cacertfile=ours&certfile=stranger&keyfile=stranger",
        "the server does not accept the client certificate",
    ),
    ("server", "cacertfile=shovel&certfile=ours", "a certificate cannot be used"),
]


@pytest.mark.parametrize(("name", "query"), FINE)
async def test_a_shovel_publishes_to_a_broker_whose_certificate_it_believes(
    bench: Bench,
    far: dict[str, Appliance],
    there: dict[str, Connection],
    name: str,
    query: str,
) -> None:
    bodies = await bench.publish(3)
    await bench.put(dest_uri=uri_of(far[name], query), dest_queue=bench.target)
    found = await taken(there[name], bench.target, 3)
    assert [message.body for message in found] == bodies


@pytest.mark.parametrize(("name", "query", "text"), REFUSED)
async def test_a_shovel_says_why_it_does_not_believe_a_broker(
    bench: Bench, far: dict[str, Appliance], name: str, query: str, text: str
) -> None:
    uri = uri_of(far[name], query)
    await bench.publish(1)
    await bench.put(dest_uri=uri, dest_queue=bench.target)
    row = await bench.until_state("error")
    assert text in row["reason"]
    assert row["message_count"] == 0
    value = {"src-uri": "amqp://", "src-queue": bench.queue, "dest-uri": uri, "dest-queue": "q"}
    named = {"vhost": "/", "name": "new", "value": value}
    steps = await bench.control.call("shovel.test", as_user="guest", **named)
    assert (steps[-1]["step"], steps[-1]["is_fine"]) == ("Destination: TLS", False)
    assert text in steps[-1]["text"]


@pytest.mark.parametrize(("name", "query"), FINE)
async def test_a_link_takes_messages_from_an_upstream_whose_certificate_it_believes(
    pair: Pair, far: dict[str, Appliance], there: dict[str, Connection], name: str, query: str
) -> None:
    async with downstream_of(pair) as down:
        await declare_exchange(down.here, down.name)
        await bind(down.here, down.name, down.name, "k")
        await down.upstream(uri_of(far[name], query))
        await down.policy()
        row = await down.until_running()
        assert row["uri"].startswith("amqps://127.0.0.1:")
        await until_routed(there[name], down.name, "k", b"over TLS")
        assert (await taken(down.here, down.name, 1))[0].body == b"over TLS"


@pytest.mark.parametrize(("name", "query", "text"), REFUSED)
async def test_a_link_says_why_it_does_not_believe_an_upstream(
    pair: Pair, far: dict[str, Appliance], name: str, query: str, text: str
) -> None:
    uri = uri_of(far[name], query)
    async with downstream_of(pair) as down:
        await declare_exchange(down.here, down.name)
        await down.upstream(uri)
        await down.policy()
        (row,) = await down.until_state("error")
        assert text in row["error"]
        named = {"vhost": "/", "name": "new", "value": {"uri": uri}}
        steps = await down.control.call("federation.test", as_user="guest", **named)
        assert [step["step"] for step in steps] == ["Upstream: address", "Upstream: TLS"]
        assert text in steps[-1]["text"]


async def test_a_port_without_tls_is_said(bench: Bench, far: dict[str, Appliance]) -> None:
    uri = f"amqps://guest:guest@127.0.0.1:{far['server'].amqp_port}/?cacertfile=ours"
    await bench.put(dest_uri=uri, dest_queue=bench.target)
    row = await bench.until_state("error")
    assert "the server does not speak TLS at this port" in row["reason"]


@pytest.mark.parametrize(
    ("certificate", "authority_name", "text"),
    [
        ("server", "ours", ""),
        ("server", "other", "unable to get local issuer certificate"),
        ("server", None, "unable to get local issuer certificate"),
        ("expired", "ours", "certificate has expired"),
        ("named", "ours", "not valid for '127.0.0.1'"),
    ],
)
async def test_https_goes_to_a_server_whose_certificate_is_believed(
    bench: Bench, authority: Authority, certificate: str, authority_name: str | None, text: str
) -> None:
    site = Site()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.directory / f"{certificate}.pem")
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0, ssl=context)
    uri = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    bodies = await bench.publish(2)
    try:
        await bench.put(dest_uri=uri, dest_cacertfile=authority_name)
        if text:
            row = await bench.until_state("blocked")
            assert text in row["reason"]
            assert site.asked == []
        else:
            await bench.until(lambda row: row["message_count"] == 2)
            assert [asked.body for asked in site.asked] == bodies
        given = {} if authority_name is None else {"dest-cacertfile": authority_name}
        value = {"src-uri": "amqp://", "src-queue": bench.queue, "dest-uri": uri, **given}
        named = {"vhost": "/", "name": "new", "value": value}
        steps = await bench.control.call("shovel.test", as_user="guest", **named)
        step = "Destination: TLS" if text else "Destination: connection"
        assert (steps[-1]["step"], steps[-1]["is_fine"]) == (step, not text)
        assert text in steps[-1]["text"]
    finally:
        server.close()
