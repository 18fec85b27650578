"""What the API answers when a request is wrong: status, word and reason."""

from typing import Any

import httpx
import pytest

from broker.settings.bounds import BODY_VALUES_MAX, ROW_BYTES_MAX
from tests.api.conftest import VHOST, path


@pytest.mark.parametrize(
    "where",
    [
        "/api/",
        "/api/nothing",
        "/api/queues/a/b/c",
        "/api/queues/%2F//",
        "/api/overview%2F",
        "/api/vhosts//",
        "/api/bindings/%2F/e/amq.direct/x/q",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_path_that_names_nothing_is_not_found(api: httpx.Client, where: str, method: str) -> None:
    answer = api.request(method, where)
    assert answer.status_code in (404, 405)
    if answer.status_code == 404:
        assert answer.json() == {"error": "Object Not Found", "reason": "Not Found"}


@pytest.mark.parametrize("where", ["/api/whoami", "/api/queues/%2F", "/api/healthchecks/node"])
def test_a_slash_at_the_end_of_a_path_changes_nothing(api: httpx.Client, where: str) -> None:
    assert api.get(where + "/").json() == api.get(where).json()
    assert api.get(where + "//").status_code == 404


@pytest.mark.parametrize(
    ("where", "word"),
    [
        (path("queues", VHOST, "missing"), "not_found"),
        (path("queues", "no such vhost"), None),
        (path("queues", "no such vhost", "q"), None),
        (path("exchanges", VHOST, "missing"), "not_found"),
        (path("vhosts", "missing"), None),
        (path("users", "missing"), None),
        (path("users", "missing", "permissions"), None),
        (path("permissions", VHOST, "missing"), None),
        (path("connections", "missing"), None),
        (path("channels", "missing"), None),
        (path("nodes", "missing"), None),
        (path("bindings", VHOST, "e", "amq.direct", "q", "missing"), None),
        (path("policies", VHOST, "missing"), None),
        (path("global-parameters", "missing"), None),
    ],
)
def test_an_object_that_is_missing_is_not_found(
    api: httpx.Client, where: str, word: str | None
) -> None:
    answer = api.get(where)
    assert answer.status_code == 404, answer.text
    assert set(answer.json()) == {"error", "reason"}
    if word:
        assert answer.json()["error"] == word


@pytest.mark.parametrize(
    ("method", "where"),
    [
        ("DELETE", path("queues", VHOST, "missing")),
        ("DELETE", path("exchanges", VHOST, "missing")),
        ("DELETE", path("vhosts", "missing")),
        ("DELETE", path("users", "missing")),
        ("DELETE", path("permissions", VHOST, "missing")),
        ("DELETE", path("connections", "missing")),
        ("DELETE", path("bindings", VHOST, "e", "amq.direct", "q", "missing", "key")),
        ("PUT", path("queues", "no such vhost", "q")),
        ("PUT", path("exchanges", "no such vhost", "x")),
    ],
)
def test_what_is_missing_cannot_be_changed(api: httpx.Client, method: str, where: str) -> None:
    answer = api.request(method, where, json={})
    assert answer.status_code == 404, answer.text


@pytest.mark.parametrize(
    ("where", "methods"),
    [
        ("/api/overview", ["PUT", "POST", "DELETE", "PATCH"]),
        (path("queues", VHOST), ["PUT", "POST", "DELETE"]),
        (path("queues", VHOST, "q"), ["POST", "PATCH"]),
    ],
)
def test_a_method_that_a_path_does_not_know_gets_405_and_no_body(
    api: httpx.Client, where: str, methods: list[str]
) -> None:
    for method in methods:
        answer = api.request(method, where)
        assert (answer.status_code, answer.content) == (405, b"")
        assert "GET" in answer.headers["Allow"]


def test_options_need_no_credentials(anonymous: httpx.Client) -> None:
    answer = anonymous.options("/api/queues")
    assert answer.status_code == 200
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_head_is_get_without_the_body(api: httpx.Client) -> None:
    got, head = api.get("/api/whoami"), api.head("/api/whoami")
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["Content-Length"] == got.headers["Content-Length"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"5",
        b'"text"',
        b"null",
        b"{'durable': true}",
        b"\xff\xfe",
        b'{"arguments": {"x": NaN}}',
        b'{"arguments": {"x": 9223372036854775808}}',
        b'{"arguments": {"x": "\\ud800"}}',
        b'{"arguments": ' + b'{"a":' * 100 + b"1" + b"}" * 101,
        b'{"arguments": ' + b"[" * 100_000,
        b'{"durable": "yes please"}',
        b'{"durable": 1}',
        b'{"auto_delete": null}',
        b'{"arguments": [1]}',
        b'{"arguments": "x"}',
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_a_body_that_cannot_be_read_is_a_bad_request(api: httpx.Client, body: bytes) -> None:
    where = path("queues", VHOST, "never declared")
    answer = api.put(where, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"] == "bad_request"
    assert isinstance(answer.json()["reason"], str)
    assert api.get(where).status_code == 404


def test_a_body_that_is_too_long_is_refused_before_it_is_read(api: httpx.Client) -> None:
    where = path("queues", VHOST, "never declared")
    limit = ROW_BYTES_MAX
    refused = {"error": "bad_request", "reason": "Exceeded HTTP request body size limit"}
    announced = api.put(where, content=b" " * (limit + 1))
    assert (announced.status_code, announced.json()) == (400, refused)

    def pieces() -> Any:
        for _ in range(9):
            yield b" " * (limit // 8)

    streamed = api.put(where, content=pieces())
    assert (streamed.status_code, streamed.json()) == (400, refused)
    assert api.get(where).status_code == 404
    just_fits = b"{}" + b" " * (limit - 2)
    assert api.put(where, content=just_fits).status_code == 201
    assert api.delete(where).status_code == 204


def test_a_message_or_a_document_may_be_longer_than_what_declares_something(
    api: httpx.Client,
) -> None:
    limit = 10 * 1024 * 1024
    body = {"properties": {}, "routing_key": "none", "payload_encoding": "string"}
    where = path("exchanges", VHOST, "amq.default", "publish")
    assert api.post(where, json={**body, "payload": "x" * (limit - 1000)}).status_code == 200
    assert api.post(where, json={**body, "payload": "x" * limit}).status_code == 400
    document = b"{}" + b" " * (limit - 2)
    for where in ("/api/definitions", "/api/all-configuration"):
        assert api.post(where, content=document).status_code == 204
        assert api.post(where, content=document + b" ").status_code == 400


def test_a_body_of_very_many_values_is_refused_before_it_is_decoded(api: httpx.Client) -> None:
    where = path("queues", VHOST, "never declared")
    keys = ",".join(f'"x-{number}": {number}' for number in range(BODY_VALUES_MAX + 1))
    items = "1," * BODY_VALUES_MAX + "1"
    for body in (f'{{"arguments": {{{keys}}}}}', f"{{{keys}}}", f'{{"x": [{items}]}}'):
        answer = api.put(where, content=body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["reason"] == f"too_wide: the body has over {BODY_VALUES_MAX} values"
    assert api.get(where).status_code == 404


def test_a_message_may_have_any_number_of_commas(api: httpx.Client) -> None:
    payload = "," * 3 * BODY_VALUES_MAX
    body = {"properties": {}, "routing_key": "none", "payload_encoding": "string"}
    answer = api.post(
        path("exchanges", VHOST, "amq.default", "publish"), json=body | {"payload": payload}
    )
    assert (answer.status_code, answer.json()) == (200, {"routed": False})


@pytest.mark.parametrize("body", [b"", b"  ", b"{}", b'{"node": "x", "unknown": [1]}'])
def test_an_empty_body_and_unknown_keys_are_fine(api: httpx.Client, body: bytes) -> None:
    where = path("queues", VHOST, "declared")
    assert api.put(where, content=body).status_code == 201
    found = api.get(where).json()
    assert (found["durable"], found["auto_delete"], found["arguments"]) == (False, False, {})
    assert api.delete(where).status_code == 204


@pytest.mark.parametrize("second", [{"durable": False}, {"durable": True, "auto_delete": True}])
def test_another_declaration_of_the_same_name_is_refused(
    api: httpx.Client, second: dict[str, Any]
) -> None:
    where = path("queues", VHOST, "inequivalent")
    api.put(where, json={"durable": True}).raise_for_status()
    answer = api.put(where, json=second)
    assert answer.status_code == 400
    assert "inequivalent arg" in answer.json()["reason"]
    api.delete(where).raise_for_status()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"type": "nonsense"}, "nonsense"),
        ({"type": 5}, "type"),
        ({"durable": "maybe"}, "durable"),
    ],
)
def test_a_wrong_exchange_is_refused_by_what_is_wrong(
    api: httpx.Client, body: dict[str, Any], says: str
) -> None:
    answer = api.put(path("exchanges", VHOST, "wrong"), json=body)
    assert answer.status_code == 400
    assert says in answer.json()["reason"]


def test_reserved_names_are_refused(api: httpx.Client) -> None:
    for noun in ("queues", "exchanges"):
        answer = api.put(path(noun, VHOST, "amq.mine"), json={})
        assert answer.status_code in (400, 401)
        assert "amq." in answer.json()["reason"]
    assert api.delete(path("exchanges", VHOST, "amq.direct")).status_code in (400, 401)
    assert api.get(path("exchanges", VHOST, "amq.direct")).status_code == 200


@pytest.mark.parametrize(
    ("where", "body", "says"),
    [
        (path("users", "u"), {"password": "x"}, "tags"),
        (path("users", "u"), {"tags": 5}, "tags"),
        (path("permissions", VHOST, "api-none"), {"configure": "", "write": ""}, "read"),
        (
            path("permissions", VHOST, "api-none"),
            {"configure": "(", "write": "", "read": ""},
            "",
        ),
        (
            path("permissions", "missing", "api-none"),
            {"configure": "", "write": "", "read": ""},
            "",
        ),
        (
            path("permissions", VHOST, "missing"),
            {"configure": "", "write": "", "read": ""},
            "",
        ),
        (path("vhost-limits", VHOST, "max-queues"), {"value": "x"}, "value"),
        (path("vhost-limits", VHOST, "max-queues"), {}, "value"),
        (path("vhost-limits", VHOST, "max-nonsense"), {"value": 1}, ""),
    ],
)
def test_wrong_administration_is_refused_by_what_is_wrong(
    api: httpx.Client, where: str, body: dict[str, Any], says: str
) -> None:
    answer = api.put(where, json=body)
    assert answer.status_code == 400, answer.text
    assert says in str(answer.json()["reason"])


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(
    ("kind", "where", "body"),
    [
        ("queues", "odd", {"arguments": {"k" * 256: 1}}),
        ("queues", "odd", {"arguments": {"wide": [2**63]}}),
        ("exchanges", "odd", {"type": "direct", "arguments": {"k" * 256: 1}}),
    ],
)
def test_arguments_that_amqp_has_no_form_for_are_refused(
    api: httpx.Client, kind: str, where: str, body: dict[str, Any], durable: bool
) -> None:
    answer = api.put(path(kind, VHOST, where), json={**body, "durable": durable})
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    assert api.get(path(kind, VHOST, where)).status_code == 404


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(
    "body", [{"routing_key": "k" * 256}, {"routing_key": "k", "arguments": {"k" * 256: 1}}]
)
def test_a_binding_that_amqp_has_no_form_for_is_refused(
    api: httpx.Client, body: dict[str, Any], durable: bool
) -> None:
    name = f"bound-{durable}"
    assert api.put(path("queues", VHOST, name), json={"durable": durable}).status_code in (201, 204)
    answer = api.post(path("bindings", VHOST, "e", "amq.topic", "q", name), json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    rows = api.get(path("bindings", VHOST, "e", "amq.topic", "q", name)).json()
    assert rows == []


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**40])
def test_a_number_of_a_path_or_a_query_that_does_not_fit_is_a_bad_request(
    api: httpx.Client, number: int
) -> None:
    api.put(path("queues", VHOST, "numbers"), json={}).raise_for_status()
    for where, name in (
        (path("queues", VHOST, "numbers", "unacked"), "count"),
        (path("problems"), "page"),
        (path("problems"), "page_size"),
    ):
        answer = api.get(where, params={name: number})
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"] == "bad_request"
