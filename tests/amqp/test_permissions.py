"""Users, permissions and limits, as an AMQP client meets them."""

import asyncio
import re
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from management.broker_client import BrokerClient
from tests.amqp import raw
from tests.amqp.methods import METHODS
from tests.amqp.raw import Client
from tests.appliance import Appliance

Control = Callable[..., Any]
ALL = {"configure": ".*", "write": ".*", "read": ".*"}


def ask(broker: Appliance, verb: str, **arguments: Any) -> Any:
    """What the broker's control socket answers."""

    async def once() -> Any:
        client = BrokerClient(broker.data_dir / "control.sock")
        try:
            return await client.call(verb, **arguments)
        finally:
            await client.close()

    return asyncio.run(once())


@pytest.fixture
def control(shared_broker: Appliance) -> Control:
    """Asks the shared broker's control socket: `control("user.put", name=…)`."""
    return partial(ask, shared_broker)


@pytest.fixture
def address(shared_broker: Appliance) -> tuple[str, int]:
    """Where the shared broker speaks AMQP."""
    return shared_broker.host, shared_broker.amqp_port


@pytest.fixture
def user(control: Control) -> str:
    """A new user with the password `secret` and no permissions."""
    name = f"user-{uuid.uuid4().hex[:8]}"
    control("user.put", name=name, password="secret", tags="")
    return name


@pytest.fixture
def vhost(control: Control) -> str:
    """A new virtual host."""
    name = f"vhost-{uuid.uuid4().hex[:8]}"
    control("vhost.put", name=name)
    return name


def enter(address: tuple[str, int], user: str, vhost: str, **more: Any) -> Client:
    """An open connection of the user."""
    return Client.open(address, user=user, password="secret", virtual_host=vhost, **more)


def refused(address: tuple[str, int], user: str, vhost: str, text: str) -> None:
    """connection.open must be answered with 530 and this text."""
    with Client(address) as client:
        client.start(user=user, password="secret")
        client.send_method(0, "connection.open", virtual_host=vhost)
        client.expect_connection_close(530, 10, 40, re.escape(text))


def test_a_user_without_permissions_does_not_get_in(
    address: tuple[str, int], user: str, vhost: str
) -> None:
    refused(address, user, vhost, f"access to vhost '{vhost}' refused for user '{user}'")


def test_a_vhost_takes_so_many_connections(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    control("permission.put", vhost=vhost, user=user, **ALL)
    control("vhost-limit.put", vhost=vhost, name="max-connections", value=1)
    with enter(address, user, vhost) as first:
        refused(
            address,
            user,
            vhost,
            f"access to vhost '{vhost}' refused for user '{user}': connection limit (1) is reached",
        )
        first.close()
    enter(address, user, vhost).close()


def test_a_user_has_so_many_connections_and_channels(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    control("permission.put", vhost=vhost, user=user, **ALL)
    control("user-limit.put", user=user, name="max-connections", value=1)
    control("user-limit.put", user=user, name="max-channels", value=2)
    with enter(address, user, vhost, channels=(1, 2)) as client:
        text = f"connection refused for user '{user}': user connection limit (1) is reached"
        refused(address, user, vhost, text)
        client.send_method(3, "channel.open")
        client.expect_connection_close(
            530,
            20,
            10,
            rf"number of channels opened for user '{user}' has reached the maximum allowed "
            r"user limit of \(2\)",
        )


def test_the_channels_of_a_user_are_counted_over_all_its_connections(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    control("permission.put", vhost=vhost, user=user, **ALL)
    control("user-limit.put", user=user, name="max-channels", value=3)
    with (
        enter(address, user, vhost, channels=(1, 2)) as first,
        enter(address, user, vhost, channels=(1,)) as second,
        Client.open(address, channels=(1, 2, 3, 4)),
    ):
        second.send_method(2, "channel.open")
        text = rf"number of channels opened for user '{user}' has reached .* limit of \(3\)"
        second.expect_connection_close(530, 20, 10, text)
        first.call(2, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
        first.call(2, "channel.open")


def test_a_vhost_holds_so_many_queues(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    control("permission.put", vhost=vhost, user=user, **ALL)
    control("vhost-limit.put", vhost=vhost, name="max-queues", value=1)
    with enter(address, user, vhost) as client:
        client.call(1, "queue.declare", queue="one")
        client.call(1, "queue.declare", queue="one")
        client.send_method(1, "queue.declare", queue="two")
        client.expect_channel_close(
            1,
            406,
            50,
            10,
            rf"cannot declare queue 'two'.*: queue limit in vhost '{vhost}' \(1\) is reached",
        )


GRANTED = {"configure": "^mine", "write": "^(mine|amq.default)", "read": "^mine"}
CASES = [
    ("configure", "queue.declare", {"queue": "theirs"}, "queue 'theirs'"),
    ("configure", "queue.delete", {"queue": "theirs"}, "queue 'theirs'"),
    ("configure", "exchange.declare", {"exchange": "theirs", "type": "topic"}, "exchange 'theirs'"),
    ("configure", "exchange.delete", {"exchange": "theirs"}, "exchange 'theirs'"),
    ("write", "queue.bind", {"queue": "theirs", "exchange": "mine"}, "queue 'theirs'"),
    ("read", "queue.bind", {"queue": "mine", "exchange": "amq.fanout"}, "exchange 'amq.fanout'"),
    ("write", "queue.unbind", {"queue": "theirs", "exchange": "mine"}, "queue 'theirs'"),
    ("read", "queue.unbind", {"queue": "mine", "exchange": "amq.fanout"}, "exchange 'amq.fanout'"),
    ("write", "exchange.bind", {"destination": "theirs", "source": "mine"}, "exchange 'theirs'"),
    ("read", "exchange.bind", {"destination": "mine", "source": "theirs"}, "exchange 'theirs'"),
    ("write", "exchange.unbind", {"destination": "theirs", "source": "mine"}, "exchange 'theirs'"),
    ("read", "exchange.unbind", {"destination": "mine", "source": "theirs"}, "exchange 'theirs'"),
    ("none", "queue.declare", {"queue": "theirs", "passive": True}, "queue 'theirs'"),
    ("none", "exchange.declare", {"exchange": "theirs", "passive": True}, "exchange 'theirs'"),
    ("read", "basic.consume", {"queue": "theirs"}, "queue 'theirs'"),
    ("read", "basic.get", {"queue": "theirs"}, "queue 'theirs'"),
    ("read", "queue.purge", {"queue": "theirs"}, "queue 'theirs'"),
    ("write", "basic.publish", {"exchange": "theirs"}, "exchange 'theirs'"),
    (
        "write",
        "queue.declare",
        {
            "queue": "mine.too",
            "arguments": {"x-dead-letter-exchange": "theirs", "x-max-length": 1},
        },
        "exchange 'theirs'",
    ),
    (
        "write",
        "exchange.declare",
        {"exchange": "mine.too", "type": "direct", "arguments": {"alternate-exchange": "theirs"}},
        "exchange 'theirs'",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "method", "fields", "named"), CASES, ids=[f"{case[1]}-{case[0]}" for case in CASES]
)
def test_a_user_does_only_what_is_permitted(
    address: tuple[str, int],
    control: Control,
    user: str,
    vhost: str,
    kind: str,
    method: str,
    fields: dict[str, Any],
    named: str,
) -> None:
    del kind
    control("permission.put", vhost=vhost, user="guest", **ALL)
    control("permission.put", vhost=vhost, user=user, **GRANTED)
    with Client.open(address, virtual_host=vhost) as owner:
        for each in ("theirs", "mine"):
            owner.call(1, "queue.declare", queue=each)
            owner.call(1, "exchange.declare", exchange=each, type="fanout")
        owner.close()
    with enter(address, user, vhost) as client:
        client.call(1, "queue.bind", queue="mine", exchange="mine")
        client.publish(1, "", "mine", b"x")
        assert client.get(1, "mine", no_ack=True) is not None
        client.send_method(1, method, **fields)
        if method == "basic.publish":
            client.send(raw.content(1, b"x"))
        ids = METHODS[method].class_id, METHODS[method].method_id
        client.expect_channel_close(
            1,
            403,
            *ids,
            rf"ACCESS_REFUSED - .*access to {named} in vhost '{vhost}' refused for user '{user}'",
        )


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_any_right_shows_whether_something_is_there_and_none_does_not(
    address: tuple[str, int], control: Control, user: str, vhost: str, kind: str
) -> None:
    control("permission.put", vhost=vhost, user="guest", **ALL)
    control("permission.put", vhost=vhost, user=user, configure="^c", write="^w", read="^r")
    method = f"{kind}.declare"
    ids = METHODS[method].class_id, METHODS[method].method_id
    with Client.open(address, virtual_host=vhost) as owner:
        for name in ("c", "w", "r", "hidden"):
            fields = {"type": "fanout"} if kind == "exchange" else {}
            owner.call(1, method, **{kind: name}, **fields)
        owner.close()
    with enter(address, user, vhost) as client:
        for name in ("c", "w", "r"):
            client.call(1, method, **{kind: name}, passive=True)
        for name in ("hidden", "missing"):
            client.send_method(1, method, **{kind: name}, passive=True)
            client.expect_channel_close(1, 403, *ids, f"access to {kind} '{name}' in vhost")
            client.call(1, "channel.open")


def test_the_default_exchange_is_refused_by_its_printed_name(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    control("permission.put", vhost=vhost, user=user, configure="", write="", read="")
    with enter(address, user, vhost) as client:
        client.publish(1, "", "q", b"x")
        client.expect_channel_close(1, 403, 60, 40, r"exchange 'amq\.default'")


def test_a_permission_taken_away_counts_at_once(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    control("permission.put", vhost=vhost, user=user, **ALL)
    with enter(address, user, vhost) as client:
        client.call(1, "queue.declare", queue="q")
        for _ in range(3):
            client.publish(1, "", "q", b"x")
        assert client.get(1, "q", no_ack=True) is not None
        control("permission.put", vhost=vhost, user=user, configure=".*", write="", read="")
        client.publish(1, "", "q", b"x")
        client.expect_channel_close(1, 403, 60, 40)
        client.call(1, "channel.open")
        client.send_method(1, "basic.get", queue="q")
        client.expect_channel_close(1, 403, 60, 70)


def test_topic_permissions_look_at_routing_keys(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    control("permission.put", vhost=vhost, user=user, **ALL)
    control(
        "topic-permission.put",
        vhost=vhost,
        user=user,
        exchange="amq.topic",
        write="^mine\\.",
        read=".*",
    )
    with enter(address, user, vhost) as client:
        client.publish(1, "amq.topic", "mine.x", b"x")
        client.publish(1, "amq.direct", "theirs.x", b"x")
        client.fence(1)
        client.publish(1, "amq.topic", "theirs.x", b"x")
        client.expect_channel_close(1, 403, 60, 40, r"theirs\.x")


@pytest.mark.parametrize("what", ["user", "vhost", "operator"])
def test_a_connection_ends_when_its_user_its_vhost_or_an_operator_says_so(
    address: tuple[str, int], control: Control, user: str, vhost: str, what: str
) -> None:
    control("permission.put", vhost=vhost, user=user, **ALL)
    with enter(address, user, vhost) as client:
        if what == "operator":
            control("connection.close_user", user=user, reason="lunch break")
            text = "CONNECTION_FORCED - lunch break"
        else:
            control(f"{what}.delete", name=user if what == "user" else vhost)
            text = f"CONNECTION_FORCED - {what} '{user if what == 'user' else vhost}' is deleted"
        client.expect_connection_close(320, 0, 0, re.escape(text))


def read_taken_away(control: Control, user: str, vhost: str) -> None:
    control("permission.put", vhost=vhost, user=user, configure=".*", write=".*", read="^(?:kept)$")


def test_a_consumer_is_cancelled_when_its_queue_may_not_be_read_any_more(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    control("permission.put", vhost=vhost, user=user, **ALL)
    with enter(address, user, vhost) as client:
        for queue in ("kept", "lost"):
            client.call(1, "queue.declare", queue=queue)
            client.call(1, "basic.consume", queue=queue, consumer_tag=queue)
        client.publish(1, "", "lost", b"before")
        before = client.expect_message("basic.deliver", 1)
        read_taken_away(control, user, vhost)
        client.expect("basic.cancel", 1, consumer_tag="lost")
        # What it held is still its own; what comes now is not delivered.
        client.publish(1, "", "lost", b"after")
        client.send_method(1, "basic.ack", delivery_tag=before.tag)
        client.publish(1, "", "kept", b"kept")
        assert client.expect_message("basic.deliver", 1).body == b"kept"
        declared = client.call(1, "queue.declare", queue="lost", passive=True)
        assert (declared.message_count, declared.consumer_count) == (1, 0)
        client.close()


def test_a_channel_ends_when_its_client_does_not_understand_a_cancel(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    control("permission.put", vhost=vhost, user=user, **ALL)
    with enter(address, user, vhost, channels=(1, 2), client_properties={}) as client:
        client.call(1, "queue.declare", queue="lost")
        client.call(1, "basic.consume", queue="lost", consumer_tag="t")
        client.publish(1, "", "lost", b"x")
        client.expect_message("basic.deliver", 1)
        read_taken_away(control, user, vhost)
        client.expect_channel_close(
            1, 403, 60, 20, f"read access to queue 'lost' in vhost .*{user}"
        )
        declared = client.call(2, "queue.declare", queue="lost", passive=True)
        assert (declared.message_count, declared.consumer_count) == (1, 0)


def test_a_consumer_stays_when_its_permission_is_renewed(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    control("permission.put", vhost=vhost, user=user, **ALL)
    with enter(address, user, vhost) as client:
        client.call(1, "queue.declare", queue="q")
        client.call(1, "basic.consume", queue="q", no_ack=True, consumer_tag="t")
        control("permission.put", vhost=vhost, user=user, configure="", write=".*", read="q")
        client.publish(1, "", "q", b"x")
        assert client.expect_message("basic.deliver", 1).body == b"x"


def test_who_waits_for_replies_goes_on_when_a_permission_changes(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    """Direct reply-to needs no permission, so none is missed."""
    patterns = {"configure": "", "write": "^(bob|amq.default)", "read": "^bob"}
    control("permission.put", vhost=vhost, user=user, **ALL)
    with enter(address, user, vhost) as client:
        client.call(1, "queue.declare", queue="bob")
        client.call(1, "basic.consume", queue="amq.rabbitmq.reply-to", no_ack=True)
        client.call(1, "queue.declare", queue="lost")
        client.call(1, "basic.consume", queue="lost", consumer_tag="lost")
        control("permission.put", vhost=vhost, user=user, **patterns)
        # The consumers are looked at in the order in which they came.
        client.expect("basic.cancel", 1, consumer_tag="lost")
        client.publish(1, "", "bob", b"ping", reply_to="amq.rabbitmq.reply-to")
        got = client.get(1, "bob", no_ack=True)
        assert got is not None
        client.publish(1, "", got.properties["reply_to"], b"pong")
        assert client.expect_message("basic.deliver", 1).body == b"pong"


def test_a_connection_ends_when_its_user_may_not_enter_the_vhost_any_more(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    control("permission.put", vhost=vhost, user=user, **ALL)
    control("permission.put", vhost="/", user=user, **ALL)
    with enter(address, user, vhost) as client, enter(address, user, "/") as elsewhere:
        control("permission.delete", vhost=vhost, user=user)
        client.expect_connection_close(
            530, 0, 0, re.escape(f"NOT_ALLOWED - access to vhost '{vhost}' refused for user")
        )
        elsewhere.fence(1)


def test_a_topic_permission_counts_at_once_on_open_connections(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    control("permission.put", vhost=vhost, user=user, **ALL)
    topic = {"vhost": vhost, "user": user, "exchange": "amq.topic"}
    with enter(address, user, vhost) as client:
        for _ in range(3):
            client.publish(1, "amq.topic", "theirs.x", b"x")
        client.fence(1)
        control("topic-permission.put", **topic, write="^mine", read=".*")
        client.publish(1, "amq.topic", "theirs.x", b"x")
        client.expect_channel_close(1, 403, 60, 40, r"theirs\.x")
        client.call(1, "channel.open")
        control("topic-permission.delete", **topic)
        client.publish(1, "amq.topic", "theirs.x", b"x")
        client.fence(1)


def test_a_commit_whose_copy_may_go_no_more_publishes_nothing(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    control("permission.put", vhost=vhost, user=user, **ALL)
    with enter(address, user, vhost) as client:
        queue = client.call(1, "queue.declare", exclusive=True).queue
        client.call(1, "queue.bind", queue=queue, exchange="amq.topic", routing_key="#")
        client.call(1, "tx.select")
        client.publish(1, "amq.topic", "mine.x", b"plain")
        client.publish(1, "amq.topic", "mine.x", b"copied", headers={"CC": ["theirs.x"]})
        client.fence(1)
        control(
            "topic-permission.put",
            vhost=vhost,
            user=user,
            exchange="amq.topic",
            write="^mine",
            read=".*",
        )
        client.send_method(1, "tx.commit")
        client.expect_channel_close(1, 403, 90, 20, r"theirs\.x")
        client.call(1, "channel.open")
        assert client.call(1, "queue.declare", queue=queue, passive=True).message_count == 0


def test_a_queue_that_the_server_names_is_permitted_by_that_name(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    dead = {"x-dead-letter-exchange": "amq.fanout"}
    grant = partial(control, "permission.put", vhost=vhost, user=user)
    grant(configure="^amq\\.gen-.*$", write="^amq\\.fanout$", read="^amq\\.gen-.*$")
    with enter(address, user, vhost) as client:
        assert client.call(1, "queue.declare", exclusive=True).queue.startswith("amq.gen-")
        client.call(1, "queue.declare", exclusive=True, arguments=dead)
        grant(configure="^amq\\.gen-.*$", write="^amq\\.fanout$", read="^$")
        client.send_method(1, "queue.declare", exclusive=True, arguments=dead)
        client.expect_channel_close(1, 403, 50, 10, "read access to queue 'amq.gen-")
        client.call(1, "channel.open")
        for pattern in ("^$", "^mine"):
            grant(configure=pattern, write=".*", read=".*")
            client.send_method(1, "queue.declare", exclusive=True)
            client.expect_channel_close(1, 403, 50, 10, "configure access to queue 'amq.gen-")
            client.call(1, "channel.open")


def test_what_is_there_is_declared_again_without_the_rights_to_where_it_leads(
    address: tuple[str, int], control: Control, user: str, vhost: str
) -> None:
    dead = {"x-dead-letter-exchange": "amq.fanout"}
    alternate = {"alternate-exchange": "amq.fanout"}
    control("permission.put", vhost=vhost, user=user, **ALL)
    with enter(address, user, vhost) as client:
        client.call(1, "queue.declare", queue="mine", arguments=dead)
        client.call(1, "exchange.declare", exchange="mine", type="topic", arguments=alternate)
        control("permission.put", vhost=vhost, user=user, configure="^mine", write="^$", read="^$")
        client.call(1, "queue.declare", queue="mine", arguments=dead)
        client.call(1, "exchange.declare", exchange="mine", type="topic", arguments=alternate)
        client.send_method(1, "queue.declare", queue="mine too", arguments=dead)
        client.expect_channel_close(1, 403, 50, 10, "read access to queue 'mine too'")
