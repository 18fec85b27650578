"""What consumers hold, in a long list: other requests are served while it is made."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from broker.server.control.consumer_verbs import _gather

ROWS = 5_000


class Deliveries:
    """Very many, as the control socket sees them."""

    def holders(self) -> list[Any]:
        return []

    def unacked_of(self, queues: Any, since: int, count: int, looks: int) -> tuple[list[Any], int]:
        return [(tag, "tag", 0, 1, False) for tag in range(1, ROWS + 1)], 0


class Channel:
    """The channel that holds them."""

    number = 1
    deliveries = Deliveries()
    ack_timeouts = None
    connection = SimpleNamespace(
        name="c",
        client_properties={},
        user_provided_name="",
        peer=("::1", 1),
        user=SimpleNamespace(name="u"),
    )


class Queue:
    type = "classic"
    name = "q"


async def test_other_requests_are_served_while_a_long_list_is_made() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    rows: list[dict[str, Any]] = []
    assert await _gather(Channel(), Queue(), ROWS, rows, "node")
    task.cancel()
    assert len(rows) == ROWS
    assert turns > 2
