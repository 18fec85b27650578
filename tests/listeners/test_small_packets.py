"""Segments of TCP are bounded, and clients that flush each message lose nothing."""

from __future__ import annotations

import socket

import pytest

from tests.bench import generator
from tests.conftest import Make


def segment(port: int) -> int:
    """The most bytes of a segment that a client may send (RFC 9293, 3.7.1)."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)


@pytest.mark.parametrize(("setting", "most"), [("4096", 4096), ("1460", 1460)])
def test_a_client_is_asked_for_segments_of_the_set_size(
    make_broker: Make, setting: str, most: int
) -> None:
    broker = make_broker(tcp_max_segment=setting)
    assert most - 40 <= segment(broker.amqp_port) <= most  # options of TCP are of the segment
    broker.close()


def test_the_systems_own_segments_can_be_kept(make_broker: Make) -> None:
    broker = make_broker(tcp_max_segment="0")
    assert segment(broker.amqp_port) > 16_384
    broker.close()


@pytest.mark.parametrize(("clients", "body"), [("1", "16"), ("4", "16"), ("2", "1024")])
def test_nothing_is_lost_or_disordered_of_clients_that_flush_each_message(
    make_broker: Make, clients: str, body: str
) -> None:
    """Their sockets rest between chunks, if this machine has time for it: the generator counts."""
    broker = make_broker()
    options = ["--publishers", clients, "--queues", clients, "--consumers", clients, "--body", body]
    pace = ["--flush", "--in-flight", "20000", "--warmup", "0.2", "--duration", "1"]
    assert generator.run(broker.amqp_port, options + pace)["rate"] > 0
    broker.close()
