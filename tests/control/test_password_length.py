"""The setting password_length_min: new passwords that are too short are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from management.broker_client import BrokerClient, BrokerError
from tests.appliance import Appliance
from tests.control.test_real_broker import control

REFUSAL = "the password has fewer than 12 characters (password_length_min)"


async def _refused(client: BrokerClient, verb: str, **args: Any) -> str:
    with pytest.raises(BrokerError) as caught:
        await client.call(verb, **args)
    assert caught.value.status == 400
    return caught.value.reason


async def test_a_new_password_needs_as_many_characters_as_the_setting_says(
    make_broker: Callable[..., Appliance],
) -> None:
    async with control(make_broker(password_length_min=12)) as client:
        short, long = "äöüäöüäöüäö", "äöüäöüäöüäöü"
        assert REFUSAL in await _refused(client, "user.put", name="a", tags="", password=short)
        users = [{"name": "a", "tags": [], "password": short}]
        assert REFUSAL in await _refused(client, "definitions.import", definitions={"users": users})
        rows = (await client.call("list", noun="users"))["items"]
        assert [row["name"] for row in rows] == ["guest"]
        await client.call("user.put", name="a", tags="", password=long)
        # What was set before stays valid, and a hash cannot be checked.
        await client.call("authenticate", user="guest", password="guest", peer="127.0.0.1")
        digest = (await client.call("item", noun="users", name="a"))["password_hash"]
        await client.call(
            "user.put", name="b", tags="", password_hash=digest, hashing_algorithm="argon2id"
        )
