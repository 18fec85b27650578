"""The federation of a broker: which links are to run, what they have to know, and what is reported
of them.

The process `bridges` runs them. It follows `news`, and reports once a second.
"""

from __future__ import annotations

import datetime
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from broker.access import BadSetting, Parameter
from broker.access.behalf import on_behalf_of
from broker.access.parameters import Key as ParameterKey
from broker.access.parameters import check_parameter
from broker.access.secrets import masked, without_secrets
from broker.features.bridge_uris import AMQP, check_amqp, login_of, split, with_password
from broker.features.federation.links import EXCHANGE, QUEUE, Link, Upstreams, links_of
from broker.features.federation.watching import BindingLog, Demand
from broker.features.interface import Feature
from broker.features.news import News
from broker.features.reported import Reported
from broker.features.trials import Trials
from broker.kernel import clock
from broker.schema import hops, upstream_keys
from broker.schema.control_schema import ShovelReport
from broker.schema.upstream_keys import UPSTREAM, UPSTREAM_SET

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.routing.exchange import BoundExchange
    from broker.vhosts.vhost import VHost

log = logging.getLogger("leveret.federation")

LOOK_EVERY_S = 0.02
LOOKS_AT_ONCE = 500
FEDERATED_AT_ONCE = 100
AWAY = "the process that runs links is being started"
STATUS = {"blocked": "running", "stopped": "shutdown"}
"""RabbitMQ's words for states that it does not have."""

Key = tuple[str, str, str]
"""Virtual host, `exchange` or `queue`, and name."""


class Running(Reported):
    """One link, with the last report."""

    def __init__(self, link: Link, generation: int) -> None:
        super().__init__(link.vhost, link.id, generation)
        self.link = link


class Federated:
    """An exchange or a queue under a policy of federation, with its links by id."""

    def __init__(self, thing: Any, watch: BindingLog | Demand) -> None:
        self.thing = thing
        self.watch = watch
        self.links: dict[str, Running] = {}


class Federation(Feature):
    """All links of the node."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self._all: dict[Key, Federated] = {}
        self._links: dict[str, Running] = {}
        self.gone: Counter[str] = Counter()
        """Counts of links that ended: sums over all never go down."""
        self._upstreams: dict[str, Upstreams] = {}
        self._stale: dict[Key, None] = {}
        """Things whose links are to be worked out again."""
        self._demands: dict[Key, Demand] = {}
        self._round: Iterator[Demand] = iter(())
        self._looks = self._settles = self._runs = False
        self._appliance = ""
        self._generation = clock.now()
        self.news = News()
        self._trials = Trials(
            lambda id: self.news.changed("test", id), lambda id: self.news.ended("test", id)
        )
        self.name = str(host.node_name)
        """By which other brokers know this one."""
        host.access.parameters.watchers.append(self._parameters_changed)

    def start(self, now_ms: int) -> None:
        self._appliance = self._host.identities.appliance
        self._parameters_changed(None)

    # -- definitions -------------------------------------------------------------------------------

    def checked(self, parameter: Parameter, owner: str, *, imported: bool = False) -> Parameter:
        """An upstream or a set as it is to be stored by this user, "" for the appliance. What is
        imported may bring permissions with it: they are asked when it starts. Raises BadSetting."""
        check_parameter(parameter)
        value = parameter.value
        if parameter.component == UPSTREAM:
            access = self._host.access
            old = access.parameters.get(UPSTREAM, parameter.vhost, parameter.name)
            stored = upstream_keys.uris(old.value["uri"]) if old is not None else []
            given = [with_password("uri", uri, stored) for uri in upstream_keys.uris(value["uri"])]
            certificates = {
                each.partition("=")[0] for each in self._host.config.bridges_certificates
            }
            for uri in given:
                scheme = split("uri", uri).scheme
                if scheme not in AMQP:
                    raise BadSetting(f"uri: the scheme is amqp or amqps, not '{scheme[:20]}'")
                user = "" if imported else owner
                check_amqp("uri", uri, access, user, parameter.vhost, certificates)
            value = {**value, "uri": given[0] if isinstance(value["uri"], str) else given}
        return Parameter(parameter.component, parameter.vhost, parameter.name, value, owner)

    def _parameters_changed(self, key: ParameterKey | None) -> None:
        if key is not None and key[0] not in ("", UPSTREAM, UPSTREAM_SET):
            return
        parameters = self._host.access.parameters
        given = parameters.node.get("cluster_name")
        # Two appliances may have one host's name; the same cluster name only where it was set.
        own = f"{self._host.node_name}-{self._appliance[:8]}" if self._appliance else self.name
        name = given if isinstance(given, str) and given else own
        if name != self.name:
            self.name = name
            self._host.server_properties["cluster_name"] = name
            self.news.changed("name")
        self._upstreams = {}
        for key in self._all:
            self._stale[key] = None
        self._settle_soon()

    # -- what is federated -------------------------------------------------------------------------

    def exchange_configured(self, vhost: VHost, exchange: BoundExchange) -> None:
        may = exchange.name and not exchange.internal and exchange.type != hops.TYPE
        key = vhost.name, EXCHANGE, exchange.name
        if may and self._is_federated(exchange.policy):
            if key not in self._all:
                watch = BindingLog(lambda: self.news.changed("bindings", key[0], key[2]))
                exchange.watcher = watch
                self._all[key] = Federated(exchange, watch)
            self._stale[key] = None
            self._settle_soon()
        else:
            self._forget(key)

    def exchange_deleted(self, vhost: VHost, exchange: BoundExchange) -> None:
        found = self._all.get((vhost.name, EXCHANGE, exchange.name))
        if found is not None and found.thing is exchange:
            self._forget((vhost.name, EXCHANGE, exchange.name))

    def queue_configured(self, vhost: VHost, queue: MessageQueue) -> None:
        key = vhost.name, QUEUE, queue.name
        may = not queue.exclusive and queue.type != "stream"
        if may and self._is_federated(queue.policy):
            if key not in self._all or self._all[key].thing is not queue:
                self._forget(key)
                self._demands[key] = Demand(queue)
                self._all[key] = Federated(queue, self._demands[key])
            self._stale[key] = None
            self._settle_soon()
        else:
            self._forget(key)

    def queue_deleted(self, queue: MessageQueue, now_ms: int) -> None:
        found = self._all.get((queue.vhost_name, QUEUE, queue.name))
        if found is not None and found.thing is queue:
            self._forget((queue.vhost_name, QUEUE, queue.name))

    @staticmethod
    def _is_federated(in_force: Any) -> bool:
        return in_force is not None and any(
            key in in_force.definition for key in upstream_keys.POLICY_KEYS
        )

    def _forget(self, key: Key) -> None:
        found = self._all.pop(key, None)
        self._stale.pop(key, None)
        self._demands.pop(key, None)
        if found is None:
            return
        if isinstance(found.watch, BindingLog):
            found.thing.watcher = None
        for id in found.links:
            self._end(id)

    def _end(self, id: str) -> None:
        ended = self._links.pop(id, None)
        if ended is not None:
            self.gone.update(ended.counts)
        self.news.ended("link", id)

    def vhost_started(self, vhost: VHost) -> None:
        self._runs = True
        self._settle_soon()

    def _settle_soon(self) -> None:
        """Works out the links of what changed, some in each turn of the loop."""
        if self._runs and self._stale and not self._settles:
            self._settles = True
            self._host.punctual(0.0, self._settle)

    def _settle(self) -> None:
        self._settles = False
        for key in list(self._stale)[:FEDERATED_AT_ONCE]:
            del self._stale[key]
            self._work_out(key, self._all[key])
        self._settle_soon()
        self._look_soon()

    def _work_out(self, key: Key, federated: Federated) -> None:
        vhost, kind, name = key
        upstreams = self._upstreams.get(vhost)
        if upstreams is None:
            rows = self._host.access.parameters.all()
            upstreams = Upstreams(row for row in rows if row.vhost == vhost)
            self._upstreams[vhost] = upstreams
        wanted = links_of(upstreams, vhost, kind, name, federated.thing.policy)
        for id in [id for id in federated.links if id not in wanted]:
            del federated.links[id]
            self._end(id)
        for id, link in wanted.items():
            known = federated.links.get(id)
            if known is None:
                known = federated.links[id] = self._links[id] = Running(link, self._next())
            elif known.link != link:
                known.link = link
                known.begin(generation=self._next())
            else:
                continue
            self.news.changed("link", id)

    def _next(self) -> int:
        self._generation += 1
        return self._generation

    # -- what queues want --------------------------------------------------------------------------

    def _look_soon(self) -> None:
        if self._demands and not self._looks:
            self._looks = True
            self._host.punctual(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        """Checks some federated queues, and the next ones later."""
        self._looks = False
        for _ in range(LOOKS_AT_ONCE):
            demand = next(self._round, None)
            if demand is None:
                self._round = iter(list(self._demands.values()))
                break
            if not demand.queue.deleted and demand.look():
                self.news.changed("demand", demand.queue.vhost_name, demand.queue.name)
        self._look_soon()

    # -- what is asked of it -----------------------------------------------------------------------

    def get(self, vhost: str, id: str) -> Running | None:
        """A link by its id."""
        found = self._links.get(id)
        return found if found is not None and found.link.vhost == vhost else None

    def restart(self, running: Running) -> None:
        """Lets it begin anew."""
        running.begin(generation=self._next())
        self.news.changed("link", running.link.id)

    def tallies(self) -> Iterator[tuple[dict[str, str], str, dict[str, int]]]:
        """Labels, state and counts of each link, for metrics."""
        for running in self._links.values():
            link = running.link
            labels = {
                "vhost": link.vhost,
                link.kind: link.name,
                "upstream": link.upstream,
                "id": link.id,
            }
            yield labels, running.report.state, running.counts

    def rows(self) -> Iterator[dict[str, Any]]:
        """What is shown of each link, by virtual host, kind and name."""
        for running in sorted(self._links.values(), key=lambda each: each.link[:5]):
            yield self.row(running)

    def upstreams(self) -> Iterator[dict[str, Any]]:
        """What is shown of upstreams and sets, with stars for passwords."""
        counts = Counter((each.link.vhost, each.link.upstream) for each in self._links.values())
        rows = [
            row
            for row in self._host.access.parameters.all()
            if row.component in (UPSTREAM, UPSTREAM_SET)
        ]
        for row in sorted(rows, key=lambda each: (each.vhost, each.component, each.name)):
            yield {
                "vhost": row.vhost,
                "name": row.name,
                "component": row.component,
                "owner": row.owner,
                "definition": masked(row.value),
                "links": counts[row.vhost, row.name],
            }

    def row(self, running: Running) -> dict[str, Any]:
        """RabbitMQ's keys with our own; no secrets."""
        link, report = running.link, running.report
        uris = upstream_keys.uris(link.value["uri"]) if link.value else [""]
        row: dict[str, Any] = {
            "node": self._host.node_name,
            link.kind: link.name,
            f"upstream_{link.kind}": link.object,
            "type": link.kind,
            "vhost": link.vhost,
            "upstream": link.upstream,
            "id": link.id,
            "status": STATUS.get(report.state, report.state),
            "uri": report.src_uri or without_secrets(uris[0]),
            "timestamp": _moment(report.since),
            "state": report.state,
            "reason": report.reason,
            "since": report.since,
            "next_try": report.next_try,
            "last_error": report.last_error,
            "policy": link.policy,
            "owner": link.owner,
            "rate": report.rate,
            "message_count": running.counts["moved"],
            "pending": report.in_flight,
            "held": report.held,
            "counts": dict(running.counts),
            "history": running.history,
        }
        if report.state in ("error", "stopped"):
            row["error"] = report.reason
        elif report.dest_uri:
            row["local_connection"] = report.dest_uri
        if link.kind == EXCHANGE and link.value:
            row["max_hops"] = link.value["max-hops"]
        elif link.kind == QUEUE:
            row["consumer_tag"] = self._tag(link)
        return row

    @staticmethod
    def _tag(link: Link) -> str:
        tag = link.value.get("consumer-tag") if link.value else None
        return tag or upstream_keys.DEFAULT_TAG.format(upstream=link.upstream)

    # -- the process that runs them ----------------------------------------------------------------

    def told(self, version: int, most: int) -> dict[str, Any]:
        """What is new since a version."""
        found = self.news.since(version, most)
        links, bindings, demands, tests = [], [], [], []
        for kind, *names in found.pop("keys"):
            if kind == "link":
                running = self._links.get(names[0])
                links.append(self._order(running) if running else {"id": names[0], "gone": True})
            elif kind == "test":
                tests.append(self._trials.order(names[0]))
            elif kind in ("bindings", "demand"):
                vhost, name = names
                of = EXCHANGE if kind == "bindings" else QUEUE
                federated = self._all.get((vhost, of, name))
                if federated is None:
                    continue
                if isinstance(federated.watch, Demand):
                    demands.append([vhost, name, federated.watch.wants])
                else:
                    bindings.append([vhost, name, federated.watch.serial])
        told = {"links": links, "bindings": bindings, "wants": demands, "tests": tests}
        return {**found, "name": self.name, **told}

    def look_at_owners(self) -> None:
        """Tells of links whose owners have other tags than when they were announced."""
        for id, running in self._links.items():
            standing = on_behalf_of(self._host.access, running.link.owner)
            if standing != running.told_of:
                self.news.changed("link", id)

    def _order(self, running: Running) -> dict[str, Any]:
        link = running.link
        running.told_of = on_behalf_of(self._host.access, link.owner)
        federated = self._all[link.vhost, link.kind, link.name]
        thing, watch = federated.thing, federated.watch
        declared = {
            "durable": thing.durable,
            "auto_delete": thing.auto_delete,
            "arguments": thing.arguments,
        }
        if link.kind == EXCHANGE:
            declared |= {"type": thing.type, "internal": thing.internal}
        users = self._host.access.users
        owner = users.get(link.owner) if link.owner else None
        return {
            "id": link.id,
            "generation": running.generation,
            "vhost": link.vhost,
            "kind": link.kind,
            "name": link.name,
            "upstream": link.upstream,
            "object": link.object,
            "policy": link.policy,
            "owner": link.owner,
            "on_behalf_of": running.told_of,
            "impersonates": owner is not None and "impersonator" in owner.tags,
            "value": link.value,
            "fault": link.fault,
            "tag": self._tag(link),
            "declared": declared,
            "wants": isinstance(watch, Demand) and watch.wants,
        }

    def bindings_since(self, vhost: str, name: str, serial: int, most: int) -> dict[str, Any]:
        """Changes of an exchange's bindings: {serial, known, more, rows}. Where they are not known
        the caller lists all bindings. Raises KeyError if the exchange is not federated."""
        watch = self._all[vhost, EXCHANGE, name].watch
        assert isinstance(watch, BindingLog)
        changes = watch.since(serial, most)
        if changes is None:
            return {"serial": watch.serial, "known": False, "more": False, "rows": []}
        at = serial + len(changes)
        rows = [
            [there, one.destination_type, one.destination, one.routing_key, one.arguments]
            for there, one in changes
        ]
        return {"serial": at, "known": True, "more": at < watch.serial, "rows": rows}

    def reported(self, reports: list[ShovelReport]) -> None:
        """Takes reports; those of an earlier generation are about what does not run any more."""
        for report in reports:
            running = self._links.get(report.name)
            if running is None or report.generation != running.generation:
                continue
            before = running.report.state, running.report.reason
            running.take(report)
            if before != (report.state, report.reason):
                link = running.link
                log.info(
                    "federation link of %s '%s' in vhost '%s' to upstream '%s' is %s%s",
                    link.kind,
                    link.name,
                    link.vhost,
                    link.upstream,
                    report.state,
                    f": {report.reason}" if report.reason else "",
                )

    def away(self) -> None:
        """The process has ended; the next one starts all links."""
        for running in self._links.values():
            running.begin(AWAY)

    def login(self, owner: str | None, vhost: str) -> str:
        """The user as whom a link of this owner logs in to a vhost here. Raises BadSetting."""
        return login_of(self._host.access, owner, vhost, "upstream")

    # -- trying a definition -----------------------------------------------------------------------

    def ask_test(self, parameter: Parameter, answer: Callable[[list[Any]], None]) -> int:
        """Has an upstream tried as its owner would connect; `answer` gets what was found. Returns
        its number."""
        order = {
            "vhost": parameter.vhost,
            "name": parameter.name,
            "value": parameter.value,
            "owner": parameter.owner,
            "on_behalf_of": on_behalf_of(self._host.access, parameter.owner),
        }
        return self._trials.ask(order, answer)

    def end_test(self, id: int) -> None:
        self._trials.end(id)

    def tested(self, id: int, steps: list[Any]) -> None:
        """What a trial has found."""
        self._trials.take(id, steps)


def _moment(ms: int) -> str:
    """A time as RabbitMQ writes it here."""
    return f"{datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC):%Y-%m-%d %H:%M:%S}"
