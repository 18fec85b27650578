"""All links of federation of one broker: follows which there are to be, runs them, and reports.

It keeps nothing. After a restart every link finds its queue at the upstream again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Any

from broker.settings.config import Config
from management.bridges.ends import Ends
from management.bridges.federation_link import Link
from management.bridges.federation_plan import QUEUE, LinkPlan
from management.bridges.pace import Endings, Pace
from management.bridges.plan import ShovelFailed
from management.bridges.status import REPORTED_AT_ONCE
from management.bridges.trial import Trial, Trials, of_upstream
from management.broker_client import BrokerClient, BrokerError

log = logging.getLogger("leveret.bridges")

REPORT_EVERY_S = 1.0
FOLLOW_S = 30.0
AGAIN_S = 1.0
GATHER_S = 0.02
"""So long changes are gathered before they are asked for."""
NOTHING = -1

Object = tuple[str, str, str]
"""Virtual host, kind and name of what is federated."""


class Federation:
    """The links of one broker."""

    def __init__(self, config: Config, broker: BrokerClient, pace: Pace | None = None) -> None:
        self._config = config
        self._broker = broker
        self._ends = Ends(config, self._login, pace=pace)
        self._trials = Trials(self._tell)
        self._links: dict[str, Link] = {}
        self._of: dict[Object, set[str]] = {}
        self._name = ""
        self._connection = 0
        self._endings = Endings()
        self._seen: set[str] | None = None
        """Links that a complete list has named so far, while one is being read."""

    async def follow(self) -> None:
        """Carries out what the broker orders, without end."""
        version = NOTHING
        while True:
            if self._connection != self._broker.connections:
                version = NOTHING  # another broker process counts anew
            try:
                news = await self._broker.call(
                    "federation.follow", version=version, wait_s=FOLLOW_S, timeout_s=2 * FOLLOW_S
                )
            except BrokerError as error:
                if error.error != "broker_away":
                    log.error("the broker does not say which links are to run: %s", error.reason)
                await asyncio.sleep(AGAIN_S)
                continue
            if self._connection != self._broker.connections:
                self._connection = self._broker.connections
                for link in self._links.values():
                    link.status.forget_sent()
            version = news["version"]
            self._take(news)
            self._trials.follow(news["tests"], lambda test: Trial(*of_upstream(test), self._ends))
            if not news["more"]:
                await asyncio.sleep(GATHER_S)

    def _take(self, news: dict[str, Any]) -> None:
        if news["name"] != self._name:
            # Queues at upstreams are named by it: every link has another one.
            self._name = news["name"]
            for id in list(self._links):
                self._end(id, cleans_up=True)
        if news["is_whole"]:
            self._seen = set()
        for row in news["links"]:
            if row.get("gone"):
                self._end(row["id"], cleans_up=True)
            else:
                self._begin(LinkPlan.of(row, self._name), row)
        self._hear(news)
        if self._seen is not None:
            self._seen.update(row["id"] for row in news["links"])
            if not news["more"]:
                # That the broker forgot them is no reason to delete what they have collected.
                for id in [id for id in self._links if id not in self._seen]:
                    self._end(id, cleans_up=False)
                self._seen = None

    def _hear(self, news: dict[str, Any]) -> None:
        """What is new of bindings and of queues."""
        for vhost, name, _ in news["bindings"]:
            for id in self._of.get((vhost, "exchange", name), ()):
                self._links[id].bindings_changed()
        for vhost, name, wants in news["wants"]:
            for id in self._of.get((vhost, QUEUE, name), ()):
                self._links[id].wish.put(wants)

    def _begin(self, plan: LinkPlan, order: dict[str, Any]) -> None:
        old = self._links.get(plan.id)
        if old is not None:
            if old.plan.generation == plan.generation and old.plan.cluster == plan.cluster:
                old.follow(plan, order["wants"])
                return
            self._end(plan.id, cleans_up=old.plan.place != plan.place)
        link = Link(plan, self._ends, self._config, self._broker, order["wants"])
        self._links[plan.id] = link
        self._of.setdefault((plan.vhost, plan.kind, plan.name), set()).add(plan.id)
        link.start(functools.partial(self._endings.over, plan.id))

    def _end(self, id: str, *, cleans_up: bool) -> None:
        link = self._links.pop(id, None)
        if link is None:
            return
        key = link.plan.vhost, link.plan.kind, link.plan.name
        self._of[key].discard(id)
        if not self._of[key]:
            del self._of[key]
        self._endings.begin(id, link.stop, *([link.clean_up] if cleans_up else []))

    async def stop(self) -> None:
        """Ends all links; what they have at upstreams stays."""
        self._trials.stop()
        await asyncio.gather(*(link.stop() for link in self._links.values()))
        await self._endings.stop()

    async def keep_reporting(self) -> None:
        """Reports what is new of each link once a second, without end."""
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            if not self._broker.connected:
                continue
            reports = [link.status.report() for link in self._links.values()]
            found = [report for report in reports if report is not None]
            for start in range(0, len(found), REPORTED_AT_ONCE):
                some = found[start : start + REPORTED_AT_ONCE]
                try:
                    await self._broker.call("federation.report", links=some)
                except BrokerError as error:
                    log.warning("a report did not reach the broker: %s", error.reason)
                    for link in self._links.values():
                        link.status.forget_sent()

    async def _tell(self, id: int, steps: list[Any]) -> None:
        """What a trial has found."""
        try:
            await self._broker.call("federation.tested", id=id, steps=steps)
        except BrokerError as error:
            log.warning("a trial was not reported: %s", error.reason)

    async def _login(self, owner: str | None, vhost: str) -> tuple[str, str]:
        try:
            found = await self._broker.call("federation.login", owner=owner, vhost=vhost)
        except BrokerError as error:
            raise ShovelFailed(error.reason, stops=error.status == 401) from None
        return found["user"], found["ticket"]
