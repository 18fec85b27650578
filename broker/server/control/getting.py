"""Takes messages from the head of a queue for a person to look at."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from broker.fields.codec import text
from broker.fields.properties import readable
from broker.kernel.large_body import LargeBody
from broker.schema.control_schema import FRAME_MAX
from broker.server.control.requests import RequestError, bad_request
from broker.server.pace import Pace

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue

# A queue that is deleted meanwhile answers no get.
_ANSWER_S = 30.0
_ROW_BYTES = 512
"""Of an answer, for what each message has beside its body, properties and names."""
_ROWS_MOST = FRAME_MAX // 8
"""Bytes of all that together; headers of one octet become up to six as text."""


class _Getter:
    """One get under way; `answer` is the message, or None if the queue was empty."""

    no_ack = False

    def __init__(self) -> None:
        self.answer: asyncio.Future[dict[str, Any] | None] = (
            asyncio.get_running_loop().create_future()
        )

    def message(
        self,
        queue: MessageQueue,
        exchange: bytes,
        routing_key: bytes,
        properties: bytes,
        body: bytes | LargeBody,
        place: tuple[int, ...],
    ) -> None:
        if self.answer.done():
            queue.requeue_place(place)
            return
        message = {
            "payload": body,
            "payload_bytes": len(body),
            "properties": readable(properties),
            "exchange": text(exchange),
            "routing_key": text(routing_key),
            "redelivered": bool(place[3]),
            "message_count": queue.messages_ready,
            "place": place,
            "beside": _ROW_BYTES + 6 * (len(properties) + len(exchange) + len(routing_key)),
        }
        self.answer.set_result(message)

    def empty(self, queue: MessageQueue) -> None:
        if not self.answer.done():
            self.answer.set_result(None)


def sized(columns: Collection[str], size: int) -> Counter[str]:
    """Columns of the usage feed that count one message, and their bytes."""
    return Counter(dict.fromkeys(columns, 1)) + Counter({f"{name}_bytes": size for name in columns})


def too_large(queue: MessageQueue, size: int, most: int) -> RequestError:
    """For a message that does not fit into an answer by itself."""
    return bad_request(
        f"the next message of queue '{queue.name}' has a body of {size} bytes, and no more than "
        f"{most} are answered (get_bytes_max): give truncate to see where it begins, or consume it "
        "over AMQP"
    )


def _ignore(_: Mapping[str, int]) -> None: ...


async def take(
    queue: MessageQueue,
    count: int,
    *,
    requeue: bool,
    acked: bool,
    truncate: int | None,
    bytes_max: int,
    note: Callable[[Mapping[str, int]], None] = _ignore,
) -> list[dict[str, Any]]:
    """Up to `count` messages, oldest first, settled when all are gathered.

    With `requeue` they go back to their places; else they are acked or rejected. `note` gets what
    that adds to the columns of who takes them. Those that are answered have at most `bytes_max`
    bytes of bodies together, and no more of anything else than an answer has room for; the first
    one that has more goes back. Raises RequestError if that is the only one.
    """
    messages: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    left, beside = bytes_max, _ROWS_MOST
    try:
        while len(messages) < count:
            getter = _Getter()
            queue.get(getter, forced=True)
            async with asyncio.timeout(_ANSWER_S):
                message = await getter.answer
            if message is None:
                counts["get_empty"] += 1
                break
            size = message["payload_bytes"]
            shown = size if truncate is None or truncate < 0 else min(size, truncate)
            beside -= message.pop("beside")
            if shown > left or (beside < 0 and messages):
                queue.requeue_place(message["place"])
                if messages:
                    break
                raise too_large(queue, size, bytes_max)
            left -= shown
            messages.append(message)
            how = ("get", "redeliver") if message["redelivered"] else ("get",)
            counts += sized(how, size)
            message["payload"] = message["payload"][:shown]
    except TimeoutError:
        requeue = True
        raise bad_request(f"queue '{queue.name}' did not answer in {_ANSWER_S:g} seconds") from None
    except BaseException:
        requeue = True
        raise
    finally:
        if not requeue:
            for message in messages:
                counts += sized(("ack" if acked else "reject",), message["payload_bytes"])
        note(counts)
        await _settle(queue, [message.pop("place") for message in messages], requeue, acked)
    return messages


async def _settle(queue: MessageQueue, places: list[Any], requeue: bool, acked: bool) -> None:
    """Settles every message, also if the request is cancelled meanwhile."""
    waiting = iter(places)

    def settle(place: Any) -> None:
        if requeue:
            queue.requeue_place(place)
        else:
            queue.settle_place(place, acked)

    pace = Pace()
    try:
        for place in waiting:
            settle(place)
            await pace()
    finally:
        for place in waiting:
            settle(place)
