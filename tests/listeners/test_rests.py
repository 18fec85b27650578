"""A socket of asyncio is read if its connection wants it and it does not rest."""

from __future__ import annotations

import platform
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from broker.server.rests import Rests


class Transport:
    """Of a socket between these two addresses."""

    def __init__(self, peer: tuple[str, int], local: tuple[str, int]) -> None:
        self.socket = socket.socket()
        self.extra = {"peername": peer, "sockname": local, "socket": self.socket}
        self.is_read = True

    def get_extra_info(self, name: str) -> Any:
        return self.extra[name]

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport(("127.0.0.1", 50_000), ("127.0.0.1", 5672))
    yield made
    made.socket.close()


def test_it_is_not_read_in_a_rest(transport: Transport) -> None:
    rests = Rests(transport, 98_304)
    rests.begin_rest()
    assert not transport.is_read
    rests.end_rest()
    assert transport.is_read


def test_a_connection_that_paused_it_is_not_read_behind_a_rest(transport: Transport) -> None:
    rests = Rests(transport, 98_304)
    rests.begin_rest()
    rests.pause()
    rests.end_rest()
    assert not transport.is_read
    rests.resume()
    assert transport.is_read


def test_a_connection_that_reads_again_waits_for_the_end_of_a_rest(transport: Transport) -> None:
    rests = Rests(transport, 98_304)
    rests.pause()
    rests.begin_rest()
    rests.resume()
    assert not transport.is_read
    rests.end_rest()
    assert transport.is_read


def test_only_clients_of_the_same_machine_have_a_buffer_to_narrow(transport: Transport) -> None:
    rests = Rests(transport, 98_304)
    assert rests.receive_size == 98_304
    rests.bound_receiving(16_384, may_grow=False)
    assert transport.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 32_768
    rests.bound_receiving(0, may_grow=True)
    assert transport.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 196_608
    transport.extra["peername"] = ("192.0.2.1", 50_000)
    assert Rests(transport, 98_304).receive_size == 0


def test_it_says_how_much_a_client_may_send_and_how_many_packets_have_come() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        made = Transport(client.getsockname(), server.getsockname())
        made.extra["socket"], _ = server.accept()
        version = tuple(map(int, platform.release().split(".")[:2]))
        rests = Rests(made, 98_304)
        try:
            assert rests.counted()[1] == 0
            for size in (10, 20, 30):
                client.sendall(b"x" * size)
                assert len(made.extra["socket"].recv(100)) == size
            offered, packets = rests.counted()
        finally:
            made.extra["socket"].close()
            made.socket.close()
    assert 32_768 < offered < 16 * 1024 * 1024 if version >= (6, 2) else offered == 0
    assert packets == 3
