"""Policies, operator policies and parameters over HTTP, as RabbitMQ's tools use them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.conftest import VHOST, path

POLICY = path("policies", VHOST, "limits/%2F é")
OPERATOR = path("operator-policies", VHOST, "limits/%2F é")
DEFINITION = {"max-length": 7, "message-ttl": 60_000, "overflow": "reject-publish"}
BODY = {"pattern": "^policed", "apply-to": "queues", "priority": 3, "definition": DEFINITION}


@pytest.fixture(autouse=True)
def nothing_left(api: httpx.Client) -> Iterator[None]:
    yield
    for kind in ("policies", "operator-policies"):
        for row in api.get(path(kind, VHOST)).json():
            api.delete(path(kind, VHOST, row["name"])).raise_for_status()


@pytest.mark.parametrize("where", [POLICY, OPERATOR])
def test_a_policy_is_made_changed_and_removed(api: httpx.Client, where: str) -> None:
    assert api.get(where).status_code == 404
    body = {**BODY, "definition": {"max-length": 7}}
    assert api.put(where, json=body).status_code == 201
    assert api.put(where, json={**body, "priority": 4}).status_code == 204
    row = api.get(where).json()
    wanted = {**body, "priority": 4, "vhost": VHOST, "name": "limits/%2F é"}
    assert {key: row[key] for key in wanted} == wanted
    kind = where.split("/")[2]
    assert api.get(path(kind, VHOST)).json() == [row]
    assert row in api.get(path(kind)).json()
    assert api.delete(where).status_code == 204
    assert api.delete(where).status_code == 404
    assert api.get(where).json() == {"error": "not_found", "reason": "Not Found"}


def test_what_is_left_out_is_rabbitmqs_default(api: httpx.Client) -> None:
    plain = {"pattern": ".*", "definition": {"max-length": 7}}
    for more in ({}, {"priority": None, "apply-to": None}, {"name": "x", "vhost": "y"}):
        assert api.put(POLICY, json={**plain, **more}).is_success
        row = api.get(POLICY).json()
        assert (row["priority"], row["apply-to"]) == (0, "all")


def test_a_queue_shows_what_it_is_under(api: httpx.Client) -> None:
    queue = path("queues", VHOST, "policed")
    body = {"arguments": {"x-max-length": 9}}
    assert api.put(queue, json=body).is_success
    api.put(POLICY, json=BODY).raise_for_status()
    bound = {"pattern": "policed", "definition": {"max-length": 5, "expires": 9_999_999}}
    api.put(OPERATOR, json=bound).raise_for_status()
    row = api.get(queue).json()
    assert row["policy"] == row["operator_policy"] == "limits/%2F é"
    effective = {**DEFINITION, "max-length": 5, "expires": 9_999_999}
    assert row["effective_policy_definition"] == effective
    assert row["effective_arguments"] == []
    assert set(row["effective_policy_arguments"]) == set(effective)
    (listed,) = [one for one in api.get(path("queues", VHOST)).json() if one["name"] == "policed"]
    assert listed["effective_policy_definition"] == effective
    assert api.get(POLICY).json()["queues"] == 1
    api.delete(POLICY).raise_for_status()
    assert api.get(queue).json()["policy"] is None
    api.delete(queue).raise_for_status()
    assert api.get(OPERATOR).json()["queues"] == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"definition": {"max-length": "7"}},
            'Validation failed\n\n<<"7">> is not a valid maximum length\n',
        ),
        (
            {"definition": {"colour": "red"}},
            'Validation failed\n\n[{<<"colour">>,<<"red">>}] are not recognised policy settings\n',
        ),
        ({"definition": {}}, "Validation failed\n\nno policy provided\n"),
        ({"definition": []}, "Validation failed\n\nno policy provided\n"),
        ({"definition": "max-length"}, "definition: not_object"),
        ({"pattern": 5}, "pattern: not_string"),
        ({"priority": "high"}, "priority: not_integer"),
    ],
)
def test_a_wrong_policy_is_refused_in_rabbitmqs_words(
    api: httpx.Client, change: dict[str, Any], reason: str
) -> None:
    answer = api.put(POLICY, json={**BODY, **change})
    assert answer.status_code == 400, answer.text
    assert answer.json() == {"error": "bad_request", "reason": reason}
    assert api.get(POLICY).status_code == 404


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"pattern": "("}, "pattern should be regular expression but is invalid: "),
        ({"apply-to": "cats"}, "apply-to 'cats' unrecognised"),
        ({"priority": 2**40}, "priority should be a number"),
    ],
)
def test_a_policy_that_fits_nothing_is_refused(
    api: httpx.Client, change: dict[str, Any], part: str
) -> None:
    answer = api.put(POLICY, json={**BODY, **change})
    assert answer.status_code == 400, answer.text
    assert answer.json()["reason"].startswith(f"Validation failed\n\n{part}")


@pytest.mark.parametrize("missing", ["pattern", "definition"])
def test_pattern_and_definition_are_mandatory(api: httpx.Client, missing: str) -> None:
    body = {key: value for key, value in BODY.items() if key != missing}
    answer = api.put(POLICY, json=body)
    assert (answer.status_code, answer.json()["reason"]) == (400, f"key_missing: {missing}")


def test_an_operator_policy_sets_bounds_only(api: httpx.Client) -> None:
    answer = api.put(OPERATOR, json={**BODY, "definition": {"dead-letter-exchange": "x"}})
    assert answer.status_code == 400
    assert "are not recognised policy settings" in answer.json()["reason"]


def test_a_policymaker_needs_the_vhost(api: httpx.Client, clients: dict[str, httpx.Client]) -> None:
    api.put(path("vhosts", "api-unseen"), json={}).raise_for_status()
    answer = clients["policymaker"].put(path("policies", "api-unseen", "p"), json=BODY)
    assert answer.status_code == 401
    assert api.put(path("policies", "api-missing", "p"), json=BODY).status_code == 404
    api.delete(path("vhosts", "api-unseen")).raise_for_status()


def test_policies_travel_with_definitions(api: httpx.Client) -> None:
    api.put(POLICY, json=BODY).raise_for_status()
    api.put(OPERATOR, json={"pattern": "", "definition": {"expires": 5_000}}).raise_for_status()
    whole = api.get("/api/definitions").json()
    one = api.get(path("definitions", VHOST)).json()
    row = {**BODY, "vhost": VHOST, "name": "limits/%2F é"}
    assert row in whole["policies"]
    del row["vhost"]
    assert one["policies"] == [row]
    (operator,) = [each for each in one["parameters"] if each["component"] == "operator_policy"]
    assert operator == {
        "component": "operator_policy",
        "name": "limits/%2F é",
        "value": {
            "pattern": "",
            "apply-to": "all",
            "definition": {"expires": 5_000},
            "priority": 0,
        },
    }
    for where in (POLICY, OPERATOR):
        api.delete(where).raise_for_status()
    assert api.post(path("definitions", VHOST), json=one).status_code == 204
    for where in (POLICY, OPERATOR):
        assert api.get(where).is_success
    assert api.get(path("definitions", VHOST)).json()["policies"] == one["policies"]


def test_limits_of_a_vhost_are_a_parameter_too(api: httpx.Client) -> None:
    where = path("parameters", "vhost-limits", VHOST, "limits")
    assert api.put(where, json={"value": {"max-queues": 777}}).status_code == 201
    assert api.put(where, json={"value": {"max-queues": 778}}).status_code == 204
    assert api.get(where).json()["value"] == {"max-queues": 778}
    (limits,) = api.get(path("vhost-limits", VHOST)).json()
    assert limits["value"] == {"max-queues": 778}
    assert api.delete(where).status_code == 204
    assert api.get(path("vhost-limits", VHOST)).json() == []
    answer = api.put(path("parameters", "colour", VHOST, "x"), json={"value": 1})
    reason = "Validation failed\n\ncomponent colour not found\n"
    assert (answer.status_code, answer.json()["reason"]) == (400, reason)
