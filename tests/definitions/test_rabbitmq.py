"""Our export, loaded by Debian's RabbitMQ and exported back, object by object."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.definitions.targets import RABBITMQ_3
from broker.schema.policy_keys import KEYS
from management.broker_client import BrokerClient
from tests.bench.rabbitmq import NotAvailable, RabbitMQ
from tests.definitions.conftest import FIXTURES

PLUGINS = ("rabbitmq_consistent_hash_exchange", "rabbitmq_random_exchange", "rabbitmq_shovel",
           "rabbitmq_federation", "rabbitmq_management")  # fmt: skip

# A value for each kind of policy key, where 1 is none.
VALUES: dict[str, Any] = {
    "overflow": "reject-publish",
    "max-age": "7D",
    "queue-mode": "lazy",
    "dead-letter-strategy": "at-least-once",
    "queue-leader-locator": "balanced",
    "queue-master-locator": "min-masters",
    "ha-mode": "all",
    "ha-sync-mode": "automatic",
    "ha-promote-on-shutdown": "always",
    "ha-promote-on-failure": "always",
}

MORE: dict[str, Any] = {
    "vhosts": [{"name": "streams", "default_queue_type": "stream"}],
    "queues": [
        {"vhost": "/", "name": "more-classic", "arguments": {
            "x-delivery-limit": 3, "x-queue-mode": "odd", "x-expires": 10**15, "x-max-length": 1}},
        {"vhost": "/", "name": "more-quorum", "arguments": {
            "x-queue-type": "quorum", "x-max-priority": 3, "x-delivery-limit": 2}},
        {"vhost": "/", "name": "more-stream", "arguments": {
            "x-queue-type": "stream", "x-max-age": "1h", "x-stream-filter-size-bytes": 16}},
        {"vhost": "/", "name": "more-lean", "arguments": {"x-confirm-on": "ack"}},
        {"vhost": "streams", "name": "plain"},
    ],
    "exchanges": [
        {"vhost": "/", "name": "more-random", "type": "x-random"},
        {"vhost": "/", "name": "more-later", "type": "x-delayed-message",
         "arguments": {"x-delayed-type": "topic"}},
    ],
    "bindings": [
        {"vhost": "/", "source": "more-later", "destination": "q1", "destination_type": "queue",
         "routing_key": "k"},
        {"vhost": "/", "source": "more-random", "destination": "q1", "destination_type": "queue"},
    ],
    "policies": [
        {"vhost": "/", "name": "more-confirms", "pattern": "^none$",
         "definition": {"confirm-on": "ack", "max-length": 4}},
        {"vhost": "/", "name": "more-only-ours", "pattern": "^none$",
         "definition": {"confirm-on": "ack"}},
        {"vhost": "/", "name": "more-quorum", "pattern": "^none$", "apply-to": "quorum_queues",
         "definition": {"delivery-limit": 4}},
        {"vhost": "/", "name": "more-limit", "pattern": "^none$",
         "definition": {"delivery-limit": -1, "expires": 5}},
    ],
    "users": [{"name": "more-argon", "tags": ["management"], "password": "x"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    installed = list(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-3.10*/sbin"))
    if not installed or shutil.which("erl") is None:
        pytest.skip("Debian's rabbitmq-server 3.10 is not installed")
    node = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"), PLUGINS)
    try:
        node.start()
    except NotAvailable as error:
        pytest.fail(f"rabbitmq-server is installed and does not start: {error}")
    yield node
    node.stop()


async def test_rabbitmq_takes_our_export_and_gives_it_back(
    client: BrokerClient, rabbitmq: RabbitMQ, tmp_path: Path
) -> None:
    await client.call(
        "definitions.import", definitions=(FIXTURES / "rabbitmq-3.10.8.json").read_bytes()
    )
    more = {**MORE, "policies": [*MORE["policies"], *every_policy_key()]}
    answer = await client.call("definitions.import", definitions=more)
    assert answer["left_out"] == []
    asked = {"target": "rabbitmq-3", "secrets": True}
    ours = await client.call("definitions.export", **asked)
    told = await client.call("definitions.export", **asked, dry_run=True)
    assert "argon2" not in json.dumps(ours)
    file = tmp_path / "ours.json"
    file.write_text(json.dumps(ours))
    done = rabbitmq.control("import_definitions", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    # Its command line writes maps as lists of pairs and leaves internal exchanges out.
    api = f"http://127.0.0.1:{rabbitmq.http_port}/api"
    done = rabbitmq.control("add_user", "reader", "reader")
    done = rabbitmq.control("set_user_tags", "reader", "administrator")
    assert done.returncode == 0, done.stdout + done.stderr
    async with httpx.AsyncClient(auth=("reader", "reader"), timeout=60) as http:
        theirs = (await http.get(f"{api}/definitions")).raise_for_status().json()
        again = await http.post(f"{api}/definitions", json=ours)
        assert again.status_code == 204, again.text

    compared = 0
    lost = []
    for section in ("users", "permissions", "topic_permissions", "parameters", "policies",
                    "global_parameters", "queues", "exchanges", "bindings"):  # fmt: skip
        for row in ours[section]:
            expected = dict(row)
            if section == "users":
                expected["limits"] = row["limits"] or {}
            if not any(
                {key: there.get(key) for key in expected} == expected for there in theirs[section]
            ):
                lost.append((section, expected))
            compared += 1
    assert not lost
    assert {row["name"] for row in ours["vhosts"]} <= {row["name"] for row in theirs["vhosts"]}
    assert compared > 90
    assert {row["plugin"] for row in told["plugins"]} == set(PLUGINS) - {"rabbitmq_management"}


async def test_it_says_what_rabbitmq_cannot_read(client: BrokerClient) -> None:
    await client.call("definitions.import", definitions={
        **MORE, "queues": [*MORE["queues"], {"vhost": "/", "name": "q1"},
                           {"vhost": "/", "name": "passing", "durable": False}],
    })  # fmt: skip
    told = await client.call("definitions.export", target="rabbitmq-3", dry_run=True)
    omitted = {
        (row["section"], row.get("name") or row.get("source"), row.get("part"))
        for row in told["omitted"]
    }
    assert told["for"] == "rabbitmq-3"
    assert omitted == {
        ("users", "guest", "password_hash"),
        ("users", "more-argon", "password_hash"),
        ("queues", "more-classic", "arguments.x-delivery-limit"),
        ("queues", "more-classic", "arguments.x-queue-mode"),
        ("queues", "more-classic", "arguments.x-expires"),
        ("queues", "more-quorum", "arguments.x-max-priority"),
        ("exchanges", "more-later", None),
        ("bindings", "more-later", None),
        ("policies", "more-confirms", "definition.confirm-on"),
        ("policies", "more-only-ours", "definition.confirm-on"),
        ("policies", "more-only-ours", None),
        ("policies", "more-quorum", None),
        ("policies", "more-limit", "definition.delivery-limit"),
    }
    newest = await client.call("definitions.export", target="rabbitmq", dry_run=True)
    assert newest["for"] == "rabbitmq-4"
    names = {(row["section"], row.get("name"), row.get("part")) for row in newest["omitted"]}
    assert ("queues", "passing", None) in names
    assert ("policies", "more-quorum", None) not in names
    document = await client.call("definitions.export", target="rabbitmq")
    assert "omitted" not in json.dumps(document)
    (plain,) = [row for row in document["queues"] if row["name"] == "plain"]
    assert (plain["type"], plain["arguments"]) == ("classic", {"x-queue-type": "classic"})


def every_policy_key() -> list[dict[str, Any]]:
    """A policy for each key of RabbitMQ 3.10 that is known here, and each operator's key."""
    keys = sorted(RABBITMQ_3.policy_keys & KEYS.keys() - {"ha-params", "ha-sync-batch-size"})
    rows = []
    for key in keys:
        kind = KEYS[key].argument.kind
        value = VALUES.get(key, 1 if kind == "integer" else "x")
        definition = {key: value}
        if key.startswith("ha-"):
            definition["ha-mode"] = "all"
        if key == "dead-letter-routing-key":
            definition["dead-letter-exchange"] = "x"
        rows.append(
            {"vhost": "/", "name": f"key-{key}", "pattern": "^none$", "definition": definition}
        )
    return rows
