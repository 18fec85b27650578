"""The way of the other processes to the broker, where a test of a verb would not see it."""

from __future__ import annotations

import asyncio

import pytest

from management.broker_client import BrokerClient
from tests.conftest import Make


async def test_a_call_is_cancelled_also_while_the_connection_is_made(make_broker: Make) -> None:
    """A process that is stopped as soon as it has started would else never end."""
    client = BrokerClient(make_broker().control_socket)
    call = asyncio.create_task(client.call("bridges.follow", version=-1, wait_s=60))
    await asyncio.sleep(0)
    await client._connected.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await client.close()
