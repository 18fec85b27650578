"""What a WebSocket may send, before and after its login: on the broker's own port, through the web
port's relay, and on live sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Iterator

import httpx
import pytest

from broker.server.websocket import CLOSE_PATIENCE_S, WebSocketListener, WebSocketProtocol
from broker.serving.websocket_intake import PIECE, Allowance, Excess, Intake, Turns
from tests.amqp import raw
from tests.api.test_sessions import sign_in
from tests.appliance import Appliance
from tests.conftest import _maker
from tests.hostile.figures import forget_peak, peak_bytes, resident_bytes
from tests.hostile.sockets import (
    BINARY,
    CONTINUED,
    LOGIN,
    PING,
    TEXT,
    Flood,
    frame,
    last_words,
    logged_in,
    opened,
)
from tests.websocket.standin import Broker

DOORS = ["ws", "http"]
PROCESS = {"ws": "broker", "http": "web"}
MEGABYTES = 4 << 20
FLOODS = {
    "one long message": lambda: frame(BINARY, b"AMQP" + bytes(MEGABYTES - 100)),
    "one unfinished frame": lambda: frame(BINARY, bytes(MEGABYTES - 200), length=MEGABYTES - 100),
    "frames of one byte": lambda: frame(BINARY, b"x") * (MEGABYTES // 7),
    "fragments of one byte": lambda: (
        frame(BINARY, b"x", fin=False) + frame(CONTINUED, b"x", fin=False) * (MEGABYTES // 7)
    ),
    "empty fragments": lambda: (
        frame(BINARY, b"x", fin=False) + frame(CONTINUED, fin=False) * (MEGABYTES // 6)
    ),
    "text": lambda: frame(TEXT, b"x" * (MEGABYTES - 200), length=MEGABYTES - 100),
    "pings": lambda: frame(PING, bytes(125)) * (MEGABYTES // 131),
    "empty pings": lambda: frame(PING) * (MEGABYTES // 6),
}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """An appliance whose memory nobody else uses."""
    for make in _maker("serve", tmp_path_factory.mktemp("attacked")):
        yield make()


@pytest.mark.parametrize("attack", FLOODS)
@pytest.mark.parametrize("door", [*DOORS, "live"])
def test_who_has_not_signed_in_leaves_nothing_in_memory(
    attacked: Appliance, door: str, attack: str
) -> None:
    path = "/live/" if door == "live" else "/amqp"
    door = "http" if door == "live" else door
    pid = attacked.pids[PROCESS[door]]
    socks = [opened(attacked, door, path)[0] for _ in range(8)]
    forget_peak(pid)
    before = resident_bytes(pid)
    Flood(socks, FLOODS[attack]()).wait()
    # 30 to 50 MB through the web process without the bound.
    assert peak_bytes(pid) - before < 8 << 20
    for sock in socks:
        last_words(sock)
        sock.close()


@pytest.mark.parametrize("door", DOORS)
def test_a_client_may_send_each_byte_of_its_login_in_a_frame(
    attacked: Appliance, door: str
) -> None:
    sock, _ = opened(attacked, door)
    sock.sendall(b"".join(frame(BINARY, bytes([octet])) for octet in LOGIN))
    answer = b""
    while struct.pack(">HH", 20, 11) not in answer:
        answer += sock.recv(1 << 16)
    sock.close()


@pytest.mark.parametrize("door", DOORS)
def test_bytes_in_single_frames_arrive_in_order(attacked: Appliance, door: str) -> None:
    with raw.Client.open((attacked.host, attacked.amqp_port)) as reader:
        queue = f"single-{door}"
        reader.call(1, "queue.declare", queue=queue, auto_delete=True)
        body = bytes(range(256)) * 40
        sock = logged_in(attacked, door)
        sent = raw.publish(1, "", queue, body)
        whole = frame(BINARY, sent[:1], fin=False)
        whole += b"".join(frame(CONTINUED, bytes([octet]), fin=False) for octet in sent[1:-1])
        sock.sendall(whole + frame(CONTINUED, sent[-1:]))
        reader.call(1, "basic.consume", queue=queue, no_ack=True)
        assert reader.expect_message(channel=1).body == body
        sock.close()


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "nothing",
    [frame(PING, b"x"), frame(10), frame(BINARY), frame(CONTINUED, fin=False)],
    ids=["pings", "pongs", "empty messages", "empty fragments"],
)
def test_frames_without_content_are_few_in_a_second(
    attacked: Appliance, door: str, nothing: bytes
) -> None:
    sock = logged_in(attacked, door)
    if nothing == frame(CONTINUED, fin=False):
        sock.sendall(frame(BINARY, fin=False))
    sock.sendall(nothing * 1000)
    assert b"\x88" in (words := last_words(sock)) and (1008).to_bytes(2, "big") in words
    assert b"more than 50 pings or empty frames in a second" in words
    sock.close()


def test_pings_are_few_on_a_live_socket(attacked: Appliance) -> None:
    with httpx.Client(base_url=attacked.http_url, timeout=30) as client:
        assert sign_in(client, "guest", "guest").status_code == 302
        cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    sock, _ = opened(attacked, "http", "/live/", Cookie=cookies)
    sock.sendall(frame(PING, b"x") * 1000)
    assert b"more than 50 pings or empty frames in a second" in last_words(sock)
    sock.close()


@pytest.mark.parametrize("door", DOORS)
def test_pings_of_a_calm_client_are_answered(attacked: Appliance, door: str) -> None:
    sock = logged_in(attacked, door)
    for number in range(20):
        sock.sendall(frame(PING, bytes([number])))
        assert sock.recv(3) == b"\x8a\x01" + bytes([number])
    sock.close()


@pytest.mark.parametrize("path", ["/amqp", "/live/"])
@pytest.mark.parametrize("door", DOORS)
def test_nothing_is_inflated(attacked: Appliance, door: str, path: str) -> None:
    """A bomb needs permessage-deflate (RFC 7692), which no door takes up."""
    offer = "permessage-deflate; server_no_context_takeover; client_max_window_bits=15"
    sock, answer = opened(attacked, door, path, Sec_WebSocket_Extensions=offer)
    assert b"sec-websocket-extensions" not in answer.lower()
    sock.sendall(frame(BINARY, b"\xaa" * 100, compressed=True))
    words = last_words(sock)
    assert path == "/live/" or (1002).to_bytes(2, "big") in words
    sock.close()


@pytest.mark.parametrize("attack", ["frames of one byte", "fragments of one byte"])
@pytest.mark.parametrize("door", DOORS)
def test_others_are_answered_while_signed_in_clients_flood(
    attacked: Appliance, door: str, attack: str
) -> None:
    socks = [logged_in(attacked, door) for _ in range(8)]
    # Heartbeats, cut into bytes: what they say is nothing, and it is long.
    beat = raw.frame(8, 0, b"")
    if attack == "frames of one byte":
        once = b"".join(frame(BINARY, bytes([octet])) for octet in beat)
    else:
        once = b"".join(frame(CONTINUED, bytes([octet]), fin=False) for octet in beat)
        for sock in socks:
            sock.sendall(frame(BINARY, raw.frame(8, 0, b""), fin=False))
    with raw.Client.open((attacked.host, attacked.amqp_port)) as other:
        other.call(1, "queue.declare", queue="probe", exclusive=True)
        flood = Flood(socks, once * 10_000, endless=True)
        for _ in range(20):
            other.call(1, "queue.declare", queue="probe", passive=True)
        assert flood.alive == len(socks)
        flood.stop()
    for sock in socks:
        sock.close()


async def test_websockets_share_the_turns_of_the_loop() -> None:
    """However many send small frames at the same time."""
    listener = WebSocketListener(Broker(pre_login_bytes=1 << 30))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: WebSocketProtocol(listener), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    flood = frame(BINARY, b"x") * (200_000 // 7)
    writers = []
    for _ in range(20):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        writers.append(writer)
    connections = [await listener.broker.accepted.get() for _ in writers]
    for writer in writers:
        writer.write(flood)
    longest = 0.0
    while sum(len(connection.received) for connection in connections) < 20_000:
        begun = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - begun)
    for writer in writers:
        writer.transport.abort()
    server.close()
    listener.close()
    # Some 100 ms for each of the twenty without slices.
    assert longest < 0.030


REQUEST = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Recorded(asyncio.Transport):
    """A transport that notes what is written and takes nothing."""

    def __init__(self, **extra: object) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2), **extra})
        self.written: list[bytes] = []
        self.aborted = self.closing = self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """It has no buffer."""

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.aborted = True


NO_SOCKET = socket.socket()
NO_SOCKET.close()


def receive(door: WebSocketProtocol, data: bytes) -> None:
    door.get_buffer(len(data))[: len(data)] = data
    door.buffer_updated(len(data))


async def test_who_does_not_take_its_pongs_gets_the_newest() -> None:
    door, transport = (
        WebSocketProtocol(WebSocketListener(Broker(ws_pings_max=1000))),
        Recorded(socket=NO_SOCKET),
    )
    door.connection_made(transport)
    receive(door, REQUEST)
    transport.written.clear()
    door.pause_writing()
    for number in range(200):
        receive(door, frame(PING, bytes([number])))
    assert transport.written == []
    door.resume_writing()
    assert transport.written == [b"\x8a\x01" + bytes([199])]


async def test_a_peer_that_does_not_finish_the_close_is_dropped() -> None:
    door, transport = WebSocketProtocol(WebSocketListener(Broker())), Recorded(socket=NO_SOCKET)
    door.connection_made(transport)
    receive(door, REQUEST)
    receive(door, b"\xff" * 8)  # no frame: closed with 1002
    assert transport.closing
    door.look_at_clock(asyncio.get_running_loop().time() + CLOSE_PATIENCE_S + 1)
    assert transport.aborted


def test_an_allowance_counts_empty_frames_of_each_second_anew() -> None:
    allowance = Allowance(1 << 20, 2)
    for now in (10.0, 10.1, 11.0, 11.9, 12.5):
        allowance.take_frames(1, 1, now)
    allowance.take_frames(3, 0, 12.6)
    allowance.take_frames(2, 1, 12.6)
    with pytest.raises(Excess, match="more than 2 pings"):
        allowance.take_frames(1, 1, 12.7)


def test_an_allowance_has_no_bound_of_bytes_after_login() -> None:
    allowance = Allowance(100, 10)
    allowance.spend(100)
    allowance.signed_in = True
    allowance.spend(1 << 40)
    allowance.signed_in = False
    with pytest.raises(Excess, match="before login"):
        allowance.spend(1)


def test_what_waits_goes_on_in_order_of_arrival_and_stops_when_told() -> None:
    soon: list[object] = []
    turns = Turns(soon.append)
    taken: list[bytes] = []
    is_open = [True]
    intake = Intake(
        turns, lambda piece: taken.append(bytes(piece)), lambda: is_open[0], lambda: None
    )
    is_open[0] = False
    sent = bytes(range(256)) * 32
    intake.add(sent)
    assert taken == [] and len(intake) == len(sent)
    is_open[0] = True
    intake.go_on()
    while soon:
        soon.pop(0)()  # type: ignore[operator]
    assert b"".join(taken) == sent
    assert max(map(len, taken)) == PIECE


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("header", ["Host: elsewhere.example", "Origin: http://elsewhere.example"])
def test_bytes_behind_a_refused_request_leave_no_line_in_the_log(
    attacked: Appliance, door: str, header: str
) -> None:
    before = len(attacked.log().splitlines())
    request = REQUEST.replace(b"Host: localhost", header.encode())
    if header.startswith("Origin"):
        request = REQUEST.replace(b"Upgrade:", header.encode() + b"\r\nUpgrade:", 1)
    with socket.create_connection(tuple(attacked.addresses[door])) as sock:
        sock.sendall(request + b"\xff" * 100 + frame(PING) * 10)
        assert last_words(sock).split()[1] in (b"403", b"421")
    written = attacked.log().splitlines()[before:]
    assert not [line for line in written if " error " in line or "Traceback" in line]
