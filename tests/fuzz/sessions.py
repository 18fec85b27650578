"""Sessions as good clients have them: what mutations begin with.

A session is a list of pieces, each what a client sends at a time, from the protocol header on. The
first four open the connection and channel 1.
"""

from __future__ import annotations

from typing import Any

from tests.amqp import raw

OPENING = 4
"""Pieces before the session's own work."""


def opening(frame_max: int = 131072, heartbeat: int = 0, user: str = "guest") -> list[bytes]:
    """A login, whose password is the user's name, and channel 1."""
    return [
        raw.PROTOCOL_HEADER,
        raw.start_ok(
            response=raw.plain_response(user, user),
            client_properties={"product": "fuzz", "capabilities": raw.CAPABILITIES},
        ),
        raw.method(
            0, "connection.tune-ok", channel_max=64, frame_max=frame_max, heartbeat=heartbeat
        )
        + raw.method(0, "connection.open", virtual_host="/"),
        raw.method(1, "channel.open"),
    ]


def _arguments(name: str) -> dict[str, Any]:
    table: dict[str, dict[str, Any]] = {
        "classic": {},
        "limited": {"x-max-length": 5, "x-message-ttl": 1000, "x-overflow": "reject-publish"},
        "dead": {"x-dead-letter-exchange": "amq.fanout", "x-max-length-bytes": 1000},
        "levels": {"x-max-priority": 5, "x-expires": 60_000},
        "single": {"x-single-active-consumer": True, "x-delivery-limit": 2},
        "stream": {"x-queue-type": "stream", "x-max-length-bytes": 100_000},
        "confirming": {"x-confirm-on": "ack", "x-consumer-timeout": 60_000},
    }
    return table[name]


def work(kind: str, number: int) -> list[bytes]:
    """What a client does on channel 1 with a queue that several clients share."""
    queue = f"fuzz-{kind}-{number % 4}"
    is_stream = kind == "stream"
    return [
        raw.method(1, "queue.declare", queue=queue, durable=True, arguments=_arguments(kind))
        + raw.method(1, "queue.declare", queue="fuzz-got"),
        raw.method(1, "exchange.declare", exchange="fuzz", type="topic", arguments={"x-a": [1]})
        + raw.method(1, "queue.bind", queue=queue, exchange="fuzz", routing_key="a.#"),
        raw.method(1, "confirm.select") + raw.method(1, "basic.qos", prefetch_count=10),
        raw.publish(
            1,
            "fuzz",
            "a.b",
            b"body" * 50,
            headers={"x-delay": 1, "a": {"b": [1, "c", None]}},
            delivery_mode=2,
            priority=3,
            expiration="500",
            message_id="m",
        ),
        raw.publish(1, "", queue, bytes(9000), mandatory=True, frame_max=4096),
        raw.method(
            1,
            "basic.consume",
            queue=queue,
            consumer_tag="c",
            arguments={"x-stream-offset": "first"} if is_stream else {"x-priority": 2},
        ),
        raw.method(1, "basic.ack", delivery_tag=0, multiple=True)
        + raw.method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True),
        raw.method(2, "channel.open")
        + raw.method(2, "tx.select")
        + raw.publish(2, "amq.headers", "", b"x", headers={"CC": [queue]})
        + raw.method(2, "tx.commit"),
        raw.method(2, "basic.get", queue="fuzz-got" if kind in ("stream", "single") else queue)
        + raw.method(2, "basic.nack", delivery_tag=0, multiple=True, requeue=False)
        + raw.method(2, "tx.rollback"),
        raw.method(1, "basic.cancel", consumer_tag="c")
        + raw.method(1, "basic.recover", requeue=True)
        + raw.frame(raw.HEARTBEAT, 0, b""),
        raw.method(1, "queue.purge", queue=queue) + raw.method(1, "channel.close", reply_code=200),
        raw.method(0, "connection.close", reply_code=200),
    ]


KINDS = ["classic", "limited", "dead", "levels", "single", "stream", "confirming"]


def session(number: int, user: str = "guest") -> list[bytes]:
    """The `number`th valid session."""
    frame_max = (4096, 131072)[number % 2]
    return opening(frame_max, user=user) + work(KINDS[number % len(KINDS)], number // len(KINDS))
