"""What a user may do is the same over AMQP and over HTTP."""

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.amqp import raw
from tests.amqp.methods import METHODS
from tests.api.conftest import path
from tests.appliance import Appliance

ALL = {"configure": ".*", "write": ".*", "read": ".*"}
PSEUDO = "amq.rabbitmq.reply-to"


class Doors:
    """A user of a vhost of its own, by both doors. `api` is its HTTP client, `guest` that of an
    administrator."""

    def __init__(self, appliance: Appliance, guest: httpx.Client) -> None:
        self.name = f"rights-{uuid.uuid4().hex[:8]}"
        self.guest = guest
        self.api = httpx.Client(base_url=appliance.http_url, auth=(self.name, "secret"), timeout=30)
        self.be("management")
        self.put("vhosts", self.name)
        for user in ("guest", self.name):
            self.put("permissions", self.name, user, **ALL)
        address = (appliance.host, appliance.amqp_port)
        self.amqp = raw.Client.open(
            address, user=self.name, password="secret", virtual_host=self.name
        )

    def put(self, *where: str, **body: Any) -> None:
        self.guest.put(path(*where), json=body).raise_for_status()

    def be(self, tags: str) -> None:
        self.put("users", self.name, password="secret", tags=tags)

    def may(self, **patterns: str) -> None:
        self.put("permissions", self.name, self.name, **{**ALL, **patterns})

    def may_topic(self, **patterns: str) -> None:
        body = {"exchange": "amq.topic", "write": ".*", "read": ".*", **patterns}
        self.put("topic-permissions", self.name, self.name, **body)

    def queue_with_everything(self) -> None:
        """A queue `all` with whatever amq.topic gets."""
        self.amqp.call(1, "queue.declare", queue="all")
        self.amqp.call(1, "queue.bind", queue="all", exchange="amq.topic", routing_key="#")

    def messages(self) -> int:
        """How many messages `all` has, when all that was published is there."""
        self.amqp.fence(1)
        count: int = self.amqp.call(1, "queue.declare", queue="all", passive=True).message_count
        return count

    def publish(self, key: str, exchange: str = "amq.topic", **properties: Any) -> httpx.Response:
        """Publishes over HTTP."""
        body = {
            "properties": properties,
            "routing_key": key,
            "payload": "x",
            "payload_encoding": "string",
        }
        return self.api.post(path("exchanges", self.name, exchange, "publish"), json=body)

    def refused(self, method: str, named: str, code: int = 403) -> None:
        """The channel is closed with the code and this text; there is a new one."""
        ids = METHODS[method].class_id, METHODS[method].method_id
        self.amqp.expect_channel_close(1, code, *ids, named)
        self.amqp.call(1, "channel.open")


@pytest.fixture
def doors(shared_leveret: Appliance) -> Iterator[Doors]:
    with httpx.Client(
        base_url=shared_leveret.http_url, auth=("guest", "guest"), timeout=30
    ) as guest:
        doors = Doors(shared_leveret, guest)
        yield doors
        doors.api.close()
        doors.amqp.socket.close()


@pytest.mark.parametrize("header", ["CC", "BCC"])
@pytest.mark.parametrize("how", ["known", "transacted"])
def test_a_topic_permission_counts_for_every_key_of_a_message(
    doors: Doors, header: str, how: str
) -> None:
    doors.queue_with_everything()
    doors.may_topic(write="^ok\\.")
    if how == "transacted":
        doors.amqp.call(1, "tx.select")
    else:
        # The channel remembers the route of a key that it has seen.
        for _ in range(3):
            doors.amqp.publish(1, "amq.topic", "ok.a", b"x")
        assert doors.messages() == 3
        doors.amqp.call(1, "queue.purge", queue="all")
    headers = {header: ["ok.b", "secret.a"]}
    doors.amqp.publish(1, "amq.topic", "ok.a", b"x", headers=headers)
    named = f"write access to topic 'secret.a' in exchange 'amq.topic' in vhost '{doors.name}'"
    doors.refused("basic.publish", named)
    answer = doors.publish("ok.a", headers=headers)
    assert answer.status_code == 401, answer.text
    assert named in answer.json()["reason"]
    assert doors.messages() == 0
    allowed = {header: ["ok.b"]}
    doors.amqp.publish(1, "amq.topic", "ok.a", b"x", headers=allowed)
    assert doors.publish("ok.a", headers=allowed).json() == {"routed": True}
    assert doors.messages() == 2


def test_a_topic_permission_to_read_counts_for_binding_and_unbinding(doors: Doors) -> None:
    doors.queue_with_everything()
    doors.may_topic(read="^ok\\.")
    named = "read access to topic '#' in exchange 'amq.topic'"
    for method in ("queue.bind", "queue.unbind"):
        doors.amqp.send_method(1, method, queue="all", exchange="amq.topic", routing_key="#")
        doors.refused(method, named)
    where = path("bindings", doors.name, "e", "amq.topic", "q", "all")
    answers = [
        doors.api.post(where, json={"routing_key": "#", "arguments": {}}),
        doors.api.delete(f"{where}/%2523"),
    ]
    assert [answer.status_code for answer in answers] == [401, 401]
    assert all(named in answer.json()["reason"] for answer in answers)


@pytest.mark.parametrize(
    ("kind", "argument"),
    [
        ("queue", "x-dead-letter-exchange"),
        ("exchange", "alternate-exchange"),
        ("exchange", "x-alternate-exchange"),
    ],
)
@pytest.mark.parametrize("right", ["write", "read"])
def test_messages_are_not_led_to_where_their_owner_may_not(
    doors: Doors, kind: str, argument: str, right: str
) -> None:
    doors.put("exchanges", doors.name, "secret", type="fanout")
    if right == "write":
        doors.may(write="^mine")
        named = f"write access to exchange 'secret' in vhost '{doors.name}'"
    else:
        doors.may(read="^other")
        named = f"read access to {kind} 'mine' in vhost '{doors.name}'"
    method = f"{kind}.declare"
    arguments = {argument: "secret"}
    doors.amqp.send_method(1, method, arguments=arguments, **{kind: "mine"})
    doors.refused(method, named)
    answer = doors.api.put(
        path(f"{kind}s", doors.name, "mine"), json={"type": "direct", "arguments": arguments}
    )
    assert answer.status_code == 401
    assert named in answer.json()["reason"]


def test_an_impersonator_publishes_in_the_name_of_others(doors: Doors) -> None:
    doors.queue_with_everything()
    text = f"user_id property set to 'guest' but authenticated user was '{doors.name}'"
    doors.amqp.publish(1, "amq.topic", "k", b"x", user_id="guest")
    doors.refused("basic.publish", text, 406)
    assert text in doors.publish("k", user_id="guest").json()["reason"]
    doors.be("management,impersonator")
    doors.amqp.publish(1, "amq.topic", "k", b"x", user_id="guest")
    assert doors.publish("k", user_id="guest").json() == {"routed": True}
    assert doors.messages() == 2


@pytest.mark.parametrize("how", ["at once", "transacted"])
def test_only_who_waits_for_replies_asks_for_them(doors: Doors, how: str) -> None:
    """A message that no reply could reach is refused where it is published."""
    doors.queue_with_everything()
    text = "fast reply consumer does not exist"
    if how == "transacted":
        doors.amqp.call(1, "tx.select")
    doors.amqp.publish(1, "amq.topic", "k", b"x", reply_to=PSEUDO)
    doors.refused("basic.publish", text, 406)
    answer = doors.publish("k", reply_to=PSEUDO)
    assert (answer.status_code, text in answer.json()["reason"]) == (400, True)
    assert doors.messages() == 0
