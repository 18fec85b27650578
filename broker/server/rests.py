"""Whether a socket of asyncio is read: not while its connection has paused it, nor while it rests
(`broker/kernel/coalescing.pyx`)."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any

_COUNTED = struct.Struct("=152xI76xI")
"""tcpi_data_segs_in and tcpi_rcv_wnd in struct tcp_info; the latter since Linux 6.2."""
SO_BUF_LOCK = 72
"""The module `socket` does not have it."""


def bound_receiving(sock: Any, size: int) -> None:
    """Has the kernel keep no more than about `size` bytes for the broker to receive; 0: as many as
    it likes, which may be megabytes."""
    if size:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def receive_freely(sock: Any) -> None:
    """From now on the kernel may let the receive buffer grow. Before Linux 5.14 it stays as it is.
    A send buffer that was bound would be free as well."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, SO_BUF_LOCK, 0)


class Rests:
    """Of one transport. `receive_size` is what the receive buffer of its socket is bound to: `size`
    bytes for a client of the same machine, else 0, and then it does not rest."""

    __slots__ = ("_is_free", "_resting", "_transport", "paused", "receive_size")

    def __init__(self, transport: Any, size: int) -> None:
        peer, local = map(transport.get_extra_info, ("peername", "sockname"))
        self.receive_size = size if peer and peer[0] == local[0] else 0
        self.paused = False
        self._is_free = False
        self._resting = False
        self._transport = transport

    def pause(self) -> None:
        """The connection reads no more for now."""
        self.paused = True
        self._transport.pause_reading()

    def resume(self) -> None:
        self.paused = False
        if not self._resting:
            self._transport.resume_reading()

    def begin_rest(self) -> None:
        self._resting = True
        self._transport.pause_reading()

    def end_rest(self) -> None:
        self._resting = False
        if not self.paused:
            self._transport.resume_reading()

    def counted(self) -> tuple[int, int]:
        """Bytes that the client may send (the receive window; 0: the kernel does not say), and how
        many packets with data have come (modulo 2**32)."""
        sock = self._transport.get_extra_info("socket")
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTED.size)
        packets, offered = _COUNTED.unpack(info.ljust(_COUNTED.size, b"\0"))
        return offered, packets

    def bound_receiving(self, size: int, may_grow: bool) -> None:
        """Has the kernel keep no more than about `size` bytes; 0: as many as without rests. Behind
        `receive_freely` it may exceed that where it `may_grow`."""
        sock = self._transport.get_extra_info("socket")
        bound_receiving(sock, size or self.receive_size)
        if may_grow and self._is_free:
            receive_freely(sock)

    def receive_freely(self) -> None:
        """The client uses publisher confirms, or sends long messages.

        With confirms, what waits for the broker is bounded by the messages that the client lets be
        unconfirmed, and a receive buffer below that stops it again and again. The kernel also drops
        what does not fit: it offers more than it has room for. A buffer that may grow does that
        instead."""
        if self.receive_size:
            self._is_free = True
            receive_freely(self._transport.get_extra_info("socket"))
