"""Shovels over the HTTP API, and what one may not do to the API itself."""

from __future__ import annotations

import json
import time
import uuid

import httpx
import pika

from tests.api.conftest import VHOST, path
from tests.appliance import Appliance

PATIENCE_S = 60


def until_state(api: httpx.Client, name: str, *states: str) -> dict[str, object]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (row,) = (row for row in api.get(path("shovels", VHOST)).json() if row["name"] == name)
        if row["state"] in states:
            return dict(row)
        assert time.monotonic() < deadline, row
        time.sleep(0.05)


def test_a_shovel_of_a_policymaker_does_not_post_to_the_api_as_guest(
    clients: dict[str, httpx.Client], shared_leveret: Appliance
) -> None:
    """The requests come from this machine, where guest may sign in."""
    name = f"shovel-{uuid.uuid4().hex[:8]}"
    host, port = shared_leveret.http_url.removeprefix("http://").split(":")
    definition = {
        "src-uri": "amqp://",
        "src-queue": name,
        "dest-uri": f"http://guest:guest@{host}:{port}/api/definitions",
        "dest-headers": {"Content-Type": "application/json"},
    }
    target = path("parameters", "shovel", VHOST, name)
    policymaker = clients["policymaker"]
    policymaker.put(target, json={"value": definition}).raise_for_status()
    parameters = pika.ConnectionParameters(
        shared_leveret.host, shared_leveret.amqp_port, virtual_host=VHOST
    )
    connection = pika.BlockingConnection(parameters)
    try:
        channel = connection.channel()
        channel.queue_declare(name, durable=True)
        user = {"name": name, "password": "s3cret", "tags": "administrator"}
        channel.basic_publish("", name, json.dumps({"users": [user]}).encode())
        row = until_state(policymaker, name, "blocked")
        assert "answers 401" in str(row["reason"])
        assert clients["administrator"].get(path("users", name)).status_code == 404
    finally:
        policymaker.delete(target)
        connection.channel().queue_delete(name)
        connection.close()
    for header in ("X-Shovel", "x-forwarded-for", "Forwarded"):
        bad = {**definition, "dest-headers": {header: "127.0.0.1"}}
        answer = policymaker.put(target, json={"value": bad})
        assert answer.status_code == 400
        assert f"'{header}' is no header that may be set" in answer.json()["reason"]
