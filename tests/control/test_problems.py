"""The list of problems: whose it is, what comes first, what is one line, and what is counted."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing
from typing import Any

import pika
import pytest
from pika.exceptions import NackError

from broker.server.alarms import Reading
from broker.server.app import Broker
from broker.server.control.findings import NAMES, Problem, Share
from broker.server.control.problems import watch_of
from broker.vhosts.vhost import VHost
from management.broker_client import BrokerClient, BrokerError
from tests.appliance import Appliance
from tests.conftest import Make
from tests.control.test_real_broker import control, until
from tests.control.unconfirmed import unconfirmed, wait
from tests.inside import Clock, configure, connect, publish, put_user, sample


@pytest.fixture
def begun(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Task[Any]]:
    """The tasks that the broker begins."""
    tasks: list[asyncio.Task[Any]] = []
    run_task = broker.run_task

    def noted(work: Any) -> asyncio.Task[Any]:
        tasks.append(run_task(work))
        return tasks[-1]

    monkeypatch.setattr(broker, "run_task", noted)
    return tasks


def make_vhost(broker: Broker, name: str, user: str) -> VHost:
    """A vhost of a user of its own, with the tag management."""
    vhost = broker.definitions.create_vhost(name)
    put_user(broker, user, "management", vhosts=(name,))
    return vhost


def waiting(vhost: VHost, name: str, messages: int = 1) -> Any:
    queue, _ = vhost.declare_queue(name)
    publish(vhost, name, messages)
    return queue


async def test_a_quiet_tenant_sees_its_problem_beside_a_noisy_one(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    noisy = make_vhost(broker, "noisy", "loud")
    for number in range(300):
        waiting(noisy, f"q{number}", 5)
    waiting(make_vhost(broker, "quiet", "calm"), "only")
    sample(broker, clock)
    overview = await client.call("overview", as_user="calm")
    assert [(row["vhost"], row["name"]) for row in overview["problems"]] == [("quiet", "only")]
    assert overview["problem_count"] == 1
    assert overview["health"]["text"] == "One problem."
    assert (await client.call("overview", as_user="loud"))["problem_count"] == 300
    assert (await client.call("overview"))["problem_count"] == 301


async def test_without_sight_of_all_it_is_not_said_that_there_are_no_problems(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    waiting(make_vhost(broker, "noisy", "loud"), "q", 5)
    make_vhost(broker, "quiet", "calm")
    put_user(broker, "watcher", "monitoring", vhosts=())
    sample(broker, clock)
    for user in ("calm", "watcher"):
        health = (await client.call("overview", as_user=user))["health"]
        assert (health["state"], health["text"]) == ("fine", "No problems that you may see.")
    assert health["scope"].startswith("You see the queues of 0 of 3 virtual hosts")
    page = await client.call("problems", as_user="watcher", page=1, page_size=5)
    assert page["health"] == health
    assert (await client.call("overview"))["health"]["text"] == "One problem."


async def test_a_quiet_tenant_sees_its_growing_queue_and_its_publisher_beside_a_noisy_one(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    noisy, quiet = make_vhost(broker, "noisy", "loud"), make_vhost(broker, "quiet", "calm")
    queues = [noisy.declare_queue(f"q{number}")[0] for number in range(220)]
    quiet.declare_queue("mine")
    others = [await connect(broker, "loud", "noisy") for _ in range(220)]
    publisher = await connect(broker, "calm", "quiet")
    for _ in range(10):
        for queue in queues:
            publish(noisy, queue.name, 9)
        publish(quiet, "mine", 3)
        for one in others:
            await one.publish("unroutable", 9)
        await publisher.publish("unroutable", 3)
        sample(broker, clock)
    overview = await client.call("overview", as_user="calm")
    assert [row["name"] for row in overview["top_queues"]] == ["mine"]
    assert [row["user"] for row in overview["top_publishers"]] == ["calm"]
    assert len((await client.call("overview"))["top_queues"]) == 10


async def test_alike_problems_of_a_vhost_are_one_line_and_each_is_counted(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    iot = make_vhost(broker, "iot", "device")
    for number in range(1000):
        waiting(iot, f"sensor-{number}", 1 + number % 2)
    waiting(iot, "backlog", 500)
    sample(broker, clock)
    overview = await client.call("overview", as_user="device")
    assert [(row["count"], row["text"]) for row in overview["problems"]] == [
        (1, "500 messages and no consumer"),
        (1000, "1,000 queues have 1–2 messages and no consumer"),
    ]
    assert overview["problems"][1]["kind"] == "queues"
    assert len(overview["problems"][1]["names"]) == 5
    assert overview["problem_count"] == 1001
    assert overview["health"]["text"] == "1,001 problems."


async def test_a_consumer_stuck_for_half_an_hour_comes_before_a_message_without_consumer(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    vhost = broker.vhosts["/"]
    waiting(vhost, "alone")
    waiting(vhost, "busy", 0)
    stuck, other = await connect(broker, "anna"), await connect(broker, "anna")
    await stuck.consume("busy", "stuck", 5)
    publish(vhost, "busy")
    await stuck.fence()
    sample(broker, clock)
    # The message without a consumer has waited for a day, the consumer for half an hour.
    await client.call("overview")
    clock.now += 86_400_000
    for second in range(10):
        publish(vhost, "busy")
        await stuck.fence()
        await stuck.ack(second + 2)
        sample(broker, clock)
    sample(broker, clock, 10)
    clock.now += 1_800_000
    await other.consume("busy", "other", 5, **{"x-priority": 1})
    publish(vhost, "busy")
    await other.fence()
    await other.ack(1)
    sample(broker, clock)
    overview = await client.call("overview")
    assert [row["name"] for row in overview["problems"]] == ["busy", "alone"]
    assert overview["problems"][0]["text"].startswith("consumer stuck acknowledged nothing for 30")


async def test_a_state_is_listed_when_it_has_lasted_for_the_time_of_grace(
    broker: Broker, client: BrokerClient, clock: Clock, begun: list[asyncio.Task[Any]]
) -> None:
    configure(broker, problem_grace=60.0)
    watch = watch_of(broker)
    waiting(broker.vhosts["/"], "q", 3)
    for _ in range(6):
        sample(broker, clock, 10)
        # Nobody asks: the watch looks by itself and so knows since when.
        watch.sampled()
        await asyncio.gather(*begun)
    health = (await client.call("overview"))["health"]
    assert (health["state"], health["text"]) == ("fine", "No problems.")
    sample(broker, clock, 10)
    overview = await client.call("overview")
    assert overview["problems"][0]["text"] == "3 messages and no consumer for 1 min"
    assert overview["problems"][0]["since"] == clock.now - 60_000
    # With a consumer for a moment the time begins anew.
    consumer = await connect(broker, "anna")
    await consumer.consume("q", "tag")
    sample(broker, clock)
    await client.call("overview")
    await consumer.leave()
    sample(broker, clock)
    assert (await client.call("overview"))["problem_count"] == 0


async def test_the_overview_has_five_and_the_pages_have_all(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    for number in range(7):
        waiting(make_vhost(broker, f"v{number}", f"u{number}"), f"q{number}", 10 + number)
    broker.problems.append("something was not found again")
    sample(broker, clock)
    overview = await client.call("overview")
    assert len(overview["problems"]) == 5
    assert (overview["problem_count"], overview["problem_lines"]) == (8, 8)
    pages = [await client.call("problems", page=page, page_size=3) for page in (1, 2, 3)]
    assert [len(page["items"]) for page in pages] == [3, 3, 2]
    names = [row["name"] for page in pages for row in page["items"]]
    assert names == ["recovery", "q6", "q5", "q4", "q3", "q2", "q1", "q0"]
    assert {page["page_count"] for page in pages} == {3}
    with pytest.raises(BrokerError, match="page out of range"):
        await client.call("problems", page=4, page_size=3)
    mine = await client.call("problems", as_user="u3", vhost="v3")
    # What was not found again may be of any vhost.
    assert [row["name"] for row in mine["items"]] == ["q3"]
    with pytest.raises(BrokerError, match="not authorised"):
        await client.call("problems", as_user="u3", vhost="v4")


async def test_the_publisher_of_another_user_is_no_problem_of_ones_own(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    put_user(broker, "anna", "management")
    put_user(broker, "bert", "management")
    await wait(broker, clock, [await unconfirmed(broker, "bert", "q", 3)], 90)
    assert (await client.call("overview", as_user="anna"))["problem_count"] == 0
    assert (await client.call("overview", as_user="bert"))["problem_count"] == 1


@pytest.mark.parametrize("count", [1, 3], ids=["one line", "a group"])
@pytest.mark.parametrize("tag", ["management", "policymaker", "monitoring", "administrator"])
async def test_unconfirmed_publishes_show_addresses_to_their_user_and_who_sees_connections(
    broker: Broker, client: BrokerClient, clock: Clock, tag: str, count: int
) -> None:
    """Of users of the same virtual host, whose queues both see; by no verb, list or push."""
    put_user(broker, "anna", tag)
    put_user(broker, "bert-the-owner", "management")
    user = "bert-the-owner"
    publishers = [await unconfirmed(broker, user, f"q{number}", 3) for number in range(count)]
    await wait(broker, clock, publishers, 90)
    connections = [one for each in publishers for one in (each.publisher, each.consumer)]
    own = await shown(client, "bert-the-owner")
    assert all(connection.name in own for connection in connections)
    others = await shown(client, "anna")
    is_seen = tag in ("monitoring", "administrator")
    for secret in ("bert-the-owner", "unconfirmed", *(one.name for one in connections)):
        assert (secret in others) == (is_seen and secret in own), secret
    count_seen = (await client.call("overview", as_user="anna"))["problem_count"]
    assert count_seen == (count if is_seen else 0)


async def shown(client: BrokerClient, user: str) -> str:
    """All that a user is told of problems, publishers and connections."""
    told = [
        await client.call("overview", as_user=user),
        await client.call("overview", as_user=user, vhost="/"),
        await client.call("problems", as_user=user),
        await client.call("problems", as_user=user, vhost="/"),
        await client.call("list", as_user=user, noun="connections"),
        await client.call("list", as_user=user, noun="channels"),
        await client.call("list", as_user=user, noun="connections", name="bert"),
    ]
    async with aclosing(client.subscribe(as_user=user, topic="overview")) as pushes:
        told.append((await anext(pushes)).data)
    return repr(told)


async def test_many_who_ask_after_one_sample_make_one_look(
    broker: Broker, client: BrokerClient, clock: Clock, begun: list[asyncio.Task[Any]]
) -> None:
    for number in range(200):
        waiting(broker.vhosts["/"], f"q{number}")
    sample(broker, clock)
    await asyncio.gather(*(client.call("overview") for _ in range(10)))
    looks = [task for task in begun if "ProblemWatch._look" in repr(task.get_coro())]
    assert len(looks) == 1
    assert watch_of(broker).looked_at == 200


# -- a queue that refuses --------------------------------------------------------------------------


def publisher(broker: Appliance, user: str, name: str, vhost: str = "/") -> Any:
    host, port = broker.addresses["amqp"]
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(
            host,
            port,
            vhost,
            pika.PlainCredentials(user, user),
            client_properties={"connection_name": name},
        )
    )
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


def refused(channel: Any, queue: str) -> None:
    with pytest.raises(NackError):
        channel.basic_publish("", queue, b"one too many")


async def test_a_full_queue_says_what_it_refuses_by_which_limit_and_from_whom(
    make_broker: Make,
) -> None:
    full = make_broker()
    async with control(full) as client:
        await client.call("user.put", name="shop", tags=["management"], password="shop")
        await client.call(
            "permission.put", vhost="/", user="shop", configure=".*", write=".*", read=".*"
        )
        name = f"full.{uuid.uuid4().hex[:8]}"
        await client.call(
            "policy.put",
            vhost="/",
            name="small",
            pattern="^full",
            definition={"max-length": 2, "overflow": "reject-publish"},
        )
        await client.call("queue.declare", vhost="/", name=name, durable=True)
        orders, audit = publisher(full, "guest", "orders"), publisher(full, "shop", "audit")
        for channel in (orders, audit):
            channel.basic_publish("", name, b"fits")
        quiet = {"vhost": "/", "name": name}
        assert (await client.call("queue.refusals", **quiet))["is_refusing"] is False
        for _ in range(3):
            refused(orders, name)
        refused(audit, name)
        found = await client.call("queue.refusals", **quiet)
        assert (found["is_refusing"], found["refused"]) == (True, 4)
        assert found["rate"] > 0
        assert found["limits"] == [
            {
                "argument": "x-max-length",
                "value": 2,
                "used": 2,
                "source": "policy",
                "source_name": "small",
            }
        ]
        assert [
            (one["user"], one["user_provided_name"], one["refused"]) for one in found["publishers"]
        ] == [("guest", "orders", 3), ("shop", "audit", 1)]
        # Who may not see the connections of others learns how many there are.
        mine = await client.call("queue.refusals", as_user="shop", **quiet)
        assert [one["user"] for one in mine["publishers"]] == ["shop"]
        assert mine["others"] == 1
        row = await client.call("item", noun="queues", **quiet)
        assert row["trouble"] == "refusing"
        assert row["refuse_rate"] > 0
        overview = await until(
            lambda: client.call("overview", as_user="shop"), lambda one: one["problem_count"]
        )
        (problem,) = overview["problems"]
        assert (problem["severity"], problem["trouble"]) == ("bad", "refusing")
        assert "max-length 2 of policy 'small'" in problem["text"]
        assert "audit (shop)" in problem["text"]
        assert "orders" not in problem["text"]
        for channel in (orders, audit):
            channel.connection.close()


async def test_a_refused_publish_is_not_counted_as_a_rejected_message(make_broker: Make) -> None:
    broker = make_broker()
    async with control(broker) as client:
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        await client.call("queue.declare", vhost="/", name="q", arguments=arguments)
        channel = publisher(broker, "guest", "one")
        channel.basic_publish("", "q", b"fits")
        refused(channel, "q")
        row = await client.call("item", noun="queues", vhost="/", name="q")
        assert row["message_stats"]["reject"] == 0
        assert row["message_stats"]["refused"] == 1
        limits = (await client.call("queue.refusals", vhost="/", name="q"))["limits"]
        assert (limits[0]["source"], limits[0]["argument"]) == ("argument", "x-max-length")
        channel.connection.close()


async def test_the_overview_counts_the_connections_that_the_user_may_list(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    put_user(broker, "anna", "management")
    for user in ("anna", "bert", "bert"):
        await connect(broker, user)
    sample(broker, clock)
    found = (await client.call("overview", as_user="anna"))["object_totals"]
    assert (found["connections"], found["channels"]) == (1, 1)
    assert (await client.call("overview"))["object_totals"]["connections"] == 3
    listed = await client.call("list", as_user="anna", noun="connections")
    assert listed["total_count"] == 1


async def test_connections_are_found_by_what_their_clients_call_themselves(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    for name in ("orders-api", "mailer", "orders-worker"):
        await connect(broker, "anna", connection_name=name)
    for noun, more in (("connections", {}), ("channels", {})):
        for wanted in ({"name": "orders"}, {"name": "^orders", "use_regex": True}):
            found = await client.call("list", noun=noun, **wanted, **more)
            assert found["filtered_count"] == 2, (noun, wanted)
    ordered = await client.call("list", noun="connections", sort="user_provided_name")
    assert [row["user_provided_name"] for row in ordered["items"]] == [
        "mailer",
        "orders-api",
        "orders-worker",
    ]


async def test_who_monitors_without_permission_is_told_what_is_left_out(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    make_vhost(broker, "shop", "calm")
    put_user(broker, "eye", "monitoring", vhosts=("shop",))
    waiting(broker.vhosts["/"], "unseen")
    publisher = await connect(broker, "bert")
    for _ in range(5):
        await publisher.publish("unroutable", 10)
        sample(broker, clock)
    overview = await client.call("overview", as_user="eye")
    assert overview["problem_count"] == 0
    assert overview["health"]["scope"].startswith("You see the queues of 1 of 2 virtual hosts")
    # The list of connections is open to it, and so is who publishes.
    assert [row["user"] for row in overview["top_publishers"]] == ["bert"]
    calm = await client.call("overview", as_user="calm")
    assert (calm["health"]["scope"], calm["top_publishers"]) == ("", [])


async def test_an_alarm_is_one_problem_for_each_user(
    broker: Broker, client: BrokerClient, clock: Clock
) -> None:
    for tag in ("administrator", "monitoring", "management"):
        put_user(broker, tag, tag)
    broker.watch.judge(Reading(0, 0, 1 << 60))
    sample(broker, clock)
    for tag in ("administrator", "monitoring", "management"):
        overview = await client.call("overview", as_user=tag)
        assert [row["name"] for row in overview["problems"]].count("memory") == 1
        found = await client.call("problems", as_user=tag)
        assert found["problem_count"] == len(found["items"]) == len(overview["problems"])
        assert [row["trouble"] for row in found["items"]].count("memory") == 1


def test_a_line_of_very_many_problems_keeps_few_and_the_worst_first() -> None:
    problems = [Problem("stuck", "queue", number, 0, number, 0.0) for number in range(1, 101)]
    share = Share()
    for problem in problems:
        problem.weight = float(problem.depth % 37)
        problem.depth = 100 + problem.depth
        share.add(problem)
    share.arrange()
    (line,) = share.lines
    assert (share.problems, line.count, len(line.problems)) == (100, 100, NAMES)
    assert line.problems[0].weight == 36.0
    assert (line.least, line.most) == (101, 200)


async def test_deleted_queues_are_forgotten_in_short_steps(broker: Broker) -> None:
    watch, looks = watch_of(broker), 0

    class Deleted:
        @property
        def deleted(self) -> bool:
            nonlocal looks
            looks += 1
            return True

    for _ in range(5000):
        watch._standing[Deleted()] = ("growing", 0)
    longest = before = 0
    for _ in watch._forget_deleted():
        longest, before = max(longest, looks - before), looks
    assert looks == 5000 and longest <= 16
    assert len(watch._standing) == 0
