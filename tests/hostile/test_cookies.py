"""Cookies made to be slow to read (CVE-2024-7592), on pages and both kinds of socket."""

from __future__ import annotations

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from management.cookies import VALUE_MAX, cookies_of
from tests.appliance import Appliance
from tests.hostile.figures import cpu_seconds

SLOW = 'leveret_session="' + "\\" * 60_000 + '"'


def scope(*lines: bytes) -> dict[str, object]:
    return {"headers": [(b"host", b"x"), *((b"cookie", line) for line in lines)]}


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((), {}),
        ((b"leveret_session=a:b_c-d",), {"leveret_session": "a:b_c-d"}),
        ((b"a; leveret_csrf=t;leveret_session=s",), {"leveret_session": "s", "leveret_csrf": "t"}),
        ((b"leveret_session=first; leveret_session=second",), {"leveret_session": "first"}),
        ((b"leveret_session=a", b"leveret_csrf=b"), {"leveret_session": "a", "leveret_csrf": "b"}),
        ((b" leveret_session = s ",), {"leveret_session": "s"}),
        ((b"leveret_session",), {"leveret_session": ""}),
        ((b"xleveret_session=s; leveret_sessions=s",), {}),
        ((b"leveret_session=" + b"x" * (VALUE_MAX + 1),), {}),
        ((b";;=;=x;\xff=\xfe",), {}),
    ],
)
def test_it_reads_the_cookies_of_this_appliance_and_no_others(
    lines: tuple[bytes, ...], found: dict[str, str]
) -> None:
    assert cookies_of(scope(*lines)) == found


@pytest.mark.parametrize("path", ["/login", "/api/overview", "/queues"])
def test_a_page_reads_a_slow_cookie_in_no_time(shared_leveret: Appliance, path: str) -> None:
    web = shared_leveret.pids["web"]
    before = cpu_seconds(web)
    url = f"http://{shared_leveret.host}:{shared_leveret.http_port}{path}"
    answer = httpx.get(url, headers={"Cookie": SLOW}, timeout=60)
    assert answer.status_code in (200, 302, 401)
    # Python's parser of before 3.11.10 takes twelve seconds.
    assert cpu_seconds(web) - before < 4


@pytest.mark.parametrize("path", ["/live/", "/amqp"])
def test_a_socket_reads_a_slow_cookie_in_no_time(shared_leveret: Appliance, path: str) -> None:
    web = shared_leveret.pids["web"]
    before = cpu_seconds(web)
    url = f"ws://{shared_leveret.host}:{shared_leveret.http_port}{path}"
    with pytest.raises(InvalidStatus) as refused:
        connect(url, additional_headers={"Cookie": SLOW}, open_timeout=60)
    assert refused.value.response.status_code == 431
    assert cpu_seconds(web) - before < 4


def test_a_live_socket_reads_a_slow_cookie_of_the_length_it_takes(
    shared_leveret: Appliance,
) -> None:
    slow = 'leveret_session="' + "\\" * 8_000 + '"'
    web = shared_leveret.pids["web"]
    url = f"ws://{shared_leveret.host}:{shared_leveret.http_port}/live/"
    before = cpu_seconds(web)
    for _ in range(20):
        socket = connect(url, additional_headers={"Cookie": slow}, open_timeout=60)
        with socket, pytest.raises(ConnectionClosed):
            socket.recv(30)
    assert cpu_seconds(web) - before < 3
