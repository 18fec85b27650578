"""The shovels of a broker: what is to run, and what is reported of it.

The process `bridges` runs them. It follows `news`, and reports once a second. Counts are kept here
over its restarts, and end with this process.
"""

from __future__ import annotations

import datetime
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from broker.access import Parameter
from broker.access.behalf import on_behalf_of
from broker.access.parameters import SHOVEL, check_parameter
from broker.access.parameters import Key as ParameterKey
from broker.access.sealing import UNREADABLE
from broker.access.secrets import masked, without_secrets
from broker.features.bridge_uris import login_of
from broker.features.interface import Feature
from broker.features.news import News
from broker.features.reported import Reported
from broker.features.shovel.checks import checked
from broker.features.shovel.places import Place, Places
from broker.features.trials import Trials
from broker.kernel import clock
from broker.schema import shovel_keys
from broker.schema.control_schema import BridgesPlace, ShovelReport

log = logging.getLogger("leveret.shovel")

AWAY = "the process that runs shovels is being started"
Key = tuple[str, str]


class Shovel(Reported):
    """One defined shovel, with the last report. `birth` is its first generation: a shovel that is
    deleted and made again has another."""

    def __init__(self, parameter: Parameter, generation: int) -> None:
        super().__init__(parameter.vhost, parameter.name, generation)
        self.parameter = parameter
        self.birth = generation


class Shovels(Feature):
    """All shovels of the node."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self._all: dict[Key, Shovel] = {}
        self.gone: Counter[str] = Counter()
        """Counts of those that were deleted: sums over all never go down."""
        self.news = News()
        self._generation = clock.now()
        self._trials = Trials(
            lambda id: self.news.changed("test", id), lambda id: self.news.ended("test", id)
        )
        self._places = Places(host.files)
        host.access.parameters.watchers.append(self._changed)

    def start(self, now_ms: int) -> None:
        """Raises SettingsError."""
        self._places.load()
        self._refresh()

    # -- definitions -------------------------------------------------------------------------------

    def checked(self, parameter: Parameter, owner: str, *, imported: bool = False) -> Parameter:
        """A shovel as it is to be stored by this user, "" for the appliance. What is imported may
        bring permissions with it: they are asked when it starts. Raises BadSetting."""
        check_parameter(parameter)
        access = self._host.access
        old = access.parameters.get(SHOVEL, parameter.vhost, parameter.name)
        value = checked(
            parameter.value,
            old.value if old is not None and not old.sealed else None,
            access=access,
            user="" if imported else owner,
            vhost=parameter.vhost,
            certificates=self._certificates,
        )
        paused = old.paused if old is not None else False
        return Parameter(SHOVEL, parameter.vhost, parameter.name, value, owner, paused)

    @property
    def _certificates(self) -> list[str]:
        """What the files in URIs may be named."""
        return [each.partition("=")[0] for each in self._host.config.bridges_certificates]

    def _changed(self, key: ParameterKey | None) -> None:
        """Compares with what is stored: the parameter that changed, or all."""
        if key is None:
            self._refresh()
        elif key[0] == SHOVEL:
            self._compare(key[1:], self._host.access.parameters.get(*key))

    def _refresh(self) -> None:
        stored = {(row.vhost, row.name): row for row in self._host.access.parameters.shovels()}
        for key in [*stored, *(key for key in self._all if key not in stored)]:
            self._compare(key, stored.get(key))

    def _compare(self, key: Key, row: Parameter | None) -> None:
        known = self._all.get(key)
        if row is None:
            if known is not None:
                del self._all[key]
                self.gone.update(known.counts)
                self._places.forget(key)
                self.news.ended("shovel", *key)
            return
        if known is None:
            self._all[key] = Shovel(row, self._next())
        elif (known.parameter.value, known.parameter.owner) != (row.value, row.owner):
            known.parameter = row
            known.begin(generation=self._next())
        elif known.parameter.paused != row.paused:
            known.parameter = row
        else:
            return
        self.news.changed("shovel", *key)

    def _next(self) -> int:
        self._generation += 1
        return self._generation

    # -- what is asked of it -----------------------------------------------------------------------

    def get(self, vhost: str, name: str) -> Shovel | None:
        return self._all.get((vhost, name))

    def restart(self, shovel: Shovel) -> None:
        """Lets it begin anew."""
        shovel.begin(generation=self._next())
        self.news.changed("shovel", shovel.parameter.vhost, shovel.parameter.name)

    def tallies(self) -> Iterator[tuple[dict[str, str], str, dict[str, int]]]:
        """Labels, state and counts of each, for metrics."""
        for (vhost, name), shovel in self._all.items():
            yield {"vhost": vhost, "shovel": name}, shovel.report.state, shovel.counts

    def rows(self, fits: Callable[[str, str], bool]) -> Iterator[dict[str, Any]]:
        """What is shown of each whose vhost and name fit, by these."""
        for key in sorted(key for key in self._all if fits(*key)):
            shovel = self._all.get(key)
            if shovel is not None:  # not deleted while the rows before it were made
                yield self.row(shovel)

    def row(self, shovel: Shovel) -> dict[str, Any]:
        """RabbitMQ's keys with those of LavinMQ and our own; no secrets."""
        parameter, report = shovel.parameter, shovel.report
        value = without_secrets(parameter.value)
        given = shovel_keys.settled(value)
        state = report.state
        row = {
            "node": self._host.node_name,
            "vhost": parameter.vhost,
            "name": parameter.name,
            "type": "dynamic",
            "timestamp": _moment(report.since),
            "since": report.since,
            "state": state,
            "reason": report.reason,
            "error": report.reason if state in ("error", "stopped") else None,
            "blocked_status": "blocked" if state == "blocked" else "running",
            "next_try": report.next_try,
            "last_error": report.last_error,
            "src_uri": report.src_uri or shovel_keys.uris(value["src-uri"])[0],
            "dest_uri": report.dest_uri or shovel_keys.uris(value["dest-uri"])[0],
            "src_protocol": given["src-protocol"],
            "dest_protocol": _protocol(given),
            "ack_mode": given["ack-mode"],
            "owner": parameter.owner,
            "paused": parameter.paused,
            "rate": report.rate,
            "message_count": shovel.counts["moved"],
            "pending": report.in_flight,
            "held": report.held,
            "remaining": "unlimited" if report.remaining is None else report.remaining,
            "counts": dict(shovel.counts),
            "history": shovel.history,
            "definition": masked(parameter.value),
        }
        for key in ("src-queue", "src-exchange", "dest-queue", "dest-exchange"):
            if given[key] is not None:
                row[key.replace("-", "_")] = given[key]
        for key in ("src-exchange-key", "dest-exchange-key"):
            if given[key]:
                row[key.replace("-", "_")] = given[key]
        return row

    # -- the process that runs them ----------------------------------------------------------------

    def told(self, version: int, most: int) -> dict[str, Any]:
        """What is new since a version of what is to run, and what is to be tried."""
        found = self.news.since(version, most)
        shovels, tests = [], []
        for kind, *names in found.pop("keys"):
            if kind == "test":
                tests.append(self._trials.order(names[0]))
            else:
                vhost, name = names
                shovel = self._all.get((vhost, name))
                gone = {"vhost": vhost, "name": name, "gone": True}
                shovels.append(self._order(shovel) if shovel is not None else gone)
        return {**found, "shovels": shovels, "tests": tests}

    def look_at_owners(self) -> None:
        """Tells of shovels whose owners have other tags than when they were announced."""
        for (vhost, name), shovel in self._all.items():
            standing = on_behalf_of(self._host.access, shovel.parameter.owner)
            if standing != shovel.told_of:
                self.news.changed("shovel", vhost, name)

    def _order(self, shovel: Shovel) -> dict[str, Any]:
        parameter = shovel.parameter
        shovel.told_of = on_behalf_of(self._host.access, parameter.owner)
        return {
            "vhost": parameter.vhost,
            "name": parameter.name,
            "generation": shovel.generation,
            "value": parameter.value,
            "owner": parameter.owner,
            "on_behalf_of": shovel.told_of,
            "paused": parameter.paused,
            "birth": shovel.birth,
            "place": self._places.row((parameter.vhost, parameter.name)),
            "fault": UNREADABLE
            if parameter.sealed
            else shovel_keys.fault(parameter.name, parameter.value),
        }

    def reported(self, reports: list[ShovelReport]) -> bool:
        """Takes reports; those of an earlier generation are about what does not run any more. A
        shovel that has moved what it should is deleted. Returns whether one was: a start before
        that is on disk would have it move as much again."""
        any_over = False
        for report in reports:
            shovel = self._all.get((report.vhost, report.name))
            if shovel is None or report.generation != shovel.generation:
                continue
            before = shovel.report.state, shovel.report.reason
            shovel.take(report)
            if before != (report.state, report.reason):
                log.info(
                    "shovel '%s' in vhost '%s' is %s%s",
                    report.name,
                    report.vhost,
                    report.state,
                    f": {report.reason}" if report.reason else "",
                )
            if report.is_over:
                self._host.access.parameters.delete(SHOVEL, report.vhost, report.name)
                any_over = True
        return any_over

    def keep(self, told: BridgesPlace) -> bool:
        """Has the place of a shovel written by the next flush; False if the shovel was deleted."""
        shovel = self._all.get((told.vhost, told.name))
        if shovel is None or shovel.birth != told.birth:
            return False
        self._places.put(Place(told.vhost, told.name, told.of, told.offset, told.noted))
        return True

    def away(self) -> None:
        """The process has ended; the next one starts all shovels."""
        for shovel in self._all.values():
            if shovel.report.state != "paused":
                shovel.begin(AWAY)

    def login(self, owner: str | None, vhost: str) -> str:
        """The user as whom a shovel of this owner logs in to a vhost here. Raises BadSetting when
        there is none."""
        return login_of(self._host.access, owner, vhost, "shovel")

    # -- trying a definition -----------------------------------------------------------------------

    def ask_test(
        self, vhost: str, value: dict[str, Any], owner: str, answer: Callable[[list[Any]], None]
    ) -> int:
        """Has the ends of a definition tried; `answer` gets what was found. Returns its number."""
        order = {
            "vhost": vhost,
            "value": value,
            "owner": owner,
            "on_behalf_of": on_behalf_of(self._host.access, owner),
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


def _protocol(given: dict[str, Any]) -> str:
    scheme = shovel_keys.uris(given["dest-uri"])[0].partition(":")[0]
    return scheme if scheme in ("http", "https") else str(given["dest-protocol"])
