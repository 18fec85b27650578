"""An appliance with a virtual host that is full of things, and users who have nothing there."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from html import escape
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow
import pyarrow.parquet

from management.reports.catalog import QUEUE_USAGE
from management.reports.runs import Runs
from tests.amqp import raw
from tests.api.conftest import path
from tests.appliance import Appliance

ROLES = ("none", "management", "policymaker", "monitoring", "administrator")
PASSWORD = "a password"
METHODS = ("GET", "PUT", "POST", "DELETE")
ALL = {"configure": ".*", "write": ".*", "read": ".*"}

THERE, AWAY = "zqf", "zqa"
"""Begin every name of the foreign virtual host, and names that nothing has."""
NO_CONNECTION = "127.0.0.1:1 -> 127.0.0.1:2"
RUN_HOUR = datetime(2026, 11, 21, 10, tzinfo=UTC)


class House:
    """The appliance, an API client for each role, and what is in the foreign virtual host."""

    def __init__(self, appliance: Appliance) -> None:
        self.appliance = appliance
        self.guest = self.client("guest", "guest")
        self.put("vhosts", "mine")
        for role in ROLES:
            tags = "" if role == "none" else role
            self.put("users", f"role-{role}", password=PASSWORD, tags=tags)
            self.put("permissions", "mine", f"role-{role}", **ALL)
        self.put("permissions", "mine", "guest", **ALL)
        self.put("queues", "mine", "own-queue")
        self._wait_for("/api/overview", '"queue_created":1,')
        self.clients = {role: self.client(f"role-{role}", PASSWORD) for role in ROLES}
        self._report(f"{THERE}-vhost", f"{THERE}-thing")
        self.connection = ""
        self.before: dict[str, dict[str, str]] = {}
        """What lists answered before the foreign virtual host was filled, by role."""
        self._methods: dict[str, list[str]] = {}
        self._opened: list[raw.Client] = []

    def client(self, user: str, password: str) -> httpx.Client:
        return httpx.Client(base_url=self.appliance.http_url, auth=(user, password), timeout=60)

    def put(self, *where: str, **body: Any) -> None:
        self.guest.put(path(*where), json=body).raise_for_status()

    def fill(self) -> None:
        """Makes the foreign virtual host with something of every kind in it."""
        vhost, user, thing = (f"{THERE}-{name}" for name in ("vhost", "user", "thing"))
        self.put("vhosts", vhost)
        self.put("users", user, password=PASSWORD, tags="management")
        for owner in ("guest", user):
            self.put("permissions", vhost, owner, **ALL)
        self.put("topic-permissions", vhost, user, exchange=thing, write=".*", read=".*")
        self.put("exchanges", vhost, thing, type="topic")
        self.put("queues", vhost, thing)
        self.put("queues", vhost, f"{THERE}-unserved")
        where = path("bindings", vhost, "e", thing, "q", thing)
        self.guest.post(where, json={"routing_key": f"{THERE}-key"}).raise_for_status()
        rules = {"pattern": f"^{THERE}", "definition": {"max-length": 1000}}
        self.put("policies", vhost, thing, **rules)
        self.put("operator-policies", vhost, thing, **rules)
        uri = "amqp://127.0.0.1"
        value = {"src-uri": uri, "dest-uri": uri, "src-queue": thing, "dest-queue": thing}
        self.put("parameters", "shovel", vhost, thing, value=value)
        self.put("vhost-limits", vhost, "max-queues", value=77)
        self.put("user-limits", user, "max-channels", value=77)
        address = (self.appliance.host, self.appliance.amqp_port)
        named = {"connection_name": f"{THERE}-client"}
        client = raw.Client.open(
            address, user=user, password=PASSWORD, virtual_host=vhost, client_properties=named
        )
        self._opened.append(client)
        client.call(1, "basic.consume", queue=thing, consumer_tag=f"{THERE}-tag")
        for _ in range(3):
            client.publish(1, "", f"{THERE}-unserved", b"zqf body")
        client.fence(1)
        # The first transfer of this broker: its number is 1.
        where = path("queues", vhost, f"{THERE}-unserved", "copy")
        wanted = {"target": thing, "routing_key": "^none$"}
        assert self.guest.post(where, json=wanted).raise_for_status().json()["id"] == 1
        (row,) = self.guest.get(path("vhosts", vhost, "connections")).json()
        self.connection = row["name"]
        self._wait_for("/api/problems", f"{THERE}-unserved")

    def _report(self, vhost: str, queue: str) -> None:
        runs = Runs(self.appliance.data_dir / "reports")
        run = runs.new("queue-usage", f"{THERE}-user", 1_700_000_000_000)
        directory = runs.path(run.report, run.run_id)
        columns: dict[str, list[Any]] = {name: [1, 1] for name in QUEUE_USAGE.view().names}
        columns |= {"hour": [RUN_HOUR] * 2, "vhost": ["mine", vhost], "queue": ["own-queue", queue]}
        (directory / "result").mkdir()
        table = pyarrow.table(columns)
        pyarrow.parquet.write_table(table, directory / "result" / "part-0.parquet")
        # From now on the reports process may bring it into its place.
        run.state, run.started_at, run.ended_at = "done", run.asked_at, run.asked_at
        runs.write(run)
        self.report = run.run_id

    def _wait_for(self, where: str, text: str) -> None:
        """Until the next sample shows it."""
        deadline = time.monotonic() + 30
        while text not in self.guest.get(where).text:
            assert time.monotonic() < deadline, f"{where} does not say {text}"
            time.sleep(0.1)

    def methods(self, route: str) -> list[str]:
        """Which methods a route of the API has."""
        if route not in self._methods:
            allowed = self.guest.patch(self.filled(route, AWAY)).headers.get("Allow", "GET")
            named = {one.strip() for one in allowed.split(",")}
            # What is made is taken away again.
            self._methods[route] = [one for one in METHODS if one in named]
        return self._methods[route]

    def inventory(self) -> str:
        """What an administrator finds in the foreign virtual host."""
        vhost = f"{THERE}-vhost"
        wheres = [
            *(("queues", vhost), ("exchanges", vhost), ("bindings", vhost), ("policies", vhost)),
            *(("operator-policies", vhost), ("parameters", "shovel", vhost)),
            *(("vhost-limits", vhost), ("vhosts", vhost, "permissions"), ("consumers", vhost)),
        ]
        kept = ("name", "vhost", "source", "destination", "value", "pattern", "messages",
                "definition", "user", "read", "consumer_tag", "state")  # fmt: skip
        found = []
        for where in wheres:
            rows = self.guest.get(path(*where)).raise_for_status().json()
            found += [str({key: row[key] for key in kept if key in row}) for row in rows]
        return "\n".join(sorted(found))

    def filled(self, route: str, prefix: str) -> str:
        """The route with the names of what is there, or of what nothing is."""
        connection = self.connection if prefix == THERE else NO_CONNECTION
        values = {
            "connection": connection,
            "channel": "1",
            "kind": "q",
            "component": "shovel",
            "id": "1-1-1",
            "within": "1",
            "unit": "months",
            "port": "1",
            "protocol": "amqp",
            "page": "per-object",
            "node": "leveret@none",
            "run": self.report,
            "since": "2026-11",
            "plan": "weekly",
            "offset": "0",
            "table": "none",
        }
        for name in ("vhost", "user", "tag", "password", "pattern"):
            values[name] = f"{prefix}-{name}"
        for name in ("name", "source", "destination", "exchange"):
            values[name] = f"{prefix}-thing"
        values["properties_key"] = f"{prefix}-key"
        if route.startswith(("/api/connections/", "/connections/")):
            values["name"] = connection
        elif route.startswith("/api/channels/"):
            values["name"] = f"{connection} (1)"
        elif route.startswith(("/vhosts/", "/users/")):
            values["name"] = f"{prefix}-{route[1:].partition('s/')[0]}"
        elif route.startswith("/api/transfers/"):
            values["id"] = "1" if prefix == THERE else "2"
        elif "reports/" in route:
            values["name"] = "queue-usage"
        names = re.sub(r"<(\w+)>", lambda match: f"\0{values[match[1]]}\0", route)
        parts = re.split("\0", names)
        # Every second one is a value.
        parts[1::2] = [quote(part, safe="") for part in parts[1::2]]
        return "".join(parts)

    def plain(self, text: str, prefix: str) -> str:
        """The text without the names that were asked for, and without what changes by itself."""
        connection = self.connection if prefix == THERE else NO_CONNECTION
        for name in (connection, quote(connection, safe=""), escape(connection)):
            text = text.replace(name, "CONNECTION")
        text = text.replace(prefix, "NAMED")
        text = re.sub(r'csrfmiddlewaretoken" value="\w+"|CSRFToken&quot;:\s*&quot;\w+', "", text)
        text = re.sub(r'(<script id="history"[^>]*>)(.*?)</script>', _without_times, text)
        return re.sub(r'"\w{64}"', "", text)

    def close(self) -> None:
        for client in self._opened:
            client.socket.close()
        for each in (self.guest, *self.clients.values()):
            each.close()


def _without_times(found: re.Match[str]) -> str:
    """The values that a chart shows, of each line; a sample more or less is no difference."""
    series = json.loads(found[2])["series"]
    values = {name: sorted({float(one or 0) for one in line}) for name, line in series.items()}
    return f"{found[1]}{json.dumps(values)}"
