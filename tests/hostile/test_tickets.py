"""The console's tickets: passwords for one AMQP login of one user in one session."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.amqp import raw
from tests.api.test_sessions import sign_in, token_for
from tests.appliance import Appliance

PASSWORD = "long enough"


def logs_in(leveret: Appliance, user: str, password: str) -> bool:
    """Whether the broker lets the user in with this password."""
    with raw.Client((leveret.host, leveret.amqp_port)) as client:
        client.send(raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)
        client.send(
            raw.start_ok(
                "PLAIN",
                f"\0{user}\0{password}".encode(),
                client_properties={"capabilities": raw.CAPABILITIES},
            )
        )
        try:
            client.expect("connection.tune", 0)
        except AssertionError:
            return False
        return True


@pytest.fixture
def user(shared_leveret: Appliance) -> Iterator[httpx.Client]:
    url = shared_leveret.http_url
    put = {"password": PASSWORD, "tags": "management"}
    for name in ("ticketed", "thief"):
        answer = httpx.put(f"{url}/api/users/{name}", json=put, auth=("guest", "guest"), timeout=30)
        assert answer.status_code in (201, 204)
    with httpx.Client(base_url=url, timeout=30) as client:
        assert sign_in(client, "ticketed", PASSWORD).status_code == 302
        yield client


def ticket(user: httpx.Client) -> str:
    answer = user.post("/console/ticket", headers={"X-CSRFToken": token_for(user)})
    answer.raise_for_status()
    found: str = answer.json()["ticket"]
    return found


def test_a_ticket_lets_its_user_in_once(shared_leveret: Appliance, user: httpx.Client) -> None:
    password = ticket(user)
    assert logs_in(shared_leveret, "ticketed", password)
    assert not logs_in(shared_leveret, "ticketed", password)


def test_another_user_s_ticket_lets_nobody_in_and_is_used_up(
    shared_leveret: Appliance, user: httpx.Client
) -> None:
    password = ticket(user)
    assert not logs_in(shared_leveret, "thief", password)
    assert not logs_in(shared_leveret, "ticketed", password)


def test_a_ticket_ends_with_the_session_it_was_made_in(
    shared_leveret: Appliance, user: httpx.Client
) -> None:
    first = ticket(user)
    token = token_for(user)
    assert user.post("/logout", headers={"X-CSRFToken": token}).status_code in (204, 302)
    assert not logs_in(shared_leveret, "ticketed", first)
    assert sign_in(user, "ticketed", PASSWORD).status_code == 302
    assert logs_in(shared_leveret, "ticketed", ticket(user))


def test_a_ticket_ends_with_the_password_it_was_made_under(
    shared_leveret: Appliance, user: httpx.Client
) -> None:
    password = ticket(user)
    put = {"password": PASSWORD + " now", "tags": "management"}
    url = f"{shared_leveret.http_url}/api/users/ticketed"
    httpx.put(url, json=put, auth=("guest", "guest"), timeout=30).raise_for_status()
    assert not logs_in(shared_leveret, "ticketed", password)


def test_a_ticket_is_no_password_of_the_http_api(
    shared_leveret: Appliance, user: httpx.Client
) -> None:
    password = ticket(user)
    url = f"{shared_leveret.http_url}/api/whoami"
    assert httpx.get(url, auth=("ticketed", password), timeout=30).status_code == 401
    assert logs_in(shared_leveret, "ticketed", password)
