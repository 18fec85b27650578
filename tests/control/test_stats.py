"""Rates, history and totals of the sampler."""

from __future__ import annotations

import pytest

from broker.server.app import Broker
from management.broker_client import BrokerClient
from tests.amqp import raw
from tests.control.unconfirmed import unconfirmed, wait
from tests.inside import Clock, ack, configure, connect, get, publish, sample, until


def test_it_knows_the_rate_of_the_last_five_seconds(broker: Broker, clock: Clock) -> None:
    queue, _ = broker.vhosts["/"].declare_queue("q")
    sample(broker, clock)
    for _ in range(10):
        publish(broker.vhosts["/"], "q", 20)
        sample(broker, clock)
    gauge = broker.stats.gauge("queue", queue)
    assert gauge is not None
    assert gauge.rate("publish") == 20
    publish(broker.vhosts["/"], "q", 100)
    sample(broker, clock)
    assert gauge.rate("publish") == 36
    sample(broker, clock, 5)
    assert gauge.rate("publish") == 0
    assert gauge.is_quiet


@pytest.mark.parametrize("seconds", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("messages_before", [0, 1])
def test_the_rates_of_a_message_add_up_to_it_however_far_looks_are_apart(
    broker: Broker, clock: Clock, seconds: int, messages_before: int
) -> None:
    queue, _ = broker.vhosts["/"].declare_queue("q")
    publish(broker.vhosts["/"], "q", messages_before)
    sample(broker, clock, 20)
    publish(broker.vhosts["/"], "q")
    total = 0.0
    for _ in range(20):
        clock.now += seconds * 1000
        for _ in broker.stats.sample(broker):
            pass
        gauge = broker.stats.gauge("queue", queue)
        assert gauge is not None
        total += gauge.rate("publish") * seconds
    assert total == pytest.approx(1, abs=0.01)


def test_it_spends_nothing_on_a_queue_without_traffic(broker: Broker, clock: Clock) -> None:
    for number in range(300):
        broker.vhosts["/"].declare_queue(f"q{number}")
    sample(broker, clock, 3)
    assert all(queue.gauge is None for queue in broker.vhosts["/"].queues.values())
    assert broker.stats.node.levels["queues"] == 300


def test_it_takes_rows_only_of_objects_that_changed(broker: Broker, clock: Clock) -> None:
    queues = [broker.vhosts["/"].declare_queue(f"q{number}")[0] for number in range(300)]
    for queue in queues:
        publish(broker.vhosts["/"], queue.name)
    sample(broker, clock, 10)
    assert broker.stats.node.levels["messages_ready"] == 300
    sample(broker, clock)
    assert broker.stats.looked >= 300
    assert broker.stats.changed == 0
    publish(broker.vhosts["/"], "q7")
    ack(queues[7])
    sample(broker, clock)
    # It, and the exchange that the message came through.
    assert broker.stats.changed == 2
    # As long as its rate is not zero again.
    sample(broker, clock, 10)
    assert broker.stats.changed == 0
    assert broker.stats.gauge("queue", queues[7]).rate("publish") == 0  # type: ignore[union-attr]


async def test_rates_hold_with_more_than_5000_queues(broker: Broker, clock: Clock) -> None:
    vhost = broker.vhosts["/"]
    for number in range(6_000):
        vhost.declare_queue(f"q{number}")
    queue = vhost.queues["q4711"]
    client = await connect(broker, "anna")
    sample(broker, clock)
    for second in range(20):
        await client.publish("q4711", 109)
        ack(queue, 109)
        sample(broker, clock)
        if second < 6:
            continue
        gauge = broker.stats.gauge("queue", queue)
        assert gauge is not None
        rates = (
            broker.stats.node.rate("ack"),
            broker.stats.node.rate("publish"),
            broker.stats.vhost("/").rate("ack"),
            gauge.rate("ack"),
        )
        assert rates == (109, 109, 109, 109)
    chart = broker.stats.node.series.history(clock.now - 10_000, clock.now, ["ack"])
    assert chart["series"]["ack"] == [109] * 11


def test_a_rate_after_a_rest_is_over_five_seconds(broker: Broker, clock: Clock) -> None:
    queue, _ = broker.vhosts["/"].declare_queue("q")
    publish(broker.vhosts["/"], "q")
    sample(broker, clock, 60)
    publish(broker.vhosts["/"], "q", 100)
    sample(broker, clock)
    gauge = broker.stats.gauge("queue", queue)
    assert gauge is not None
    assert gauge.rate("publish") == 20
    sample(broker, clock, 4)
    assert gauge.rate("publish") == 20
    sample(broker, clock)
    assert gauge.rate("publish") == 0


async def test_a_connection_that_rested_has_rates_of_what_comes_and_goes(
    broker: Broker, clock: Clock
) -> None:
    client = await connect(broker, "anna")
    sample(broker, clock, 60)
    gauge = broker.stats.gauge("connection", client.session)
    assert gauge is not None
    assert gauge.is_quiet
    received, sent = client.session.recv_oct, client.session.output.send_oct
    await client.publish("unroutable", 100)
    sample(broker, clock)
    assert gauge.rate("recv_oct") == (client.session.recv_oct - received) / 5 > 0
    assert gauge.rate("send_oct") == (client.session.output.send_oct - sent) / 5 > 0
    sample(broker, clock, 5)
    assert gauge.rate("recv_oct") == gauge.rate("send_oct") == 0
    sent = client.session.output.send_oct
    client.session.send(b"\x08\x00\x00\x00\x00\x00\x00\xce")
    await until(lambda: client.session.output.send_oct > sent)
    sample(broker, clock)
    assert gauge.rate("send_oct") == 8 / 5


@pytest.mark.parametrize("number", [2, 40_000])
async def test_a_channel_that_rested_has_rates_whatever_its_number(
    broker: Broker, clock: Clock, number: int
) -> None:
    client = await connect(broker, "anna")
    client.call(number, "channel.open")
    await until(lambda: number in client.session.channels)
    channel = client.session.channels[number]
    client.feed(raw.publish(number, "", "unroutable", b"x"))
    await client.fence()
    sample(broker, clock, 60)
    client.feed(raw.publish(number, "", "unroutable", b"x") * 10)
    await client.fence()
    sample(broker, clock)
    gauge = broker.stats.gauge("channel", channel)
    assert gauge is not None
    assert gauge.rate("publish") == 2
    sample(broker, clock, 5)
    assert gauge.rate("publish") == 0
    assert gauge.is_quiet


def test_a_queue_that_rested_is_not_stuck_at_its_next_message(broker: Broker, clock: Clock) -> None:
    queue, _ = broker.vhosts["/"].declare_queue("q")
    publish(broker.vhosts["/"], "q")
    ack(queue)
    sample(broker, clock, 200)
    publish(broker.vhosts["/"], "q")
    get(queue)
    sample(broker, clock)
    gauge = broker.stats.gauge("queue", queue)
    assert gauge is not None
    assert clock.now - gauge.acked_at <= 1000


def test_the_history_of_a_queue_that_rests_is_flat(broker: Broker, clock: Clock) -> None:
    queue, _ = broker.vhosts["/"].declare_queue("q")
    for _ in range(30):
        publish(broker.vhosts["/"], "q")
        sample(broker, clock)
    sample(broker, clock, 300)
    found = broker.stats.watch("queue", queue).history(clock.now - 200_000, clock.now)
    assert len(found["times"]) >= 20
    assert found["series"]["messages_ready"] == [30] * len(found["times"])
    assert set(found["series"]["publish"]) == {0}


async def test_it_keeps_counting_when_objects_come_and_go(broker: Broker, clock: Clock) -> None:
    vhost = broker.vhosts["/"]
    total = 0
    for round_ in range(20):
        client = await connect(broker, "anna")
        queue, _ = vhost.declare_queue(f"q{round_}")
        await client.publish(queue.name, 5)
        ack(queue, 3)
        if round_ % 2:
            sample(broker, clock)
        await client.publish(queue.name, 2)
        client.call(1, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
        await client.leave()
        vhost.delete_queue(queue.name)
        total += 7
        assert broker.stats.node.counters["publish"] == total
        sample(broker, clock)
    assert broker.stats.node.counters["publish"] == total
    assert broker.stats.node.counters["ack"] == 60
    assert broker.stats.vhost("/").counters["publish"] == total
    assert broker.stats.node.counters["queue_deleted"] == 20
    # Only the exchange that the messages came through is still there.
    assert list(broker.stats._histories) == [vhost.exchange("")]


async def test_it_counts_once_what_goes_while_a_sample_is_taken(
    broker: Broker, clock: Clock
) -> None:
    vhost = broker.vhosts["/"]
    queues = [vhost.declare_queue(f"q{number:03}")[0] for number in range(250)]
    clients = [await connect(broker, "anna") for _ in range(120)]
    sample(broker, clock)
    for queue in queues:
        publish(vhost, queue.name)
        ack(queue)
    for client in clients:
        await client.publish("unroutable")
    clock.now += 1000
    steps = broker.stats.sample(broker)
    next(steps)
    for queue in queues:
        vhost.delete_queue(queue.name)
    for client in clients:
        await client.leave()
    assert not broker.connections
    for _ in steps:
        pass
    sample(broker, clock)
    assert broker.stats.node.counters["ack"] == 250
    assert broker.stats.node.counters["publish"] == 120


def test_it_keeps_history_for_a_bounded_number_of_objects(
    broker: Broker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.stats.sampler._HISTORIES_MAX", 10)
    queues = [broker.vhosts["/"].declare_queue(f"q{number}")[0] for number in range(50)]
    sample(broker, clock)
    for queue in queues:
        for _ in range(2):
            publish(broker.vhosts["/"], queue.name)
            ack(queue)
            sample(broker, clock)
    with_history = [queue for queue in queues if queue.gauge.history is not None]
    # And the exchange that the messages came through.
    assert len(with_history) == 9
    # Who rests makes room.
    assert queues[49].gauge.history is not None


def test_a_step_of_a_sample_brings_few_histories_over_a_long_rest(
    broker: Broker, clock: Clock
) -> None:
    queues = [broker.vhosts["/"].declare_queue(f"q{number}")[0] for number in range(100)]
    for _ in range(2):
        for queue in queues:
            publish(broker.vhosts["/"], queue.name)
        sample(broker, clock)

    def noted() -> int:
        wanted = clock.now - clock.now % 10_000
        histories = [queue.gauge.history.history(wanted, clock.now) for queue in queues]
        return sum(bool(history["times"]) for history in histories)

    # After an hour of rest each history has an hour to catch up with.
    clock.now += 3_600_000
    before, most = noted(), 0
    for _ in broker.stats.sample(broker):
        after = noted()
        before, most = after, max(most, after - before)
    assert noted() == 100
    assert most <= 20
    # Without one they are quick.
    for queue in queues:
        publish(broker.vhosts["/"], queue.name)
    clock.now += 10_000
    assert noted() == 0
    sample(broker, clock)
    assert noted() == 100


def test_a_history_has_every_step_of_a_rest(broker: Broker, clock: Clock) -> None:
    queue, _ = broker.vhosts["/"].declare_queue("q")
    for _ in range(3):
        publish(broker.vhosts["/"], "q", 10)
        sample(broker, clock)
    for rest in (25_000, 300_000, 3_570_000, 10_000_000):
        begin = clock.now
        clock.now += rest
        sample(broker, clock)
        publish(broker.vhosts["/"], "q", 10)
        sample(broker, clock)
        history = queue.gauge.history.history(max(begin, clock.now - 3_500_000), clock.now)
        steps = [at // 10_000 for at in history["times"]]
        assert steps == list(range(steps[0], clock.now // 10_000 + 1)), rest
        assert None not in history["series"]["publish"][1:], rest


async def test_it_shows_samples_when_they_are_asked_for(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    broker.vhosts["/"].declare_queue("q")
    ages = {"msg_rates": (60, 5), "lengths": (60, 5)}
    publish(broker.vhosts["/"], "q")
    sample(broker, clock, 3)
    for answer in (
        await client.call("overview", ages=ages),
        await client.call("item", noun="queues", vhost="/", name="q", ages=ages),
    ):
        details = answer["message_stats"]["publish_details"]
        assert len(details["samples"]) == 13
        assert {"rate", "avg", "avg_rate"} <= details.keys()
        assert len(answer["message_stats"]["deliver_get_details"]["samples"]) == 13
    plain = await client.call("overview")
    assert plain["message_stats"]["publish_details"].keys() == {"rate"}
    huge = await client.call("overview", ages={"msg_rates": (10**9, 0)})
    assert len(huge["message_stats"]["publish_details"]["samples"]) <= 2001


async def test_it_finds_the_word_of_trouble(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    vhost = broker.vhosts["/"]
    consumer = await connect(broker, "anna")
    # One delivery for the whole channel: while that is not acknowledged, its other consumers get
    # nothing.
    consumer.call(1, "basic.qos", **{"prefetch_count": 1, "global": True})
    for name in ("stuck", "idle", "full", "growing", "fine", "served not"):
        vhost.declare_queue(name, arguments={"x-max-length": 10} if name == "full" else {})
        if name != "served not":
            consumer.call(1, "basic.consume", queue=name)
        if name != "idle":
            publish(vhost, name)
        await consumer.fence()
    publish(vhost, "full", 9)
    for _ in range(70):
        publish(vhost, "growing", 3)
        publish(vhost, "fine")
        ack(vhost.queues["fine"])
        sample(broker, clock)
    found = await client.call("list", noun="queues", sort="trouble", columns=["name", "trouble"])
    assert [(row["name"], row["trouble"]) for row in found["items"]] == [
        ("served not", "not served"),
        ("stuck", "stuck"),
        ("full", "at a limit"),
        ("growing", "growing"),
        ("fine", "fine"),
        ("idle", "idle"),
    ]
    troubled = await client.call("list", noun="queues", state="trouble")
    assert troubled["filtered_count"] == 4
    asked = {"noun": "queues", "state": "trouble", "sort": "trouble", "columns": ["name"]}
    troubled = await client.call("list", **asked, page=1, page_size=3)
    assert [row["name"] for row in troubled["items"]] == ["served not", "stuck", "full"]
    troubled = await client.call("list", **asked, sort_reverse=True)
    assert [row["name"] for row in troubled["items"]] == ["growing", "full", "stuck", "served not"]
    overview = await client.call("overview")
    assert [problem["name"] for problem in overview["problems"]] == [
        "growing",
        "stuck",
        "full",
        "served not",
    ]
    assert overview["health"] == {"state": "bad", "text": "4 problems.", "scope": ""}
    assert overview["top_queues"][0]["name"] == "growing"
    assert overview["queue_troubles"]["idle"] == 1


async def word_of(client: BrokerClient, name: str) -> str:
    found = await client.call("list", noun="queues", name=name, columns=["name", "trouble"])
    return str(found["items"][0]["trouble"])


async def test_a_queue_is_stuck_after_the_time_that_the_setting_says(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    configure(broker, stuck_after=10.0)
    queue, _ = broker.vhosts["/"].declare_queue("q")
    await (await connect(broker, "anna")).consume("q", "tag", 1)
    # Somebody opens its page, before anything was counted.
    broker.stats.watch("queue", queue)
    publish(broker.vhosts["/"], "q", 2)
    await until(lambda: queue.messages_unacknowledged == 1)
    assert queue.messages_ready == 1
    for _ in range(10):
        sample(broker, clock)
        assert await word_of(client, "q") != "stuck"
    for _ in range(3):
        sample(broker, clock)
    assert await word_of(client, "q") == "stuck"
    (problem,) = (await client.call("overview"))["problems"]
    assert problem["text"].startswith("consumers acknowledged nothing for 12 s; 1 ")


async def test_a_consumer_that_comes_to_a_stuck_queue_has_its_own_time(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    queue, _ = broker.vhosts["/"].declare_queue("q")
    await (await connect(broker, "anna")).consume("q", "first", 1)
    publish(broker.vhosts["/"], "q", 2)
    await until(lambda: queue.messages_unacknowledged == 1)
    sample(broker, clock, 70)
    assert await word_of(client, "q") == "stuck"
    await (await connect(broker, "bert")).consume("q", "second", 1)
    await until(lambda: queue.messages_unacknowledged == 2)
    sample(broker, clock)
    assert await word_of(client, "q") == "fine"
    sample(broker, clock, 70)
    assert await word_of(client, "q") == "stuck"


async def test_it_finds_the_consumer_that_is_stuck(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_queue("q")
    # Each comes with a higher priority than those before it, and takes what it holds.
    peers = {}
    for priority, (tag, count) in enumerate({"idle": 0, "stuck": 2, "slow": 2, "full": 5}.items()):
        peers[tag] = await connect(broker, "anna")
        await peers[tag].consume("q", tag, 5, **{"x-priority": priority})
        publish(vhost, "q", count)
        await peers[tag].fence()
    for second in range(90):
        await peers["full"].ack(second + 1)
        publish(vhost, "q")
        await peers["full"].fence()
        if second % 40 == 0:
            await peers["slow"].ack(second // 40 + 1)
            publish(vhost, "q")
            await peers["slow"].fence()
        sample(broker, clock)
    found = await client.call(
        "list", noun="consumers", sort="trouble", columns=["consumer_tag", "trouble"]
    )
    assert [(row["consumer_tag"], row["trouble"]) for row in found["items"]] == [
        ("stuck", "stuck"),
        ("full", "full"),
        ("slow", "fine"),
        ("idle", "idle"),
    ]
    named = await client.call("list", noun="consumers", state="stuck")
    assert named["filtered_count"] == 1
    (problem,) = (await client.call("overview"))["problems"]
    assert (problem["name"], problem["consumer"]) == ("q", "stuck")
    assert problem["text"] == "consumer stuck acknowledged nothing for 1 min; it holds 2 of 5"


async def test_it_finds_the_publisher_whose_oldest_message_is_not_confirmed(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    waiting = await unconfirmed(broker, "anna", "waits", 3)
    broker.vhosts["/"].declare_queue("moves", arguments={"x-confirm-on": "ack"})
    publisher, consumer = await connect(broker, "anna"), await connect(broker, "anna")
    await consumer.consume("moves", "tag")
    publisher.call(1, "confirm.select")
    await publisher.publish("moves", 3)
    for second in range(90):
        await publisher.publish("moves")
        await wait(broker, clock, [waiting], 1)
        await consumer.ack(second + 1)
        assert publisher.channel.messages_unconfirmed >= 3
    (problem,) = (await client.call("overview"))["problems"]
    assert (problem["kind"], problem["name"]) == ("connection", waiting.publisher.name)
    assert problem["text"] == "channel 1 has waited 1 min for a confirm; 3 unconfirmed"
