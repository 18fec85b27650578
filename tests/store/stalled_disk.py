"""A disk that does not answer: what goes on meanwhile, and what must not.

`python -m tests.store.stalled_disk --seconds 30` stalls a sync for so long; a violation ends it
with a traceback.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from management.broker_client import BrokerClient
from tests.amqp.raw import HEARTBEAT, Client, decode_method
from tests.bench.leveret import Leveret

WAIT_S = 30.0


def stallable(directory: Path, *options: str) -> Leveret:
    """A broker whose disk can be stalled, started."""
    command = [sys.executable, "-m", "tests.store.recorded", "broker"]
    broker = Leveret(directory, command=command, extra=["--disk-stall-after=0.5", *options])
    broker.environment["WRITE_RECORDING_TO"] = str(directory / "recording")
    broker.start()
    return broker


def log_of(directory: Path) -> str:
    return (directory / "output").read_text()


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


def ask(directory: Path, verb: str, **arguments: Any) -> dict[str, Any]:
    async def answered() -> dict[str, Any]:
        client = BrokerClient(directory / "data/control.sock")
        try:
            answer: dict[str, Any] = await client.call(verb, **arguments)
            return answer
        finally:
            await client.close()

    return asyncio.run(answered())


def overview(directory: Path) -> dict[str, Any]:
    return ask(directory, "overview")


def states(directory: Path) -> list[str]:
    """Of all connections."""
    return [row["state"] for row in ask(directory, "list", noun="connections")["items"]]


def nothing_comes(client: Client) -> bool:
    """Whether only heartbeats have come."""
    client.socket.settimeout(0.05)
    try:
        client.buffer += client.socket.recv(1 << 16)
    except TimeoutError:
        pass
    finally:
        client.socket.settimeout(client.timeout)
    return set(client.buffer[::8]) <= {HEARTBEAT}


def beats(client: Client, count: int) -> None:
    """Takes so many heartbeats and nothing else, answering each."""
    client.keep_heartbeats = True
    for _ in range(count):
        got = client.read_frame()
        assert got.type == HEARTBEAT, decode_method(got.payload, got.channel)
        client.send(b"\x08\x00\x00\x00\x00\x00\x00\xce")
    client.keep_heartbeats = False


def stall(directory: Path, broker: Leveret, seconds: float) -> float:
    """Stalls the broker's disk for at least `seconds` and returns for how long. Meanwhile nothing
    is confirmed or declared, while heartbeats and consumers go on."""
    assert broker.server is not None
    address = ("127.0.0.1", broker.port)
    with (
        Client.open(address, heartbeat=1, timeout=WAIT_S) as publisher,
        Client.open(address, timeout=WAIT_S) as consumer,
        Client.open(address, timeout=WAIT_S) as declarer,
    ):
        publisher.call(1, "queue.declare", queue="stalled", durable=True)
        publisher.call(1, "confirm.select")
        publisher.publish(1, "", "stalled", b"before", delivery_mode=2)
        publisher.expect("basic.ack", 1, delivery_tag=1)
        consumer.call(1, "basic.consume", queue="stalled", consumer_tag="c")
        assert consumer.expect_message(channel=1).body == b"before"

        os.kill(broker.server.pid, signal.SIGUSR1)
        wait_for((directory / "data/run/stall-set").exists)
        began = time.monotonic()
        publisher.publish(1, "", "stalled", b"during", delivery_mode=2)
        assert consumer.expect_message(channel=1).body == b"during"
        declarer.send_method(1, "queue.declare", queue="new", durable=True)
        wait_for(lambda: "stalled disk: a sync has waited" in log_of(directory))
        assert [row["name"] for row in overview(directory)["alarms"]] == ["stalled disk"]
        beats(publisher, max(2, int(seconds / 0.5)))
        for number in range(3):
            body = f"later {number}".encode()
            publisher.publish(1, "", "stalled", body, delivery_mode=2)
            assert consumer.expect_message(channel=1).body == body
        assert nothing_comes(publisher), "confirmed while the disk did not answer"
        assert nothing_comes(declarer), "a declaration was answered before it was on disk"

        took = time.monotonic() - began
        os.kill(broker.server.pid, signal.SIGUSR1)
        declarer.expect("queue.declare-ok", 1)
        confirmed = 1
        while confirmed < 5:
            confirmed = publisher.expect("basic.ack", 1).delivery_tag
        wait_for(lambda: "the disk answers again" in log_of(directory))
        assert overview(directory)["alarms"] == []
        return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        broker = stallable(directory)
        try:
            took = stall(directory, broker, options.seconds)
        finally:
            broker.stop()
    print(f"the disk did not answer for {took:.1f} s: no confirm, heartbeats and consumers went on")
    return 0


if __name__ == "__main__":
    sys.exit(main())
