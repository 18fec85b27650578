"""Definitions that a broker cannot carry out: it starts without them, says so, loses nothing."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.fields.codec import Timestamp
from broker.store.directory import journal
from broker.vhosts.changes import entry, read_entry
from tests.amqp import streams
from tests.amqp.raw import Client
from tests.amqp.test_permissions import ask
from tests.appliance import Appliance


def beyond_64_bits(data: bytes) -> bytes:
    """The declaration with a length that no queue can have."""
    method, change, incarnation = read_entry(data)
    odd = {"x-max-length": Timestamp(2**64 - 1)}
    return entry(method, {**change, "arguments": odd}, incarnation)


def without_end(data: bytes) -> bytes:
    """The declaration with a table that cannot be read."""
    method, change, _ = read_entry(data)
    whole = entry(method, {**change, "arguments": {}}, 0)
    return data[:8] + whole[8:-4] + struct.pack(">I", 99)


def of_an_unknown_type(data: bytes) -> bytes:
    """The declaration of a type that this broker does not have."""
    method, change, incarnation = read_entry(data)
    return entry(method, {**change, "arguments": {"x-queue-type": "gone"}}, incarnation)


def damage(path: Path, change: Callable[[bytes], bytes]) -> bytes:
    """Replaces the declaration of the queue `odd` in a journal; returns the journal's bytes."""
    payloads, _ = journal.entries(path.read_bytes())
    content = journal.MAGIC + b"".join(
        journal.encode(change(each) if is_declaration(each) else each) for each in payloads
    )
    path.write_bytes(content)
    return content


def is_declaration(data: bytes) -> bool:
    method, change, _ = read_entry(data)
    return method == "queue.declare" and change["queue"] == "odd"


def serve(broker: Appliance) -> Client:
    broker.start()
    return streams.connect(broker)


@pytest.mark.parametrize("change", [beyond_64_bits, without_end, of_an_unknown_type])
def test_a_broker_starts_without_what_it_cannot_carry_out(
    broker: Appliance, change: Callable[[bytes], bytes]
) -> None:
    """The other queue is served; the odd one's messages and the journal wait in quarantine, and
    come back whole when a person puts them back."""
    client = streams.connect(broker)
    for queue in ("odd", "even"):
        client.call(1, "queue.declare", queue=queue, durable=True)
        client.call(1, "queue.bind", queue=queue, exchange="amq.topic", routing_key="#")
    streams.fill(client, "odd", b"kept", delivery_mode=2)
    client.cut()
    assert broker.stop() == 0
    path = next(broker.data_dir.glob("vhosts/*/definitions.journal"))
    sound = path.read_bytes()
    content = damage(path, change)

    client = serve(broker)
    streams.fill(client, "even", b"served", delivery_mode=2)
    client.publish(1, "amq.topic", "any", b"routed", delivery_mode=2)
    assert client.call(1, "queue.declare", queue="even", passive=True).message_count == 2
    problems = ask(broker, "nodes")[0]["recovery_problems"]
    assert any("queue.declare of 'odd' cannot be carried out" in text for text in problems)
    kept = broker.data_dir / "quarantine" / f"{path.parent.name}-definitions.journal"
    assert kept.read_bytes() == content
    assert any(str(kept) in text for text in problems)
    (directory,) = kept.parent.glob("queues-*")
    client.cut()
    assert broker.stop() == 0

    client = serve(broker)
    assert ask(broker, "nodes")[0]["recovery_problems"] == []
    assert client.call(1, "queue.declare", queue="even", passive=True).message_count == 2
    client.cut()
    assert broker.stop() == 0

    path.write_bytes(sound)
    directory.rename(path.parent / "queues" / directory.name.removeprefix("queues-"))
    client = serve(broker)
    message = client.get(1, "odd")
    assert message is not None
    assert message.body == b"kept"


def test_a_second_copy_of_the_journal_leaves_the_first(broker: Appliance) -> None:
    paths = []
    for change in (beyond_64_bits, of_an_unknown_type):
        client = streams.connect(broker)
        client.call(1, "queue.declare", queue="odd", durable=True)
        client.cut()
        assert broker.stop() == 0
        path = next(broker.data_dir.glob("vhosts/*/definitions.journal"))
        paths.append(damage(path, change))
        broker.start()
    kept = sorted((broker.data_dir / "quarantine").glob("*-definitions*.journal"))
    assert sorted(each.read_bytes() for each in kept) == sorted(paths)
