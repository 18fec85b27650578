"""WebSockets as uvicorn speaks them: a peer that sends nonsense ends its connection, no more."""

import asyncio
import logging

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from broker.logs import one_line

log = logging.getLogger(__name__)


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
