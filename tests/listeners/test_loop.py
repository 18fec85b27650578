"""The broker's loop serves plain sockets itself; asyncio has its turn beside them, however busy
they are, and handles ends, errors and what it watches."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.server.app import Broker
from broker.server.loop import Loop
from broker.settings.config import Config
from tests.amqp import raw

CALLS_MAX = 3_000_000
"""After this many the test fails instead of hanging: nothing else had its turn."""


def run(directory: Path, test: Callable[[Broker], Awaitable[None]], **settings: Any) -> None:
    """Runs a test beside a broker with these settings, in the broker's own loop."""
    ports = dict.fromkeys(("amqp_port", "ws_port", "http_port", "metrics_port"), 0)
    config = Config(data_dir=directory, disk_reserve=0, **ports, **settings)
    broker = Broker(config)

    async def whole() -> None:
        broker.recover()
        await broker.start()
        try:
            async with asyncio.timeout(60):
                await test(broker)
        finally:
            await broker.stop()

    with asyncio.Runner(loop_factory=lambda: Loop(broker.sockets)) as runner:
        runner.run(whole())


class AlwaysReadable:
    """A descriptor that is watched and has something at every look."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.calls = 0
        self.fd = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        broker.loop.add_reader(self.fd, self.serve)
        broker.sockets.watch(self.fd, self.serve)

    def serve(self) -> None:
        self.calls += 1
        if self.calls >= CALLS_MAX:
            self.end()

    def end(self) -> None:
        if self.fd >= 0:
            self.broker.loop.remove_reader(self.fd)
            self.broker.sockets.forget(self.fd)
            os.close(self.fd)
            self.fd = -1


def beside_a_busy_socket(
    directory: Path, wait: Callable[[asyncio.AbstractEventLoop], Awaitable[object]]
) -> None:
    async def test(broker: Broker) -> None:
        busy = AlwaysReadable(broker)
        try:
            await wait(broker.loop)
            assert 0 < busy.calls < CALLS_MAX
        finally:
            busy.end()

    run(directory, test)


def test_timers_fire_beside_a_busy_socket(tmp_path: Path) -> None:
    beside_a_busy_socket(tmp_path / "data", lambda loop: asyncio.sleep(0.05))


def test_threads_wake_the_loop_beside_a_busy_socket(tmp_path: Path) -> None:
    beside_a_busy_socket(tmp_path / "data", lambda loop: asyncio.to_thread(lambda: None))


def test_signals_are_handled_beside_a_busy_socket(tmp_path: Path) -> None:
    async def wait(loop: asyncio.AbstractEventLoop) -> None:
        came = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, came.set)
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
            await came.wait()
        finally:
            loop.remove_signal_handler(signal.SIGUSR1)

    beside_a_busy_socket(tmp_path / "data", wait)


def test_what_a_served_socket_schedules_has_its_turn(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        came = asyncio.Event()
        fd = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

        def serve() -> None:
            os.eventfd_read(fd)
            broker.loop.call_soon(lambda: broker.loop.call_later(0.01, came.set))

        broker.loop.add_reader(fd, serve)
        broker.sockets.watch(fd, serve)
        await came.wait()
        broker.loop.remove_reader(fd)
        broker.sockets.forget(fd)
        os.close(fd)

    run(tmp_path / "data", test)


def test_a_failure_keeps_no_other_from_its_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def wait(loop: asyncio.AbstractEventLoop) -> None:
        assert isinstance(loop, Loop)
        fd = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        failed = asyncio.Event()

        def fail() -> None:
            os.eventfd_read(fd)
            loop.call_soon(failed.set)
            raise ValueError("planted")

        loop.add_reader(fd, fail)
        loop.sockets.watch(fd, fail)
        await failed.wait()
        await asyncio.sleep(0)
        loop.remove_reader(fd)
        loop.sockets.forget(fd)
        os.close(fd)

    with caplog.at_level(logging.ERROR, "leveret.turn"):
        beside_a_busy_socket(tmp_path / "data", wait)
    assert "planted" in caplog.text


async def opened(broker: Broker) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that has logged in."""
    port = int(broker.listeners[0]["port"])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    before = len(broker.connections)
    writer.write(raw.PROTOCOL_HEADER + raw.start_ok())
    tuned = {"channel_max": 100, "frame_max": 131072, "heartbeat": 0}
    writer.write(raw.method(0, "connection.tune-ok", **tuned))
    writer.write(raw.method(0, "connection.open", virtual_host="/"))
    while len(broker.connections) == before:  # noqa: ASYNC110 (it tells nobody)
        await asyncio.sleep(0.001)
    return reader, writer


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 (it tells nobody)
        await asyncio.sleep(0.001)


def test_a_client_that_resets_its_connection_is_gone(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        _, writer = await opened(broker)
        sockets = broker.admission.sockets
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        await until(lambda: not broker.connections and broker.admission.sockets == sockets - 1)

    run(tmp_path / "data", test)


def test_a_client_that_ends_behind_its_last_publish_is_taken_at_its_word(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        _, writer = await opened(broker)
        writer.write(raw.method(1, "channel.open") + raw.method(1, "queue.declare", queue="last"))
        writer.write(raw.publish(1, "", "last", b"word"))
        writer.write_eof()
        await until(lambda: not broker.connections)
        assert broker.vhosts["/"].queues["last"].messages_ready == 1
        writer.close()

    run(tmp_path / "data", test)


def test_a_descriptor_that_is_used_again_belongs_to_its_new_owner(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        queues = broker.vhosts["/"].queues
        for number in range(1, 21):
            _, writer = await opened(broker)
            writer.write(raw.method(1, "channel.open"))
            writer.write(raw.method(1, "queue.declare", queue=f"q{number}"))
            await until(lambda count=number: len(queues) == count)  # type: ignore[misc]
            writer.close()
            await until(lambda: not broker.connections)

    run(tmp_path / "data", test)


def test_a_client_that_cannot_be_watched_is_gone_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its timer would close the descriptor later, which is another client's or a file's then.
    Regular files cannot be watched: the number of one stands for a kernel without memory."""

    async def test(broker: Broker) -> None:
        accept, refused = broker.accept, []

        def accept_as_a_file(*arguments: Any) -> Any:
            connection = accept(*arguments)
            refused.append(connection)
            with (tmp_path / "file").open("w") as file:
                os.dup2(file.fileno(), arguments[4])
            return connection

        sockets = broker.admission.sockets
        monkeypatch.setattr(broker, "accept", accept_as_a_file)
        with socket.create_connection(("127.0.0.1", int(broker.listeners[0]["port"]))):
            await until(lambda: bool(refused))
            monkeypatch.undo()
            assert refused[0].transport.is_closing()
            assert broker.admission.sockets == sockets
        await opened(broker)

    run(tmp_path / "data", test)
