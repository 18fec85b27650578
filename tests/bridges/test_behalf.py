"""A user who may log in from this machine only is out of reach of shovels that were written by
somebody elsewhere, though the process that runs them is on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.access import Access
from broker.access.behalf import counts_as_local, on_behalf_of
from broker.settings.files import SettingsFiles
from tests.appliance import Appliance
from tests.bridges.conftest import Bench, Pair
from tests.bridges.federated import downstream_of
from tests.control.disks import MemoryDisk

EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


@contextlib.asynccontextmanager
async def user_with(bench: Bench, *tags: str) -> AsyncIterator[str]:
    """A user who could log in from elsewhere, with all permissions."""
    user = f"{bench.shovel}-user"
    await bench.control.call("user.put", name=user, password="secret-of-it", tags=list(tags))
    await bench.control.call("permission.put", vhost="/", user=user, **EVERYTHING)
    yield user
    await bench.control.call("user.delete", name=user)


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", ""])
async def test_a_policymaker_does_not_become_guest(bench: Bench, host: str) -> None:
    uri = f"amqp://guest:guest@{host.format(port=bench.pair.broker.amqp_port)}"
    async with user_with(bench, "policymaker") as user:
        await bench.put(user=user, src_uri=uri, dest_queue=bench.target)
        row = await bench.until_state("error", "stopped")
        if host != "[::1]:{port}":  # which nothing may listen on
            assert "ACCESS_REFUSED" in row["reason"]
            assert "from this machine only" in row["reason"]
        steps = await bench.control.call(
            "shovel.test",
            as_user=user,
            vhost="/",
            name="new",
            value={"src-uri": uri, "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"},
        )
        failed = [step["step"] for step in steps if not step["is_fine"]]
        assert failed[0] in ("Source: login", "Source: connection")


async def test_an_administrator_reaches_guest_here_and_not_at_another_broker(
    bench: Bench, far: Appliance
) -> None:
    async with user_with(bench, "administrator") as user:
        here = f"amqp://guest:guest@127.0.0.1:{bench.pair.broker.amqp_port}"
        await bench.put(user=user, src_uri=here, dest_uri=here, dest_queue=bench.target)
        await bench.until_state("running")
        await bench.put(user=user, dest_uri=far.amqp_url, dest_queue=bench.target)
        row = await bench.until_state("error", "stopped")
        assert "ACCESS_REFUSED" in row["reason"]


async def test_who_is_on_this_machine_reaches_guest_of_another_broker(
    bench: Bench, far: Appliance
) -> None:
    for user in ("guest", None):
        await bench.put(user=user, dest_uri=far.amqp_url, dest_queue=bench.target)
        await bench.until_state("running")


async def test_a_link_of_a_policymaker_does_not_reach_guest(pair: Pair, far: Appliance) -> None:
    async with downstream_of(pair) as down:
        user = f"{down.name}-user"
        await down.control.call("user.put", name=user, password="p", tags=["policymaker"])
        await down.control.call("permission.put", vhost="/", user=user, **EVERYTHING)
        async with down.here.channel() as channel:
            await channel.call("exchange.declare", exchange=down.name, type="direct")
        await down.upstream(far.amqp_url, user=user)
        await down.policy()
        (row,) = await down.until(lambda rows: bool(rows) and "error" in rows[0])
        assert "ACCESS_REFUSED" in row["error"]
        await down.control.call("user.delete", name=user)


@pytest.mark.parametrize(
    ("told", "is_local"),
    [
        ({}, True),
        ({"on_behalf_of": {"standing": "local"}}, True),
        ({"on_behalf_of": {"standing": "administrator", "broker": "another"}}, False),
        ({"on_behalf_of": {"standing": "administrator"}}, False),
        ({"on_behalf_of": {"standing": "other"}}, False),
        ({"on_behalf_of": {}}, False),
        ({"on_behalf_of": "local"}, False),
        ({"on_behalf_of": None}, False),
    ],
)
def test_a_property_that_is_not_understood_takes_the_right_away(
    told: dict[str, Any], is_local: bool
) -> None:
    assert counts_as_local(told) is is_local


def test_an_owner_that_is_not_known_is_elsewhere() -> None:
    access = Access(SettingsFiles("/data", MemoryDisk()))
    for owner, standing in ((None, "other"), ("deleted", "other"), ("", "local")):
        assert on_behalf_of(access, owner)["standing"] == standing
