"""`python -m tests.bench.lists`: what a page of 100 of 10,000 queues or bindings costs, by every
column that a page or the HTTP API can sort by, and by every filter.

One line a request: the least of its time and of the broker's processor time in some rounds (other
work on the machine only adds to them), and `over` where they are above the budget (20 ms, 5 ms of
the processor). The keys to sort by are those of the tables in
`frontend/views` and all of a row, dotted ones included. `--top` shows only the dearest.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from broker.schema.control_schema import TROUBLE
from management.broker_client import BrokerClient
from tests.bench.screens import filled, processor_seconds

WALL_MS = 20.0
BROKER_MS = 5.0
PAGE = {"page": 1, "page_size": 100}

COLUMNS = {
    "one": ["name"],
    "three": ["name", "messages", "vhost"],
    "a rate": ["name", "vhost", "message_stats.publish_details.rate"],
    "a policy": ["name", "vhost", "policy"],
    "of lean": [
        "name",
        "vhost",
        "durable",
        "auto_delete",
        "exclusive",
        "arguments",
        "type",
        "node",
        "state",
    ],
}


def leaves(row: dict[str, Any], before: str = "") -> Iterator[str]:
    """The dotted keys of everything in a row that is no table itself."""
    for key, value in row.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}"


def _page() -> Any:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "management.settings")
    return importlib.import_module("frontend.views.queues")


def keys_of_pages() -> list[str]:
    """What the page of queues sorts by."""
    queues = _page()
    return [column.sort_key for column in queues.COLUMNS if column.sort_key]


def columns_of_pages() -> list[str]:
    """What the page of queues asks for."""
    queues = _page()
    return sorted({*queues.ALSO, *(column.key for column in queues.COLUMNS)})


async def requests(client: BrokerClient) -> dict[str, dict[str, Any]]:
    """Every list of the walk by its title."""
    found: dict[str, dict[str, Any]] = {}
    for noun in ("queues", "bindings"):
        whole: dict[str, Any] = {"noun": noun, **PAGE}
        found[noun] = whole
        row = (await client.call("list", **whole))["items"][0]
        pages = keys_of_pages() if noun == "queues" else []
        for key in dict.fromkeys([*pages, *leaves(row)]):
            found[f"{noun} by {key}"] = whole | {"sort": key}
            found[f"{noun} by {key}, down"] = whole | {"sort": key, "sort_reverse": True}
        found[f"{noun} with 77"] = whole | {"name": "77"}
        found[f"{noun} with 7.*7$"] = whole | {"name": "7.*7$", "use_regex": True}
        found[f"{noun} of a vhost"] = whole | {"vhost": "/"}
        found[f"{noun}, lean"] = whole | {"disable_stats": True}
    plain: dict[str, Any] = {"noun": "queues", **PAGE}
    for word in ("trouble", *TROUBLE):
        found[f"queues in state {word}"] = plain | {"state": word}
    page = {"columns": columns_of_pages()}
    for key in keys_of_pages():
        found[f"page of queues by {key}"] = plain | page | {"sort": key, "sort_reverse": True}
    found["page of queues with 77 by trouble"] = plain | page | {"name": "77", "sort": "trouble"}
    found["page of queues in trouble"] = plain | page | {"state": "trouble", "sort": "trouble"}
    found["queues of a user"] = plain | {"user": "guest"}
    for title, columns in COLUMNS.items():
        found[f"queues, columns {title}"] = plain | {"columns": columns}
    bindings = {"noun": "bindings", **PAGE}
    found["bindings of amq.direct"] = bindings | {"vhost": "/", "source": "amq.direct"}
    found["bindings of the default exchange"] = bindings | {"vhost": "/", "source": ""}
    ends = {"vhost": "/", "destination": "queue-00077", "destination_type": "queue"}
    found["bindings of a queue"] = bindings | ends
    found["bindings, columns one"] = bindings | {"columns": ["source"]}
    return found


async def cost(
    pid: int, client: BrokerClient, arguments: dict[str, Any], rounds: int
) -> tuple[float, float]:
    """The least in ms: of an answer, and of the broker's processor time for it. The first answer,
    which fills what is kept, is not in it unless `rounds` is 1."""
    times, spent = [], []
    if rounds > 1:
        await client.call("list", **arguments)
    for _ in range(rounds):
        await asyncio.sleep(0.01)
        before, began = processor_seconds(pid), time.perf_counter()
        await client.call("list", **arguments)
        times.append((time.perf_counter() - began) * 1000)
        spent.append((processor_seconds(pid) - before) * 1000)
    return min(times), min(spent)


async def run(options: argparse.Namespace) -> None:
    async with filled(options.queues, options.messages) as (appliance, client):
        found, over = [], 0
        for title, arguments in (await requests(client)).items():
            if options.only not in title:
                continue
            wall, spent = await cost(appliance.pids["broker"], client, arguments, options.rounds)
            found.append((spent, wall, title))
            over += spent > BROKER_MS or wall > WALL_MS
        shown = sorted(found, reverse=True)[: options.top] if options.top else found
        for spent, wall, title in shown:
            mark = "   over" if spent > BROKER_MS or wall > WALL_MS else ""
            print(f"{title:62} {wall:6.1f} ms   broker {spent:6.2f} ms{mark}", flush=True)
        print(f"{len(found)} requests, {over} over the budget")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.lists", description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--messages", action="store_true", help="one message in each queue")
    parser.add_argument("--rounds", type=int, default=7, help="of each list")
    parser.add_argument("--only", default="", help="requests whose title has this in it")
    parser.add_argument("--top", type=int, default=0, help="so many of the dearest; 0: all in turn")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
