"""What is exported for a broker comes back as it went out: into another Leveret, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from management.broker_client import BrokerClient
from tests.appliance import Appliance
from tests.control.test_real_broker import control
from tests.definitions.conftest import FIXTURES
from tests.definitions.test_rabbitmq import MORE, every_policy_key

ORDERLESS = ("users", "vhosts", "permissions", "topic_permissions", "global_parameters",
             "parameters", "policies", "queues", "exchanges", "bindings")  # fmt: skip


def rows(document: Any) -> dict[str, list[str]]:
    """The rows of each section, whatever their order."""
    return {name: sorted(map(repr, document.get(name, []))) for name in ORDERLESS}


@pytest.mark.parametrize("target", [None, "rabbitmq", "rabbitmq-3", "rabbitmq-4", "lavinmq"])
async def test_an_export_for_a_broker_comes_in_whole_and_goes_out_alike(
    client: BrokerClient, make_broker: Callable[..., Appliance], target: str | None
) -> None:
    for name in ("rabbitmq-3.10.8.json", "lavinmq-2.9.json"):
        file = FIXTURES / name
        if file.exists():
            await client.call("definitions.import", definitions=file.read_bytes())
    more = {**MORE, "policies": [*MORE["policies"], *every_policy_key()]}
    await client.call("definitions.import", definitions=more)
    asked = {"target": target, "secrets": True}
    went_out = await client.call("definitions.export", **asked)
    async with control(make_broker()) as other:
        # What the other one has from its start is no part of what came.
        await other.call("user.delete", name="guest")
        await other.call("vhost.delete", name="/")
        answer = await other.call("definitions.import", definitions=went_out)
        assert answer["left_out"] == []
        came_back = await other.call("definitions.export", **asked)
    before, after = rows(went_out), rows(came_back)
    for section in ORDERLESS:
        assert set(before[section]) == set(after[section]), section
    assert sum(map(len, before.values())) > 60
