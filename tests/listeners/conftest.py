"""Certificates, and raw clients over TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from tests.amqp import raw
from tests.listeners.certificates import Authority

Connect = Callable[..., raw.Client]


class TLSClient(raw.Client):
    """A raw AMQP client over TLS, not yet signed in."""

    def __init__(
        self, address: tuple[str, int], context: ssl.SSLContext, name: str = "localhost"
    ) -> None:
        super().__init__(address)
        self.socket: Any = context.wrap_socket(self.socket, server_hostname=name)

    def use(self, **handshake: Any) -> TLSClient:
        """Signs in and opens channel 1."""
        self.start(**handshake)
        self.send_method(0, "connection.open", virtual_host="/")
        self.expect("connection.open-ok", 0)
        self.call(1, "channel.open")
        return self

    def read_exactly(self, count: int) -> bytes:
        try:
            return super().read_exactly(count)
        except ssl.SSLError as error:
            raise raw.ConnectionEndedError(str(error)) from None

    def common_name(self) -> str:
        """Of the broker's certificate."""
        subject = self.socket.getpeercert()["subject"]
        return next(value for each in subject for name, value in each if name == "commonName")


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that tests share; names of certificates are the test's own."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    authority.issue("server", subject="/CN=server", san="DNS:localhost,IP:127.0.0.1")
    return authority


def hang_up(address: tuple[str, int], data: bytes = b"", timeout: float = 10.0) -> bytes:
    """What the broker sends to somebody who sends this, until it ends the connection."""
    with socket.create_connection(address, timeout) as peer:
        peer.sendall(data)
        received = b""
        try:
            while chunk := peer.recv(65536):
                received += chunk
        except ConnectionError:
            pass
        return received
