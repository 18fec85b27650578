"""Passwords that wait to be checked: which is next, which is refused, which ends with its peer."""

from __future__ import annotations

import asyncio

import pytest

from broker.access import Access, Refused, User
from broker.access.login import REMEMBERED_S
from broker.server.logins import Logins
from broker.settings.config import Config
from tests.control.test_logins import BAD_LOGINS, Clock, access, clock, disk, status

__all__ = ["access", "clock", "disk"]


def lined_up(access: Access, waiting: int, of_one_address: int) -> Logins:
    config = Config(
        logins_waiting_max=waiting, logins_address_max=of_one_address, login_refusal_delay=0
    )
    return Logins(access, config, threads=2)


async def test_it_hashes_once_for_logins_that_come_together(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = []
    verify = Access.verify
    monkeypatch.setattr(
        Access, "verify", staticmethod(lambda job: verified.append(job) or verify(job))
    )
    logins = lined_up(access, 100, 50)
    answers = await asyncio.gather(
        *(logins.check("anna", "secret", "192.0.2.1", "amqp") for _ in range(50))
    )
    assert all(isinstance(answer, User) for answer in answers)
    assert len(verified) == 1
    assert access.attempts["amqp", "anna", "192.0.2.1", True] == 50
    logins.close()


async def test_it_counts_a_wrong_password_whose_asker_has_gone(access: Access) -> None:
    logins = lined_up(access, 100, 50)
    for number in range(BAD_LOGINS):
        asking = asyncio.create_task(logins.check("anna", f"guess {number}", "192.0.2.1", "http"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # it is being checked now
        asking.cancel()
        await asyncio.gather(*logins._running)
    refused = await logins.check("anna", "secret", "192.0.2.1", "http")
    assert isinstance(refused, Refused)
    assert refused.status == 429
    assert not access._jobs
    logins.close()


async def test_it_leaves_room_for_others_when_one_address_floods(access: Access) -> None:
    logins = lined_up(access, 100, 50)
    order = []

    async def ask(user: str, peer: str) -> None:
        await logins.check(user, "wrong", peer, "amqp")
        order.append(peer)

    flood = [asyncio.create_task(ask(f"user {number}", "192.0.2.1")) for number in range(20)]
    await asyncio.sleep(0)
    await ask("anna", "192.0.2.2")
    assert len(order) <= 10
    await asyncio.gather(*flood)
    assert not logins.waiting
    logins.close()


async def test_it_refuses_more_logins_than_may_wait(access: Access) -> None:
    logins = lined_up(access, 2, 2)
    waiting = [
        asyncio.create_task(logins.check(f"user {number}", "guess", f"192.0.2.{number}", "amqp"))
        for number in range(4)
    ]
    await asyncio.sleep(0)
    assert logins.waiting == 2, "two are being checked"
    one_more = await logins.check("user 5", "guess", "192.0.2.5", "amqp")
    assert isinstance(one_more, Refused)
    assert one_more.status == 503
    for answer in await asyncio.gather(*waiting):
        assert isinstance(answer, Refused)
        assert answer.status != 503
    logins.close()


def waiting_at(
    logins: Logins, peer: str, count: int, prefix: str = "user"
) -> list[asyncio.Task[User | Refused]]:
    """So many logins with wrong passwords from an address, each of another user."""
    return [
        asyncio.create_task(logins.check(f"{prefix} {peer} {number}", "guess", peer, "amqp"))
        for number in range(count)
    ]


async def test_one_address_takes_its_share_of_the_waiting_line_and_no_more(access: Access) -> None:
    logins = lined_up(access, 100, 10)
    flood = waiting_at(logins, "2001:db8::1", 8) + waiting_at(logins, "2001:db8::2", 12)
    unix = waiting_at(logins, "unix", 20)
    await asyncio.sleep(0)
    # Two of the first address are being checked; the /64 and the Unix socket are one address each.
    assert logins.waiting == 20
    assert isinstance(await logins.check("anna", "secret", "192.0.2.2", "amqp"), User)
    answers = await asyncio.gather(*flood, *unix)
    assert [status(answer) for answer in answers].count(503) == 8 + 10
    logins.close()


async def test_a_full_line_has_a_place_for_who_has_fewer_there(access: Access) -> None:
    logins = lined_up(access, 20, 20)
    flood = waiting_at(logins, "192.0.2.1", 22)
    await asyncio.sleep(0)
    assert logins.waiting == 20
    assert isinstance(await logins.check("anna", "secret", "192.0.2.2", "amqp"), User)
    answers = await asyncio.gather(*flood)
    assert [status(answer) for answer in answers].count(503) == 1, "the newest of the flood went"
    assert status(answers[-1]) == 503
    logins.close()


async def test_a_login_whose_client_leaves_is_not_checked(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = []
    verify = Access.verify
    monkeypatch.setattr(
        Access, "verify", staticmethod(lambda job: verified.append(job.user) or verify(job))
    )
    logins = lined_up(access, 100, 50)
    asking = waiting_at(logins, "192.0.2.1", 12)
    twice = [
        asyncio.create_task(logins.check("bob", "guess", "192.0.2.1", "amqp")) for _ in range(2)
    ]
    await asyncio.sleep(0)
    for task in (*asking, twice[0]):
        task.cancel()
    assert status(await twice[1]) == 401, "another client still waits for the same password"
    assert len(verified) == 3, "two had begun"
    assert not logins.waiting
    assert access.attempts["amqp", "user 192.0.2.1 5", "192.0.2.1", False] == 0
    logins.close()


async def test_a_trusted_user_is_checked_before_strangers_of_the_same_address(
    access: Access, clock: Clock
) -> None:
    logins = lined_up(access, 100, 50)
    assert isinstance(await logins.check("anna", "secret", "192.0.2.1", "http"), User)
    clock.now += REMEMBERED_S
    flood = waiting_at(logins, "192.0.2.1", 30)
    await asyncio.sleep(0)
    assert isinstance(await logins.check("anna", "secret", "192.0.2.1", "http"), User)
    assert sum(task.done() for task in flood) <= 6
    for task in flood:
        task.cancel()
    logins.close()
