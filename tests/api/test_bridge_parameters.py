"""Shovels and upstreams as RabbitMQ's own clients define them: rabbitmqadmin, and requests shaped
as those of Terraform's provider."""

from __future__ import annotations

import json
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.api.conftest import PASSWORD, VHOST, path

URI = "amqp://ann:s3cret@127.0.0.1:1/v"
SHOVEL = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": URI, "dest-queue": "b"}
# What the provider's resources send: every key of theirs that has a default, the password within.
TERRAFORM_SHOVEL = {
    "src-uri": "amqp:///",
    "src-queue": "a",
    "src-protocol": "amqp091",
    "src-prefetch-count": 1000,
    "src-delete-after": "never",
    "dest-uri": URI,
    "dest-exchange": "amq.topic",
    "dest-exchange-key": "k",
    "dest-protocol": "amqp091",
    "dest-add-forward-headers": False,
    "dest-add-timestamp-header": False,
    "ack-mode": "on-confirm",
    "reconnect-delay": 1,
    "add-forward-headers": False,
}
TERRAFORM_UPSTREAM = {
    "uri": URI,
    "prefetch-count": 1000,
    "reconnect-delay": 5,
    "ack-mode": "on-confirm",
    "trust-user-id": False,
    "max-hops": 1,
    "expires": 300_000,
    "message-ttl": 60_000,
    "exchange": "",
    "queue": "",
}


@pytest.fixture
def name(api: httpx.Client) -> Iterator[str]:
    name = f"p-{uuid.uuid4().hex[:8]}"
    yield name
    for component in ("shovel", "federation-upstream-set", "federation-upstream"):
        api.delete(path("parameters", component, VHOST, name))


def admin(api_url: str, *words: str) -> str:
    """What rabbitmqadmin prints. Skips without it."""
    there = shutil.which("rabbitmqadmin")
    if there is None:
        found = sorted(Path("/usr/lib/rabbitmq/lib").glob("*/plugins/*/priv/www/cli/rabbitmqadmin"))
        if not found:
            pytest.skip("no rabbitmqadmin here")
        there = str(found[-1])
    parts = urlsplit(api_url)
    login = ["-u", "api-administrator", "-p", PASSWORD, "-V", VHOST, "-f", "raw_json"]
    where = ["-H", str(parts.hostname), "-P", str(parts.port)]
    done = subprocess.run(
        ["python3", there, *where, *login, *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("component", "value"),
    [
        ("shovel", SHOVEL),
        ("federation-upstream", {"uri": URI}),
        ("federation-upstream-set", [{"upstream": "far", "exchange": "x"}]),
    ],
)
def test_rabbitmqadmin_declares_lists_and_deletes_parameters(
    api_url: str, name: str, component: str, value: Any
) -> None:
    named = [f"component={component}", f"name={name}"]
    admin(api_url, "declare", "parameter", *named, f"value={json.dumps(value)}")
    listed = json.loads(admin(api_url, "list", "parameters"))
    (row,) = [row for row in listed if row["name"] == name]
    assert (row["component"], row["vhost"]) == (component, VHOST)
    assert "s3cret" not in str(listed)
    admin(api_url, "delete", "parameter", *named)
    assert name not in [row["name"] for row in json.loads(admin(api_url, "list", "parameters"))]


@pytest.mark.parametrize(
    ("component", "value"),
    [("shovel", TERRAFORM_SHOVEL), ("federation-upstream", TERRAFORM_UPSTREAM)],
)
def test_what_a_provider_creates_it_reads_changes_and_deletes(
    api: httpx.Client, name: str, component: str, value: dict[str, Any]
) -> None:
    where = path("parameters", component, VHOST, name)
    body = {"component": component, "vhost": VHOST, "name": name, "value": value}
    assert api.put(where, json=body).status_code == 201
    read = api.get(where).json()
    assert (read["component"], read["vhost"], read["name"]) == (component, VHOST, name)
    hidden = URI.replace(":s3cret", "")
    uri = "dest-uri" if component == "shovel" else "uri"
    assert read["value"] == {**value, uri: hidden}, "all keys come back; no password"
    # A plan that shows no difference but the password sends all of it once more.
    assert api.put(where, json=body).status_code == 204
    assert api.get(where, params={"secrets": "true"}).json()["value"] == value
    body["value"] = {**value, "reconnect-delay": 9}
    assert api.put(where, json=body).status_code == 204
    assert api.get(where).json()["value"]["reconnect-delay"] == 9
    assert api.delete(where).status_code == 204
    assert api.get(where).status_code == 404


def test_definitions_hold_passwords_only_where_they_are_asked_for(
    api: httpx.Client, clients: dict[str, httpx.Client], name: str
) -> None:
    api.put(path("parameters", "shovel", VHOST, name), json={"value": SHOVEL}).raise_for_status()
    upstream = path("parameters", "federation-upstream", VHOST, name)
    api.put(upstream, json={"value": {"uri": URI}}).raise_for_status()

    def exported(**params: str) -> dict[str, Any]:
        answer = api.get("/api/definitions", params=params)
        rows = answer.raise_for_status().json()["parameters"]
        return {row["component"]: row["value"] for row in rows if row["name"] == name}

    assert "s3cret" not in api.get("/api/definitions").text
    whole = exported(secrets="true")
    assert whole == {"shovel": SHOVEL, "federation-upstream": {"uri": URI}}
    refused = clients["policymaker"].get("/api/definitions", params={"secrets": "true"})
    assert refused.status_code == 401
    rows = [
        {"component": component, "vhost": VHOST, "name": name, "value": value}
        for component, value in whole.items()
    ]
    for component in whole:
        api.delete(path("parameters", component, VHOST, name)).raise_for_status()
    answer = api.post("/api/definitions", json={"parameters": rows})
    assert answer.is_success, answer.text
    assert exported(secrets="true") == whole, "what was exported comes back"
