"""What was settled and answered for stays away after kill -9, also where whole segments went."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.bench.leveret import Leveret
from tests.store.stalled_disk import wait_for


@pytest.mark.parametrize("how", ["ack", "purge", "get without ack"])
@pytest.mark.parametrize("size", [10, 1000])
def test_settled_messages_stay_away(
    make_broker: Callable[..., Appliance], how: str, size: int
) -> None:
    broker = make_broker(segment_size=65536)
    data = b"".join(raw.publish(1, "", "q", bytes(size), delivery_mode=2) for _ in range(150))
    for _ in range(2):
        with Client.open((broker.host, broker.amqp_port)) as client:
            client.call(1, "confirm.select")
            client.call(1, "queue.declare", queue="q", durable=True)
            client.send(data)
            client.expect_confirms(1, 150)
            if how == "purge":
                client.call(1, "queue.purge", queue="q")
            elif how == "ack":
                client.call(1, "basic.consume", queue="q")
                client.expect_messages(150, 1)
                client.send_method(1, "basic.ack", delivery_tag=0, multiple=True)
                client.call(1, "basic.qos")
            else:
                for _ in range(150):
                    client.get(1, "q", no_ack=True)
            broker.kill()
        broker.start()
        with Client.open((broker.host, broker.amqp_port)) as client:
            got = client.call(1, "queue.declare", queue="q", passive=True)
            assert got.message_count == 0
            client.call(1, "queue.delete", queue="q")


def test_a_get_without_ack_is_answered_once_the_file_it_emptied_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.store.recorded", "broker"]
    broker = Leveret(tmp_path, command=command)
    broker.environment = {
        "WRITE_RECORDING_TO": str(tmp_path / "recording"),
        "STALL_DISK": "unlink",
    }
    broker.start()
    try:
        with Client.open(("127.0.0.1", broker.port)) as client:
            client.call(1, "confirm.select")
            client.call(1, "queue.declare", queue="q", durable=True)
            client.publish(1, "", "q", b"only", delivery_mode=2)
            client.expect_confirms(1, 1)
        broker.stop()
        broker.start()  # what was found is never written to again: its last ack lets it go
        assert broker.server is not None
        os.kill(broker.server.pid, signal.SIGUSR1)
        wait_for((tmp_path / "data/run/stall-set").exists)
        with (
            Client.open(("127.0.0.1", broker.port)) as getter,
            Client.open(("127.0.0.1", broker.port)) as other,
        ):
            other.call(1, "confirm.select")
            # First: its reply would wait for files that began to go before it.
            other.call(1, "queue.declare", queue="other", durable=True)
            getter.send_method(1, "basic.get", queue="q", no_ack=True)
            for number in range(1, 21):
                # A round, and another one.
                other.publish(1, "", "other", b"", delivery_mode=2)
                other.expect_confirms(1, number, first=number)
            getter.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                getter.socket.recv(1)
            getter.socket.settimeout(getter.timeout)
            os.kill(broker.server.pid, signal.SIGUSR1)
            assert getter.expect_message("basic.get-ok", 1).body == b"only"
            broker.kill()
        broker.start()
        with Client.open(("127.0.0.1", broker.port)) as client:
            assert client.call(1, "queue.declare", queue="q", passive=True).message_count == 0
    finally:
        broker.stop()
