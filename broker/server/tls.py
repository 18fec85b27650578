"""TLS between a socket and an inner protocol (RFC 8446, RFC 5246): a protocol towards asyncio, a
transport towards the inner one.

OpenSSL works on two buffers in memory, which all connections share (`Ciphertext`), and so is what
they are received into. An idle connection costs what OpenSSL keeps of its keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

from broker.process.garbage import release
from broker.process.logs import one_line
from broker.server.rests import Rests
from broker.server.sockets import Receiver
from broker.serving.certificates import distinguished_name, login_name

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.serving.tls_handshakes import Handshake

log = logging.getLogger("leveret.connection")

LATE_BYTES = 8 * 1024
"""Received at a time from those who come late in a turn."""


class TLSProtocol(asyncio.BufferedProtocol, asyncio.Transport):
    """One accepted socket. `inner` gets `connection_made` when the handshake is over."""

    __slots__ = (
        "_broker",
        "_buffered",
        "_ciphertext",
        "_closing",
        "_ends_when_sent",
        "_fd",
        "_handshake",
        "_inner",
        "_peer",
        "_read",
        "_rests",
        "_shaken",
        "_timer",
        "_tls",
        "_transport",
        "_waiting",
    )

    def __init__(self, broker: Broker, inner: Any, peer: str) -> None:
        self._broker = broker
        self._ciphertext = broker.ciphertext
        self._peer = peer
        self._inner = inner
        self._buffered = isinstance(inner, asyncio.BufferedProtocol)
        self._closing = False
        self._ends_when_sent = False
        self._fd = -1
        self._shaken = False
        self._transport: Any = None
        self._waiting = bytearray()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._rests = Rests(transport, self._broker.config.local_receive_buffer)
        self._handshake: Handshake | None = self._broker.admission.handshakes.begin(
            self._peer, self.abort
        )
        # Whatever the kernel does not take at once has to be known: then nothing more is delivered.
        transport.set_write_buffer_limits(high=0)  # type: ignore[attr-defined]
        context = self._broker.certificates.context
        if context is None:  # the certificate was taken away by a reload
            transport.abort()  # type: ignore[attr-defined]
            return
        between = self._ciphertext
        self._tls = context.wrap_bio(between.incoming, between.outgoing, server_side=True)
        # SSLObject's own function is a frame of Python's around this one, for each record.
        self._read = getattr(self._tls, "_sslobj", self._tls).read
        self._timer = self._broker.later(
            self._broker.config.tls_handshake_timeout, self._handshake_timed_out
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._ciphertext.received
        return buffer[:LATE_BYTES] if sizehint < 0 and self._broker.turn.late else buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._shaken:
            # A step of a handshake takes a millisecond, all that a turn has for who comes in it.
            if not self._waiting:
                self._transport.pause_reading()
                self._broker.turn.next_in_line(self._shake_late)
            self._waiting += self._ciphertext.received[:nbytes]
            return
        self._decipher(nbytes)

    def _shake_late(self) -> None:
        size = len(self._waiting)
        self._ciphertext.received[:size] = self._waiting
        self._waiting.clear()
        if not self._transport.is_closing():
            self._decipher(size)
            if not self._rests.paused:
                self._transport.resume_reading()

    def _decipher(self, nbytes: int) -> None:
        if self._closing:
            # After close_notify was sent, nothing is deciphered.
            if self._shaken:
                self._inner.discard(nbytes)
            return
        between, was_shaken = self._ciphertext, self._shaken
        filled, failed = 0, ""
        try:
            between.put(nbytes)
            if was_shaken or self._shake():
                filled = between.decipher(self._read)
        except ssl.SSLError as error:
            failed = _reason(error)  # not the error: it refers to this frame
        if between.incoming.pending:  # it is at its end or has failed: nothing of it is left there
            between.incoming.read()
        if self._shaken and not was_shaken:
            self._enter()
        if failed:
            self._fail(failed)
            return
        if between.outgoing.pending:  # a changed key is answered
            self._flush()
        has_ended = between.has_ended
        self._hand_over(filled)
        if has_ended:
            self.close()

    def _enter(self) -> None:
        """The handshake is over. From now on the loop receives without asyncio."""
        self._fd = self._transport.get_extra_info("socket").fileno()
        receiver = Receiver(self._ciphertext.received, self, self._rests)
        self._broker.sockets.watch(self._fd, receiver)
        self._inner.connection_made(self)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self._shaken:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._shaken:
            self._inner.resume_writing()
        if self._ends_when_sent:
            self._end_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._broker.sockets.forget(self._fd)
        release(self._transport)
        if self._shaken:
            self._inner.connection_lost(exc)
            self._inner = None  # which refers to us
            return
        self._end_handshake()
        self._broker.admission.give()
        timer = getattr(self, "_timer", None)
        if timer is not None:
            timer.cancel()

    # What the inner protocol calls.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        try:
            sealed = self._ciphertext.encipher(self._tls.write, data)
        except ssl.SSLError as error:
            self._fail(_reason(error))
            return
        self._transport.write(sealed)

    def close(self) -> None:
        """Says goodbye (close_notify) and closes when everything is sent."""
        if self._closing:
            return
        self._closing = True
        if self._shaken:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        self._transport.close()

    def write_eof(self) -> None:
        """Says goodbye and ends the writing side; what still comes is thrown away."""
        if self._closing:
            return
        self._closing = True
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()
        if self._transport.get_write_buffer_size():
            self._ends_when_sent = True
        else:
            self._end_writing()

    def abort(self) -> None:
        self._closing = True
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._closing or bool(self._transport.is_closing())

    def pause_reading(self) -> None:
        self._rests.pause()

    def resume_reading(self) -> None:
        self._rests.resume()

    def receive_freely(self) -> None:
        self._rests.receive_freely()

    def get_write_buffer_size(self) -> int:
        size: int = self._transport.get_write_buffer_size()
        return size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing to do: `connection_made` has set them."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        return self._transport.get_extra_info(name, default)

    # What others see.

    @property
    def facts(self) -> dict[str, Any]:
        """What RabbitMQ's API tells of a TLS connection."""
        cipher = self._tls.cipher()
        certificate = self._tls.getpeercert() or {}
        facts: dict[str, Any] = {
            "ssl_protocol": (self._tls.version() or "").lower(),
            "ssl_cipher": cipher[0] if cipher else None,
        }
        if certificate:
            facts["peer_cert_subject"] = distinguished_name(certificate["subject"])
            facts["peer_cert_issuer"] = distinguished_name(certificate["issuer"])
            facts["peer_cert_validity"] = f"{certificate['notBefore']} - {certificate['notAfter']}"
        return facts

    @property
    def login_name(self) -> str:
        """The user of the client's verified certificate; empty if there is none."""
        config = self._broker.config
        certificate = self._tls.getpeercert()
        if not certificate:
            return ""
        return login_name(certificate, config.tls_login_from, config.tls_login_san)

    # How it works.

    def _end_writing(self) -> None:
        """Asyncio's own would report as an error of ours that the peer has reset the connection."""
        with contextlib.suppress(OSError):
            self._transport.get_extra_info("socket").shutdown(socket.SHUT_WR)

    def _shake(self) -> bool:
        """Takes the handshake as far as it goes. Raises SSLError."""
        began = time.perf_counter_ns()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        finally:
            self._broker.turn.spend(time.perf_counter_ns() - began)
        self._flush()
        self._timer.cancel()
        self._end_handshake()
        self._shaken = True
        return True

    def _end_handshake(self) -> None:
        handshake, self._handshake = self._handshake, None  # it refers to us
        if handshake is not None:
            self._broker.admission.handshakes.end(handshake)

    def _hand_over(self, filled: int) -> None:
        if not filled:
            return
        if self._buffered:
            self._inner.buffer_updated(filled)
        else:
            self._inner.data_received(bytes(self._broker.receive_buffer[:filled]))

    def _flush(self) -> None:
        data = self._ciphertext.outgoing.read()
        if data:
            self._transport.write(data)

    def _fail(self, reason: str) -> None:
        """Sends the alert that OpenSSL has left, and ends."""
        peer = self._transport.get_extra_info("peername")
        log.info(
            "TLS with %s failed %s: %s",
            peer[0] if peer else "a stranger",
            "after the handshake" if self._shaken else "in the handshake",
            one_line(reason),
        )
        self._closing = True
        self._flush()
        self._transport.close()

    def _handshake_timed_out(self) -> None:
        log.info("no TLS handshake within tls_handshake_timeout")
        self.abort()


def _reason(error: ssl.SSLError) -> str:
    return error.reason or str(error) or "unknown"
