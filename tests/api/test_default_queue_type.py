"""The default queue type of a vhost over HTTP."""

import uuid

import httpx
import pytest

from tests.api.conftest import path


def test_it_is_set_and_used(api: httpx.Client) -> None:
    where = path("vhosts", f"typed-{uuid.uuid4().hex[:8]}")
    name = where.rpartition("/")[2]
    assert api.put(where, json={"default_queue_type": "quorum"}).status_code == 201
    assert api.get(where).json()["default_queue_type"] == "quorum"
    api.put(path("queues", name, "q"), json={"durable": True}).raise_for_status()
    assert api.get(path("queues", name, "q")).json()["type"] == "quorum"
    api.put(where, json={"default_queue_type": "classic"}).raise_for_status()
    assert api.get(where).json()["default_queue_type"] == "classic"
    api.delete(where).raise_for_status()


@pytest.mark.parametrize("kind", ["lazy", 7, ["stream"]])
def test_it_refuses_what_is_no_type(api: httpx.Client, kind: object) -> None:
    where = path("vhosts", f"typed-{uuid.uuid4().hex[:8]}")
    assert api.put(where, json={"default_queue_type": kind}).status_code == 400
    assert api.get(where).status_code == 404
