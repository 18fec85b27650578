"""What is taken away over HTTP counts at once on connections that are open, by whatever door they
came, and for the next request of an HTTP client."""

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.amqp import raw
from tests.api.conftest import path
from tests.appliance import Appliance
from tests.websocket.test_doors import Client, url_of

ALL = {"configure": ".*", "write": ".*", "read": ".*"}
DOORS = ["tcp", "ws", "http"]
# Names that somebody will give a user or a virtual host.
ODD = ("a/b %2F", "<b>é\u202e", "'\"\\{{7}}", "^.*$|(", "..")


@pytest.fixture
def guest(shared_leveret: Appliance) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=shared_leveret.http_url, auth=("guest", "guest"), timeout=30
    ) as client:
        yield client


@pytest.fixture
def odd(request: pytest.FixtureRequest) -> str:
    """A hostile name that nobody has used before, another one at each door."""
    door = request.node.callspec.params["door"]
    return f"{uuid.uuid4().hex[:8]}{ODD[DOORS.index(door)]}"


Enter = Callable[..., raw.Client]


@pytest.fixture
def enter(shared_leveret: Appliance) -> Iterator[Enter]:
    """`enter(door, user, vhost)`: an open connection with channel 1 by a door."""
    opened: list[raw.Client] = []

    def enter(door: str, user: str, vhost: str) -> raw.Client:
        if door == "tcp":
            client = raw.Client((shared_leveret.host, shared_leveret.amqp_port))
        else:
            client = Client(url_of(shared_leveret, door))
        opened.append(client)
        client.start(user=user, password="secret")
        client.send_method(0, "connection.open", virtual_host=vhost)
        client.expect("connection.open-ok", 0)
        client.call(1, "channel.open")
        return client

    yield enter
    for client in opened:
        client.socket.close()


def made(guest: httpx.Client, name: str, tags: str = "management") -> None:
    """A user and a virtual host of the same name, and all permissions of one in the other."""
    for where, body in (
        (path("vhosts", name), {}),
        (path("users", name), {"password": "secret", "tags": tags}),
        (path("permissions", name, name), ALL),
    ):
        done(guest.put(where, json=body))


def done(answer: httpx.Response) -> None:
    assert answer.is_success, answer.text


@pytest.mark.parametrize("door", DOORS)
def test_a_permission_taken_away(guest: httpx.Client, enter: Enter, odd: str, door: str) -> None:
    made(guest, odd)
    client = enter(door, odd, odd)
    client.call(1, "queue.declare", queue="q")
    client.call(1, "basic.consume", queue="q", consumer_tag="t", no_ack=True)
    client.publish(1, "", "q", b"x")
    client.expect_message("basic.deliver", 1)
    narrow = {"configure": "", "write": "^none$", "read": "^none$"}
    done(guest.put(path("permissions", odd, odd), json=narrow))
    client.expect("basic.cancel", 1, consumer_tag="t")
    client.publish(1, "", "q", b"x")
    client.expect_channel_close(1, 403, 60, 40, re.escape(f"in vhost '{odd}'"))
    done(guest.delete(path("permissions", odd, odd)))
    client.expect_connection_close(530, 0, 0, "access to vhost")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("what", ["users", "vhosts"])
def test_a_user_or_a_vhost_deleted(
    guest: httpx.Client, enter: Enter, odd: str, door: str, what: str
) -> None:
    made(guest, odd)
    client = enter(door, odd, odd)
    done(guest.delete(path(what, odd)))
    text = re.escape(f"{what[:-1]} '{odd}' is deleted")
    client.expect_connection_close(320, 0, 0, text)


@pytest.mark.parametrize("door", DOORS)
def test_a_topic_permission(guest: httpx.Client, enter: Enter, odd: str, door: str) -> None:
    made(guest, odd)
    client = enter(door, odd, odd)
    client.publish(1, "amq.topic", "theirs", b"x")
    client.fence(1)
    topic = {"exchange": "amq.topic", "write": "^mine", "read": ".*"}
    done(guest.put(path("topic-permissions", odd, odd), json=topic))
    client.publish(1, "amq.topic", "mine.x", b"x")
    client.fence(1)
    client.publish(1, "amq.topic", "theirs", b"x")
    client.expect_channel_close(1, 403, 60, 40, "topic")


@pytest.mark.parametrize("door", DOORS)
def test_a_lost_tag(guest: httpx.Client, enter: Enter, door: str) -> None:
    name = f"impersonator-{uuid.uuid4().hex[:8]}"
    made(guest, name, tags="impersonator")
    client = enter(door, name, name)
    client.publish(1, "amq.fanout", "", b"x", user_id="somebody")
    client.fence(1)
    done(guest.put(path("users", name), json={"password": "secret", "tags": ""}))
    client.publish(1, "amq.fanout", "", b"x", user_id="somebody")
    client.expect_channel_close(1, 406, 60, 40, "user_id property set to 'somebody'")


@pytest.mark.parametrize("door", DOORS)
def test_a_limit(guest: httpx.Client, enter: Enter, odd: str, door: str) -> None:
    """What is there stays; one more is refused."""
    made(guest, odd)
    client = enter(door, odd, odd)
    for queue in ("one", "two"):
        client.call(1, "queue.declare", queue=queue)
    done(guest.put(path("vhost-limits", odd, "max-queues"), json={"value": 2}))
    client.call(1, "queue.declare", queue="two")
    client.send_method(1, "queue.declare", queue="three")
    client.expect_channel_close(1, 406, 50, 10, r"queue limit in vhost .* \(2\) is reached")
    done(guest.delete(path("vhost-limits", odd, "max-queues")))
    client.call(1, "channel.open")
    client.call(1, "queue.declare", queue="three")
    done(guest.put(path("user-limits", odd, "max-channels"), json={"value": 1}))
    client.fence(1)
    client.send_method(2, "channel.open")
    client.expect_connection_close(530, 20, 10, r"maximum allowed user limit of \(1\)")


def test_a_password_changed_lets_who_is_in_stay(
    guest: httpx.Client, enter: Enter, shared_leveret: Appliance
) -> None:
    name = f"renewed-{uuid.uuid4().hex[:8]}"
    made(guest, name)
    client = enter("tcp", name, name)
    done(guest.put(path("users", name), json={"password": "other", "tags": ""}))
    client.call(1, "queue.declare", queue="q")
    with (
        raw.Client((shared_leveret.host, shared_leveret.amqp_port)) as late,
        pytest.raises(AssertionError, match=r"connection\.close"),
    ):
        late.start(user=name, password="secret")


@pytest.mark.parametrize("name", ODD)
def test_an_http_client_is_asked_again_for_every_request(
    guest: httpx.Client, shared_leveret: Appliance, name: str
) -> None:
    odd = uuid.uuid4().hex[:8] + name
    made(guest, odd)
    publish = path("exchanges", odd, "amq.topic", "publish")
    message = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
    with httpx.Client(base_url=shared_leveret.http_url, auth=(odd, "secret"), timeout=30) as client:

        def statuses(**body: Any) -> list[int]:
            return [
                client.put(path("queues", odd, "q"), json={}).status_code // 100,
                client.post(publish, json={**message, **body}).status_code // 100,
                client.get(path("queues", odd)).status_code // 100,
            ]

        assert statuses() == [2, 2, 2]
        topic = {"exchange": "amq.topic", "write": "^mine", "read": ".*"}
        done(guest.put(path("topic-permissions", odd, odd), json=topic))
        assert statuses() == [2, 4, 2]
        assert statuses(routing_key="mine") == [2, 2, 2]
        narrow = {"configure": "", "write": "", "read": ""}
        done(guest.put(path("permissions", odd, odd), json=narrow))
        assert statuses(routing_key="mine")[:2] == [4, 4]
        done(guest.put(path("permissions", odd, odd), json=ALL))
        assert statuses(routing_key="mine") == [2, 2, 2]
        done(guest.delete(path("permissions", odd, odd)))
        assert statuses() == [4, 4, 4]
        done(guest.put(path("permissions", odd, odd), json=ALL))
        done(guest.put(path("users", odd), json={"password": "secret", "tags": ""}))
        assert statuses() == [4, 4, 4]
        done(guest.delete(path("users", odd)))
        assert client.get("/api/whoami").status_code == 401
