"""What the API says of the node's memory, and what it takes for the node."""

from __future__ import annotations

import httpx
import pytest

from tests.api.conftest import VHOST, path


def name_of(api: httpx.Client) -> str:
    name: str = api.get("/api/nodes").json()[0]["name"]
    return name


def test_memory_is_broken_down_in_bytes_and_percent(api: httpx.Client) -> None:
    name = name_of(api)
    memory = api.get(path("nodes", name, "memory")).json()["memory"]
    total = memory.pop("total")
    assert memory.pop("strategy") == "rss"
    assert 0 < total["rss"] == total["allocated"]
    assert sum(memory.values()) == total["rss"]
    shares = api.get(path("nodes", name, "memory", "relative")).json()["memory"]
    assert shares.pop("total") == 100
    assert shares.keys() == memory.keys()
    assert 90 <= sum(shares.values()) <= 110, "each is rounded"
    for key, size in memory.items():
        assert (shares[key] > 0) is (size > 0)


@pytest.mark.parametrize("rest", [("ets",), ("ets", "relative"), ("ets", "management", "relative")])
def test_there_are_no_tables_of_erlang(api: httpx.Client, rest: tuple[str, ...]) -> None:
    answer = api.get(path("nodes", name_of(api), "memory", *rest))
    assert answer.json() == {"ets_tables_memory": "no_tables"}


@pytest.mark.parametrize(
    "rest", [(), ("memory",), ("memory", "relative"), ("memory", "ets"), ("memory", "ets", "x")]
)
def test_another_node_does_not_exist(api: httpx.Client, rest: tuple[str, ...]) -> None:
    assert api.get(path("nodes", "other@node", *rest)).status_code == 404


@pytest.mark.parametrize("rest", [(), ("source",)])
def test_logins_of_another_node_are_not_found(api: httpx.Client, rest: tuple[str, ...]) -> None:
    for name, read, deleted in ((name_of(api), 200, 204), ("other@node", 404, 404)):
        asked = path("auth", "attempts", name, *rest)
        assert api.get(asked).status_code == read
        assert api.delete(asked).status_code == deleted


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_a_queue_with_copies_tells_where_they_are(api: httpx.Client, kind: str) -> None:
    queue = path("queues", VHOST, f"copies-{kind}")
    api.put(queue, json={"durable": True, "arguments": {"x-queue-type": kind}})
    row = api.get(queue).json()
    if kind == "classic":
        assert row.keys().isdisjoint({"leader", "members", "online"})
    else:
        assert row["leader"] == name_of(api)
        assert row["members"] == row["online"] == [row["leader"]]
    assert api.get(queue, params={"columns": "members"}).json().keys() <= {"members"}
    assert api.delete(queue).status_code == 204


def test_garbage_is_collected_on_request(api: httpx.Client) -> None:
    name = name_of(api)
    before = api.get(path("nodes", "gc_stats")).json()
    for where in (path("nodes", "gc_collect"), path("nodes", name, "gc_collect")):
        assert api.post(where).status_code == 204
    after = api.get(path("nodes", "gc_stats")).json()
    assert after["gc_num"] >= before["gc_num"] + 2
    assert api.post(path("nodes", "other", "gc_collect")).status_code == 404


def test_queues_are_rebalanced_on_one_node(api: httpx.Client) -> None:
    answer = api.post(path("rebalance", "queues"), json={})
    assert (answer.status_code, answer.content) == (204, b"")
    assert api.post(path("rebalance", "queues")).status_code == 204
    assert api.get(path("rebalance", "queues")).status_code == 405
