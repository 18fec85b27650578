"""Takes messages from the head of a queue for a person to look at."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.wire.properties import decode

BYTES_MAX = 128 * 1024 * 1024
"""Bodies are gathered until they are this long together; then no further message is taken."""


class _Getter:
    """One get under way; `answer` is the message, or None if the queue was empty."""

    no_ack = False

    def __init__(self) -> None:
        self.answer: asyncio.Future[dict[str, Any] | None] = (
            asyncio.get_running_loop().create_future()
        )

    def message(
        self,
        queue: Any,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes,
        place: tuple[Any, ...],
        redelivered: bool = False,
    ) -> None:
        if self.answer.done():
            queue.requeue_place(place)
            return
        message = {
            "payload": bytes(body),
            "payload_bytes": len(body),
            "properties": decode(bytes(properties)),
            "exchange": exchange,
            "routing_key": routing_key,
            "redelivered": redelivered,
            "message_count": queue.messages_ready,
            "place": place,
        }
        self.answer.set_result(message)

    def empty(self, queue: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(None)


async def take(
    queue: Any, count: int, *, requeue: bool, acked: bool, truncate: int | None
) -> list[dict[str, Any]]:
    """Up to `count` messages, oldest first, settled when all are gathered.

    With `requeue` they go back to their places; else they are acked or rejected.
    """
    messages: list[dict[str, Any]] = []
    size = 0
    try:
        while len(messages) < count and size < BYTES_MAX:
            getter = _Getter()
            queue.get(getter)
            message = await getter.answer
            if message is None:
                break
            messages.append(message)
            size += message["payload_bytes"]
            if truncate is not None and truncate >= 0:
                message["payload"] = message["payload"][:truncate]
    except BaseException:
        requeue = True
        raise
    finally:
        for message in messages:
            place = message.pop("place")
            if requeue:
                queue.requeue_place(place)
            else:
                queue.settle_place(place, acked)
    return messages
