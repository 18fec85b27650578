"""Bodies that do not come, or not to their end: of strangers none is read, of users a bounded part
is held, and for a bounded time."""

from __future__ import annotations

import base64
import contextlib
import http.client
import select
import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from management import bodies
from tests.appliance import Appliance
from tests.conftest import Make
from tests.hostile.figures import peak_bytes

MIB = 1 << 20
GUEST = "guest:guest"
OTHER = "other:other"
QUEUE = "PUT /api/queues/%2F/slow"


@pytest.fixture(scope="module")
def leveret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """One user may hold 10 MiB, and so may all strangers; one address of theirs 2.5 MiB."""
    appliance = Appliance(
        "serve",
        tmp_path_factory.mktemp("bodies"),
        http_timeout="60 s",
        http_unfinished_max="40 MiB",
        login_failures_max=1000,
    ).start()
    all_of_it = {"configure": ".*", "write": ".*", "read": ".*"}
    with httpx.Client(base_url=appliance.http_url, auth=("guest", "guest"), timeout=60) as api:
        api.put("/api/users/other", json={"password": "other", "tags": "administrator"})
        assert api.put("/api/permissions/%2F/other", json=all_of_it).status_code == 201
    yield appliance
    appliance.close()


def send(
    leveret: Appliance,
    request: str,
    *headers: str,
    who: str | None = None,
    length: int | None = None,
    body: bytes = b"",
) -> socket.socket:
    """A connection on which a head was sent, and as much of the body as is given."""
    sock = socket.create_connection((leveret.host, leveret.http_port), timeout=60)
    lines = [f"{request} HTTP/1.1", "Host: localhost", *headers]
    if who is not None:
        lines.append("Authorization: Basic " + base64.b64encode(who.encode()).decode())
    if length is not None:
        lines.append(f"Content-Length: {length}")
    sock.sendall("\r\n".join([*lines, "", ""]).encode() + body)
    return sock


def answer(sock: socket.socket) -> tuple[int, bytes]:
    found = http.client.HTTPResponse(sock)
    found.begin()
    return found.status, found.read()


def works(leveret: Appliance, who: str) -> bool:
    with send(leveret, QUEUE, who=who, length=2, body=b"{}") as sock:
        return answer(sock)[0] in (201, 204)


ROUTES = [
    "POST /api/definitions",
    "POST /api/definitions/upload",
    "POST /api/definitions/%2F",
    "POST /api/definitions/%2F/upload",
    "POST /api/all-configuration",
    QUEUE,
    "PUT /api/users/mallory",
    "POST /api/exchanges/%2F/amq.default/publish",
    "DELETE /api/queues/%2F/slow",
    "GET /api/overview",
]


@pytest.mark.parametrize("who", [None, "guest:wrong"], ids=["nobody", "wrong password"])
@pytest.mark.parametrize("request_line", ROUTES)
def test_credentials_are_asked_before_a_body_comes(
    leveret: Appliance, request_line: str, who: str | None
) -> None:
    with send(leveret, request_line, who=who, length=MIB) as sock:
        assert answer(sock)[0] == 401


def test_a_tag_is_asked_before_a_body_comes(leveret: Appliance) -> None:
    url = f"{leveret.http_url}/api/users/plain"
    put = {"password": "plain", "tags": "management"}
    httpx.put(url, json=put, auth=("guest", "guest"), timeout=60)
    with send(leveret, "POST /api/definitions", who="plain:plain", length=MIB) as sock:
        status, text = answer(sock)
    assert (status, b"Not administrator user" in text) == (401, True)


@pytest.mark.parametrize("path", ["/definitions", "/queues", "/users", "/no/such/page"])
def test_a_page_asks_for_a_session_before_a_body_comes(leveret: Appliance, path: str) -> None:
    kind = "Content-Type: application/x-www-form-urlencoded"
    with send(leveret, f"POST {path}", kind, length=MIB) as sock:
        assert answer(sock)[0] in (401, 404)


def test_the_sign_in_form_takes_no_large_body(leveret: Appliance) -> None:
    kind = "Content-Type: application/x-www-form-urlencoded"
    with send(leveret, "POST /login", kind, length=MIB) as sock:
        assert answer(sock)[0] == 400


def test_a_body_in_chunks_is_refused_before_it_comes(leveret: Appliance) -> None:
    with send(leveret, QUEUE, "Transfer-Encoding: chunked", who="guest:wrong") as sock:
        assert answer(sock)[0] == 401


def test_a_client_that_asks_first_is_told_to_go_on_only_if_it_is_let_in(
    leveret: Appliance,
) -> None:
    expect = "Expect: 100-continue"
    with send(leveret, QUEUE, expect, who="guest:wrong", length=2) as sock:
        assert answer(sock)[0] == 401
        assert sock.recv(1) == b"", "what comes next could be a body or a request"
    with send(leveret, QUEUE, expect, who=GUEST, length=2) as sock:
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
        sock.sendall(b"{}")
        assert answer(sock)[0] in (201, 204)


def test_a_refused_client_sends_the_rest_and_asks_again_on_its_connection(
    leveret: Appliance,
) -> None:
    with send(leveret, QUEUE, who="guest:wrong", length=100_000) as sock:
        assert answer(sock)[0] == 401
        sock.sendall(bytes(100_000) + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer(sock)[0] == 200


@pytest.mark.parametrize(
    "announced", [f"Content-Length: {bodies.BODY_MAX + 1}", "Transfer-Encoding: chunked"]
)
def test_a_client_whose_body_is_not_read_to_its_end_is_told_to_connect_again(
    leveret: Appliance, announced: str
) -> None:
    with send(leveret, QUEUE, announced, who="guest:wrong") as sock:
        found = http.client.HTTPResponse(sock)
        found.begin()
        assert (found.status, found.getheader("connection")) == (401, "close")


def test_unfinished_bodies_of_one_user_leave_room_for_another(leveret: Appliance) -> None:
    body = bytes(3 * MIB)
    long = "POST /api/definitions"
    socks = [send(leveret, long, who=GUEST, length=4 * MIB, body=body) for _ in range(4)]
    readable, _, _ = select.select(socks, [], [], 30)
    assert len(readable) == 1, "three of them fit"
    status, text = answer(readable[0])
    assert (status, b"http_unfinished_max" in text) == (503, True)
    assert works(leveret, OTHER)
    assert works(leveret, GUEST), "a little room is left"
    for sock in socks:
        sock.close()
    with send(leveret, long, who=GUEST, length=9 * MIB, body=b"{}" + b" " * (9 * MIB - 2)) as sock:
        assert answer(sock)[0] == 204, "the room is free again"


def test_a_body_whose_end_does_not_come_is_given_up(make_leveret: Make) -> None:
    with send(
        make_leveret(http_timeout="1 s"), QUEUE, who=GUEST, length=MIB, body=bytes(MIB - 1)
    ) as sock:
        status, text = answer(sock)
        assert (status, b"http_body_rate_min" in text) == (408, True)
        assert sock.recv(1) == b""


def test_large_heads_of_one_address_are_bounded_together(leveret: Appliance) -> None:
    line = b"X-Long: " + b"x" * 50_000
    socks = []
    for _ in range(60):
        sock = send(leveret, "GET /health", "Nothing: yet")
        sock.close()
        sock = socket.create_connection((leveret.host, leveret.http_port), timeout=60)
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + line)
        socks.append(sock)
    assert works(leveret, GUEST), "small requests are not counted"
    refused = 0
    while refused < 5:
        answered, _, _ = select.select(socks, [], [], 30)
        assert answered, f"{refused} were refused"
        for sock in answered:
            refused += b" 503 " in sock.recv(100)
            sock.close()
            socks.remove(sock)
    for sock in socks:
        sock.close()


def test_a_pace_is_kept_up_and_not_saved_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace = bodies._Pace(30.0, 1000)
    assert pace.left_s() == 30
    pace.came(10_000_000)
    assert pace.left_s() == 30, "a fast part makes no later pause longer"
    for _ in range(100):
        now += 10
        pace.came(9_000)
        if pace.left_s() <= 0:
            break
    assert now == pytest.approx(100 + 300), "a second behind for each ten: at the thirtieth"


def test_bodies_of_strangers_take_no_memory(leveret: Appliance) -> None:
    web = leveret.pids["web"]
    assert works(leveret, GUEST)
    before = peak_bytes(web)
    body = bytes(2 * MIB - 1)
    socks = []
    for _ in range(30):
        sock = send(leveret, "POST /api/definitions", who="guest:wrong", length=2 * MIB)
        sock.settimeout(1)
        with contextlib.suppress(OSError):  # it is refused before it was sent
            sock.sendall(body)
        socks.append(sock)
    assert works(leveret, GUEST)
    # 70 MB before.
    assert peak_bytes(web) - before < 25 * MIB
    for sock in socks:
        sock.close()
