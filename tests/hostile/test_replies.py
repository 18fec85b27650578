"""Direct reply-to between clients that do not trust each other."""

from __future__ import annotations

import httpx
import pytest

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.amqp.test_permissions import ALL, ask
from tests.appliance import Appliance
from tests.conftest import Make
from tests.hostile.figures import forget_peak, peak_bytes, resident_bytes

PSEUDO = "amq.rabbitmq.reply-to"


def opened(broker: Appliance, vhost: str = "/") -> Client:
    return Client.open((broker.host, broker.amqp_port), virtual_host=vhost)


def reply_name(requester: Client) -> str:
    """The name that its requests carry."""
    requester.call(1, "queue.declare", queue="requests", auto_delete=False)
    requester.call(1, "basic.consume", queue=PSEUDO, no_ack=True)
    requester.publish(1, "", "requests", b"ping", reply_to=PSEUDO)
    got = requester.get(1, "requests", no_ack=True)
    assert got is not None
    name: str = got.properties["reply_to"]
    return name


def test_names_of_replies_have_nothing_in_common_that_could_be_guessed(
    shared_broker: Appliance,
) -> None:
    names = []
    for _ in range(20):
        with opened(shared_broker) as client:
            names.append(reply_name(client))
    tokens = [name.removeprefix(PSEUDO + ".") for name in names]
    assert len(set(tokens)) == 20
    # 18 random octets; no counter, address or channel in front of them or behind.
    assert {len(token) for token in tokens} == {24}
    for place in (slice(0, 4), slice(-4, None)):
        assert len({token[place] for token in tokens}) > 15


@pytest.mark.parametrize(
    "changed",
    [
        lambda name: name[:-1] + ("A" if name[-1] != "A" else "B"),
        lambda name: name + "A",
        lambda name: name[:-1],
        lambda name: name.upper(),
        lambda name: PSEUDO + ".",
        lambda name: PSEUDO + ".g2dkAA",
    ],
)
def test_a_reply_to_a_guessed_name_reaches_nobody(
    shared_broker: Appliance, changed: object
) -> None:
    with opened(shared_broker) as requester, opened(shared_broker) as other:
        name = changed(reply_name(requester))  # type: ignore[operator]
        other.publish(1, "", name, b"false", mandatory=True)
        assert other.expect_message("basic.return", channel=1).method.reply_code == 312
        assert requester.get(1, "requests", no_ack=True) is None  # and nothing was pushed before


def test_a_reply_from_another_vhost_reaches_nobody(shared_broker: Appliance) -> None:
    ask(shared_broker, "vhost.put", name="elsewhere")
    ask(shared_broker, "permission.put", vhost="elsewhere", user="guest", **ALL)
    with opened(shared_broker) as requester, opened(shared_broker, "elsewhere") as other:
        name = reply_name(requester)
        other.publish(1, "", name, b"false", mandatory=True)
        assert other.expect_message("basic.return", channel=1).method.reply_code == 312
        other.send_method(1, "queue.declare", queue=name, passive=True)
        other.expect_channel_close(1, 404, 50, 10)


@pytest.mark.parametrize(
    "ask_for",
    [
        lambda c, name: c.send_method(1, "basic.consume", queue=name, no_ack=True),
        lambda c, name: c.send_method(1, "basic.get", queue=name, no_ack=True),
        lambda c, name: c.send_method(1, "queue.purge", queue=name),
        lambda c, name: c.send_method(1, "queue.delete", queue=name),
        lambda c, name: c.send_method(
            1, "queue.bind", queue=name, exchange="amq.fanout", routing_key=""
        ),
    ],
    ids=["consume", "get", "purge", "delete", "bind"],
)
def test_nobody_takes_what_is_for_another_requester(
    shared_broker: Appliance, ask_for: object
) -> None:
    with opened(shared_broker) as requester, opened(shared_broker) as other:
        name = reply_name(requester)
        ask_for(other, name)  # type: ignore[operator]
        # Deleting what is no queue is no error.
        assert other.read_method().name in ("channel.close", "queue.delete-ok")
        with opened(shared_broker) as honest:
            honest.publish(1, "", name, b"pong")
        assert requester.expect_message(channel=1).body == b"pong"


def test_replies_that_are_not_read_do_not_stay_in_memory(make_broker: Make) -> None:
    broker = make_broker()
    pid = broker.pids["broker"]
    with opened(broker) as requester, opened(broker) as other:
        name = reply_name(requester)
        forget_peak(pid)
        before = resident_bytes(pid)
        body = b"x" * 100_000
        for _ in range(600):
            other.send(raw.publish(1, "", name, body))
        other.call(1, "queue.declare", queue="requests", passive=True)
        assert peak_bytes(pid) - before < 20 << 20
        dropped = ask(broker, "nodes")[0]["direct_replies_dropped"]
        assert 300 < dropped < 600, "what its sockets and unsent_max took was delivered"
        url = f"http://{broker.host}:{broker.metrics_port}/metrics"
        lines = httpx.get(url, timeout=60).text.splitlines()
        assert f"rabbitmq_direct_replies_dropped_total {dropped}" in lines
