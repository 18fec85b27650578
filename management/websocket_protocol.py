"""WebSockets as uvicorn speaks them: a peer that sends nonsense ends its connection, no more."""

import asyncio
import logging

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from broker.logs import one_line

log = logging.getLogger(__name__)


REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class PatientWebSocket(WebSocketsSansIOProtocol):
    """One connection of a browser."""

    transport: asyncio.Transport

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        try:
            super().data_received(data)
        except Exception as error:
            # uvicorn takes for granted what only well-formed frames and ASCII headers are.
            log.info("WebSocket of %s ended: %s", self.client, one_line(repr(error)))
            self.transport.abort()
            return
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # Longer lines or more headers than `websockets` takes: uvicorn would not answer.
            self.transport.write(REFUSAL)
            self.transport.close()
