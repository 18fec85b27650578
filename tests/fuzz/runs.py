"""Runs of mutated sessions against a whole appliance: it must answer everybody and mind nothing.

Each session is made from its number and the run's seed alone, so a finding can be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import select
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.access.passwords import SHA256, rabbit_hash
from management.broker_client import BrokerClient, BrokerError
from tests.amqp import raw
from tests.appliance import Appliance
from tests.fuzz.doors import PROXY_FROM, Door, Peer, doors
from tests.fuzz.found import FoundError
from tests.fuzz.mutations import mutate, split
from tests.fuzz.sessions import OPENING, session
from tests.listeners.certificates import Authority

AT_ONCE = 16
"""Sessions that are open side by side."""
LEAVING_MAX = 240
"""Sessions that may wait for the broker to close their connection while further ones begin."""
LOOK_EVERY = 160
"""Sessions between two looks at the broker."""
ELSEWHERE = "fuzz-elsewhere"
"""A user who may log in from other machines; the password is the same."""
BAD_WORDS = ("Traceback", "internal error", "is started again", "quarantine")


def start(appliance: Appliance, directory: Path) -> ssl.SSLContext:
    """Starts an appliance with every door; returns what a TLS client of it needs."""
    authority = Authority(directory / "authority")
    certificate = authority.issue("server", subject="/CN=server", san="DNS:localhost,IP:127.0.0.1")
    appliance.settings |= {
        "tls_cert_file": certificate,
        "amqps_port": 0,
        "wss_port": -1,
        "https_port": 0,
        "proxy_protocol_sources": PROXY_FROM,
        "login_failures_max": 1_000_000_000,
        "log_level": "error",
        # A busy machine may take longer than 10 s to log in the good client of `look`.
        "handshake_timeout": 120,
    }
    appliance.start()
    asyncio.run(_put_users(appliance))
    return authority.client_context()


@dataclass
class Run:
    """`go` works through sessions; counts are kept by door."""

    appliance: Appliance
    context: ssl.SSLContext
    seed: int = 0
    sessions: Counter[str] = field(default_factory=Counter)
    octets: Counter[str] = field(default_factory=Counter)
    leaving: list[Peer] = field(default_factory=list)
    """Connections whose own half has ended; the broker closes some of them 3 s later."""

    def go(self, first: int, count: int, door: str | None = None, until: float = math.inf) -> None:
        """Sessions `first` to `first + count`, all doors by turns or one; none begins after
        `until`, of the monotonic clock. Raises FoundError."""
        ways = [each for each in doors(self.appliance, self.context) if door in (None, each.name)]
        for begin in range(first, first + count, AT_ONCE):
            if time.monotonic() > until:
                break
            numbers = range(begin, min(begin + AT_ONCE, first + count))
            try:
                self._side_by_side(numbers, ways)
            except TimeoutError as error:
                raise FoundError(f"seed {self.seed}, sessions {numbers}: no end in time") from error
            if begin // LOOK_EVERY != (begin + AT_ONCE) // LOOK_EVERY:
                self.look(f"seed {self.seed}, sessions up to {numbers.stop}")
        try:
            self._part(0)
        except TimeoutError as error:
            where = f"seed {self.seed}, sessions {first} to {first + count}"
            raise FoundError(f"{where}: no end in time") from error
        self.look(f"seed {self.seed}, sessions up to {first + count}")

    def _side_by_side(self, numbers: range, ways: list[Door]) -> None:
        going = [
            (way.name, *self._begin(number, way))
            for number, way in ((number, ways[number % len(ways)]) for number in numbers)
        ]
        order = random.Random(f"{self.seed}/{numbers.start}")
        waiting = [entry for entry in going if entry[2] is not None]
        while waiting:
            entry = order.choice(waiting)
            piece = next(entry[2], None)
            if piece is None:
                waiting.remove(entry)
            else:
                entry[1].send(piece)
        for name, peer, _ in going:
            peer.leave()
            self.leaving.append(peer)
            self.sessions[name] += 1
            self.octets[name] += peer.sent
        self._part(LEAVING_MAX)

    def _part(self, most: int) -> None:
        """Waits until no more than `most` of the connections that were left are still open. Raises
        TimeoutError."""
        while True:
            self.leaving = [peer for peer in self.leaving if not peer.gone()]
            if len(self.leaving) <= most:
                return
            poller = select.poll()
            for peer in self.leaving:
                poller.register(peer.socket, select.POLLIN)
            poller.poll(100)

    def _begin(self, number: int, way: Door) -> tuple[Peer, Iterator[bytes]]:
        chance = random.Random(f"{self.seed}/{number}/{way.name}")
        # The address that a PROXY header names is never this machine's; guest has to be on it.
        user = "guest" if way.name != "proxy" else ELSEWHERE
        pieces = session(chance.randrange(1000), user)
        # Most wrong clients log in properly; some have it wrong from the start.
        kept = OPENING if chance.random() < 0.8 else 0
        changed = mutate(chance, b"".join(pieces[kept:]))
        peer = way.open(chance, chance.random() < 0.3)
        return peer, iter([*pieces[:kept], *split(chance, changed)])

    def look(self, where: str) -> None:
        """Whether the broker is well. Raises FoundError, which names `where`."""
        process = self.appliance.process
        if process is None or process.poll() is not None:
            raise FoundError(f"{where}: the appliance has ended:\n{self.appliance.log()[-4000:]}")
        log = self.appliance.log()
        for words in BAD_WORDS:
            if words in log:
                at = log.index(words)
                raise FoundError(f"{where}: the log says {log[max(0, at - 500) : at + 3000]}")
        try:
            with raw.Client.open(("127.0.0.1", self.appliance.amqp_port), timeout=30) as client:
                queue = client.call(1, "queue.declare", exclusive=True).queue
                client.call(1, "confirm.select")
                client.publish(1, "", queue, b"well?", delivery_mode=2)
                client.expect("basic.ack", 1)
                got = client.get(1, queue, no_ack=True)
                assert got is not None and got.body == b"well?"
                client.close()
        except (AssertionError, OSError) as error:
            raise FoundError(f"{where}: a good client is not served: {error!r}") from error


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def tidy(appliance: Appliance) -> None:
    """Deletes what mutants have made, so that what a process still holds was not given back."""
    delete_all(appliance, lambda _name: False)


def delete_all(appliance: Appliance, keep: Callable[[str], bool]) -> None:
    """Deletes vhosts, users, policies, queues, exchanges and parameters; queues and exchanges only
    if their name is none to `keep`."""
    asyncio.run(_delete_all(appliance, keep))


async def _put_users(appliance: Appliance) -> None:
    """Gives the users of the sessions hashes of RabbitMQ's kind. A login with one of them takes
    microseconds instead of 40 ms, so far more mutants go through a door in the same time."""
    client = BrokerClient(appliance.control_socket)
    try:
        for user, tags in (("guest", "administrator"), (ELSEWHERE, "")):
            hashed = {"password_hash": rabbit_hash(user), "hashing_algorithm": SHA256}
            await client.call("user.put", name=user, tags=tags, **hashed)
        everything = dict.fromkeys(("configure", "write", "read"), ".*")
        await client.call("permission.put", vhost="/", user=ELSEWHERE, **everything)
    finally:
        await client.close()


async def _delete_all(appliance: Appliance, keep: Callable[[str], bool]) -> None:
    client = BrokerClient(appliance.control_socket)
    try:
        for row in await _rows(client, "vhosts"):
            if row["name"] != "/":
                await _try(client, "vhost.protect", name=row["name"], protected=False)
                await _try(client, "vhost.delete", name=row["name"])
        for row in await _rows(client, "users"):
            if row["name"] not in ("guest", ELSEWHERE):
                await _try(client, "user.delete", name=row["name"])
        for noun in ("policy", "operator-policy"):
            plural = {"policy": "policies", "operator-policy": "operator-policies"}[noun]
            for row in await _rows(client, plural):
                await _try(client, f"{noun}.delete", vhost=row["vhost"], name=row["name"])
        for row in await _rows(client, "queues"):
            if not keep(row["name"]):
                await _try(client, "queue.delete", vhost=row["vhost"], name=row["name"])
        for row in await _rows(client, "exchanges"):
            name = row["name"]
            if name and not name.startswith("amq.") and not keep(name):
                await _try(client, "exchange.delete", vhost=row["vhost"], name=row["name"])
        for row in await _rows(client, "parameters"):
            await _try(
                client,
                "parameter.delete",
                **{name: row[name] for name in ("component", "vhost", "name")},
            )
    finally:
        await client.close()


async def _rows(client: BrokerClient, noun: str) -> list[dict[str, Any]]:
    answer = await client.call("list", noun=noun, timeout_s=120)
    return list(answer["items"] if isinstance(answer, dict) else answer)


async def _try(client: BrokerClient, verb: str, **args: Any) -> None:
    """What is gone already, or cannot go, is none of a mutant's faults."""
    with contextlib.suppress(BrokerError):
        await client.call(verb, **args)
