"""Lists: pages, filters, order, columns, and what an object's row holds."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.conftest import VHOST, path
from tests.appliance import Appliance
from tests.hostile.figures import cpu_seconds

LIST = path("queues", "api-lists")
COUNT = 25


@pytest.fixture(scope="module", autouse=True)
def queues(clients: dict[str, httpx.Client]) -> None:
    admin = clients["administrator"]
    admin.put(path("vhosts", "api-lists"), json={}).raise_for_status()
    for number in range(COUNT):
        where = path("queues", "api-lists", f"q.{number:02}")
        admin.put(where, json={"durable": number % 2 == 0}).raise_for_status()


def page(api: httpx.Client, **parameters: Any) -> httpx.Response:
    return api.get(LIST, params=parameters)


def names(answer: httpx.Response) -> list[str]:
    body = answer.json()
    return [row["name"] for row in (body["items"] if isinstance(body, dict) else body)]


def test_without_a_page_the_answer_is_a_bare_list(api: httpx.Client) -> None:
    answer = api.get(LIST)
    assert isinstance(answer.json(), list)
    assert len(answer.json()) == COUNT
    assert names(api.get(LIST, params={"pagination": "false"})) == names(answer)


def test_a_page_says_where_it_is(api: httpx.Client) -> None:
    body = page(api, page=2, page_size=10).json()
    assert [row["name"] for row in body.pop("items")] == [f"q.{n:02}" for n in range(10, 20)]
    assert body == {
        "page": 2,
        "page_count": 3,
        "page_size": 10,
        "item_count": 10,
        "filtered_count": COUNT,
        "total_count": COUNT,
    }


def test_the_pages_together_are_the_list(api: httpx.Client) -> None:
    together = [name for number in (1, 2, 3) for name in names(page(api, page=number, page_size=9))]
    assert together == [f"q.{number:02}" for number in range(COUNT)]


def test_a_page_holds_100_rows_unless_told_otherwise(api: httpx.Client) -> None:
    assert page(api, page=1).json()["page_size"] == 100


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"page": 0}, "invalid_pagination_parameters"),
        ({"page": 1, "page_size": 501}, "invalid_pagination_parameters"),
        ({"page": 4, "page_size": 10}, "page_out_of_range"),
        ({"page": "x"}, None),
        ({"page": -1}, None),
        ({"page": 1, "page_size": "x"}, None),
        ({"page": "1" * 30}, None),
        ({"page": 1, "name": "(", "use_regex": "true"}, None),
        ({"page": 1, "name": "(?!x)y", "use_regex": "true"}, None),
        ({"lengths_age": "x", "lengths_incr": 5}, None),
    ],
)
def test_wrong_pages_are_bad_requests(
    api: httpx.Client, parameters: dict[str, Any], word: str | None
) -> None:
    answer = page(api, **parameters)
    assert answer.status_code == 400, answer.text
    assert set(answer.json()) == {"error", "reason"}
    if word:
        assert answer.json()["error"] == word


def test_a_name_filters_by_part_or_by_pattern(api: httpx.Client) -> None:
    assert names(page(api, page=1, name="q.1")) == [f"q.{number}" for number in range(10, 20)]
    assert names(page(api, page=1, name="^q.[01]1$", use_regex="true")) == ["q.01", "q.11"]
    assert names(page(api, page=1, name="q.[01]1")) == []
    body = page(api, page=1, page_size=3, name="q.1").json()
    assert (body["filtered_count"], body["total_count"], body["page_count"]) == (10, COUNT, 4)


@pytest.fixture
def of_any_case(api: httpx.Client) -> Iterator[list[str]]:
    names = ["Orders.EU", "amq-like", "orders.us", "ÉTÉ", "été", "Straße"]
    for name in names:
        api.put(path("queues", "api-lists", name), json={}).raise_for_status()
    yield names
    for name in names:
        api.delete(path("queues", "api-lists", name)).raise_for_status()


@pytest.mark.parametrize(
    ("name", "use_regex", "found"),
    [
        ("ORDERS", "false", {"Orders.EU", "orders.us"}),
        ("Été", "false", {"ÉTÉ", "été"}),
        ("STRASSE", "false", {"Straße"}),
        ("^orders", "true", {"Orders.EU", "orders.us"}),
        ("^Orders\\.(eu|x)$", "true", {"Orders.EU"}),
        ("^ét", "true", {"ÉTÉ", "été"}),
        ("EU$|US$", "true", {"Orders.EU", "orders.us"}),
        ("^(?!Q\\.|AMQ).*S", "true", {"Orders.EU", "orders.us", "Straße"}),
        ("^(?-i:o)rders", "true", {"orders.us"}),
    ],
)
def test_a_name_is_found_without_regard_to_case(
    api: httpx.Client, of_any_case: list[str], name: str, use_regex: str, found: set[str]
) -> None:
    for _ in range(2):  # the second time from what was remembered
        assert set(names(page(api, page=1, name=name, use_regex=use_regex))) == found


def test_a_refused_expression_is_named_as_it_was_sent(api: httpx.Client) -> None:
    reason = page(api, page=1, name="abc(", use_regex="true").json()["reason"]
    assert "'abc('" in reason
    reason = page(api, page=1, name="[a-z]{300}", use_regex="true").json()["reason"]
    assert "(?i)" not in reason
    assert "steps once compiled" in reason


def test_a_pattern_takes_linear_time(api: httpx.Client, shared_leveret: Appliance) -> None:
    before = sum(map(cpu_seconds, shared_leveret.pids.values()))
    answer = page(api, page=1, name="(q+)+" * 20 + "$", use_regex="true")
    assert answer.status_code in (200, 400)
    assert sum(map(cpu_seconds, shared_leveret.pids.values())) - before < 5


def test_rows_are_sorted_by_a_key_and_unknown_keys_are_ignored(api: httpx.Client) -> None:
    backwards = names(page(api, sort="name", sort_reverse="true"))
    assert backwards == [f"q.{number:02}" for number in reversed(range(COUNT))]
    assert len(names(page(api, sort="no.such.key"))) == COUNT
    assert len(names(page(api, sort="message_stats.publish_details.rate"))) == COUNT


def test_columns_choose_keys(api: httpx.Client) -> None:
    rows = page(api, columns="name,durable,messages_details.rate,unknown").json()
    assert all({"name", "durable"} <= set(row) for row in rows)
    assert all("vhost" not in row and "unknown" not in row for row in rows)


def test_a_header_scopes_the_lists(api: httpx.Client) -> None:
    rows = api.get("/api/queues", headers={"X-Vhost": "api-lists"}).json()
    assert {row["vhost"] for row in rows} == {"api-lists"}
    assert len(rows) == COUNT


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_header_names_a_vhost_in_utf_8(api: httpx.Client, encoding: str) -> None:
    """One that is no UTF-8 is taken as Latin-1."""
    name = "läger"
    api.put(path("vhosts", name), json={}).raise_for_status()
    try:
        headers = {"X-Vhost": name.encode(encoding)}
        rows = api.get("/api/exchanges", headers=headers).json()
        assert {row["vhost"] for row in rows} == {name}
        assert api.get("/api/overview", headers=headers).status_code == 200
        assert api.get("/api/problems", headers=headers).status_code == 200
    finally:
        api.delete(path("vhosts", name)).raise_for_status()


def test_others_see_only_their_vhosts(clients: dict[str, httpx.Client], api: httpx.Client) -> None:
    for tag in ("management", "policymaker"):
        rows = clients[tag].get("/api/queues").json()
        assert "api-lists" not in {row["vhost"] for row in rows}


OBJECTS = {
    path("overview"): {
        "management_version", "rates_mode", "exchange_types", "product_version", "product_name",
        "rabbitmq_version", "cluster_name", "erlang_version", "message_stats", "churn_rates",
        "queue_totals", "object_totals", "statistics_db_event_queue", "node", "listeners",
        "contexts",
    },
    path("whoami"): {"name", "tags"},
    path("queues", "api-lists", "q.00"): {
        "name", "vhost", "durable", "auto_delete", "exclusive", "arguments", "type", "state",
        "node", "policy", "messages", "messages_ready", "messages_unacknowledged",
        "messages_details", "consumers", "consumer_details", "message_bytes", "memory",
        "exclusive_consumer_tag", "incoming", "deliveries",
    },
    path("exchanges", VHOST, "amq.topic"): {
        "name", "vhost", "type", "durable", "auto_delete", "internal", "arguments",
    },
    path("vhosts", VHOST): {
        "name", "description", "tags", "default_queue_type", "cluster_state", "messages",
        "messages_ready", "messages_unacknowledged",
    },
    path("users", "api-management"): {"name", "password_hash", "hashing_algorithm", "tags",
        "limits"},
    path("permissions", VHOST, "api-management"): {"user", "vhost", "configure", "write", "read"},
    path("definitions"): {
        "rabbit_version", "rabbitmq_version", "product_name", "product_version", "users",
        "vhosts", "permissions", "topic_permissions", "parameters", "global_parameters",
        "policies", "queues", "exchanges", "bindings",
    },
}  # fmt: skip


@pytest.mark.parametrize("where", OBJECTS)
def test_an_object_has_the_keys_clients_read(api: httpx.Client, where: str) -> None:
    body = api.get(where).json()
    assert OBJECTS[where] <= set(body), OBJECTS[where] - set(body)


def test_flower_and_keda_find_their_numbers(api: httpx.Client) -> None:
    row = api.get(path("queues", "api-lists", "q.00")).json()
    for key in ("messages", "messages_ready", "messages_unacknowledged", "consumers"):
        assert row[key] == 0
    stats = row["message_stats"]
    assert stats["publish_details"]["rate"] == stats["deliver_get_details"]["rate"] == 0.0
    asked = {"page": 1, "use_regex": "true", "pagination": "false", "name": "^q.00$"}
    assert page(api, **asked, page_size=100).json()["page_count"] == 1


def test_tools_that_branch_on_the_version_see_a_believable_one(api: httpx.Client) -> None:
    version = api.get("/api/overview").json()["rabbitmq_version"]
    assert tuple(map(int, version.split("."))) >= (3, 13, 0)


def test_the_overview_says_where_the_api_is(api: httpx.Client) -> None:
    overview = api.get("/api/overview").json()
    assert [row["port"] for row in overview["contexts"]] == [api.base_url.port]
    assert overview["contexts"][0]["node"] == overview["node"]


def test_arguments_come_back_as_the_types_they_were(api: httpx.Client) -> None:
    arguments = {"x-a": 1, "x-b": "1", "x-c": True, "x-d": 1.5, "x-e": [1, "2"], "x-f": {"g": 1}}
    where = path("queues", "api-lists", "typed")
    api.put(where, json={"arguments": arguments}).raise_for_status()
    found = api.get(where).json()["arguments"]
    assert found == arguments
    assert [type(value) for value in found.values()] == [type(v) for v in arguments.values()]
    api.delete(where).raise_for_status()


def test_definitions_go_out_and_in_again(api: httpx.Client) -> None:
    where = path("definitions", "api-lists")
    exported = api.get(where).json()
    api.delete(path("vhosts", "api-lists")).raise_for_status()
    missing = api.post(where, json=exported)
    assert missing.status_code in (400, 404), missing.text
    api.put(path("vhosts", "api-lists"), json={}).raise_for_status()
    api.post(where, json=exported).raise_for_status()
    assert api.get(where).json()["queues"] == exported["queues"]
    file = {"file": ("definitions.json", api.get(where).content, "application/json")}
    assert api.post(where, files=file).status_code == 204
    assert api.post(where, files={"other": b"x"}).status_code == 400


def test_users_come_out_with_hashes_that_let_them_in_again(api: httpx.Client, api_url: str) -> None:
    where = path("users", "api-imported")
    api.put(where, json={"password": "secret", "tags": ["management"]}).raise_for_status()
    user = next(
        u for u in api.get("/api/definitions").json()["users"] if u["name"] == "api-imported"
    )
    api.delete(where).raise_for_status()
    api.post("/api/definitions", json={"users": [user]}).raise_for_status()
    me = httpx.get(api_url + "/api/whoami", auth=("api-imported", "secret"), timeout=60)
    assert me.json()["tags"] == ["management"]
    hashed = api.get(path("auth", "hash_password", "other")).json()["ok"]
    algorithm = "rabbit_password_hashing_sha256"
    body = {"password_hash": hashed, "hashing_algorithm": algorithm, "tags": "management"}
    api.put(where, json=body).raise_for_status()
    me = httpx.get(api_url + "/api/whoami", auth=("api-imported", "other"), timeout=60)
    assert me.status_code == 200


def test_an_empty_list_has_no_page_to_count(api: httpx.Client) -> None:
    """As RabbitMQ 3.10.8 answers it."""
    body = page(api, page=1, name="none of this name").json()
    assert (body["page"], body["page_count"], body["item_count"]) == (1, 0, 0)
    assert body["filtered_count"] == 0
    assert body["total_count"] == COUNT
    answer = page(api, page=2, name="none of this name")
    assert answer.json() == {
        "error": "page_out_of_range",
        "reason": "Page out of range, page: 2 page size: 100, len: 0",
    }


@pytest.mark.parametrize("parameters", [{"page": ""}, {"page": 1, "page_size": ""}])
def test_an_empty_number_is_no_page(api: httpx.Client, parameters: dict[str, Any]) -> None:
    answer = page(api, **parameters)
    assert answer.status_code == 400
    assert answer.json()["reason"] == "Pagination parameters are invalid"


def test_a_list_without_a_sort_is_in_order_of_vhost_and_name(api: httpx.Client) -> None:
    for vhost in ("api-lists-b", "api-lists-a"):
        api.put(path("vhosts", vhost), json={}).raise_for_status()
        for name in ("c", "a", "b"):
            api.put(path("queues", vhost, name), json={}).raise_for_status()
            api.put(path("exchanges", vhost, name), json={}).raise_for_status()
        for key in ("c", "a", "b"):
            between = path("bindings", vhost, "e", "amq.topic", "q", "a")
            api.post(between, json={"routing_key": key}).raise_for_status()
    for where in ("/api/queues", "/api/exchanges"):
        for parameters in ({}, {"page": 1, "page_size": 500}):
            answer = api.get(where, params=parameters).json()
            rows = answer if isinstance(answer, list) else answer["items"]
            keys = [(row["vhost"], row["name"]) for row in rows]
            assert keys == sorted(keys)
    vhosts = [row["name"] for row in api.get("/api/vhosts").json()]
    assert vhosts == sorted(vhosts)
    bound = api.get(path("bindings", "api-lists-a", "e", "amq.topic", "q", "a")).json()
    assert [row["routing_key"] for row in bound] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("where", "column"),
    [
        (path("queues", "api-lists", "q.01"), "name"),
        (path("exchanges", "api-lists", "amq.topic"), "type"),
        (path("vhosts", "api-lists"), "tracing"),
        (path("users", "guest"), "tags"),
        (path("permissions", VHOST, "guest"), "read"),
        ("/api/overview", "node"),
        ("/api/whoami", "name"),
    ],
)
def test_columns_choose_keys_of_a_single_object(api: httpx.Client, where: str, column: str) -> None:
    whole = api.get(where).json()
    assert api.get(where, params={"columns": f"{column},nothing"}).json() == {column: whole[column]}
    assert len(whole) > 1


def test_columns_choose_inner_keys_of_a_single_object(api: httpx.Client) -> None:
    answer = api.get("/api/overview", params={"columns": "queue_totals.messages"}).json()
    assert list(answer) == ["queue_totals"]
    assert list(answer["queue_totals"]) == ["messages"]
    (node,) = api.get("/api/nodes", params={"columns": "name"}).json()
    assert list(node) == ["name"]


def test_columns_do_not_touch_the_page_around_the_rows(api: httpx.Client) -> None:
    body = page(api, page=1, columns="name").json()
    assert body["page_count"] == 1
    assert body["items"][0] == {"name": "q.00"}


def test_columns_do_not_touch_errors(api: httpx.Client) -> None:
    answer = api.get(path("queues", "api-lists", "missing"), params={"columns": "name"})
    assert set(answer.json()) == {"error", "reason"}
