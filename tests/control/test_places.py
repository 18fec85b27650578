"""Requests of many users over one control connection: one user's slow ones hold up no other's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from broker.features.trials import TooManyTrials, Trials
from broker.schema.control_schema import LEFT_EARLY, VERBS
from broker.server.app import Broker
from broker.server.control.places import Limits, Places
from broker.server.control.requests import HANDLERS, RequestError
from broker.settings.bounds import (
    CONTROL_AT_ONCE_MAX,
    CONTROL_SHARE,
    CONTROL_WAITING_MAX,
    TRIALS_MAX,
)
from management.broker_client import BrokerClient, BrokerError
from tests.inside import put_user, until

SHARE = CONTROL_AT_ONCE_MAX // CONTROL_SHARE
WAITING = CONTROL_WAITING_MAX // CONTROL_SHARE
SHOVEL = {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "q", "dest-queue": "q2"}


class Slow:
    """Stands for verbs that are answered when the test wants it."""

    def __init__(self) -> None:
        self.under_way = 0
        self.over = asyncio.Event()

    async def __call__(self, request: Any) -> Any:
        self.under_way += 1
        try:
            await self.over.wait()
        finally:
            self.under_way -= 1
        return {}


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    slow = Slow()
    for verb in ("types", "queue.unacked", "exchange.publish"):
        monkeypatch.setitem(HANDLERS, verb, slow)
    yield slow
    slow.over.set()


def ask(client: BrokerClient, count: int, user: str | None) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(client.call("types", as_user=user)) for _ in range(count)]


async def test_one_users_slow_requests_leave_places_for_others(
    broker: Broker, client: BrokerClient, slow: Slow
) -> None:
    put_user(broker, "slow", "management")
    put_user(broker, "other", "management")
    asked = ask(client, SHARE + WAITING, "slow")
    await until(lambda: slow.under_way)
    assert (await client.call("whoami", as_user="other"))["name"] == "other"
    assert slow.under_way == SHARE
    with pytest.raises(BrokerError) as caught:
        await client.call("whoami", as_user="slow")
    assert (caught.value.status, caught.value.error) == (503, "busy")
    assert f"{SHARE} requests of this user" in caught.value.reason
    slow.over.set()
    assert await asyncio.gather(*asked) == [{}] * (SHARE + WAITING)
    assert (await client.call("whoami", as_user="slow"))["name"] == "slow"


async def test_what_needs_no_place_is_answered_while_all_are_taken(
    broker: Broker, client: BrokerClient, slow: Slow
) -> None:
    """Else the web process takes the broker for away, and no password is checked."""
    for number in range(CONTROL_SHARE):
        put_user(broker, f"slow-{number}", "management")
    users = [*(f"slow-{number}" for number in range(CONTROL_SHARE)), None]
    asked = [one for user in users for one in ask(client, CONTROL_AT_ONCE_MAX + 1, user)]
    await until(lambda: slow.under_way == 2 * CONTROL_AT_ONCE_MAX)
    async with asyncio.timeout(10):
        await client.call("whoami")
        answer = await client.authenticate("guest", "guest", "127.0.0.1")
    assert answer["name"] == "guest"
    assert slow.under_way == 2 * CONTROL_AT_ONCE_MAX
    slow.over.set()
    assert await asyncio.gather(*asked) == [{}] * len(asked)


async def test_a_caller_that_leaves_frees_its_place(
    broker: Broker, client: BrokerClient, slow: Slow
) -> None:
    where = {"vhost": "/", "name": "q"}
    asked = [
        asyncio.create_task(client.call("queue.unacked", as_user="guest", **where))
        for _ in range(SHARE + 5)
    ]
    await until(lambda: slow.under_way == SHARE)
    waits = asyncio.create_task(client.call("whoami", as_user="guest"))
    for one in asked:
        one.cancel()
    assert (await waits)["name"] == "guest"
    await until(lambda: not slow.under_way)


async def test_a_request_that_changes_something_goes_on_without_its_caller(
    broker: Broker, client: BrokerClient, slow: Slow
) -> None:
    where = {"vhost": "/", "name": "", "routing_key": "q", "payload": b""}
    asked = asyncio.create_task(client.call("exchange.publish", **where))
    await until(lambda: slow.under_way)
    asked.cancel()
    # Whatever the client sent for it is read before this one.
    await client.call("whoami", as_user="guest")
    await client.call("request.leave", request=client._next_id - 1)
    await client.call("whoami", as_user="guest")
    assert slow.under_way == 1


def test_only_verbs_that_change_nothing_may_be_left_early() -> None:
    assert VERBS.keys() >= LEFT_EARLY
    assert not any(VERBS[name].changes for name in LEFT_EARLY)


async def taken(places: Places, *users: str, size: int = 1) -> None:
    for user in users:
        await places.take(user, size)


async def test_users_that_wait_have_their_turns_one_after_the_other() -> None:
    places = Places(Limits(at_once=4, waiting=100, shares=2))
    await taken(places, "a", "a", "b", "b")
    turns: list[str] = []

    async def wait(user: str) -> None:
        await places.take(user, 1)
        turns.append(user)

    waiting = [asyncio.create_task(wait(user)) for user in ("a", "a", "a", "c", "c", "b")]
    await asyncio.sleep(0)
    for _ in range(2):
        places.give_back("a")
        places.give_back("b")
    await until(lambda: len(turns) == 4)
    assert turns == ["a", "c", "b", "a"]
    for one in waiting:
        one.cancel()


async def test_a_place_that_does_not_become_free_in_time_is_not_waited_for() -> None:
    places = Places(Limits(at_once=1, waiting=1, wait_s=0))
    await taken(places, "a")
    with pytest.raises(RequestError, match="no place became free within 0 seconds") as caught:
        await places.take("b", 1)
    assert caught.value.error == "busy"
    places.give_back("a")
    await taken(places, "b")


@pytest.mark.parametrize(
    "limits",
    [
        Limits(at_once=1, waiting=2),
        Limits(at_once=1, waiting=9, size=20),
        Limits(at_once=4, waiting=8, shares=4),
    ],
    ids=["count", "bytes", "share"],
)
async def test_the_line_of_those_that_wait_is_bounded(limits: Limits) -> None:
    places = Places(limits)
    await taken(places, "a")
    waiting = [asyncio.create_task(places.take("a", 10)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(RequestError, match="the broker is busy"):
        await places.take("a", 10)
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)
    places.give_back("a")
    await taken(places, "a")


async def test_what_is_longer_than_the_line_may_wait_alone() -> None:
    places = Places(Limits(at_once=1, waiting=9, size=20))
    await taken(places, "a")
    waiting = asyncio.create_task(places.take("a", 1000))
    await asyncio.sleep(0)
    places.give_back("a")
    await waiting


async def test_one_that_leaves_as_its_turn_comes_gives_the_place_on() -> None:
    places = Places(Limits(at_once=1, waiting=9))
    await taken(places, "a")
    leaving, staying = (asyncio.create_task(places.take(user, 1)) for user in "bc")
    await asyncio.sleep(0)
    places.give_back("a")
    leaving.cancel()
    await staying
    assert leaving.cancelled()


def test_a_user_has_a_share_of_the_trials() -> None:
    trials = Trials(lambda id: None, lambda id: None)
    orders: dict[str, list[int]] = {}
    for number in range(TRIALS_MAX):
        owner = f"u{number % CONTROL_SHARE}"
        orders.setdefault(owner, []).append(trials.ask({"owner": owner}, lambda steps: None))
    with pytest.raises(TooManyTrials, match=f"{TRIALS_MAX} definitions"):
        trials.ask({"owner": "another"}, lambda steps: None)
    trials.end(orders["u1"][0])
    with pytest.raises(TooManyTrials, match="of this user"):
        trials.ask({"owner": "u0"}, lambda steps: None)
    trials.ask({"owner": "another"}, lambda steps: None)


async def test_a_trial_too_many_is_refused_until_a_caller_leaves(
    broker: Broker, client: BrokerClient
) -> None:
    share = TRIALS_MAX // CONTROL_SHARE
    put_user(broker, "tries", "policymaker")
    asked: dict[str, Any] = {"as_user": "tries", "vhost": "/", "name": "s", "value": SHOVEL}
    trials = broker.shovels._trials
    tries = [asyncio.create_task(client.call("shovel.test", **asked)) for _ in range(share)]
    await until(lambda: len(trials._waiting) == share)
    with pytest.raises(BrokerError) as caught:
        await client.call("shovel.test", **asked)
    assert (caught.value.status, caught.value.error) == (503, "busy")
    for one in tries:
        one.cancel()
    await until(lambda: not trials._waiting)
