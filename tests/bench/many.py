"""`python -m tests.bench.many`: what a page of 100 of very many costs where they are no queues: of
connections, channels and consumers, and of vhosts, users, permissions, policies and parameters.

One line a request, as `tests.bench.lists` prints them: the least of the broker's processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

from management.broker_client import BrokerClient
from tests.amqp import raw
from tests.bench.lists import BROKER_MS, PAGE, cost, leaves
from tests.bench.screens import filled

VIEWER = "viewer"
POLICIES = 100
UNSEEN = ("users", "permissions", "topic-permissions")
NOUNS = (
    "connections",
    "channels",
    "consumers",
    "vhosts",
    "users",
    "permissions",
    "topic-permissions",
    "parameters",
    "global-parameters",
    "policies",
    "exchanges",
)


def opening(channels: int, first: int) -> bytes:
    """All that a client sends to have so many channels with a consumer each."""
    found = [raw.PROTOCOL_HEADER, raw.start_ok()]
    found += [
        raw.method(0, "connection.tune-ok", channel_max=2047, frame_max=131072, heartbeat=0),
        raw.method(0, "connection.open", virtual_host="/"),
    ]
    for number in range(1, channels + 1):
        queue = f"queue-{first + number - 1:05}"
        found.append(raw.method(number, "channel.open"))
        found.append(raw.method(number, "basic.consume", queue=queue, consumer_tag="c"))
    return b"".join(found)


@contextlib.asynccontextmanager
async def clients(port: int, connections: int, channels: int) -> AsyncIterator[None]:
    """Connections of so many channels with a consumer each."""
    async with contextlib.AsyncExitStack() as stack:
        for first in range(0, connections * channels, channels):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(opening(channels, first))
            await reader.readuntil(raw.method(channels, "basic.consume-ok", consumer_tag="c"))
        yield


def settings(count: int) -> dict[str, Any]:
    """Definitions of so many of each kind of setting, and of a user who sees one vhost only."""
    names = [f"thing-{number:05}" for number in range(count)]
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    topics = {"exchange": "amq.topic", "write": ".*", "read": ".*"}
    under = {"pattern": "^queue-.*$", "apply-to": "queues", "definition": {"max-length": 9}}
    limit = {"component": "vhost-limits", "name": "limits", "value": {"max-queues": 99999}}
    users = [*names, VIEWER]
    return {
        "vhosts": [{"name": name} for name in names],
        "users": [{"name": name, "password_hash": "", "tags": "policymaker"} for name in users],
        "permissions": [{"vhost": "/", "user": name, **rights} for name in users],
        "topic_permissions": [{"vhost": "/", "user": name, **topics} for name in users],
        "parameters": [{"vhost": name, **limit} for name in names],
        "global_parameters": [{"name": name, "value": {"a": 1}} for name in names],
        "policies": [
            {"vhost": "/", "name": name, **under, "pattern": f"^queue-.*{place}$"}
            for place, name in enumerate(names[:POLICIES])
        ],
        "exchanges": [
            {"vhost": "/", "name": name, "type": "fanout", "durable": True, "auto_delete": False}
            for name in names
        ],
    }


async def requests(client: BrokerClient, only: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for noun in NOUNS:
        whole: dict[str, Any] = {"noun": noun, **PAGE}
        items = (await client.call("list", **whole))["items"]
        if only not in noun or not items:
            continue
        found[noun] = whole
        found[f"{noun} of the last page"] = whole | {"page": -1}
        if noun not in UNSEEN:
            found[f"{noun}, as one who sees one vhost"] = whole | {"as_user": VIEWER}
        for key in leaves(items[0]):
            found[f"{noun} by {key}"] = whole | {"sort": key}
        found[f"{noun} with 77"] = whole | {"name": "77"}
        found[f"{noun} with 7.*7$"] = whole | {"name": "7.*7$", "use_regex": True}
    return found


async def run(options: argparse.Namespace) -> None:
    async with contextlib.AsyncExitStack() as stack:
        appliance, client = await stack.enter_async_context(filled(options.queues, False))
        await client.call(
            "definitions.import", definitions=settings(options.settings), timeout_s=300
        )
        per_connection = options.channels // max(1, options.connections)
        held = clients(appliance.amqp_port, options.connections, per_connection)
        await stack.enter_async_context(held)
        over = 0
        found = await requests(client, options.only)
        for title, arguments in found.items():
            if arguments.get("page") == -1:
                first_page = await client.call("list", **(arguments | {"page": 1}))
                arguments["page"] = max(1, first_page["page_count"])
            wall, spent = await cost(appliance.pids["broker"], client, arguments, options.rounds)
            over += spent > BROKER_MS
            mark = "   over" if spent > BROKER_MS else ""
            print(f"{title:62} {wall:6.1f} ms   broker {spent:6.2f} ms{mark}", flush=True)
        print(f"{len(found)} requests, {over} over the budget")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.many", description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--channels", type=int, default=10_000, help="with a consumer each")
    parser.add_argument("--settings", type=int, default=1_000, help="of each kind")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="nouns with this in their name")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
