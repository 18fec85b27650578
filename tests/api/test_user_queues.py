"""Who declared a queue: `users/U/queues`, and the answer for queues where it is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from broker.store.directory import journal
from broker.vhosts.changes import QUEUE_DECLARED_BY, read_entry
from tests.amqp.raw import Client
from tests.api.conftest import path
from tests.appliance import Appliance

QUEUE = {"durable": True, "auto_delete": False, "arguments": {}}
WHO = "user_who_performed_action"


def names(api: httpx.Client, user: str) -> list[str]:
    answer = api.get(path("users", user, "queues"))
    answer.raise_for_status()
    assert {row[WHO] for row in answer.json()} <= {user}
    return [row["name"] for row in answer.json()]


def declare(api: httpx.Client, leveret: Appliance) -> None:
    """`one` by guest over AMQP, `two` by guest and `three` by ann over HTTP, `four` by a file."""
    with Client.open((leveret.host, leveret.amqp_port)) as client:
        client.call(1, "queue.declare", queue="one", durable=True)
        client.close()
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    api.put(path("users", "ann"), json={"password": "x", "tags": "management"})
    api.put(path("permissions", "/", "ann"), json=everything)
    api.put(path("queues", "/", "two"), json=QUEUE).raise_for_status()
    api.put(path("queues", "/", "three"), json=QUEUE, auth=("ann", "x")).raise_for_status()
    # It is there: who declares it again has not made it.
    api.put(path("queues", "/", "two"), json=QUEUE, auth=("ann", "x")).raise_for_status()
    four = {"queues": [{"name": "four", "vhost": "/", **QUEUE}]}
    api.post(path("definitions"), json=four).raise_for_status()


def forget_who(leveret: Appliance) -> None:
    """Makes the journal one of an older version."""
    (file,) = leveret.data_dir.glob("vhosts/*/definitions.journal")
    payloads, _ = journal.entries(file.read_bytes())
    kept = [each for each in payloads if read_entry(each)[0] != QUEUE_DECLARED_BY.name]
    assert len(kept) == len(payloads) - 3
    file.write_bytes(journal.MAGIC + b"".join(journal.encode(each) for each in kept))


def test_queues_of_a_user_are_known_over_restarts_and_not_in_older_directories(
    make_leveret: Callable[..., Any],
) -> None:
    leveret = make_leveret()
    with httpx.Client(base_url=leveret.http_url, auth=("guest", "guest"), timeout=30) as api:
        declare(api, leveret)

        def known() -> None:
            assert names(api, "guest") == ["one", "two"]
            assert names(api, "ann") == ["three"]
            assert WHO not in api.get(path("queues", "/", "four")).json()
            assert api.get(path("queues", "/", "three")).json()[WHO] == "ann"

        known()
        assert api.get(path("users", "nobody", "queues")).status_code == 404
        assert api.get(path("users", "guest", "queues"), auth=("ann", "x")).status_code == 401
        leveret.stop()
        api.base_url = httpx.URL(leveret.start().http_url)
        known()
        leveret.stop()
        forget_who(leveret)
        api.base_url = httpx.URL(leveret.start().http_url)
        assert names(api, "guest") == names(api, "ann") == []
        rows = api.get(path("queues")).json()
        assert [row["name"] for row in rows] == ["four", "one", "three", "two"]
        assert not any(WHO in row for row in rows)
    assert "error" not in leveret.log().lower()
