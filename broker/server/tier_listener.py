"""The listener for the tiers process, which connects to `run/tiers.sock`, gets tasks and answers
them (`broker.schema.tier_work`). One process at a time: a second one takes the first one's place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import struct
from typing import TYPE_CHECKING

import msgspec

from broker.schema.tier_work import FRAME_MAX, Answer, Task
from broker.server.streams import streams_of

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger("leveret.tiers")

_LENGTH = struct.Struct(">I")


class TierListener:
    """Listens once the broker has tiers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._server: asyncio.Server | None = None
        self._encoder = msgspec.msgpack.Encoder()
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Opens the socket, for the owner only. The data directory is locked: a socket file that is
        there was left behind."""
        path = self._broker.config.tier_socket
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        if self._broker.tiers is not None:
            before = os.umask(0o177)
            try:
                loop = asyncio.get_running_loop()
                self._server = await loop.create_unix_server(streams_of(self._serve), path)
            finally:
                os.umask(before)

    async def close(self) -> None:
        """Closes the socket and the connection."""
        if self._server is not None:
            self._server.close()
            self._leave(self._writer)
            with contextlib.suppress(FileNotFoundError):
                self._broker.config.tier_socket.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._leave(self._writer)
        self._writer = writer
        decoder = msgspec.msgpack.Decoder(Answer)
        self._broker.tiers.connected(self._send)
        try:
            while True:
                (length,) = _LENGTH.unpack(await reader.readexactly(4))
                if length > FRAME_MAX:
                    log.error("the tiers process announced a frame of %d bytes", length)
                    return
                answer = decoder.decode(await reader.readexactly(length))
                if self._writer is not writer:
                    return
                self._broker.tiers.carrier.answered(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        except msgspec.MsgspecError as error:
            log.error("cannot read an answer of the tiers process: %s", error)
        finally:
            self._leave(writer)

    def _send(self, task: Task) -> None:
        if self._writer is not None:
            content = self._encoder.encode(task)
            self._writer.write(_LENGTH.pack(len(content)) + content)

    def _leave(self, writer: asyncio.StreamWriter | None) -> None:
        """This connection is over."""
        if writer is None:
            return
        writer.close()
        if writer is self._writer:
            self._writer = None
            self._broker.tiers.disconnected()
