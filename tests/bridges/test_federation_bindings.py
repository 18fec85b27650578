"""Bindings that an upstream does not take, and internal exchanges of attempts that failed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.client.aio import Connection
from management.bridges.federation_bindings import next_suffix
from management.broker_client import BrokerClient
from tests.appliance import Appliance
from tests.bridges.conftest import Pair
from tests.bridges.federated import (
    Downstream,
    bind,
    declare_exchange,
    downstream_of,
    unbind,
    until_not_routed,
    until_routed,
)

LONG = {"pad": "x" * 130_950}
"""A client may send them here; what a link adds makes them longer than a frame."""


@pytest.fixture
async def down(pair: Pair) -> AsyncIterator[Downstream]:
    async with downstream_of(pair) as found:
        await declare_exchange(found.here, found.name)
        yield found


@pytest.fixture
async def above(far: Appliance) -> AsyncIterator[BrokerClient]:
    """What the other broker says of itself."""
    client = BrokerClient(far.control_socket)
    yield client
    await client.close()


def left_out(down: Downstream) -> list[str]:
    """What the log says of this test's exchange."""
    lines = down.pair.bridges.log().splitlines()
    return [line for line in lines if "is left out" in line and f"'{down.name}'" in line]


@pytest.mark.parametrize("nowait", [False, True])
async def test_a_binding_with_long_arguments_is_left_out_and_the_others_follow(
    down: Downstream, far: Appliance, there: Connection, nowait: bool
) -> None:
    name = down.name
    await bind(down.here, name, name, "first")
    async with down.here.channel() as channel:
        given: dict[str, Any] = {"queue": name, "exchange": name, "routing_key": "long"}
        await channel.call("queue.bind", **given, arguments=LONG)
        await down.upstream(far.amqp_url, bind_nowait=nowait)
        await down.policy()
        await down.until_running()
        await until_routed(there, name, "first", b"x")
        await channel.call("queue.unbind", **given, arguments=LONG)
        await channel.call("queue.bind", **given)
    await until_routed(there, name, "long", b"x")
    assert (await down.until_running())["counts"]["connects"] == 1
    (line,) = left_out(down)
    assert "with the key 'long' is left out: exchange.bind of 131" in line


async def test_a_binding_that_the_upstream_refuses_is_left_out_and_the_others_follow(
    down: Downstream, far: Appliance, there: Connection
) -> None:
    """What kind of exchange the upstream has is not a matter of the one here."""
    name = down.name
    await declare_exchange(there, name, "x-consistent-hash")
    for key in ("no number", "1", "none either"):
        await bind(down.here, name, name, key)
    await down.upstream(far.amqp_url)
    await down.policy()
    await until_routed(there, name, "any", b"x")
    await unbind(down.here, name, name, "1")
    await until_not_routed(there, name, "any")
    await unbind(down.here, name, name, "no number")
    await bind(down.here, name, name, "2")
    await until_routed(there, name, "any", b"x")
    assert (await down.until_running())["counts"]["connects"] == 1
    lines = left_out(down)
    assert len(lines) == 2
    assert "must be an integer" in lines[0]


async def test_a_refusal_ends_a_channel_that_messages_share_and_so_the_attempt(
    down: Downstream, far: Appliance, there: Connection
) -> None:
    await declare_exchange(there, down.name, "x-consistent-hash")
    await bind(down.here, down.name, down.name, "no number")
    await down.upstream(far.amqp_url, channel_use_mode="single")
    await down.policy()
    (row,) = await down.until_state("error")
    assert "must be an integer" in row["reason"]


async def test_bindings_of_attempts_that_failed_do_not_come_back(
    down: Downstream, far: Appliance, there: Connection, above: BrokerClient
) -> None:
    name = down.name
    named: dict[str, Any] = {"user": name, "vhost": "/"}
    everything: dict[str, Any] = {"configure": ".*", "write": ".*", "read": ".*"}
    await above.call("user.put", name=name, password="p", tags=[])
    await above.call("permission.put", **named, **everything)
    for key in ("stays", "goes"):
        await bind(down.here, name, name, key)
    await down.upstream(f"amqp://{name}:p@{far.host}:{far.amqp_port}")
    await down.policy()
    await down.until_running()
    for key in ("stays", "goes"):
        await until_routed(there, name, key, b"x")
    # Without this permission everything can be declared, and nothing bound to the exchange.
    await above.call("permission.put", **named, **{**everything, "read": "federation:.*"})
    (row,) = await down.links()
    await down.control.call("federation.restart", vhost="/", id=row["id"])

    def failures(rows: list[dict[str, Any]]) -> int:
        return sum(each["state"] == "error" for each in rows[0]["history"])

    await down.until(lambda rows: failures(rows) >= 1)
    await unbind(down.here, name, name, "goes")
    await down.until(lambda rows: failures(rows) >= 4)
    await above.call("permission.put", **named, **everything)
    await down.until_running()
    await until_routed(there, name, "stays", b"x")
    await until_not_routed(there, name, "goes")


def test_the_internal_exchange_in_use_is_never_the_one_that_is_begun_anew() -> None:
    assert next_suffix([]) == "A"
    for used in "ABC":
        begun = next_suffix([used])
        assert begun != used
        # Attempts that end before it is filled leave both.
        assert next_suffix(sorted([used, begun])) == begun
    assert next_suffix(["A", "B", "C"]) == "C"
