"""*Test connection* of shovels and upstreams: at which step it fails; nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from management.broker_client import BrokerClient, BrokerError
from tests.appliance import Appliance
from tests.bridges.conftest import Bench
from tests.client.test_faults import server


@pytest.fixture
async def above(far: Appliance) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(far.control_socket)
    yield client
    await client.close()


async def tried(bench: Bench, kind: str, uri: Any, **keys: Any) -> list[tuple[str, bool, str]]:
    """The steps for a definition with this URI, without the source of a shovel."""
    named = {"as_user": "guest", "vhost": "/", "name": "new"}
    value = {"uri": uri, **keys}
    if kind == "shovel":
        given = {f"dest-{key}": item for key, item in keys.items()}
        value = {"src-uri": "amqp://", "src-queue": bench.queue, "dest-uri": uri, **given}
    verb = "shovel.test" if kind == "shovel" else "federation.test"
    steps = await bench.control.call(verb, **named, value=value)
    rows = [(step["step"], step["is_fine"], step["text"]) for step in steps]
    return [row for row in rows if not row[0].startswith("Source")]


def uri_of(far: Appliance, login: str = "guest:guest", vhost: str = "") -> str:
    return f"amqp://{login}@{far.host}:{far.amqp_port}{vhost}"


@pytest.mark.parametrize("kind", ["shovel", "upstream"])
@pytest.mark.parametrize(
    ("uri", "step", "text"),
    [
        ("amqp://no-such-host.invalid", "name", "cannot be resolved"),
        ("amqp://169.254.169.254", "address", "metadata or link-local"),
        ("amqp://127.0.0.1:1", "connection", "Connection refused"),
        ("amqps://guest:guest@{host}:{port}", "TLS", "does not speak TLS"),
        ("amqp://guest:wrong-s3cret@{host}:{port}", "login", "ACCESS_REFUSED"),
        ("amqp://guest:guest@{host}:{port}/none", "virtual host", "none"),
    ],
)
async def test_it_says_which_step_of_connecting_fails(
    bench: Bench, far: Appliance, kind: str, uri: str, step: str, text: str
) -> None:
    rows = await tried(bench, kind, uri.format(host=far.host, port=far.amqp_port))
    what = "Destination" if kind == "shovel" else "Upstream"
    assert rows[-1][:2] == (f"{what}: {step}", False)
    assert text in rows[-1][2]
    assert all(is_fine for _, is_fine, _ in rows[:-1])
    assert "s3cret" not in str(rows)


async def test_it_says_what_there_is_and_declares_nothing(
    bench: Bench, far: Appliance, above: BrokerClient
) -> None:
    uri = uri_of(far)
    rows = await tried(bench, "upstream", uri, queue=bench.target, exchange="amq.topic")
    assert [row[:2] for row in rows] == [
        ("Upstream: address", True),
        ("Upstream: connection", True),
        ("Upstream: queue", True),
        ("Upstream: exchange", True),
    ]
    assert rows[2][2] == f"queue '{bench.target}' is not there; it will be declared"
    assert rows[3][2] == "exchange 'amq.topic' is there"
    with pytest.raises(BrokerError):
        await above.call("item", noun="queues", vhost="/", name=bench.target)
    (row,) = [
        row
        for row in await tried(bench, "shovel", uri, exchange=bench.target)
        if row[0] == "Destination: exchange"
    ]
    assert row[1] is False, "a shovel declares no exchange"


async def test_each_of_several_uris_is_tried(bench: Bench, far: Appliance) -> None:
    rows = await tried(bench, "upstream", ["amqp://127.0.0.1:1", uri_of(far)])
    assert [row[1] for row in rows if row[0] == "Upstream: connection"] == [False, True]


async def test_the_stored_password_is_used_where_stars_are_given(
    bench: Bench, far: Appliance
) -> None:
    named = {"component": "federation-upstream", "vhost": "/", "name": "new"}
    value = {"uri": uri_of(far)}
    await bench.control.call("parameter.put", as_user="guest", **named, value=value)
    try:
        rows = await tried(bench, "upstream", uri_of(far, "guest:***"))
        assert rows[-1][:2] == ("Upstream: connection", True)
    finally:
        await bench.control.call("parameter.delete", **named)
    with pytest.raises(BrokerError, match="none is stored"):
        await tried(bench, "upstream", uri_of(far, "guest:***"))


async def test_many_trials_of_a_peer_that_says_nothing_hold_up_no_others(
    bench: Bench, far: Appliance
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with server(silent) as endpoint:
        uri = f"amqp://guest:guest@127.0.0.1:{endpoint.port}/?connection_timeout=1000"
        slow = [asyncio.create_task(tried(bench, "upstream", uri)) for _ in range(12)]
        rows = await tried(bench, "shovel", uri_of(far))
        assert rows[-1][1] is True
        for found in await asyncio.gather(*slow):
            assert "no login within 1 seconds" in found[-1][2]
