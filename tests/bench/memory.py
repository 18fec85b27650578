"""Memory per connection, per queue and per queued message; bindings per second."""

from __future__ import annotations

import struct
import threading
import time
from typing import Any, Protocol

from tests.bench import generator, priorities, processes
from tests.bench.client import Client, ConnectionLost, method, short
from tests.bench.leveret import Leveret


class Broker(Protocol):
    """What the benchmark needs of a broker under measurement."""

    name: str
    port: int
    ports: dict[str, int]
    """By door: `amqp`, and `amqps` and `ws` where there are such."""

    @property
    def version(self) -> str:
        """Shown in the table."""

    def start(self) -> None:
        """Returns when clients can connect."""

    def pids(self) -> list[int]:
        """Processes whose CPU and memory count."""

    def stop(self) -> None:
        """Ends what start began."""


def settled_memory(broker: Broker) -> int:
    """Anonymous resident bytes once they no longer change."""
    return processes.settled_bytes(broker.pids())


def per_connection(broker: Broker, count: int) -> float:
    """Bytes per idle connection with one channel."""
    warm = [Client(broker.port) for _ in range(50)]
    before = settled_memory(broker)
    clients = [Client(broker.port) for _ in range(count)]
    after = settled_memory(broker)
    for client in warm + clients:
        client.abort()
    return (after - before) / count


def _pipelined(client: Client, frames: list[bytes], reply_bytes: int) -> float:
    """Sends all frames while counting reply bytes (all replies have one size); returns seconds."""
    wanted = len(frames) * reply_bytes
    start = time.perf_counter()
    sender = threading.Thread(target=client.socket.sendall, args=(b"".join(frames),))
    sender.start()
    got, last = len(client.buffer), b""
    while got < wanted:
        data = client.socket.recv(1 << 18)
        if not data:
            raise ConnectionLost("the broker closed the connection")
        got += len(data)
        last = (last + data)[-4096:]
        if b"\x00\x14\x00\x28" in data or b"\x00\x0a\x00\x32" in data:
            raise ConnectionLost(f"the broker closed the channel or connection: {last!r}")
    seconds = time.perf_counter() - start
    sender.join()
    return seconds


def _queue_declare(name: str, durable: bool) -> bytes:
    flags = b"\2" if durable else b"\0"
    return method(1, 50, 10, b"\0\0" + short(name) + flags + b"\0\0\0\0")


def _queue_delete(name: str) -> bytes:
    return method(1, 50, 40, b"\0\0" + short(name) + b"\0")


def per_queue(broker: Broker, count: int, durable: bool = True) -> tuple[float, float]:
    """(bytes per declared empty queue, declarations per second)."""
    client = Client(broker.port)
    names = [f"memory.{i:08d}" for i in range(count)]
    reply = 8 + 4 + 1 + len(names[0]) + 8
    warm = names[: count // 20]
    _pipelined(client, [_queue_declare(name, durable) for name in warm], reply)
    before = settled_memory(broker)
    rest = names[len(warm) :]
    seconds = _pipelined(client, [_queue_declare(name, durable) for name in rest], reply)
    after = settled_memory(broker)
    _pipelined(client, [_queue_delete(name) for name in names], 8 + 4 + 4)
    client.close()
    return (after - before) / len(rest), len(rest) / seconds


def per_message(broker: Broker, base: int, count: int) -> float:
    """Bytes per queued persistent message of 16 B: growth from `base` to `base + count` queued."""
    options = ["--name", "backlog", "--keep", "--consumers", "0", "--persistent"]
    options += ["--confirm", "5000", "--patience", "120"]
    generator.run(broker.port, [*options, "--count", str(base)])
    before = settled_memory(broker)
    generator.run(broker.port, [*options, "--count", str(count)])
    after = settled_memory(broker)
    client = Client(broker.port)
    client.delete_queue("backlog.0")
    client.close()
    return (after - before) / count


def bindings_per_second(broker: Broker, count: int, durable: bool) -> float:
    """Pipelined queue.bind of one queue to amq.direct, or to a transient exchange."""
    client = Client(broker.port)
    exchange = "amq.direct" if durable else "bench.transient"
    if not durable:
        arguments = b"\0\0" + short(exchange) + short("direct") + b"\0" + b"\0\0\0\0"
        client.send(method(1, 40, 10, arguments))
        client.wait(40, 11)
    client.declare_queue("bench.bound", durable=durable)
    head = b"\0\0" + short("bench.bound") + short(exchange)
    frames = [
        method(1, 50, 20, head + short(f"key.{i}") + b"\0" + struct.pack(">I", 0))
        for i in range(count)
    ]
    seconds = _pipelined(client, frames, 12)
    client.delete_queue("bench.bound")
    if not durable:
        client.send(method(1, 40, 20, b"\0\0" + short(exchange) + b"\0"))
        client.wait(40, 21)
    client.close()
    return count / seconds


def restart_after_kill(broker: Leveret, count: int) -> tuple[float, float]:
    """(seconds from the start to the first delivery, drained messages per second).

    `count` persistent messages of 16 B are queued when the broker is killed with -9. Raises
    GeneratorFailed if they are not all there afterwards.
    """
    options = ["--name", "restart", "--keep", "--persistent"]
    published = [*options, "--consumers", "0", "--confirm", "5000", "--count", str(count)]
    generator.run(broker.port, [*published, "--patience", "120"])
    broker.kill()
    began = time.monotonic()
    broker.start()
    started = time.monotonic() - began
    drained = [*options, "--publishers", "0", "--count", str(count), "--ack", "1000"]
    result = generator.run(broker.port, [*drained, "--prefetch", "5000"])
    client = Client(broker.port)
    client.delete_queue("restart.0")
    client.close()
    return started + result["first_delivery_ms"] / 1000, result["rate"]


def measure(broker: Broker, small: bool) -> dict[str, Any]:
    """All of the above; `small` takes a tenth of each count."""
    scale = 10 if small else 1
    connection_bytes = per_connection(broker, 2000 // scale)
    # The memory that connections gave back would be taken for queues, and not be counted.
    broker.stop()
    broker.start()
    queue_bytes, declared = per_queue(broker, 20000 // scale)
    figures = {
        "connection_bytes": connection_bytes,
        "queue_bytes": queue_bytes,
        "queues_per_second": declared,
        "message_bytes": per_message(broker, 2_000_000 // scale, 20_000_000 // scale),
        "bindings_per_second": bindings_per_second(broker, 100_000 // scale, durable=False),
        "durable_bindings_per_second": bindings_per_second(broker, 40_000 // scale, durable=True),
    }
    if isinstance(broker, Leveret):
        for levels, name in ((9, "ten_priorities"), (255, "all_priorities")):
            figures[f"{name}_message_bytes"] = priorities.measure(
                broker, levels, 2_000_000
            ).message_bytes
        seconds, rate = restart_after_kill(broker, 10_000_000 // scale)
        figures |= {"restart_seconds": seconds, "drained_per_second": rate}
    return figures
