"""Lists without pages and definitions that are long: streamed, whole or visibly broken, and cheap
to hold up."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.api.conftest import path
from tests.appliance import Appliance
from tests.hostile.figures import peak_bytes, wait_idle

COUNT = 1_234
MANY = 5_000
READERS = 20
LIST = path("queues", "long-lists")
DEFINITIONS = path("definitions")


def declare(api: httpx.Client, count: int, note: str = "") -> None:
    api.put(path("vhosts", "long-lists"), json={}).raise_for_status()
    arguments = {"note": note} if note else {}
    queue = {"durable": False, "auto_delete": False, "arguments": arguments}
    queues = [{"name": f"q{number:04}", **queue} for number in range(count)]
    api.post(path("definitions", "long-lists"), json={"queues": queues}).raise_for_status()


@pytest.fixture(scope="module", autouse=True)
def queues(clients: dict[str, httpx.Client]) -> Iterator[None]:
    admin = clients["administrator"]
    declare(admin, COUNT)
    yield
    admin.delete(path("vhosts", "long-lists")).raise_for_status()


@pytest.fixture
def alone(make_leveret: Callable[..., Appliance]) -> Iterator[tuple[Appliance, httpx.Client]]:
    """An appliance of the test's own with many queues, more than buffers of sockets hold."""
    leveret = make_leveret()
    with httpx.Client(base_url=leveret.http_url, auth=("guest", "guest"), timeout=60) as api:
        declare(api, MANY, "." * 1000)
        yield leveret, api


def ask_and_read_nothing(leveret: Appliance, what: str = LIST) -> socket.socket:
    """A client that asked for the list and has its head, but takes no more."""
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.settimeout(30)
    slow.connect(("127.0.0.1", leveret.http_port))
    login = base64.b64encode(b"guest:guest").decode()
    slow.sendall(
        f"GET {what} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n\r\n".encode()
    )
    assert slow.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
    return slow


@pytest.mark.parametrize("extra", [{}, {"sort": "name", "sort_reverse": "true"}, {"name": "1"}])
def test_a_long_list_is_its_pages_together(api: httpx.Client, extra: dict[str, str]) -> None:
    chosen = {"columns": "name,vhost,arguments,durable,type,messages", **extra}
    rows: list[object] = []
    for number in range(1, 100):
        page = api.get(LIST, params={**chosen, "page": number, "page_size": 300}).json()
        rows += page["items"]
        if number >= page["page_count"]:
            break
    assert len(rows) > 500
    assert api.get(LIST, params=chosen).json() == rows


def test_a_long_list_has_whole_rows_and_the_head_of_a_short_one(api: httpx.Client) -> None:
    answer = api.get(LIST)
    short = api.get(LIST, params={"name": "q0001"})
    assert answer.headers["Content-Type"] == short.headers["Content-Type"]
    assert answer.json()[1].keys() == short.json()[0].keys()
    assert [row["name"] for row in answer.json()] == [f"q{number:04}" for number in range(COUNT)]


def test_a_long_list_is_one_compressed_answer(api: httpx.Client) -> None:
    with api.stream("GET", LIST, headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        raw = b"".join(answer.iter_raw())
    assert len(json.loads(gzip.decompress(raw))) == COUNT


def test_a_refused_list_has_its_status(api: httpx.Client) -> None:
    assert api.get(path("queues", "no such vhost")).status_code == 404
    assert api.get(LIST, params={"name": "(", "use_regex": "true"}).status_code == 400


def test_head_of_a_long_list_has_no_body(api: httpx.Client) -> None:
    answer = api.head(LIST)
    assert (answer.status_code, answer.content) == (200, b"")
    assert api.get("/api/whoami").status_code == 200


def test_long_definitions_are_those_of_the_vhosts_together(api: httpx.Client) -> None:
    whole = api.get(DEFINITIONS).json()
    assert list(whole)[-5:] == ["parameters", "policies", "queues", "exchanges", "bindings"]
    queues = [row["name"] for row in whole["queues"] if row["vhost"] == "long-lists"]
    assert sorted(queues) == [f"q{number:04}" for number in range(COUNT)]
    one = api.get(path("definitions", "long-lists"), params={"download": "some.json"})
    assert one.headers["Content-Disposition"] == 'attachment; filename="some.json"'
    assert [row["name"] for row in one.json()["queues"]] == queues
    assert api.post(path("definitions", "long-lists"), json=one.json()).status_code == 204


@pytest.mark.parametrize("what", [LIST, DEFINITIONS])
def test_clients_that_read_nothing_cost_the_web_process_little(
    alone: tuple[Appliance, httpx.Client], what: str
) -> None:
    leveret, api = alone
    web, broker = leveret.pids["web"], leveret.pids["broker"]
    # What was made for the import and the first requests counts for nothing.
    assert api.get(what).text.count('"q') >= MANY
    before = peak_bytes(web), peak_bytes(broker)
    with contextlib.ExitStack() as slow:
        for _ in range(READERS):
            slow.enter_context(ask_and_read_nothing(leveret, what))
        wait_idle(web)
        wait_idle(broker)
        whole = len(api.get(what, headers={"Accept-Encoding": "identity"}).content)
        assert peak_bytes(web) - before[0] < READERS * whole / 4
        assert peak_bytes(broker) - before[1] < READERS * whole / 4


def test_many_queues_are_exported_by_name(alone: tuple[Appliance, httpx.Client]) -> None:
    """Two exports of the same queues are alike, also after a start."""
    names = [row["name"] for row in alone[1].get(DEFINITIONS).json()["queues"]]
    assert names == [f"q{number:04}" for number in range(MANY)]


@pytest.mark.parametrize("what", [LIST, DEFINITIONS])
def test_a_list_breaks_off_visibly_when_the_broker_dies(
    alone: tuple[Appliance, httpx.Client], what: str
) -> None:
    leveret, _ = alone
    with ask_and_read_nothing(leveret, what) as slow:
        wait_idle(leveret.pids["web"])
        leveret.signal(signal.SIGKILL, "broker")
        taken = b""
        while piece := slow.recv(1 << 16):
            taken += piece
    assert b"q0001" in taken
    assert not taken.endswith(b"0\r\n\r\n")
    assert b"q4999" not in taken
    assert f"GET {what} broken off: the broker went away" in leveret.log().replace("'", "")
    assert "Traceback" not in leveret.log()
    # A stop that comes before the supervisor has seen the kill ends with a status of its own.
    deadline = time.monotonic() + 60
    while "broker ended with signal 9" not in leveret.log():
        assert time.monotonic() < deadline
        time.sleep(0.02)
