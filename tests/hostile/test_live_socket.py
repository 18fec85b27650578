"""Requests of a live socket that no page sends."""

from __future__ import annotations

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from broker.settings.bounds import LIVE_REQUEST_MAX
from tests.api.test_sessions import live, sign_in
from tests.appliance import Appliance
from tests.hostile.sockets import TEXT, frame, opened

SUBSCRIBE = '{"type": "subscribe", "topic": "overview", "id": %s}'


@pytest.fixture
def guest(shared_leveret: Appliance) -> httpx.Client:
    client = httpx.Client(base_url=shared_leveret.http_url, timeout=30)
    assert sign_in(client, "guest", "guest").status_code == 302
    return client


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 5_000,
        SUBSCRIBE % "1e400",
        SUBSCRIBE % "NaN",
        SUBSCRIBE % ("9" * 5_000),
        SUBSCRIBE % "true",
        SUBSCRIBE % "null",
        SUBSCRIBE % '"1"',
        '{"type": "subscribe", "topic": 1e400, "id": 1}',
        '{"type": "subscribe", "topic": "rows", "noun": {"a": []}, "keys": [[]], "id": 1}',
        '{"type": "subscribe", "topic": "overview", "id": 1, "x": "'
        + "x" * LIVE_REQUEST_MAX
        + '"}',
        "null",
        "[]",
        "",
    ],
    ids=lambda text: text[:40],
)
def test_it_ends_with_a_protocol_error_and_no_line_in_the_log(
    shared_leveret: Appliance, guest: httpx.Client, text: str
) -> None:
    before = len(shared_leveret.log().splitlines())
    with live(guest) as socket:
        socket.send(text)
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                socket.recv(30)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == (1009 if len(text) > LIVE_REQUEST_MAX else 4400)
    written = shared_leveret.log().splitlines()[before:]
    assert not [line for line in written if " error " in line or "Traceback" in line]


def test_what_stands_behind_a_wrong_request_is_not_looked_at(
    shared_leveret: Appliance, guest: httpx.Client
) -> None:
    before = len(shared_leveret.log().splitlines())
    cookie = "; ".join(f"{name}={value}" for name, value in guest.cookies.items())
    for _ in range(5):
        peer, _ = opened(
            shared_leveret, "http", "/live/", Origin=shared_leveret.http_url, Cookie=cookie
        )
        wrong = frame(TEXT, b'{"type": "subscribe", "topic": "no", "id": 1}')
        with peer:
            peer.sendall(wrong + frame(TEXT, b"[" * 50_000))  # both end the socket
            assert peer.recv(1 << 16)
    assert guest.get("/api/whoami").status_code == 200
    written = shared_leveret.log().splitlines()[before:]
    assert not [line for line in written if " error " in line or "Traceback" in line]
