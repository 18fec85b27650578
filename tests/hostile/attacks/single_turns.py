"""One request that could be a long turn."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx

from tests.amqp import raw
from tests.hostile.attacks.attacker import DIGITS, MALLORY, Attacker, numbered, sends_on

NUMBER = DIGITS.decode()


def ack_of_a_million(attacker: Attacker) -> str:
    """One basic.ack with multiple for as many deliveries as a channel may hold."""
    client = attacker.amqp()
    most = attacker.count(attacker.limit("max_unacked"))
    client.call(1, "queue.declare", queue="a", exclusive=True)
    client.call(1, "basic.consume", queue="a")
    one = raw.publish(1, "", "a", b"")
    thread = sends_on(client, (one * 1000 for _ in range(most // 1000)))
    last = 0
    for _ in range(most // 1000 * 1000):
        last = client.expect_message(channel=1).tag
    thread.join()
    client.send(raw.method(1, "basic.ack", delivery_tag=last, multiple=True))
    client.fence(1)
    return f"{last:,} deliveries"


def _drained(client: raw.Client) -> threading.Event:
    """Reads and throws away in C, until the end."""
    over = threading.Event()

    def read() -> None:
        while not over.is_set() and client.socket.recv(1 << 20):
            pass

    threading.Thread(target=read, daemon=True).start()
    return over


def nack_of_a_million(attacker: Attacker) -> str:
    """A consumer that leaves with as many deliveries as a channel may hold: all come back."""
    most = attacker.count(attacker.limit("max_unacked"))
    holder = attacker.amqp()
    holder.call(1, "queue.declare", queue="n", auto_delete=False, durable=False)
    client = attacker.amqp()
    client.call(1, "basic.consume", queue="n")
    _drained(client)
    one = raw.publish(1, "", "n", b"")
    for _ in range(most // 1000):
        holder.send(one * 1000)
    holder.fence(1)
    client.socket.shutdown(2)
    found = holder.call(1, "queue.declare", queue="n", passive=True).message_count
    holder.call(1, "queue.delete", queue="n")
    return f"{most:,} deliveries, {found:,} were back at once"


def fanout(attacker: Attacker) -> str:
    """Messages to 100,000 queues at once."""
    count = attacker.count(100_000)
    client = attacker.amqp()
    declare = raw.method(1, "queue.declare", queue=f"f.{NUMBER}", exclusive=True, nowait=True)
    bind = raw.method(1, "queue.bind", queue=f"f.{NUMBER}", exchange="amq.fanout", nowait=True)
    for piece in numbered(declare + bind, count):
        client.send(piece)
    client.fence(1)
    published = 0
    for _ in attacker.rounds():
        client.publish(1, "amq.fanout", "", b"x" * 100)
        client.fence(1)
        published += 1
    return f"{published} messages to {count:,} queues"


def wide_dead_letters(attacker: Attacker) -> str:
    """Dead letters to 100,000 queues at once."""
    count = attacker.count(100_000)
    client = attacker.amqp()
    _many_queues(client, count)
    arguments = {"x-dead-letter-exchange": "amq.fanout"}
    client.call(1, "queue.declare", queue="dying", exclusive=True, arguments=arguments)
    died = 0
    for _ in attacker.rounds():
        client.publish(1, "", "dying", b"x" * 100)
        got = client.get(1, "dying")
        assert got is not None
        client.send(raw.method(1, "basic.reject", delivery_tag=got.tag, requeue=False))
        last = f"w.{count - 1:07}"
        while client.call(1, "queue.declare", queue=last, passive=True).message_count <= died:
            time.sleep(0.01)
        died += 1
    return f"{died} dead letters to {count:,} queues"


def _many_queues(client: raw.Client, count: int) -> None:
    """Behind `amq.fanout`, for this connection."""
    declare = raw.method(1, "queue.declare", queue=f"w.{NUMBER}", exclusive=True, nowait=True)
    bind = raw.method(1, "queue.bind", queue=f"w.{NUMBER}", exchange="amq.fanout", nowait=True)
    for piece in numbered(declare + bind, count):
        client.send(piece)
    client.fence(1)


def _until_over(api: httpx.Client, id: int) -> None:
    """Waits for the end of a transfer."""
    while True:
        rows = api.get("/api/transfers").raise_for_status().json()
        (state,) = (row["state"] for row in rows if row["id"] == id)
        if state in ("finished", "failed", "stopped"):
            assert state == "finished"
            return
        time.sleep(0.05)


def wide_transfers(attacker: Attacker) -> str:
    """Moves, copies and replays of messages to 100,000 queues each."""
    count = attacker.count(100_000)
    client, api = attacker.amqp(), attacker.api()
    _many_queues(client, count)
    client.call(1, "queue.declare", queue="source")
    stream = {"x-queue-type": "stream"}
    client.call(1, "queue.declare", queue="stream", durable=True, arguments=stream)
    client.publish(1, "", "stream", b"x" * 100)
    client.fence(1)
    wanted = {"target": "amq.fanout", "target_type": "exchange"}
    paths = ("queues/{}/source/move", "queues/{}/source/copy", "streams/{}/stream/replay")
    done = 0
    for _ in attacker.rounds():
        for path in paths:
            if "source" in path:
                client.publish(1, "", "source", b"x" * 100)
                client.fence(1)
            answer = api.post("/api/" + path.format(MALLORY), json=wanted).raise_for_status()
            _until_over(api, answer.json()["id"])
            client.call(1, "queue.purge", queue="source")
            done += 1
    client.call(1, "queue.delete", queue="source")
    client.call(1, "queue.delete", queue="stream")
    return f"{done} messages to {count:,} queues"


def wide_refusals(attacker: Attacker) -> str:
    """Dead letters to 100,000 queues each, of messages that a full queue refuses, and of some that
    have no time to live."""
    count = attacker.count(100_000)
    client = attacker.amqp()
    _many_queues(client, count)
    dead = {"x-dead-letter-exchange": "amq.fanout"}
    full = {"x-max-length": 0, "x-overflow": "reject-publish-dlx"}
    client.call(1, "queue.declare", queue="full", exclusive=True, arguments=dead | full)
    client.call(1, "queue.declare", queue="short", exclusive=True, arguments=dead)
    last = f"w.{count - 1:07}"
    died = 0
    for _ in attacker.rounds():
        client.publish(1, "", "full", b"x" * 100)
        client.publish(1, "", "short", b"x" * 100, expiration="0")
        while client.call(1, "queue.declare", queue=last, passive=True).message_count < died + 2:
            time.sleep(0.01)
        died += 2
    return f"{died} dead letters to {count:,} queues"


def carbon_copies(attacker: Attacker) -> str:
    """Messages with as many keys in CC as are allowed, each a queue's name."""
    client = attacker.amqp()
    count = attacker.count(30_000)
    declare = raw.method(1, "queue.declare", queue=f"c{NUMBER}", exclusive=True, nowait=True)
    for piece in numbered(declare, count):
        client.send(piece)
    client.fence(1)
    published = 0
    most = attacker.limit("routing_keys_max") - 2  # the message's own key and one in BCC
    keys = [f"c{n:07}" for n in range(min(count, most))]
    small = [f"{n:x}" for n in range(min(count, most))]
    for _ in attacker.rounds():
        client.publish(1, "", "c0000000", b"", headers={"CC": keys})
        client.publish(1, "", "c0000000", b"", headers={"CC": small, "BCC": ["a"]})
        client.fence(1)
        published += 2
    return f"{published} messages with {len(keys):,} or {len(small):,} keys"


def purge_of_a_million(attacker: Attacker) -> str:
    """queue.purge and queue.delete of a million messages."""
    most = attacker.count(1_000_000)
    client = attacker.amqp()
    for verb in ("purge", "delete"):
        client.call(1, "queue.declare", queue="p")
        one = raw.publish(1, "", "p", b"")
        for _ in range(most // 1000):
            client.send(one * 1000)
        client.fence(1)
        client.call(1, f"queue.{verb}", queue="p")
    return f"{most:,} messages, twice"


def large_commit(attacker: Attacker) -> str:
    """Transactions of as many messages as one may have."""
    most = attacker.count(attacker.limit("max_uncommitted_messages"))
    client = attacker.amqp()
    client.call(1, "queue.declare", queue="t", exclusive=True)
    client.call(1, "tx.select")
    one = raw.publish(1, "", "t", b"")
    commits = 0
    for _ in attacker.rounds():
        for _ in range(most // 1000):
            client.send(one * 1000)
        client.call(1, "tx.commit")
        client.call(1, "queue.purge", queue="t")
        commits += 1
    return f"{commits} × {most:,} messages"


def large_messages(attacker: Attacker) -> str:
    """Messages of the largest size, to ten queues each; one is delivered and one got."""
    client = attacker.amqp()
    for number in range(10):
        client.call(1, "queue.declare", queue=f"l{number}", exclusive=True)
        client.call(1, "queue.bind", queue=f"l{number}", exchange="amq.fanout")
    size = attacker.count(attacker.limit("max_message_size"))
    data = raw.publish(1, "amq.fanout", "", bytes(size))
    client.call(1, "basic.consume", queue="l0", no_ack=True)
    sent = 0
    for _ in attacker.rounds():
        client.send(data)
        sent += 1
        client.expect_message()
        client.get(1, "l1", no_ack=True)
        for number in range(10):
            client.call(1, "queue.purge", queue=f"l{number}")
    return f"{sent} messages of {size:,} bytes to ten queues"


def large_records(attacker: Attacker) -> str:
    """Messages of the largest size into a stream, which is read, and through an exchange that
    delays."""
    client, reader = attacker.amqp(), attacker.amqp()
    arguments = {"x-queue-type": "stream", "x-max-length-bytes": 1 << 30}
    client.call(1, "queue.declare", queue="s", durable=True, arguments=arguments)
    client.call(1, "queue.declare", queue="late", auto_delete=True)
    client.call(
        1,
        "exchange.declare",
        exchange="later",
        type="x-delayed-message",
        arguments={"x-delayed-type": "fanout"},
    )
    client.call(1, "queue.bind", queue="late", exchange="later")
    # On a connection of its own: one that sends such a message reads nothing meanwhile.
    reader.call(1, "basic.qos", prefetch_count=1)
    reader.call(1, "basic.consume", queue="late", no_ack=True)
    reader.call(1, "basic.consume", queue="s", arguments={"x-stream-offset": "next"})
    body = bytes(attacker.count(attacker.limit("max_message_size")))
    sent = 0
    for _ in attacker.rounds():
        client.publish(1, "", "s", body, delivery_mode=2)
        client.publish(1, "later", "", body, delivery_mode=2, headers={"x-delay": 10})
        for message in reader.expect_messages(2):
            if message.method.fields["exchange"] == "":
                reader.send_method(1, "basic.ack", delivery_tag=message.tag)
        sent += 2
    reader.call(1, "channel.close", reply_code=200, reply_text="")
    client.call(1, "queue.delete", queue="s")
    client.call(1, "exchange.delete", exchange="later")
    return f"{sent} messages of {len(body):,} bytes"


def large_answers(attacker: Attacker) -> str:
    """Bodies over HTTP: the largest that are answered and published, each letter of them an escape,
    by four at a time; and one of the largest size, which is refused."""
    client = attacker.amqp()
    for name, size in (("large", "max_message_size"), ("fits", "get_bytes_max")):
        client.call(1, "queue.declare", queue=name, exclusive=False, auto_delete=False)
        client.publish(1, "", name, bytes(attacker.count(attacker.limit(size))))
    client.fence(1)
    rounds = [0, 0, 0]

    def ask(kind: int) -> None:
        path = f"/api/queues/{MALLORY}/{('large', 'fits')[kind % 2]}/get"
        wanted: dict[str, Any] = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
        message = {"properties": {}, "routing_key": "none", "payload_encoding": "string"}
        with attacker.api() as api:
            for _ in attacker.rounds():
                if kind == 2:
                    path = f"/api/exchanges/{MALLORY}/amq.default/publish"
                    wanted = {**message, "payload": "\0" * (attacker.count(1 << 20))}
                answer = api.post(path, json=wanted)
                assert answer.status_code == (200 if kind or attacker.share < 1 else 400)
                rounds[kind] += 1

    threads = [threading.Thread(target=ask, args=(kind,)) for kind in (0, 1, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ("large", "fits"):
        client.call(1, "queue.delete", queue=name)
    assert all(rounds), rounds
    return f"{rounds[0]} refused, {rounds[1]} answered, {rounds[2]} published"


def largest_tables(attacker: Attacker) -> str:
    """Headers with as many values as a frame holds, nested as deep as they may be."""
    client = attacker.amqp()
    client.call(1, "queue.declare", queue="h", exclusive=True)
    deep: object = 1
    for _ in range(30):
        deep = {"a": deep}
    many = raw.publish(1, "", "h", b"", headers={f"{n:x}": True for n in range(16_000)})
    nested = raw.publish(1, "", "h", b"", headers={f"{n:x}": deep for n in range(400)})
    published = 0
    for _ in attacker.rounds():
        client.send((many + nested) * 20)
        client.fence(1)
        client.call(1, "queue.purge", queue="h")
        published += 40
    return f"{published} messages"
