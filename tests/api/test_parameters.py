"""Parameters of components: shovels, federation upstreams and their sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.conftest import VHOST, path

SHOVEL = {
    "src-uri": "amqp://ann:s3cret@localhost:1/v%2F2?heartbeat=5",
    "dest-uri": ["amqp://", "amqps://bob:two@localhost:1"],
    "src-queue": "a",
    "dest-queue": "b",
}
WHERE = path("parameters", "shovel", VHOST, "s1")


@pytest.fixture
def shovel(api: httpx.Client) -> Iterator[None]:
    assert api.put(WHERE, json={"value": SHOVEL}).status_code == 201
    yield
    api.delete(WHERE)


def test_a_shovel_is_stored_listed_and_removed(api: httpx.Client, shovel: None) -> None:
    assert api.put(WHERE, json={"value": SHOVEL}).status_code == 204
    (row,) = api.get(path("parameters", "shovel", VHOST)).json()
    assert (row["component"], row["vhost"], row["name"]) == ("shovel", VHOST, "s1")
    assert row in api.get("/api/parameters").json()
    (shown,) = api.get(path("shovels", VHOST)).json()
    assert (shown["name"], shown["vhost"], shown["owner"]) == ("s1", VHOST, "api-administrator")
    assert "s3cret" not in str(shown)
    assert api.delete(WHERE).status_code == 204
    assert api.get(WHERE).status_code == 404
    assert api.delete(WHERE).status_code == 404


def test_secrets_are_shown_only_to_an_administrator_who_asks(
    api: httpx.Client, clients: dict[str, httpx.Client], shovel: None
) -> None:
    shown = api.get(WHERE).json()["value"]
    assert shown["src-uri"] == "amqp://ann@localhost:1/v%2F2?heartbeat=5"
    assert shown["dest-uri"] == ["amqp://", "amqps://bob@localhost:1"]
    assert api.get(WHERE, params={"secrets": "true"}).json()["value"] == SHOVEL
    for client in (api, clients["policymaker"]):
        assert "s3cret" not in client.get("/api/parameters").text
    for where in (WHERE, "/api/parameters", "/api/global-parameters"):
        refused = clients["policymaker"].get(where, params={"secrets": "true"})
        assert refused.status_code == 401
        assert refused.json()["reason"] == "Not administrator user"


def test_parameters_of_other_vhosts_are_hidden_from_a_policymaker(
    api: httpx.Client, clients: dict[str, httpx.Client], shovel: None
) -> None:
    api.put(path("vhosts", "api-secret"), json={}).raise_for_status()
    other = path("parameters", "shovel", "api-secret", "s2")
    api.put(other, json={"value": SHOVEL}).raise_for_status()
    rows = clients["policymaker"].get("/api/parameters").json()
    assert {row["vhost"] for row in rows} == {VHOST}
    assert clients["policymaker"].get(other).status_code == 401
    assert clients["policymaker"].get(path("parameters", "shovel", "api-secret")).status_code == 401
    api.delete(path("vhosts", "api-secret")).raise_for_status()
    assert {row["vhost"] for row in api.get("/api/parameters/shovel").json()} == {VHOST}


@pytest.mark.parametrize(
    ("component", "value", "problem"),
    [
        ("shovel", {"src-uri": "amqp://"}, 'Key "dest-uri" not found in p'),
        ("shovel", [], "p should be an object"),
        ("federation-upstream", {"uri": 7}, "uri of p should be a URI or a list of URIs"),
        ("federation-upstream", {}, 'Key "uri" not found in p'),
        ("federation-upstream", {"uri": "http://x"}, "the scheme is amqp or amqps, not 'http'"),
        (
            "federation-upstream",
            {"uri": "amqp://x", "max-hop": 1},
            'Unrecognised terms [{<<"max-hop">>,1}] in p',
        ),
        (
            "federation-upstream",
            {"uri": "amqp://x", "prefetch-count": "many"},
            'prefetch-count should be a number, actually was <<"many">>',
        ),
        ("federation-upstream-set", [{"name": "x"}], "should be a list of objects"),
        (
            "federation-upstream-set",
            [{"upstream": "x", "uri": "amqp://x"}],
            'Unrecognised terms [{<<"uri">>,<<"amqp://x">>}] in p',
        ),
    ],
)
def test_a_parameter_that_no_broker_could_run_is_refused(
    api: httpx.Client, component: str, value: Any, problem: str
) -> None:
    answer = api.put(path("parameters", component, VHOST, "p"), json={"value": value})
    assert answer.status_code == 400
    assert problem in answer.json()["reason"]
