"""Whose address counts: the socket's, unless a proxy is trusted."""

import httpx
import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.amqp import raw
from tests.appliance import Appliance
from tests.conftest import Make

FAR = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}
GUEST = ("guest", "guest")


def test_forwarded_headers_are_not_believed(shared_leveret: Appliance) -> None:
    answer = httpx.get(shared_leveret.http_url + "/api/whoami", headers=FAR, auth=GUEST, timeout=60)
    assert answer.status_code == 200


@pytest.fixture
def behind_a_proxy(make_leveret: Make) -> Appliance:
    return make_leveret(trusted_proxies="127.0.0.1", allowed_hosts="broker.example")


def test_a_trusted_proxy_says_who_is_asking(behind_a_proxy: Appliance) -> None:
    with httpx.Client(base_url=behind_a_proxy.http_url, auth=GUEST, timeout=60) as client:
        assert client.get("/api/whoami").status_code == 200
        far = client.get("/api/whoami", headers=FAR)
        assert far.status_code == 401
        # Only what the trusted proxy itself added counts, not what the client sent to it.
        lying = {"X-Forwarded-For": "127.0.0.1, 203.0.113.7"}
        assert client.get("/api/whoami", headers=lying).status_code == 401
        named = client.get("/api/whoami", headers={"Host": "broker.example"})
        assert named.status_code == 200


@pytest.mark.parametrize(
    "told",
    ["127.0.0.1", "127.8.9.1", "::1", "[::1]:7", "::ffff:127.0.0.1", "127.0.0.1:80", "0.0.0.0",
     "unix", "localhost", "127.0.0.1, 127.0.0.1"],
)  # fmt: skip
def test_an_address_that_a_proxy_tells_is_never_this_machine(
    behind_a_proxy: Appliance, told: str
) -> None:
    """Else anybody whose proxy passes the header on would be guest, an administrator."""
    url = behind_a_proxy.http_url + "/api/whoami"
    answer = httpx.get(url, headers={"X-Forwarded-For": told}, auth=GUEST, timeout=60)
    assert answer.status_code == 401


def test_a_browser_behind_a_proxy_is_not_this_machine_over_amqp_either(
    behind_a_proxy: Appliance,
) -> None:
    url = f"ws://{behind_a_proxy.host}:{behind_a_proxy.http_port}/amqp"
    near = {"X-Forwarded-For": "127.0.0.1"}
    with connect(
        url, subprotocols=[Subprotocol("amqp")], additional_headers=near, open_timeout=60
    ) as socket:
        socket.send(raw.PROTOCOL_HEADER)
        socket.recv(10)
        start_ok = raw.method(
            0,
            "connection.start-ok",
            client_properties={"capabilities": {"authentication_failure_close": True}},
            mechanism="PLAIN",
            response=b"\0guest\0guest",
            locale="en_US",
        )
        socket.send(start_ok)
        answer = socket.recv(30)
    assert b"ACCESS_REFUSED" in answer


def test_many_wrong_passwords_are_slowed_down(shared_leveret: Appliance) -> None:
    with httpx.Client(base_url=shared_leveret.http_url, timeout=60) as client:
        statuses = [
            client.get("/api/whoami", auth=("api-guessed", f"guess {number}")).status_code
            for number in range(30)
        ]
        assert statuses[0] == 401
        assert statuses[-1] == 429
        assert client.get("/api/whoami", auth=GUEST).status_code == 200
