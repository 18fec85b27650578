"""Forms that were refused show again what was typed, and forms that make or change one thing leave
others as they are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.appliance import Appliance
from tests.web.person import Person


@pytest.fixture
def guest(shared_leveret: Appliance) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=shared_leveret.http_url, auth=("guest", "guest"), timeout=60
    ) as client:
        yield client


@pytest.fixture
def mark() -> str:
    """The end of a name of the test's own."""
    return uuid.uuid4().hex[:8]


@pytest.fixture
def policies(guest: httpx.Client) -> Iterator[httpx.Client]:
    """The HTTP API; takes every policy away in the end."""
    yield guest
    for kind in ("policies", "operator-policies"):
        for row in guest.get(f"/api/{kind}/%2F").json():
            guest.delete(f"/api/{kind}/%2F/{row['name']}").raise_for_status()


def put_user(guest: httpx.Client, name: str, tags: str = "") -> None:
    guest.put(f"/api/users/{name}", json={"password": "x", "tags": tags}).raise_for_status()


def test_refused_permissions_keep_their_patterns_and_their_user(
    person: Person, guest: httpx.Client, mark: str
) -> None:
    put_user(guest, f"z-{mark}")
    typed = {"configure": "^z(", "write": "", "read": "^<b>"}
    form = person.refused("/vhosts/%2F", {"action": "permit", "user": f"z-{mark}", **typed})
    assert form.value("permit-user") == f"z-{mark}"
    assert {kind: form.value(f"permit-{kind}") for kind in typed} == typed
    form = person.refused(f"/users/z-{mark}", {"action": "permit", "vhost": "/", **typed})
    assert {kind: form.value(f"permit-{kind}") for kind in typed} == typed
    guest.delete(f"/api/users/z-{mark}").raise_for_status()


def test_a_new_permission_begins_with_everything(person: Person) -> None:
    page = person.page("/vhosts/%2F")
    assert [page.value(f"permit-{kind}") for kind in ("configure", "write", "read")] == [".*"] * 3


def test_refused_limits_stay_as_they_were_typed(person: Person) -> None:
    form = person.refused("/vhosts/%2F", {"action": "limit", "max-queues": "lots <b>"})
    assert form.value("limit-max-queues") == "lots <b>"
    assert form.value("limit-max-connections") == ""


def test_a_refused_queue_keeps_all_its_fields(person: Person) -> None:
    typed = {
        "action": "create",
        "name": "none",
        "durability": "transient",
        "auto_delete": "on",
        "arguments": "{bad",
    }
    form = person.refused("/queues", typed)
    assert (form.value("queue-name"), form.value("queue-arguments")) == ("none", "{bad")
    assert form.value("queue-durability") == "transient"
    assert form.is_checked("auto_delete")
    assert not person.refused("/queues", {**typed, "auto_delete": []}).is_checked("auto_delete")


def test_a_refused_exchange_keeps_all_its_fields(person: Person) -> None:
    typed = {
        "name": "none",
        "type": "topic",
        "durability": "transient",
        "auto_delete": "on",
        "internal": "on",
        "arguments": "{bad",
    }
    form = person.refused("/exchanges", typed)
    assert form.value("exchange-durability") == "transient"
    assert form.is_checked("auto_delete") and form.is_checked("internal")


def test_a_refused_binding_keeps_its_fields_and_leaves_the_other_form_alone(
    person: Person,
) -> None:
    typed = {"routing_key": "a.key", "arguments": '{"a":1}', "destination": "none"}
    form = person.refused("/exchanges/%2F/amq.topic", {"action": "bind", **typed})
    fields = ("bind-key", "bind-arguments", "bind-destination", "publish-key")
    assert [form.value(id) for id in fields] == ["a.key", '{"a":1}', "none", ""]


def test_a_refused_message_keeps_its_properties(person: Person) -> None:
    names = ("message_id", "correlation_id", "reply_to", "priority", "app_id", "headers")
    typed = {name: f"{name} <typed>" for name in names}
    fields = {"action": "publish", "routing_key": "a.key", "type": "kind", **typed}
    form = person.refused("/exchanges/%2F/amq.topic", fields)
    assert {name: form.value(name) for name in names} == typed
    assert form.value("message-type") == "kind"
    assert (form.value("publish-key"), form.value("bind-key")) == ("a.key", "")


def test_a_refused_policy_keeps_what_was_cleared(policies: httpx.Client, person: Person) -> None:
    policy = {"pattern": "^a", "definition": {"max-length": 5}, "priority": 7}
    policies.put("/api/policies/%2F/cleared", json=policy).raise_for_status()
    typed = {"vhost": "/", "pattern": "", "priority": "", "max-length": "lots"}
    form = person.refused("/policy?vhost=%2F&name=cleared", typed)
    fields = ("policy-pattern", "policy-priority", "key-max-length")
    assert [form.value(id) for id in fields] == ["", "", "lots"]


def test_a_refused_replay_leaves_the_form_that_copies_alone(
    person: Person, guest: httpx.Client, mark: str
) -> None:
    stream = {"durable": True, "arguments": {"x-queue-type": "stream"}}
    guest.put(f"/api/queues/%2F/stream-{mark}", json=stream).raise_for_status()
    typed = {"target": "none", "target_type": "exchange", "rate": "17", "from": "first"}
    path = f"/queues/%2F/stream-{mark}/move"
    form = person.refused(path, {"action": "replay", **typed})
    fields = ("replay-target", "replay-target-type", "replay-rate", "replay-from")
    assert [form.value(id) for id in fields] == ["none", "exchange", "17", "first"]
    others = ("target", "target-type", "transfer-rate")
    assert [form.value(id) for id in others] == ["", "queue", ""]
    form = person.refused(path, {"action": "transfer", "mode": "copy", **typed})
    assert [form.value(id) for id in others] == ["none", "exchange", "17"]
    others = ("replay-target", "replay-target-type", "replay-rate")
    assert [form.value(id) for id in others] == ["", "queue", ""]
    guest.delete(f"/api/queues/%2F/stream-{mark}").raise_for_status()


def test_a_refused_change_of_a_virtual_host_comes_back_open(person: Person) -> None:
    typed = {"description": "typed <b>", "default_queue_type": "none", "protected": "on"}
    form = person.refused("/vhosts/%2F", {"action": "edit", **typed})
    assert '<dialog class="dialog" id="edit" data-refused' in form.text
    assert form.value("edit-description") == "typed <b>"
    assert form.is_checked("protected") and not form.is_checked("tracing")


def test_refused_plans_and_tariffs_of_reports_keep_what_was_typed(person: Person) -> None:
    plan = {"plan": "mine <b>", "schedule": "never", "webhook": "https://a", "mail": "a@b"}
    form = person.refused("/reports/traffic", {"action": "plan", **plan})
    for name, text in plan.items():
        assert form.named(name, text)
    tariff = {"since": "1999", "currency": "XYZ", "messages": "1.7"}
    form = person.refused("/reports/cost", {"action": "tariff", **tariff})
    for name, text in tariff.items():
        assert form.named(name, text)


def test_saving_a_user_keeps_tags_that_mean_nothing_here(
    person: Person, guest: httpx.Client, mark: str
) -> None:
    name = f"tagged-{mark}"
    put_user(guest, name, f"management,impersonator,team <{mark}>")
    page = person.page(f"/users/{name}")
    shown = ["management", "impersonator", f"team <{mark}>"]
    assert page.checked("tags") == shown
    assert page.boxes("tags")[:4] == ["management", "policymaker", "monitoring", "administrator"]
    saved = {"action": "change", "tags": [*shown[:2], "monitoring"]}
    assert person.post(f"/users/{name}", saved).status_code == 302
    tags = guest.get(f"/api/users/{name}").json()["tags"]
    assert set(tags) == {"management", "impersonator", "monitoring"}
    guest.delete(f"/api/users/{name}").raise_for_status()


@pytest.mark.parametrize(
    ("path", "kind"), [("/policy", "policies"), ("/policy?operator=1", "operator-policies")]
)
def test_a_new_policy_does_not_take_the_place_of_another(
    person: Person, policies: httpx.Client, path: str, kind: str
) -> None:
    policy: dict[str, Any] = {"pattern": "^a", "definition": {"max-length": 5}, "priority": 7}
    policies.put(f"/api/{kind}/%2F/exists", json=policy).raise_for_status()
    typed = {"vhost": "/", "name": "exists", "pattern": "^b", "message-ttl": "1000"}
    form = person.refused(path, {**typed, "apply_to": "queues"})
    assert "policy 'exists' in this virtual host already" in form.alert
    kept = policies.get(f"/api/{kind}/%2F/exists").json()
    assert (kept["pattern"], kept["definition"], kept["priority"]) == ("^a", {"max-length": 5}, 7)


def test_a_new_virtual_host_does_not_take_the_place_of_another(
    person: Person, guest: httpx.Client, mark: str
) -> None:
    given = {"description": "kept", "default_queue_type": "stream"}
    guest.put(f"/api/vhosts/there-{mark}", json=given).raise_for_status()
    typed = {"name": f"there-{mark}", "description": "", "default_queue_type": "classic"}
    form = person.refused("/vhosts", typed)
    assert f"There is a virtual host 'there-{mark}' already" in form.alert
    kept = guest.get(f"/api/vhosts/there-{mark}").json()
    assert (kept["description"], kept["default_queue_type"]) == ("kept", "stream")
    guest.delete(f"/api/vhosts/there-{mark}").raise_for_status()
