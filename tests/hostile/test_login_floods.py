"""Wrong passwords from many connections: others sign in and work meanwhile."""

from __future__ import annotations

import base64
import http.client
import select
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.amqp.raw import PROTOCOL_HEADER, Client, plain_response, start_ok
from tests.appliance import Appliance
from tests.conftest import Make

CONNECTIONS = 150


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def ask(appliance: Appliance, user: str, password: str) -> socket.socket:
    """A connection on which one request has been sent."""
    sock = socket.create_connection((appliance.host, appliance.http_port), timeout=60)
    send(sock, user, password)
    return sock


def send(sock: socket.socket, user: str, password: str) -> None:
    head = f"GET /api/whoami HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic(user, password)}"
    sock.sendall(head.encode() + b"\r\n\r\n")


def status(sock: socket.socket) -> int:
    answer = http.client.HTTPResponse(sock)
    answer.begin()
    answer.read()
    return answer.status


def unanswered(socks: list[socket.socket]) -> int:
    readable, _, _ = select.select(socks, [], [], 0)
    return len(socks) - len(readable)


@pytest.fixture(scope="module")
def leveret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    place = tmp_path_factory.mktemp("logins")
    appliance = Appliance("serve", place, login_failures_max=1000, login_refusal_delay=30)
    yield appliance.start()
    appliance.close()


@pytest.fixture
def flood(leveret: Appliance) -> Iterator[list[socket.socket]]:
    """Unknown users, each on a connection; more than control requests are carried out at once."""
    socks = [ask(leveret, f"user {number}", "guess") for number in range(CONNECTIONS)]
    yield socks
    for sock in socks:
        sock.close()


def whoami(leveret: Appliance) -> int:
    return httpx.get(
        f"{leveret.http_url}/api/whoami", auth=("guest", "guest"), timeout=60
    ).status_code


def test_a_verified_user_does_not_wait_for_the_passwords_of_others(
    leveret: Appliance, request: pytest.FixtureRequest
) -> None:
    assert whoami(leveret) == 200
    flood: list[socket.socket] = request.getfixturevalue("flood")
    assert whoami(leveret) == 200
    # Before, it came when the last but some sixty had been checked.
    assert unanswered(flood) > CONNECTIONS // 2


def test_logins_end_with_their_connections(leveret: Appliance, flood: list[socket.socket]) -> None:
    for sock in flood:
        sock.close()
    # From an address of its own this user would wait behind all of them otherwise.
    began = attempts(leveret)
    assert whoami(leveret) == 200
    with ask(leveret, "one more", "guess") as sock:
        assert status(sock) == 401
    assert attempts(leveret) - began < CONNECTIONS // 2


def attempts(leveret: Appliance) -> int:
    """Logins over HTTP that were refused after a look at the password."""
    rows = httpx.get(
        f"{leveret.http_url}/api/auth/attempts/{node(leveret)}", auth=("guest", "guest"), timeout=60
    ).json()
    return sum(row["auth_attempts_failed"] for row in rows)


def node(leveret: Appliance) -> str:
    name: str = httpx.get(
        f"{leveret.http_url}/api/overview", auth=("guest", "guest"), timeout=60
    ).json()["node"]
    return name


def test_a_connection_that_was_let_in_works_while_its_own_user_is_guessed_at(
    leveret: Appliance,
) -> None:
    with ask(leveret, "guest", "guest") as mine:
        assert status(mine) == 200
        socks = [ask(leveret, "guest", f"guess {number}") for number in range(CONNECTIONS)]
        for _ in range(3):
            send(mine, "guest", "guest")
            assert status(mine) == 200
        assert unanswered(socks) > CONNECTIONS // 2
        for sock in socks:
            sock.close()


def test_a_refusal_of_too_many_is_answered_late(make_leveret: Make) -> None:
    leveret = make_leveret(login_failures_max=1, login_refusal_delay=30)
    with ask(leveret, "someone", "guess") as first:
        assert status(first) == 401
        with ask(leveret, "someone", "guess again") as second:
            assert whoami(leveret) == 200
            assert whoami(leveret) == 200
            assert unanswered([second]) == 1


def from_another_address(broker: Appliance) -> Client:
    client = Client((broker.host, broker.amqp_port), timeout=60)
    client.socket.close()
    client.socket = socket.create_connection(
        (broker.host, broker.amqp_port), 60, source_address=("127.0.0.2", 0)
    )
    return client


def test_amqp_logins_of_one_address_leave_places_for_another(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    places = tmp_path_factory.mktemp("places")
    broker = Appliance("broker", places, logins_waiting_max=64, login_failures_max=1000).start()
    clients = [Client((broker.host, broker.amqp_port)) for _ in range(CONNECTIONS)]
    try:
        for number, client in enumerate(clients):
            client.send(PROTOCOL_HEADER)
            client.expect("connection.start", 0)
            client.send(start_ok(response=plain_response(f"user {number}", "guess")))
        with from_another_address(broker) as other:
            other.start()
        # Those that found no place may have been refused; those in the line were not looked at.
        assert unanswered([client.socket for client in clients]) > 32
    finally:
        for client in clients:
            client.cut()
        broker.close()
