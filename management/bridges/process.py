"""The bridges process: follows what is defined, runs it, and reports.

It keeps nothing: it may be killed at any time. Messages that it had not settled go back to their
queues, and its successor begins with what the broker says.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import resource
from typing import Any

from broker.settings.config import Config
from management.bridges.ends import Ends
from management.bridges.federation import Federation
from management.bridges.pace import Endings, Pace
from management.bridges.place import Place
from management.bridges.plan import Plan, ShovelFailed
from management.bridges.shovel import Shovel
from management.bridges.status import REPORTED_AT_ONCE, Status
from management.bridges.trial import Trial, Trials, of_shovel
from management.broker_client import BrokerClient, BrokerError
from management.priority import give_way
from management.worker import Worker

log = logging.getLogger("leveret.bridges")

REPORT_EVERY_S = 1.0
FOLLOW_S = 30.0
AGAIN_S = 1.0
NOTHING = -1

Key = tuple[str, str]


def main(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; the exit status."""
    give_way(config.bridges_nice)
    # A link has two connections.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(Bridges(config).serve())
    return 0


class Bridges:
    """All shovels of one broker."""

    def __init__(self, config: Config) -> None:
        self._worker = Worker("bridges", config, log)
        self._broker = BrokerClient(config.control_socket)
        pace = Pace(config.bridges_connecting_max)
        self._ends = Ends(config, self._login, self._source, pace)
        self._federation = Federation(config, self._broker, pace)
        self._shovels: dict[Key, Shovel] = {}
        self._statuses: dict[Key, Status] = {}
        self._places: dict[Key, tuple[int, Place]] = {}
        """Of each shovel that has run: its birth, and the place in its stream."""
        self._trials = Trials(self._tell)
        self._endings = Endings()
        self._connection = 0
        self._seen: set[Key] | None = None
        """Shovels that a complete list has named so far, while one is being read."""

    async def serve(self) -> None:
        """Works until told to stop."""
        try:
            await self._worker.work(
                self._follow(),
                self._keep_reporting(),
                self._federation.follow(),
                self._federation.keep_reporting(),
            )
        finally:
            self._trials.stop()
            await asyncio.gather(
                self._federation.stop(), *(shovel.stop() for shovel in self._shovels.values())
            )
            await self._endings.stop()
            await self._broker.close()

    # What is to run.

    async def _follow(self) -> None:
        version = NOTHING
        while True:
            if self._connection != self._broker.connections:
                version = NOTHING  # another broker process counts anew
            try:
                news = await self._broker.call(
                    "bridges.follow", version=version, wait_s=FOLLOW_S, timeout_s=2 * FOLLOW_S
                )
            except BrokerError as error:
                if error.error != "broker_away":
                    log.error("the broker does not say what is to run: %s", error.reason)
                await asyncio.sleep(AGAIN_S)
                continue
            if self._connection != self._broker.connections:
                self._connection = self._broker.connections
                for status in self._statuses.values():
                    status.forget_sent()
            version = news["version"]
            self._take(news)
            self._trials.follow(news["tests"], lambda test: Trial(*of_shovel(test), self._ends))

    def _take(self, news: dict[str, Any]) -> None:
        """Starts and ends shovels so that those run which should."""
        if news["is_whole"]:
            self._seen = set()
        for order in news["shovels"]:
            key = order["vhost"], order["name"]
            if order.get("gone"):
                self._forget(key)
                continue
            if self._seen is not None:
                self._seen.add(key)
            shovel = self._shovels.get(key)
            if shovel is None:
                self._begin(key, order)
            elif order["paused"] or order["generation"] != shovel.plan.generation:
                self._end(key)
                self._begin(key, order)
            else:
                shovel.follow(order)
        if self._seen is not None and not news["more"]:
            for key in [key for key in self._statuses if key not in self._seen]:
                self._forget(key)
            self._seen = None

    def _end(self, key: Key) -> None:
        shovel = self._shovels.pop(key, None)
        if shovel is not None:
            self._endings.begin(key, shovel.stop)

    def _forget(self, key: Key) -> None:
        """It was deleted."""
        self._end(key)
        self._statuses.pop(key, None)
        self._places.pop(key, None)

    def _begin(self, key: Key, order: dict[str, Any]) -> None:
        if order["fault"] is not None:
            self._rest(key, order, "stopped", order["fault"])
            return
        plan = Plan.of(order)
        if "amqp10" in (plan.given["src-protocol"], plan.given["dest-protocol"]):
            self._rest(key, order, "stopped", "AMQP 1.0 (amqp10) is stored and does not run here")
        elif order["paused"]:
            self._rest(key, order, "paused", "")
        else:
            status = self._statuses[key] = Status(plan)
            place = self._place(key, order)
            shovel = self._shovels[key] = Shovel(
                plan, self._ends, self._worker.config, status, place
            )
            shovel.start(functools.partial(self._endings.over, key))

    def _rest(self, key: Key, order: dict[str, Any], state: str, reason: str) -> None:
        """A shovel that does not run."""
        known = self._statuses.get(key)
        if known is None or known.plan.generation != order["generation"] or known.state != state:
            plan = Plan(key[0], key[1], order["generation"], order["owner"], {})
            self._statuses[key] = Status(plan)
            self._statuses[key].put(state, reason)

    async def _login(self, owner: str | None, vhost: str) -> tuple[str, str]:
        try:
            found = await self._broker.call("bridges.login", owner=owner, vhost=vhost)
        except BrokerError as error:
            raise ShovelFailed(error.reason, stops=error.status == 401) from None
        return found["user"], found["ticket"]

    async def _source(self, vhost: str, queue: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = await self._broker.call(
                "bridges.source", vhost=vhost, queue=queue
            )
        except BrokerError as error:
            raise ShovelFailed(error.reason) from None
        return found

    def _place(self, key: Key, order: dict[str, Any]) -> Place:
        """How far a shovel has come in a stream: newer here than in the order if it ran before."""
        birth: int = order["birth"]
        known = self._places.get(key)
        if known is not None and known[0] == birth:
            return known[1]

        async def keep(place: dict[str, Any]) -> None:
            try:
                await self._broker.call(
                    "bridges.place",
                    vhost=key[0],
                    name=key[1],
                    birth=birth,
                    of=place["of"],
                    offset=place["offset"],
                    noted=place["noted"],
                )
            except BrokerError as error:
                raise ShovelFailed(f"the place in the stream is not kept: {error.reason}") from None

        self._places[key] = birth, Place(order["place"], keep)
        return self._places[key][1]

    # What is reported of it.

    async def _keep_reporting(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            if not self._broker.connected:
                continue
            reports = []
            for status in list(self._statuses.values()):
                report = status.report()
                if report is not None:
                    reports.append(report)
            for start in range(0, len(reports), REPORTED_AT_ONCE):
                some = reports[start : start + REPORTED_AT_ONCE]
                try:
                    await self._broker.call("bridges.report", shovels=some)
                except BrokerError as error:
                    log.warning("a report did not reach the broker: %s", error.reason)
                    for status in self._statuses.values():
                        status.forget_sent()

    async def _tell(self, id: int, steps: list[Any]) -> None:
        """What a trial has found."""
        try:
            await self._broker.call("bridges.tested", id=id, steps=steps)
        except BrokerError as error:
            log.warning("a trial was not reported: %s", error.reason)
