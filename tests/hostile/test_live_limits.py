"""What one user may follow on live pages, and that it costs others nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from tests.api.test_sessions import live, sign_in, token_for
from tests.appliance import Appliance
from tests.conftest import _maker
from tests.hostile.sockets import TEXT, Flood, frame, opened

PAGES, ON_PAGE, IN_ALL, ROWS = 3, 8, 10, 500
PASSWORD = "long enough"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """An appliance with low limits for live pages."""
    for make in _maker("serve", tmp_path_factory.mktemp("small")):
        yield make(
            live_user_sockets_max=PAGES,
            live_page_subscriptions_max=ON_PAGE,
            live_user_subscriptions_max=IN_ALL,
            live_user_rows_max=ROWS,
        )


@pytest.fixture(scope="module")
def admin(small: Appliance) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=small.http_url, auth=("guest", "guest"), timeout=30) as client:
        yield client


@pytest.fixture
def user(admin: httpx.Client, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """A signed-in user of the test's own, who may look into the vhost `/`."""
    yield from signed_in_as(admin, f"user-{abs(hash(request.node.name))}")


@pytest.fixture
def other(admin: httpx.Client) -> Iterator[httpx.Client]:
    yield from signed_in_as(admin, "other")


def signed_in_as(admin: httpx.Client, name: str) -> Iterator[httpx.Client]:
    put = admin.put(f"/api/users/{name}", json={"password": PASSWORD, "tags": "management"})
    assert put.status_code in (201, 204)
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    admin.put(f"/api/permissions/%2F/{name}", json=rights).raise_for_status()
    with httpx.Client(base_url=admin.base_url, timeout=30) as client:
        client.headers["X-User"] = name
        assert sign_in(client, name, PASSWORD).status_code == 302
        yield client


def subscribe(socket: ClientConnection, number: int, **what: Any) -> None:
    socket.send(json.dumps({"type": "subscribe", "id": number, **what}))


def item(number: int) -> dict[str, Any]:
    """Something to follow, different for each number."""
    return {"topic": "rows", "noun": "queues", "keys": [["/", f"q{number}"]]}


def until(socket: ClientConnection, number: int, event: str) -> dict[str, Any]:
    """The next push of a kind for a subscription; others are left out."""
    while True:
        push: dict[str, Any] = json.loads(socket.recv(30))
        if push["id"] == number:
            assert push["event"] == event, push
            return push


def test_a_subscription_too_many_ends_with_the_reason_and_the_others_go_on(
    user: httpx.Client,
) -> None:
    with live(user) as socket:
        for number in range(ON_PAGE):
            subscribe(socket, number, **item(number))
            until(socket, number, "start")
        subscribe(socket, 99, topic="overview")
        data = until(socket, 99, "ended")["data"]
        assert (data["status"], data["error"]) == (429, "limit_reached")
        assert "live_page_subscriptions_max" in data["reason"]
        socket.send(json.dumps({"type": "unsubscribe", "id": 0}))
        subscribe(socket, 100, topic="overview")
        until(socket, 100, "start")
        until(socket, 100, "delta")


def test_one_user_s_pages_share_a_limit_that_is_no_one_else_s(
    user: httpx.Client, other: httpx.Client
) -> None:
    with live(user) as first, live(user) as second, live(other) as theirs:
        subscribe(theirs, 1, topic="overview")
        until(theirs, 1, "start")
        for number in range(IN_ALL):
            socket = first if number < ON_PAGE else second
            subscribe(socket, number, **item(number))
            until(socket, number, "start")
        subscribe(second, 99, topic="overview")
        data = until(second, 99, "ended")["data"]
        assert data["status"] == 429
        assert "live_user_subscriptions_max" in data["reason"]
        # What two pages show is followed once.
        subscribe(second, 98, **item(0))
        until(second, 98, "start")
        subscribe(theirs, 2, **item(1))
        until(theirs, 2, "start")
        until(theirs, 1, "delta")


def test_the_rows_of_one_user_s_pages_are_bounded_together(user: httpx.Client) -> None:
    keys = [["/", f"row{number}"] for number in range(ROWS)]
    with live(user) as socket:
        subscribe(socket, 1, topic="rows", noun="queues", keys=keys)
        until(socket, 1, "start")
        subscribe(socket, 2, topic="rows", noun="queues", keys=keys[:1])
        assert "live_user_rows_max" in until(socket, 2, "ended")["data"]["reason"]
        socket.send(json.dumps({"type": "unsubscribe", "id": 1}))
        subscribe(socket, 3, topic="rows", noun="queues", keys=keys[:1])
        until(socket, 3, "start")


def closing_of(socket: ClientConnection) -> tuple[int, str]:
    with pytest.raises(ConnectionClosed) as closed:
        socket.recv(30)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code, closed.value.rcvd.reason


def test_a_page_too_many_is_told_so_and_another_user_s_is_not(
    user: httpx.Client, other: httpx.Client
) -> None:
    with ExitStack() as stack:
        sockets = [stack.enter_context(live(user)) for _ in range(PAGES)]
        for socket in sockets:
            subscribe(socket, 1, topic="overview")
            until(socket, 1, "start")
        with live(user) as socket:
            code, reason = closing_of(socket)
            assert (code, reason) == (
                4429,
                f"live pages of one user: at most {PAGES} (live_user_sockets_max)",
            )
        with live(other) as theirs:
            subscribe(theirs, 1, topic="overview")
            until(theirs, 1, "start")
        sockets[0].close()
        follow_again(user)


def follow_again(user: httpx.Client) -> None:
    """Opens a page as soon as a place is free."""
    for _ in range(100):
        with live(user) as socket:
            try:
                subscribe(socket, 1, topic="overview")
                until(socket, 1, "start")
            except ConnectionClosed:
                continue
            return
    raise AssertionError("no place became free")


def test_signing_out_gives_the_places_back(user: httpx.Client) -> None:
    for _ in range(3):
        with ExitStack() as stack:
            sockets = [stack.enter_context(live(user)) for _ in range(PAGES)]
            for number, socket in enumerate(sockets):
                for step in range(3):
                    subscribe(socket, step, **item(number * 10 + step))
                    until(socket, step, "start")
            signed_out = user.post("/logout", headers={"X-CSRFToken": token_for(user)})
            assert signed_out.status_code in (204, 302)
            for socket in sockets:
                with pytest.raises(ConnectionClosed):
                    while True:
                        socket.recv(30)
        assert sign_in(user, user.headers["X-User"], PASSWORD).status_code == 302


def test_what_is_followed_ends_with_the_right_to_it(
    admin: httpx.Client, user: httpx.Client
) -> None:
    name = user.headers["X-User"]
    admin.put("/api/queues/%2F/followed", json={}).raise_for_status()
    with live(user) as socket:
        subscribe(socket, 1, topic="item", noun="queues", key=["/", "followed"])
        until(socket, 1, "start")
        subscribe(socket, 2, topic="overview", vhost="/")
        until(socket, 2, "start")
        admin.delete(f"/api/permissions/%2F/{name}").raise_for_status()
        ended = {}
        while len(ended) < 2:
            push = json.loads(socket.recv(30))
            if push["event"] == "ended":
                ended[push["id"]] = push["data"]["status"]
        assert set(ended.values()) <= {401, 404}
        subscribe(socket, 3, topic="item", noun="queues", key=["/", "followed"])
        assert until(socket, 3, "ended")["data"]["status"] in (401, 404)
        put = {"password": PASSWORD, "tags": ""}
        admin.put(f"/api/users/{name}", json=put).raise_for_status()
        with pytest.raises(ConnectionClosed):
            while True:
                socket.recv(30)


def test_a_flood_of_subscriptions_leaves_others_their_turn(
    user: httpx.Client, other: httpx.Client, small: Appliance
) -> None:
    cookies = "; ".join(f"{name}={value}" for name, value in user.cookies.items())
    socks = [opened(small, "http", "/live/", Cookie=cookies)[0] for _ in range(PAGES)]
    texts = (
        json.dumps({"type": "subscribe", "id": number % 4, **item(number)})
        for number in range(1000)
    )
    flood = Flood(socks, b"".join(frame(TEXT, text.encode()) for text in texts), endless=True)
    try:
        with live(other) as theirs:
            for number in range(20):
                subscribe(theirs, number, topic="overview")
                until(theirs, number, "start")
                theirs.send(json.dumps({"type": "unsubscribe", "id": number}))
                assert other.get("/api/whoami").status_code == 200, number
        assert flood.alive == PAGES
    finally:
        flood.stop()
    assert " error " not in small.log()


@pytest.mark.parametrize(
    "key", [["/", "x" * 2000], ["/"] * 50, [["nested"] * 1000]], ids=["long", "many", "nested"]
)
def test_a_key_that_names_nothing_ends_the_socket(user: httpx.Client, key: list[Any]) -> None:
    with live(user) as socket:
        subscribe(socket, 1, topic="item", noun="queues", key=key)
        assert closing_of(socket)[0] == 4400
