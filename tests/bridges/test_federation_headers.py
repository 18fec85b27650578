"""The headers of federated messages, and how far messages and bindings go."""

from __future__ import annotations

from typing import Any

import pytest

from broker.client.properties import decode, encode
from broker.schema.hops import has_seen, hops_of, may_forward
from management.bridges.federation_headers import ExchangeHeaders, QueueHeaders, UserId

KEEPS_ALL = UserId("guest", trusts=True, impersonates=True)


def of_exchange(user_id: UserId = KEEPS_ALL, max_hops: int = 1) -> ExchangeHeaders:
    passed = {"uri": "amqp://up/", "exchange": "x", "cluster-name": "up", "vhost": "/"}
    return ExchangeHeaders(passed, user_id, max_hops=max_hops, cluster="here", vhost="/")


def received(*clusters: str) -> list[dict[str, Any]]:
    return [{"cluster-name": cluster, "vhost": "/"} for cluster in clusters]


def test_each_link_writes_itself_in_front() -> None:
    listed = encode({"app_id": "a", "headers": {"own": 1, "x-received-from": received("b")}})
    changed = of_exchange(max_hops=2)(listed, False)
    assert changed is not None
    properties = decode(changed)
    assert properties["app_id"] == "a"
    assert properties["headers"]["own"] == 1
    first, second = properties["headers"]["x-received-from"]
    assert (first["uri"], first["exchange"], first["cluster-name"]) == ("amqp://up/", "x", "up")
    assert (first["vhost"], first["redelivered"]) == ("/", False)
    assert second == received("b")[0]


def test_it_says_what_the_upstream_had_delivered_before() -> None:
    changed = of_exchange()(encode({}), True)
    assert changed is not None
    assert decode(changed)["headers"]["x-received-from"][0]["redelivered"] is True


@pytest.mark.parametrize(
    ("passed", "max_hops", "goes"),
    [
        ([], 1, True),
        (received("a"), 1, False),
        (received("a"), 2, True),
        (received("here"), 9, False),
        ([{"cluster-name": "here", "vhost": "other"}], 9, True),
        ([{"cluster-name": "here"}], 9, False),
        ("no list", 1, True),
        ([1, "two"], 9, True),
    ],
)
def test_a_message_goes_so_far_and_nowhere_twice(passed: Any, max_hops: int, goes: bool) -> None:
    assert may_forward({"x-received-from": passed}, max_hops, "here", "/") is goes
    listed = encode({"headers": {"x-received-from": passed}})
    assert (of_exchange(max_hops=max_hops)(listed, False) is not None) is goes


@pytest.mark.parametrize(
    ("bound", "max_hops", "expected"),
    [
        ({}, 3, 3),
        ({"x-bound-from": [{"cluster-name": "b", "vhost": "/", "hops": 2}]}, 3, 1),
        ({"x-bound-from": [{"cluster-name": "b", "vhost": "/", "hops": 9}]}, 3, 3),
        ({"x-bound-from": [{"cluster-name": "b", "vhost": "/", "hops": 1}]}, 3, 0),
        ({"x-bound-from": [{"cluster-name": "up", "vhost": "/", "hops": 9}]}, 3, 0),
        ({"x-bound-from": "no list"}, 3, 3),
        ({"x-bound-from": [{"hops": "many"}]}, 3, 0),
    ],
)
def test_a_binding_goes_as_far_as_messages_come(
    bound: dict[str, Any], max_hops: int, expected: int
) -> None:
    assert hops_of(bound, max_hops, "up", "/") == expected


def test_a_broker_without_a_name_was_never_seen() -> None:
    assert not has_seen([{"vhost": "/"}], None, "/")


@pytest.mark.parametrize(
    ("user_id", "sent", "kept"),
    [
        (UserId("guest", trusts=False, impersonates=True), "guest", None),
        (UserId("guest", trusts=True, impersonates=False), "guest", "guest"),
        (UserId("guest", trusts=True, impersonates=False), "other", None),
        (UserId("guest", trusts=True, impersonates=True), "other", "other"),
    ],
)
def test_a_user_id_stays_where_it_is_trusted_and_allowed(
    user_id: UserId, sent: str, kept: str | None
) -> None:
    changed = of_exchange(user_id)(encode({"user_id": sent, "app_id": "a"}), False)
    assert changed is not None
    properties = decode(changed)
    assert properties.get("user_id") == kept
    assert properties["app_id"] == "a"


def of_queue() -> QueueHeaders:
    return QueueHeaders({"uri": "amqp://up/", "queue": "q"}, KEEPS_ALL)


def test_the_first_link_of_a_queue_keeps_exchange_key_and_copies() -> None:
    changed = of_queue()(encode({"headers": {"CC": ["more"]}}), False, b"x", b"k")
    headers = decode(changed)["headers"]
    assert (headers["x-original-exchange"], headers["x-original-routing-key"]) == ("x", "k")
    assert headers["x-original-cc"] == ["more"]
    assert "CC" not in headers, "it would be routed by them again"
    (passed,) = headers["x-received-from"]
    assert passed == {
        "uri": "amqp://up/", "queue": "q", "redelivered": False, "visit-count": 1,
    }  # fmt: skip


def test_a_message_that_comes_again_counts_its_visits() -> None:
    first = of_queue()(encode({}), False, b"x", b"k")
    other = QueueHeaders({"uri": "amqp://other/", "queue": "q"}, KEEPS_ALL)
    again = of_queue()(other(first, False, b"", b"q"), True, b"", b"q")
    headers = decode(again)["headers"]
    assert headers["x-original-exchange"] == "x"
    one, two = headers["x-received-from"]
    assert (one["uri"], one["visit-count"], one["redelivered"]) == ("amqp://up/", 2, True)
    assert (two["uri"], two["visit-count"]) == ("amqp://other/", 1)
