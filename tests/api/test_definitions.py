"""Definitions over HTTP: statuses, the file for another broker, what is told beside it."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.amqp.raw import Client
from tests.api.conftest import VHOST, path
from tests.appliance import Appliance

QUEUE = {"name": "api-imported", "vhost": VHOST, "durable": True, "arguments": {}}
UNKNOWN = {**QUEUE, "name": "api-unknown", "arguments": {"x-queue-type": "jms"}}


def test_an_import_answers_204_or_what_it_left_out(api: httpx.Client) -> None:
    assert api.post("/api/definitions", json={"queues": [QUEUE]}).status_code == 204
    assert api.post("/api/definitions", content=b"").status_code == 204
    answer = api.post("/api/definitions", json={"queues": [QUEUE, UNKNOWN]})
    assert answer.status_code == 200
    (row,) = answer.json()["left_out"]
    assert (row["section"], row["place"], row["name"]) == ("queues", 1, "api-unknown")
    assert row["reason"] == "there is no queue type 'jms' here"
    refused = api.post("/api/definitions", json={"queues": [QUEUE, {}]})
    assert (refused.status_code, refused.json()["error"]) == (400, "bad_request")
    assert refused.json()["reason"].startswith("definitions: queues[1]: 'vhost' is missing")


def test_a_file_of_a_form_is_imported_with_its_byte_order_mark(api: httpx.Client) -> None:
    file = {"file": ("d.json", b'\xef\xbb\xbf{"queues": []}', "application/json")}
    assert api.post("/api/definitions", files=file).status_code == 204


def test_a_dry_run_changes_nothing(api: httpx.Client) -> None:
    definitions = {"queues": [{**QUEUE, "name": "api-dry"}]}
    answer = api.post("/api/definitions", json=definitions, params={"dry_run": "true"})
    assert answer.json()["difference"][0]["action"] == "create"
    assert answer.json()["counts"] == {"queues": {"created": 1, "changed": 0, "unchanged": 0}}
    assert api.get(path("queues", VHOST, "api-dry")).status_code == 404


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("rabbitmq", "rabbitmq-4"),
        ("rabbitmq-3", "rabbitmq-3"),
        ("rabbitmq-4", "rabbitmq-4"),
        ("lavinmq", "lavinmq"),
    ],
)
def test_an_export_is_for_the_broker_that_is_named(
    api: httpx.Client, given: str, named: str
) -> None:
    whole = api.get("/api/definitions").json()
    document = api.get("/api/definitions", params={"for": given})
    assert "argon2" in str(whole["users"])
    assert "argon2" not in document.text
    assert len(document.json()["users"]) == len(whole["users"])
    told = api.get("/api/definitions", params={"for": given, "dry_run": "true"}).json()
    assert told["for"] == named
    assert {"users"} <= {row["section"] for row in told["omitted"]}
    assert all(row["reason"] for row in told["omitted"])


def test_an_export_for_an_unknown_broker_is_refused(api: httpx.Client) -> None:
    answer = api.get("/api/definitions", params={"for": "activemq"})
    assert answer.status_code == 400
    assert "known are rabbitmq, rabbitmq-3, rabbitmq-4, lavinmq" in answer.json()["reason"]


def test_secrets_leave_only_where_they_are_asked_for(
    api: httpx.Client, clients: dict[str, httpx.Client]
) -> None:
    where = path("parameters", "federation-upstream", VHOST, "api-up")
    api.put(where, json={"value": {"uri": "amqp://u:s3cret@h"}}).raise_for_status()
    for document in ("/api/definitions", path("definitions", VHOST)):
        assert "s3cret" not in api.get(document).text
        assert "s3cret" in api.get(document, params={"secrets": "true"}).text
        told = api.get(document, params={"dry_run": "true"}).json()
        assert [row["name"] for row in told["omitted"] if row.get("part") == "value"] == ["api-up"]
        for tag in ("policymaker", "monitoring", "management"):
            assert clients[tag].get(document, params={"secrets": "true"}).status_code == 401
    api.delete(where).raise_for_status()


def test_a_browser_saves_it_under_a_harmless_name(api: httpx.Client) -> None:
    answer = api.get("/api/definitions", params={"download": 'a/b"\r\n.json'})
    assert answer.headers["content-disposition"] == 'attachment; filename="a_b___.json"'
    assert answer.json()["product_name"] == "Leveret"


@pytest.mark.parametrize("name", [b"caf\xe9", b"\xff"])
def test_a_name_that_json_cannot_carry_is_told_and_not_garbled(
    api: httpx.Client, shared_leveret: Appliance, name: bytes
) -> None:
    with Client.open((shared_leveret.host, shared_leveret.amqp_port)) as amqp:
        amqp.call(1, "queue.declare", queue=name, durable=True)
        document = api.get(path("definitions", "/"))
        assert "\ufffd" not in document.text
        told = api.get(path("definitions", "/"), params={"dry_run": "true"}).json()
        assert any("UTF-8" in row["reason"] for row in told["omitted"])
        amqp.call(1, "queue.delete", queue=name)


def test_the_upload_paths_of_lavinmq_import_a_form_or_json(api: httpx.Client) -> None:
    node = {"queues": [{**QUEUE, "name": "api-upload"}], "global_parameters": []}
    file = {"file": ("d.json", json.dumps(node), "application/json")}
    assert api.post("/api/definitions/upload", files=file).status_code == 204
    assert api.get(path("queues", VHOST, "api-upload")).status_code == 200
    one = {"queues": [{"name": "api-upload-2", "durable": True, "arguments": {}}]}
    assert api.post(path("definitions", VHOST, "upload"), json=one).status_code == 204
    assert api.get(path("queues", VHOST, "api-upload-2")).status_code == 200
    assert api.post("/api/definitions/missing/upload", json=one).status_code == 404


def test_a_vhost_called_upload_gets_its_own_definitions(api: httpx.Client) -> None:
    api.put(path("vhosts", "upload"), json={}).raise_for_status()
    one = {"queues": [{"name": "q", "durable": True, "arguments": {}}]}
    assert api.post("/api/definitions/upload", json=one).status_code == 204
    assert api.get(path("queues", "upload", "q")).status_code == 200
    api.delete(path("vhosts", "upload")).raise_for_status()


def test_a_form_leads_to_the_page_it_names_and_to_no_other_site(api: httpx.Client) -> None:
    def post(redirect: str, queue: str) -> httpx.Response:
        file = {"file": ("d.json", json.dumps({"queues": [{**QUEUE, "name": queue}]}))}
        return api.post("/api/definitions", files=file, data={"redirect": redirect})

    answer = post("../#/import-succeeded", "api-redirected")
    assert (answer.status_code, answer.headers["location"]) == (303, "../#/import-succeeded")
    for elsewhere in ("https://evil.example/", "//evil.example", "\\\\evil.example", "data:,x"):
        assert post(elsewhere, "api-elsewhere").status_code == 400
    assert api.get(path("queues", VHOST, "api-elsewhere")).status_code == 404


FIELD = b'--abc\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
BASE64 = b'; filename="a"\r\nContent-Transfer-Encoding: base64'


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=", b"x"),
        ("multipart/form-data; boundary=\xe9", b"x"),
        ("multipart/form-data; boundary=abc", FIELD % (b"file", BASE64, b"!!!!a") + b"--abc--"),
        ("multipart/form-data; boundary=abc", FIELD % (b"f", b"", b"x") * 1_500 + b"--abc--"),
    ],
    ids=["no boundary", "empty boundary", "foreign boundary", "broken base64", "many fields"],
)
def test_a_form_that_cannot_be_read_is_a_bad_request(
    api: httpx.Client, content_type: str, body: bytes
) -> None:
    headers = {"Content-Type": content_type.encode("latin-1")}
    answer = api.post("/api/definitions", content=body, headers=headers)
    assert answer.status_code == 400, answer.text
    assert answer.json()["reason"].startswith("the form cannot be read")
    assert "settings." not in answer.text


@pytest.mark.parametrize("redirect", ["/x\r\nSet-Cookie: a=b", "/x\ny", "/\x00", "/x\u2028y"])
def test_a_redirect_that_no_header_can_hold_is_refused_before_the_import(
    api: httpx.Client, redirect: str
) -> None:
    queues = [{**QUEUE, "name": "api-not-imported"}]
    form = {"files": {"file": ("d.json", json.dumps({"queues": queues}))}}
    answer = api.post("/api/definitions", data={"redirect": redirect}, **form)
    assert answer.status_code == 400
    assert answer.json()["reason"] == "redirect must not have control characters"
    assert api.get(path("queues", VHOST, "api-not-imported")).status_code == 404


def test_a_redirect_may_have_any_letters(api: httpx.Client) -> None:
    file = {"file": ("d.json", "{}")}
    answer = api.post("/api/definitions", files=file, data={"redirect": "/é ü"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/%C3%A9%20%C3%BC")
