"""The web process's sockets."""

import asyncio
import logging
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from management.web import _is_ours, bind


def test_an_accepted_socket_sends_without_delay() -> None:
    """With Nagle's algorithm, the second part of an answer waits for a delayed ACK (40 ms)."""
    config: Any = SimpleNamespace(
        http_port=0, https_port=0, tls_cert_file="a", bind=("127.0.0.1", "::1"), tcp_backlog=8
    )
    bound = bind(cast(Any, config))
    assert [name for name, _ in bound] == ["http", "https"]
    for _, listeners in bound:
        for listener in listeners:
            with listener, socket.create_connection(listener.getsockname()[:2], 5):
                accepted, _ = listener.accept()
                with accepted:
                    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [(asyncio.CancelledError(), False), (ValueError("a fault of a view"), True)],
)
def test_a_request_that_the_stop_cancels_is_no_fault_in_the_log(
    error: BaseException, is_logged: bool
) -> None:
    about = (type(error), error, None)
    message = "Exception in ASGI application\n"
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, message, (), about)
    assert _is_ours(record) is is_logged
