"""The relay of the web port, between a browser and the broker's private socket."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.server import proxy_protocol
from management.asgi import Sockets
from management.relay import Relay, WholeFrames

AMQP_HEADER = b"AMQP\x00\x00\x09\x01"
FRAMES = [
    AMQP_HEADER,
    b"\x01\x00\x00\x00\x00\x00\x00\xce",
    b"\x03\x00\x01\x00\x00\x00\x05A\xceMQP\xce",
    b"\x08\x00\x00\x00\x00\x00\x00\xce",
]


class Browser:
    """One WebSocket at the ASGI border: what the browser sends, and what it was sent."""

    def __init__(self, application: Any, **changes: Any) -> None:
        self.scope: dict[str, Any] = {
            "type": "websocket",
            "path": "/",
            "scheme": "ws",
            "client": ("203.0.113.7", 50123),
            "server": ("192.0.2.1", 15672),
            "headers": [(b"host", b"broker.example:15672")],
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
            **changes,
        }
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.got: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent.put_nowait({"type": "websocket.connect"})
        self.task = asyncio.create_task(application(self.scope, self.sent.get, self.got.put))

    def send(self, data: bytes) -> None:
        self.sent.put_nowait({"type": "websocket.receive", "bytes": data})

    async def next(self) -> dict[str, Any]:
        return await asyncio.wait_for(self.got.get(), 60)


Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PrivateSocket:
    """The broker's end: connections as they come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.peers: asyncio.Queue[Peer] = asyncio.Queue()
        self.server: asyncio.Server | None = None

    async def open(self) -> None:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self.peers.put((reader, writer))

        self.server = await asyncio.start_unix_server(accepted, path=str(self.path))

    async def peer(self) -> tuple[Any, asyncio.StreamReader, asyncio.StreamWriter]:
        """What the PROXY header said, and the two directions."""
        reader, writer = await asyncio.wait_for(self.peers.get(), 60)
        start = await reader.readexactly(16)
        start += await reader.readexactly(int.from_bytes(start[14:16], "big"))
        header = proxy_protocol.parse(start)
        assert header is not None and header[0] == len(start)
        return header, reader, writer


@pytest.fixture
async def private_socket(tmp_path: Path) -> AsyncIterator[PrivateSocket]:
    opened = PrivateSocket(tmp_path / "relay.sock")
    await opened.open()
    yield opened
    assert opened.server is not None
    opened.server.close()


Open = Callable[..., Awaitable[Browser]]


@pytest.fixture
async def browse(private_socket: PrivateSocket) -> AsyncIterator[Open]:
    browsers = []

    async def open_browser(**changes: Any) -> Browser:
        browser = Browser(Relay(private_socket.path), **changes)
        browsers.append(browser)
        return browser

    yield open_browser
    for browser in browsers:
        browser.sent.put_nowait({"type": "websocket.disconnect", "code": 1001})
        await asyncio.wait_for(browser.task, 60)


@pytest.mark.parametrize(
    ("client", "server", "told"),
    [
        (("203.0.113.7", 50123), ("192.0.2.1", 15672), "203.0.113.7"),
        (("2001:db8::7", 50123), ("2001:db8::1", 15672), "2001:db8::7"),
        (("::ffff:203.0.113.7", 50123), ("::1", 15672), "203.0.113.7"),
        (("127.0.0.1", 50123), ("::1", 15672), "127.0.0.1"),
    ],
)
async def test_it_tells_the_broker_whose_connection_it_is(
    private_socket: PrivateSocket,
    browse: Open,
    client: tuple[str, int],
    server: tuple[str, int],
    told: str,
) -> None:
    await browse(client=client, server=server)
    (_, source, _), _, _ = await private_socket.peer()
    assert source == (told, 50123)


async def test_a_peer_without_an_address_is_told_as_local(
    private_socket: PrivateSocket, browse: Open
) -> None:
    await browse(client=None)
    (_, source, destination), _, _ = await private_socket.peer()
    assert source is destination is None


async def test_bytes_go_up_as_they_come(private_socket: PrivateSocket, browse: Open) -> None:
    browser = await browse()
    _, reader, _ = await private_socket.peer()
    for octet in AMQP_HEADER:
        browser.send(bytes([octet]))
    assert await asyncio.wait_for(reader.readexactly(8), 60) == AMQP_HEADER


@pytest.mark.parametrize(
    ("offered", "echoed"), [(["amqp"], "amqp"), (["x", "amqp"], "amqp"), (["x"], None), ([], None)]
)
async def test_it_echoes_the_sub_protocol(
    browse: Open, offered: list[str], echoed: str | None
) -> None:
    browser = await browse(subprotocols=offered)
    accepted = await browser.next()
    assert accepted["type"] == "websocket.accept"
    assert accepted.get("subprotocol") == echoed


async def test_frames_go_down_whole(private_socket: PrivateSocket, browse: Open) -> None:
    browser = await browse()
    await browser.next()
    _, _, writer = await private_socket.peer()
    whole = b"".join(FRAMES)
    for cut in range(1, len(whole)):
        writer.write(whole[:cut])
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(whole[cut:])
        received: list[bytes] = []
        while len(b"".join(received)) < len(whole):
            received.append((await browser.next())["bytes"])
        assert b"".join(received) == whole
        for message in received:
            assert is_whole(message), message


@pytest.mark.parametrize("cut", range(1, len(b"".join(FRAMES))))
def test_a_stream_is_gathered_into_whole_frames_wherever_it_is_cut(cut: int) -> None:
    whole = b"".join(FRAMES)
    frames = WholeFrames()
    pieces = [frames.feed(whole[:cut]), frames.feed(whole[cut:])]
    assert b"".join(pieces) == whole
    assert all(is_whole(piece) for piece in pieces)


def test_a_stream_that_is_no_amqp_is_an_error_and_not_a_buffer() -> None:
    with pytest.raises(ValueError, match="frame of"):
        WholeFrames().feed(b"\x01\x00\x00\xff\xff\xff\xff")


def is_whole(message: bytes) -> bool:
    """The slow twin: frames follow each other and the last one ends with the message."""
    while message:
        size = 8 if message[0] == 65 else 8 + int.from_bytes(message[3:7], "big")
        if len(message) < size:
            return False
        message = message[size:]
    return True


async def test_text_is_refused_with_1003(private_socket: PrivateSocket, browse: Open) -> None:
    browser = await browse()
    await browser.next()
    _, reader, _ = await private_socket.peer()
    browser.sent.put_nowait({"type": "websocket.receive", "text": "AMQP"})
    assert await browser.next() == {"type": "websocket.close", "code": 1003}
    assert await asyncio.wait_for(reader.read(), 60) == b""


async def test_it_closes_when_the_broker_does(private_socket: PrivateSocket, browse: Open) -> None:
    browser = await browse()
    await browser.next()
    _, _, writer = await private_socket.peer()
    writer.write(FRAMES[1])
    writer.close()
    assert (await browser.next())["bytes"] == FRAMES[1]
    assert await browser.next() == {"type": "websocket.close", "code": 1000}


async def test_the_broker_learns_that_the_browser_is_gone(
    private_socket: PrivateSocket, browse: Open
) -> None:
    browser = await browse()
    _, reader, _ = await private_socket.peer()
    browser.sent.put_nowait({"type": "websocket.disconnect", "code": 1001})
    assert await asyncio.wait_for(reader.read(), 60) == b""
    await asyncio.wait_for(browser.task, 60)


async def test_it_stops_reading_from_a_browser_when_the_broker_takes_no_more(
    private_socket: PrivateSocket, browse: Open
) -> None:
    browser = await browse()
    await browser.next()
    _, reader, _ = await private_socket.peer()
    for _ in range(64):
        browser.send(bytes(256 * 1024))
    for _ in range(1000):
        await asyncio.sleep(0)
    assert 32 < browser.sent.qsize() < 64
    left = 64 * 256 * 1024
    while left:
        left -= len(await asyncio.wait_for(reader.read(1 << 20), 60))
    assert browser.sent.qsize() == 0


async def test_the_brokers_last_words_reach_a_browser_that_still_sends(tmp_path: Path) -> None:
    sent: list[dict[str, Any]] = []
    received: list[dict[str, Any]] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "relay.sock"))
        listener.listen()

        async def receive() -> dict[str, Any]:
            received.append({"type": "websocket.receive", "bytes": FRAMES[3]})
            if len(received) == 1:
                return {"type": "websocket.connect"}
            if len(received) == 3:
                # The loop stands still meanwhile: the relay has read nothing when it sends again.
                broker, _ = listener.accept()
                broker.sendall(FRAMES[1])
                broker.close()
            elif len(received) == 4:
                await asyncio.Event().wait()
            return received[-1]

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        relay = Relay(tmp_path / "relay.sock")
        scope: dict[str, Any] = {"type": "websocket", "subprotocols": []}
        await asyncio.wait_for(relay(scope, receive, send), 60)
    assert sent == [
        {"type": "websocket.accept"},
        {"type": "websocket.send", "bytes": FRAMES[1]},
        {"type": "websocket.close", "code": 1000},
    ]


async def test_it_answers_503_while_the_broker_is_away(tmp_path: Path) -> None:
    browser = Browser(Relay(tmp_path / "nobody"))
    start = await browser.next()
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 503)
    await browser.task


async def test_pages_of_other_origins_reach_neither_relay_nor_live_updates() -> None:
    async def unreachable(*_: Any) -> None:
        raise AssertionError("it was let through")

    sockets = Sockets(unreachable, unreachable, lambda: ("http://friend.example",))
    for path in ("/", "/live/"):
        for origin in (b"http://elsewhere.example", b"null", b"http://broker.example"):
            headers = [(b"host", b"broker.example:15672"), (b"origin", origin)]
            browser = Browser(sockets, path=path, headers=headers)
            assert (await browser.next())["status"] == 403
            await browser.task


async def test_pages_of_this_host_and_of_allowed_origins_are_let_through() -> None:
    reached: list[str] = []

    async def reach(scope: dict[str, Any], *_: Any) -> None:
        reached.append(scope["path"])

    sockets = Sockets(reach, reach, lambda: ("http://friend.example",))
    for origin in (b"http://broker.example:15672", b"http://friend.example"):
        headers = [(b"host", b"broker.example:15672"), (b"origin", origin)]
        await Browser(sockets, path=origin.decode(), headers=headers).task
    await Browser(sockets, path="none", headers=[(b"host", b"broker.example")]).task
    assert reached == ["http://broker.example:15672", "http://friend.example", "none"]
