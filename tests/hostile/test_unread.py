"""Clients that do not read what they are answered."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.conftest import Make
from tests.hostile.figures import peak_bytes, unread

BODY = b"x" * 100_000


def kernel_most(buffers: str) -> int:
    """Octets: up to that the kernel lets the buffers of a connection grow."""
    return int(Path(f"/proc/sys/net/ipv4/{buffers}").read_text().split()[2])


COUNT = (kernel_most("tcp_rmem") + 2 * kernel_most("tcp_wmem") + (24 << 20)) // len(BODY)
"""More than all the sockets and the broker keep: the receive buffer of the broker may grow behind
bodies of this length (`broker/server/rests.py`)."""


def flood(client: Client, count: int) -> None:
    """Publishes what no queue takes, without reading, until all is sent or nothing is taken."""
    data = raw.publish(1, "", "nowhere", BODY, mandatory=True)
    client.socket.settimeout(2)
    for _ in range(count):
        client.socket.sendall(data)


def opened(broker: Appliance) -> Client:
    return Client.open((broker.host, broker.amqp_port))


def test_returns_that_are_not_read_stop_the_reading(broker: Appliance) -> None:
    pid = broker.pids["broker"]
    clients = [opened(broker) for _ in range(4)]
    before = peak_bytes(pid)
    for client in clients:
        with pytest.raises(TimeoutError):
            flood(client, COUNT)
    # 240 MB before: every return was kept in memory.
    assert peak_bytes(pid) - before < 60 << 20
    other = opened(broker)
    assert other.call(1, "queue.declare", queue="q").message_count == 0
    for client in clients:
        client.socket.close()


def test_who_reads_again_gets_every_return(shared_broker: Appliance) -> None:
    client = opened(shared_broker)
    data = raw.publish(1, "", "nowhere", BODY, mandatory=True)

    def send() -> None:
        for _ in range(COUNT):
            client.socket.sendall(data)

    sending = threading.Thread(target=send)
    client.socket.settimeout(60)
    sending.start()
    # It can send no more: not all is in its sockets or in the broker.
    sending.join(timeout=1.5)
    assert sending.is_alive()
    for _ in range(COUNT):
        returned = client.expect_message("basic.return", 1)
        assert (returned.method.reply_code, returned.body) == (312, BODY)
    sending.join(timeout=30)
    assert not sending.is_alive()
    client.close()


def test_a_client_that_takes_nothing_is_cut_off(make_broker: Make) -> None:
    broker = make_broker(send_timeout=1)
    client = opened(broker)
    with pytest.raises((TimeoutError, ConnectionError)):
        flood(client, COUNT)
    poll = select.poll()
    poll.register(client.socket, select.POLLERR | select.POLLHUP)
    assert poll.poll(30_000), "the connection stands"


@pytest.fixture(scope="module")
def leveret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    appliance = Appliance("serve", tmp_path_factory.mktemp("unread"), http_send_buffer=64 * 1024)
    yield appliance.start()
    appliance.close()


def test_of_an_answer_that_is_not_read_the_kernel_takes_little(leveret: Appliance) -> None:
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", leveret.http_port))
        request = b"GET /static/vendor/uPlot.iife.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
        slow.sendall(request * 200)
        before, held, deadline = -1, 0, time.monotonic() + 60
        while not held or held != before:
            assert time.monotonic() < deadline, (before, held)
            time.sleep(0.2)
            before, held = held, unread(leveret.http_port, slow.getsockname()[1])
        # Megabytes before. The kernel counts the packets' own memory, too: it doubles the value.
        assert held <= 2 * 64 * 1024


def test_who_reads_a_long_list_gets_all_of_it(leveret: Appliance) -> None:
    api = f"http://127.0.0.1:{leveret.http_port}/api"
    names = [f"queue {number}" for number in range(1500)]
    queues = [{"name": name, "vhost": "/", "durable": True} for name in names]
    with httpx.Client(auth=("guest", "guest"), timeout=60) as client:
        assert client.post(f"{api}/definitions", json={"queues": queues}).status_code == 204
        for _ in range(2):
            assert [row["name"] for row in client.get(f"{api}/queues").json()] == sorted(names)
