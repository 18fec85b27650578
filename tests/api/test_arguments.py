"""Every argument and policy key with values that it does not take, over HTTP: refused as over AMQP,
and nothing is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.amqp import bad_values
from tests.amqp.field_tables import Typed
from tests.api.conftest import VHOST, path
from tests.control import policy_values

# Two of each key: all of them are tried in tests/control/test_policies.py.
POLICY = {name: (values[0], values[-1]) for name, values in policy_values.BAD.items() if values}
# Refused with the body: JSON numbers have 64 bits.
TOO_WIDE = 2**63


def written(rows: bad_values.Bad) -> dict[str, list[tuple[Any, str]]]:
    """The rows of a table without what JSON has no form for."""
    return {
        name: [(value, text) for value, text in values if not isinstance(value, Typed)]
        for name, values in rows.items()
    }


QUEUE = written(bad_values.QUEUE)
EXCHANGE = written(bad_values.EXCHANGE)
BINDING = written(bad_values.BINDING)


def refused(answer: httpx.Response, text: str) -> None:
    """The answer is a bad request whose reason has this text."""
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"] == "bad_request"
    assert text in answer.json()["reason"]


@pytest.mark.parametrize("argument", QUEUE)
def test_it_refuses_a_queue_argument(api: httpx.Client, argument: str) -> None:
    where = path("queues", VHOST, "bad-argument")
    given = {"x-queue-type": kind} if (kind := bad_values.QUEUE_TYPE.get(argument)) else {}
    for value, text in QUEUE[argument]:
        body = {"durable": True, "arguments": {**given, argument: value}}
        answer = api.put(where, json=body)
        refused(answer, text)
        assert argument in answer.json()["reason"]
    assert api.get(where).status_code == 404


@pytest.mark.parametrize("argument", EXCHANGE)
def test_it_refuses_an_exchange_argument(api: httpx.Client, argument: str) -> None:
    where = path("exchanges", VHOST, "bad-argument")
    type_ = bad_values.EXCHANGE_TYPE.get(argument, "direct")
    for value, text in EXCHANGE[argument]:
        refused(api.put(where, json={"type": type_, "arguments": {argument: value}}), text)
    assert api.get(where).status_code == 404


@pytest.mark.parametrize("argument", BINDING)
def test_it_refuses_a_binding_argument(api: httpx.Client, argument: str) -> None:
    queue = path("queues", VHOST, "badly-bound")
    api.put(queue, json={}).raise_for_status()
    where = path("bindings", VHOST, "e", "amq.headers", "q", "badly-bound")
    for value, text in BINDING[argument]:
        refused(api.post(where, json={"routing_key": "", "arguments": {argument: value}}), text)
    assert api.get(where).json() == []
    api.delete(queue).raise_for_status()


@pytest.fixture
def bad_policy(api: httpx.Client) -> Iterator[str]:
    """Where a policy would be; it is not there afterwards."""
    where = path("policies", VHOST, "bad-value")
    yield where
    assert api.get(where).status_code == 404


@pytest.mark.parametrize("key", POLICY)
def test_it_refuses_a_value_of_a_policy(api: httpx.Client, bad_policy: str, key: str) -> None:
    for value in POLICY[key]:
        body = {"pattern": "^nothing$", "definition": {key: value}}
        refused(api.put(bad_policy, json=body), "" if value == TOO_WIDE else "is not a valid")
