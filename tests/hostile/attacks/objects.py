"""A million objects by one user, or as many as a limit allows, and one more."""

from __future__ import annotations

import json
from typing import Any

from broker.schema.arguments import memory_of
from broker.settings.bounds import BODY_VALUES_MAX
from tests.amqp import raw
from tests.hostile.attacks.attacker import (
    DIGITS,
    MALLORY,
    Attacker,
    numbered,
    until_refused,
)
from tests.hostile.attacks.findings import empty

NUMBER = DIGITS.decode()


def bindings(attacker: Attacker) -> str:
    """Of one queue to a topic exchange."""
    client = attacker.amqp()
    client.call(1, "queue.declare", queue="b", exclusive=True)
    bind = raw.method(
        1,
        "queue.bind",
        queue="b",
        exchange="amq.topic",
        routing_key=f"k.{NUMBER}",
        nowait=True,
    )
    most = attacker.limit("bindings_max")
    text = until_refused(client, numbered(bind, most + 1000))
    assert "bindings_max" in text, text
    return text


def header_bindings(attacker: Attacker) -> str:
    """Of one queue to a headers exchange, each with a header of its own, as many as their memory
    allows."""
    client = attacker.amqp()
    client.call(1, "queue.declare", queue="h", exclusive=True)
    bind = raw.method(
        1,
        "queue.bind",
        queue="h",
        exchange="amq.headers",
        arguments={"x-match": "any", f"h{NUMBER}": "1", "another": NUMBER},
        nowait=True,
    )
    text = until_refused(client, numbered(bind, attacker.limit("bindings_max") + 1000))
    assert "arguments_max" in text, text
    return text


def header_messages(attacker: Attacker) -> str:
    """Messages with thousands of headers through 100,000 bindings of a headers exchange."""
    client = attacker.amqp()
    client.call(1, "queue.declare", queue="h", exclusive=True)
    for match in ("any", "all"):
        bind = raw.method(
            1,
            "queue.bind",
            queue="h",
            exchange="amq.headers",
            arguments={"x-match": match, f"h{NUMBER}": "1", "another": NUMBER},
            nowait=True,
        )
        client.send(b"".join(numbered(bind, attacker.count(20_000))))
    client.fence(1)
    headers = {f"h{n:07}": "0" for n in range(4000)} | {"another": "1"}
    publish = raw.publish(1, "amq.headers", "", b"", headers=headers)
    published = 0
    for _ in attacker.rounds():
        client.send(publish)
        client.fence(1)
        published += 1
    return f"{published:,} messages with 4,000 headers each"


def queues(attacker: Attacker) -> str:
    """Exclusive ones, in one connection."""
    client = attacker.amqp()
    declare = raw.method(1, "queue.declare", queue=f"q.{NUMBER}", exclusive=True, nowait=True)
    text = until_refused(client, numbered(declare, attacker.limit("queues_max") + 1000))
    assert "queues_max" in text, text
    return text


def exchanges(attacker: Attacker) -> str:
    """Transient ones that delete themselves, each bound to the one before."""
    client = attacker.amqp()
    declare = raw.method(1, "exchange.declare", exchange=f"e.{NUMBER}", type="fanout", nowait=True)
    text = until_refused(client, numbered(declare, attacker.limit("exchanges_max") + 1000))
    assert "exchanges_max" in text, text
    with attacker.api("guest") as guest:
        empty(guest)
    return text


def consumers(attacker: Attacker) -> str:
    """50,000 on each of 20 connections, as many of each queue as are allowed; then one more of a
    queue, of a channel and of a connection."""
    most = attacker.limit("consumers_per_connection_max")
    each = attacker.limit("consumers_per_channel_max")
    queue_most = attacker.limit("consumers_per_queue_max")
    first = attacker.amqp()
    for number in range(attacker.count(20) * most // queue_most + 1):
        first.call(1, "queue.declare", queue=f"c{number}", exclusive=False, auto_delete=True)
    clients: list[raw.Client] = []
    for _ in range(attacker.count(20)):
        client = attacker.amqp()
        pieces = []
        for channel in range(1, most // each + 1):
            if channel > 1:
                pieces.append(raw.method(channel, "channel.open"))
            queue = f"c{(len(clients) * most + (channel - 1) * each) // queue_most}"
            consume = raw.method(
                channel, "basic.consume", queue=queue, consumer_tag=NUMBER, nowait=True
            )
            pieces += numbered(consume, each)
        clients.append(client)
        text = until_refused(client, pieces)
        assert text == "nothing was refused", text
    texts = [until_refused(attacker.amqp(), [raw.method(1, "basic.consume", queue="c0")])]
    texts.append(until_refused(client, [raw.method(1, "basic.consume", queue="c1")]))
    assert "consumers_per_queue_max" in texts[0] and "consumers per c" in texts[1], texts
    return f"{len(clients)} connections with {most:,} each, one more: {'; '.join(texts)}"


def channels(attacker: Attacker) -> str:
    """2,047 on each of 489 connections: a million; and one more."""
    most = attacker.limit("channel_max")
    whole = b"".join(raw.method(channel, "channel.open") for channel in range(2, most + 1))
    clients = []
    for _ in range(attacker.count(489)):
        client = attacker.amqp()
        clients.append(client)
        client.send(whole)
        for channel in range(2, most + 1):
            client.expect("channel.open-ok", channel)
    client.send(raw.method(most + 1, "channel.open"))
    method = client.read_method()
    assert method.name == "connection.close", method
    text = f"{method.reply_code} {method.reply_text}"
    return f"{len(clients)} connections with {most:,} each, one more: {text}"


def policies(attacker: Attacker) -> str:
    """Up to the limit, and one more, over 100,000 queues; then each is changed."""
    most = attacker.limit("policies_max")
    with attacker.api("guest") as guest:
        rows = [
            {"vhost": MALLORY, "name": f"q{n}", "durable": True}
            for n in range(attacker.count(100_000))
        ]
        guest.post("/api/definitions", content=json.dumps({"queues": rows})).raise_for_status()
        named = [_policy(n) for n in range(most + 1)]
        refused = guest.post("/api/definitions", content=json.dumps({"policies": named}))
        assert refused.status_code == 400, refused.text
        assert "policies_max" in refused.text, refused.text
        taken = guest.post("/api/definitions", content=json.dumps({"policies": named[:-1]}))
        taken.raise_for_status()
        for number in attacker.rounds():
            row = _policy(number % most, 1 + number)
            url = f"/api/policies/{MALLORY}/{row['name']}"
            guest.put(url, json=row).raise_for_status()
        empty(guest)
    return f"{most:,} were taken, {number + 1} were changed; {_words(refused.text)}"


def _policy(number: int, length: int = 1) -> dict[str, Any]:
    return {
        "vhost": MALLORY,
        "name": f"p{number}",
        "pattern": f"^q{number}",
        "priority": number,
        "definition": {"max-length": length},
    }


def _words(text: str) -> str:
    reason: str = json.loads(text).get("reason", text)
    return reason[:150]


def headers_in_policies(attacker: Attacker) -> str:
    """Policies with 100,000 keys that are none, with as many as a body may have, and with values
    that are tables."""
    wide = {f"x-header-{n}": n for n in range(attacker.count(100_000))}
    most = {f"x-header-{n}": n for n in range(attacker.count(BODY_VALUES_MAX - 10))}
    deep: Any = 1
    for _ in range(200):
        deep = {"a": deep}
    said = set()
    with attacker.api("guest") as guest:
        for _ in attacker.rounds():
            for definition in (
                wide,
                most,
                {"max-length": deep},
                {"dead-letter-exchange": "x" * 10**6},
            ):
                body = {"pattern": "^q", "definition": definition}
                answer = guest.put(f"/api/policies/{MALLORY}/p", json=body)
                assert answer.status_code in (400, 413), answer.status_code
                said.add(f"{answer.status_code} {_words(answer.text)[:60]}")
    return "; ".join(sorted(said))


def stream_tags(attacker: Attacker) -> str:
    """Consumers of a stream with a million tags, one after the other, whose place is stored."""
    client = attacker.amqp()
    client.call(1, "queue.declare", queue="s", durable=True, arguments={"x-queue-type": "stream"})
    client.call(1, "basic.qos", prefetch_count=10)
    consume = raw.method(
        1,
        "basic.consume",
        queue="s",
        consumer_tag=NUMBER,
        nowait=True,
        arguments={"x-stream-offset": "next"},
    )
    cancel = raw.method(1, "basic.cancel", consumer_tag=NUMBER, nowait=True)
    text = until_refused(client, numbered(consume + cancel, attacker.count(1_000_000), 100))
    client.socket.close()
    client = attacker.amqp()
    client.call(1, "queue.delete", queue="s")
    return text


def stream_filters(attacker: Attacker) -> str:
    """Consumers of a stream whose filters name as many values as are taken, as many as a connection
    may have; one more, and one with one value more."""
    client = attacker.amqp()
    client.call(1, "queue.declare", queue="f", durable=True, arguments={"x-queue-type": "stream"})
    client.call(1, "basic.qos", prefetch_count=10)
    values = [f"v{n:07}" for n in range(attacker.limit("stream_filter_values_max") + 1)]
    arguments = {"x-stream-filter": values[:-1], "x-stream-offset": "first"}
    most = attacker.limit("consumer_arguments_max") // memory_of(arguments)
    consume = raw.method(
        1, "basic.consume", queue="f", consumer_tag=NUMBER, nowait=True, arguments=arguments
    )
    count = min(most, attacker.count(1000))
    text = until_refused(client, numbered(consume, count))
    assert text == "nothing was refused", text
    with attacker.amqp() as publisher:
        for number in range(attacker.count(20_000)):
            value = f"v{number:07}"
            publisher.publish(1, "", "f", b"", headers={"x-stream-filter-value": value})
        publisher.fence(1)
    if count == most:
        client.send(raw.method(1, "basic.consume", queue="f", arguments=arguments))
        text = until_refused(client, [])
        assert "consumer_arguments_max" in text, text
    client.socket.close()
    client = attacker.amqp()
    client.call(1, "basic.qos", prefetch_count=10)
    client.send(raw.method(1, "basic.consume", queue="f", arguments={"x-stream-filter": values}))
    refused = until_refused(client, [])
    assert "stream_filter_values_max" in refused, refused
    client.socket.close()
    client = attacker.amqp()
    client.call(1, "queue.delete", queue="f")
    each = f"{count} with {len(values) - 1} values each"
    return f"{each}, one more: {text}; one value more: {refused}"
