"""How a connection or a channel of the client ends."""

from __future__ import annotations


class ClientError(Exception):
    """Base of every error of the client."""


class ConnectionLost(ClientError):
    """The connection ended without connection.close: end of stream, time-out, network error."""


class TLSFailed(ConnectionLost):
    """No TLS connection: a certificate that is not accepted, by either side, or no TLS there."""


class ProtocolError(ClientError):
    """The server sent bytes that AMQP 0-9-1 does not allow; the text says which."""


class Closed(ClientError):
    """The server closed the connection or the channel. `code` and `text` are its reply code and
    text, `method` the index (class << 16 | method) of the method that failed, or 0."""

    what = "connection"

    def __init__(self, code: int, text: str, method: int = 0) -> None:
        super().__init__(f"the server closed the {self.what}: {code} {text}")
        self.code = code
        self.text = text
        self.method = method


class ConnectionClosed(Closed):
    """connection.close from the server, or the client's own close (code 200)."""


class ChannelClosed(Closed):
    """channel.close from the server, or the client's own close (code 200)."""

    what = "channel"
