"""The history over restarts and kills: no confirmed message is without its record."""

from __future__ import annotations

import pika

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.conftest import Make
from tests.control.test_message_history import HISTORY, keep, records
from tests.control.test_real_broker import connect, control

COUNT = 5_000


async def test_what_was_confirmed_when_the_broker_was_killed_has_its_record(
    make_broker: Make,
) -> None:
    broker = make_broker()
    async with control(broker) as client:
        await client.call("queue.declare", vhost="/", name="q", durable=True)
        await keep(client, "/", "headers", "^q$", history_keys="message_id", history_events=True)
    confirmed = 0
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "confirm.select")
        client.send(
            b"".join(
                raw.publish(1, "", "q", b"x", delivery_mode=2, message_id=str(number))
                for number in range(COUNT)
            )
        )
        while confirmed < COUNT // 2:
            confirmed = client.expect("basic.ack", 1).delivery_tag
        broker.kill()
    broker.start()
    async with control(broker) as client:
        found = [row["properties"]["message_id"] for row in await records(client, "/")]
        assert found[:confirmed] == [str(number) for number in range(confirmed)]
        queue = await client.call("item", noun="queues", vhost="/", name="q")
        assert queue["messages"] >= confirmed
        answer = await client.call(
            "stream.search",
            vhost="/",
            name=HISTORY,
            key="message_id",
            value=str(confirmed - 1),
        )
        assert len(answer["messages"]) == 1 and answer["complete"]
        (row,) = answer["messages"]
        with Client.open((broker.host, broker.amqp_port)) as amqp:
            assert amqp.get(1, "q", no_ack=True) is not None
        await client.call("stream.search", vhost="/", name=HISTORY, key="message_id", value="0")
        # What happened to a message on both sides of the kill is its one life.
        for offset, events in ((0, ["published", "got_no_ack"]), (row["offset"], ["published"])):
            life = await client.call("history.life", vhost="/", offset=offset)
            told = [event["event"] for event in life["events"]]
            assert (told, life["kept"], life["reasons"]) == (events, True, [])
    # The policy holds after the restart, too.
    channel = connect(broker).channel()
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"x", pika.BasicProperties(message_id="after"))
    async with control(broker) as client:
        *_, last = await records(client, "/")
        assert last["properties"]["message_id"] == "after"
