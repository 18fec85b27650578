"""No client can fill the log: lines are limited by source, and each stays one line."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator

import httpx
import pytest

from broker.process import log_limit, logs
from broker.process.log_limit import BURST_S, LimitedHandler, source_of
from tests.api.test_sessions import sign_in
from tests.appliance import Appliance


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def line(template: str, *args: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("leveret.connection", level, "", 0, template, args, None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def handler(kept: Kept, clock: Clock) -> Iterator[LimitedHandler]:
    handler = LimitedHandler([kept], 5, clock)
    yield handler
    handler.close()


def test_a_source_writes_so_many_lines_and_the_rest_is_told_once(
    handler: LimitedHandler, kept: Kept, clock: Clock
) -> None:
    for number in range(1_000):
        handler.handle(line("%s: bad frame %d", "192.0.2.1:7 -> 192.0.2.9:5672", number))
    assert len(kept.texts) == 5 * BURST_S
    # Others are not concerned.
    handler.handle(line("%s: bad frame %d", "192.0.2.2:7 -> 192.0.2.9:5672", 1))
    handler.handle(line("started"))
    assert kept.texts[-2:] == ["192.0.2.2:7 -> 192.0.2.9:5672: bad frame 1", "started"]
    handler.tell()
    assert kept.texts[-1] == (
        "950 more lines about '192.0.2.1' are left out in 10 s (log_lines_per_second is 5)"
    )
    before = len(kept.texts)
    handler.tell()
    assert len(kept.texts) == before
    clock.now += 1.0
    for number in range(10):
        handler.handle(line("%s: bad frame %d", "192.0.2.1:8 -> 192.0.2.9:5672", number))
    assert len(kept.texts) == before + 5


def test_a_line_for_which_there_is_no_room_is_not_made(handler: LimitedHandler, kept: Kept) -> None:
    made = []

    def make() -> logging.LogRecord:
        made.append(line("connection %s", "192.0.2.1:7 -> 192.0.2.9:5672"))
        return made[-1]

    for _ in range(1_000):
        handler.take(("leveret", "192.0.2.1"), make)
    assert len(kept.texts) == len(made) == 5 * BURST_S
    handler.tell()
    assert "950 more lines about '192.0.2.1'" in kept.texts[-1]


def test_many_sources_are_limited_together(handler: LimitedHandler, kept: Kept) -> None:
    for number in range(5_000):
        handler.handle(line("%s: refused", f"192.0.{number >> 8}.{number & 255}"))
    assert len(kept.texts) == 5 * BURST_S * log_limit.ALL_TIMES
    handler.tell()
    assert sum(int(re.sub(r"[ ,].*", "", one)) > 0 for one in kept.texts[-11:]) == 11
    assert "further sources" in " ".join(kept.texts[-11:])
    assert len(handler._buckets) <= log_limit.SOURCES_KEPT


def test_debug_lines_and_a_limit_of_nothing_are_let_through(kept: Kept) -> None:
    for per_second, level in ((1, logging.DEBUG), (0, logging.ERROR)):
        handler = LimitedHandler([kept], per_second)
        kept.texts.clear()
        for _ in range(500):
            handler.handle(line("x", level=level))
        assert len(kept.texts) == 500


@pytest.mark.parametrize(
    ("args", "about"),
    [
        (("192.0.2.1:5 -> 192.0.2.9:5672",), "192.0.2.1"),
        (("[2001:db8::1]:5 -> [::1]:5672",), "[2001:db8::1]"),
        (("2001:db8::1",), "2001:db8::1"),
        ((7, "192.0.2.1"), "192.0.2.1"),
        (("a name",), "%s"),
    ],
)
def test_a_line_belongs_to_the_address_it_names(args: tuple[object, ...], about: str) -> None:
    assert source_of(line("%s", *args))[1] == about


def test_a_long_line_keeps_its_beginning_and_its_end() -> None:
    text = logs.TextLines("broker").format(line("begin %s end", "x" * 200_000))
    assert len(text) < logs.LINE_MAX + 200
    assert "begin x" in text
    assert text.endswith("x end")
    assert "characters …" in text


@contextlib.contextmanager
def configured() -> Iterator[None]:
    """The log as a process of the appliance has it."""
    root, before = logging.getLogger(), logging.getLogger().handlers[:]
    hooks = threading.excepthook, sys.unraisablehook
    try:
        logs.configure("test", "info", "text")
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers[:] = before
        threading.excepthook, sys.unraisablehook = hooks


async def test_writes_behind_the_end_of_a_client_are_no_lines_of_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    theirs.close()
    with configured():
        for _ in range(20):
            transport.write(b"x")
        logging.getLogger("asyncio").warning("something else")
    transport.abort()
    (written,) = capsys.readouterr().err.splitlines()
    assert "something else" in written


def test_what_ends_a_thread_and_a_warning_are_lines_of_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with configured():
        thread = threading.Thread(target=lambda: 1 / 0, name="made to fail")
        thread.start()
        thread.join()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(True)
            warnings.warn("strange\nthing", stacklevel=1)
    written = capsys.readouterr().err.splitlines()
    assert len(written) == 2
    assert "made to fail" in written[0]
    assert "ZeroDivisionError" in written[0]
    assert "strange\\x0athing" in written[1]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    appliance = Appliance("serve", tmp_path_factory.mktemp("quiet"), log_lines_per_second=2)
    yield appliance.start()
    appliance.close()


def test_who_signs_in_to_the_web_app_and_who_cannot_is_in_the_log(quiet: Appliance) -> None:
    with httpx.Client(base_url=quiet.http_url, timeout=120) as client:
        assert sign_in(client, "an\nother", "wrong").status_code == 401
        assert sign_in(client, "guest", "guest").status_code == 302
    found = [line for line in quiet.log().splitlines() if "the web app" in line]
    assert len(found) == 2
    assert "user 'an\\nother' from 127.0.0.1 could not sign in" in found[0]
    assert "user 'guest' from 127.0.0.1 signed in" in found[1]


@pytest.mark.parametrize(
    ("auth", "address", "found"),
    [
        (("logged", "logged"), "GET /api/users", "user 'logged' from 127.0.0.1 was refused GET "),
        (("logged", "logged"), "GET /api/queues/%2F", "GET /api/queues/%2F: User not authorised"),
        (("a\nb", "wrong"), "GET /api/whoami", "user 'a\\nb' from 127.0.0.1 was refused GET "),
        (("logged", "wrong"), "GET /api/auth/hash_password/in-the-path", "hash_password"),
    ],
)
def test_calls_that_are_refused_for_want_of_rights_are_in_the_log(
    quiet: Appliance, auth: tuple[str, str], address: str, found: str
) -> None:
    method, _, path = address.partition(" ")
    with httpx.Client(base_url=quiet.http_url, auth=("guest", "guest"), timeout=60) as client:
        user = {"password": "logged", "tags": "management"}
        client.put("/api/users/logged", json=user).raise_for_status()
        before = len(quiet.log())
        assert client.request(method, path, auth=auth).status_code == 401
    written = quiet.log()[before:]
    assert [line for line in written.splitlines() if "was refused" in line and found in line]
    assert "in-the-path" not in written


def test_floods_through_every_door_write_few_lines_and_no_traceback(quiet: Appliance) -> None:
    before, began = len(quiet.log().splitlines()), time.monotonic()
    for number in range(150):
        for bytes_ in (b"AMQP\x01\x01\x08\x00", b"AMQP\x00\x00\x09\x01" + b"\xff" * 40):
            with socket.create_connection((quiet.host, quiet.amqp_port), 60) as one:
                one.sendall(bytes_)
        with socket.create_connection((quiet.host, quiet.http_port), 60) as one:
            one.sendall(b"GET / HTTP/1.1\r\nHost: \xff%d\r\n\r\n" % number)
    with httpx.Client(base_url=quiet.http_url, timeout=120) as client:
        for number in range(60):
            answer = client.get("/api/whoami", auth=(f"nobody-{number}", "wrong"))
            assert answer.status_code in (401, 429, 503)
    written = quiet.log().splitlines()[before:]
    # Broker and web each: a burst of 20 for the address and for each kind of line without one, and
    # then two lines a second.
    assert len(written) < 150 + 4 * 2 * (time.monotonic() - began), written[-20:]
    assert not [one for one in written if "Traceback" in one and "\\x0a" not in one]


@pytest.mark.parametrize("address", ["/queues?name=", "/login?next=/queues?name="])
def test_a_long_address_leads_to_a_short_one(quiet: Appliance, address: str) -> None:
    """Found by `make fuzz`: Django raised for a redirect above 16 KiB, a traceback a request."""
    before = len(quiet.log())
    with httpx.Client(base_url=quiet.http_url, timeout=120) as client:
        answer = client.get(address + "%F0%9F%90%87" * 1200)
        if "next" in address:
            token = client.cookies["leveret_csrf"]
            form = {"username": "guest", "password": "guest", "csrfmiddlewaretoken": token}
            answer = client.post(address + "%F0%9F%90%87" * 1200, data=form)
    assert answer.status_code == 302
    assert answer.headers["location"] in ("/login", "/")
    assert "Traceback" not in quiet.log()[before:]
