"""Which queues are histories."""

from __future__ import annotations

from typing import Any

import pytest

from broker.server.app import Broker
from frontend import history
from management.broker_client import BrokerClient
from tests import inside


async def test_a_queue_whose_name_differs_in_case_only_is_no_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with inside.in_memory() as directory:
        async with inside.running(directory) as broker:
            found = await histories(broker, monkeypatch)
    assert found == []


async def histories(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    client = BrokerClient(broker.config.control_socket)

    async def ask(_request: Any, verb: str, **arguments: Any) -> Any:
        return await client.call(verb, as_user="guest", **arguments)

    monkeypatch.setattr(history, "ask", ask)
    try:
        await ask(None, "queue.declare", vhost="/", name="AMQ.History", durable=True)
        return await history.histories(None)  # type: ignore[arg-type]
    finally:
        await client.close()
