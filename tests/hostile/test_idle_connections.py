"""Connections of the web app between two requests: how long they last, and what comes last."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import uvicorn
from django.test import override_settings
from uvicorn.server import ServerState

from broker.settings.config import Config
from management.http_protocol import BoundedHTTP
from tests.appliance import Appliance

REQUEST = b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"


async def application(scope: object, receive: object, send: Callable[..., Any]) -> None:
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[tuple[socket.socket, BoundedHTTP]]:
    """A client's socket and the protocol at the other end."""
    config = uvicorn.Config(application, lifespan="off", log_config=None)
    config.load()
    near, far = socket.socketpair()
    near.setblocking(False)
    with override_settings(APPLIANCE=Config()), near:
        _, protocol = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: BoundedHTTP(config=config, server_state=ServerState(), app_state={}), far
        )
        yield near, protocol
        protocol.transport.abort()
        await asyncio.sleep(0)


async def answer(near: socket.socket) -> bytes:
    received = b""
    loop = asyncio.get_running_loop()
    while not received.endswith(b"\r\n\r\nok"):
        data = await asyncio.wait_for(loop.sock_recv(near, 1 << 16), 60)
        assert data, "the connection was closed"
        received += data
    return received


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
@pytest.mark.parametrize("is_read", [True, False], ids=["read", "in the socket"])
async def test_a_request_that_comes_when_its_connection_would_be_closed_is_answered(
    is_first: bool, is_read: bool
) -> None:
    async with connected() as (near, protocol):
        if not is_first:
            near.sendall(REQUEST)
            await answer(near)
        near.sendall(REQUEST)
        if is_read:  # and not parsed yet
            protocol.data_received(near_to_far(protocol))
        protocol._too_slow() if is_first else protocol.timeout_keep_alive_handler()
        assert (await answer(near)).startswith(b"HTTP/1.1 200 ")


def near_to_far(protocol: BoundedHTTP) -> bytes:
    """What is in the socket, as the loop would read it."""
    with socket.socket(fileno=protocol.transport.get_extra_info("socket").dup().detach()) as same:
        return same.recv(1 << 16)


async def test_an_idle_connection_is_closed() -> None:
    async with connected() as (near, protocol):
        near.sendall(REQUEST)
        await answer(near)
        protocol.timeout_keep_alive_handler()
        assert protocol.transport.is_closing()


async def test_empty_lines_keep_no_connection() -> None:
    async with connected() as (near, protocol):
        near.sendall(b"\r\n")
        protocol._too_slow()
        assert not protocol.transport.is_closing()
        near.sendall(b"\r\n")
        protocol._too_slow()
        assert protocol.transport.is_closing()


def test_answers_tell_how_long_an_idle_connection_is_kept(shared_leveret: Appliance) -> None:
    url = f"http://{shared_leveret.host}:{shared_leveret.http_port}/health"
    assert (
        httpx.get(url, timeout=60).headers["keep-alive"] == f"timeout={Config().http_keep_alive:g}"
    )
