"""Who may call what: every GET of the description, and the writes, by every identity.

The table is RabbitMQ's (its management plugin's rules, measured on 3.10 and 4.0).
"""

import re
import socket

import httpx
import pytest

from tests.api.conftest import TAGS, VHOST, path

ALL = ("management", "policymaker", "monitoring", "administrator")
MONITORING = ("monitoring", "administrator")
# Of policymakers, too: who defines shovels sees how they are.
SHOVELS = (*MONITORING, "policymaker")
POLICYMAKER = ("policymaker", "administrator")
ADMINISTRATOR = ("administrator",)
PUBLIC = ("no credentials", "none", *ALL)

QUEUE = "identities"
VALUES = {
    "vhost": VHOST,
    "offset": "0",
    "table": "none",
    "name": QUEUE,
    "user": "api-management",
    "source": "amq.direct",
    "kind": "q",
    "destination": QUEUE,
    "properties_key": "key",
    "node": f"leveret@{socket.gethostname()}",
    "port": "1",
    "protocol": "amqp",
    "within": "1",
    "unit": "months",
    "password": "secret",
    "component": "shovel",
    "pattern": "^q",
    "id": "999999",
}

GETS = {
    "/api/overview": ALL,
    "/api/problems": ALL,
    "/api/whoami": ALL,
    "/api/cluster-name": ALL,
    "/api/extensions": ALL,
    "/api/feature-flags": ALL,
    "/api/deprecated-features": ALL,
    "/api/deprecated-features/used": ALL,
    "/api/auth": PUBLIC,
    "/api/version": PUBLIC,
    "/api/config/effective": ADMINISTRATOR,
    "/api/nodes": MONITORING,
    "/api/nodes/{name}": MONITORING,
    "/api/nodes/{name}/memory": MONITORING,
    "/api/nodes/{name}/memory/relative": MONITORING,
    "/api/nodes/{name}/memory/ets": MONITORING,
    "/api/nodes/{name}/memory/ets/relative": MONITORING,
    "/api/nodes/{name}/memory/ets/{table}": MONITORING,
    "/api/nodes/{name}/memory/ets/{table}/relative": MONITORING,
    "/api/nodes/gc_stats": MONITORING,
    "/api/vhosts": ALL,
    "/api/vhosts/{vhost}": ADMINISTRATOR,
    "/api/vhosts/{vhost}/permissions": ADMINISTRATOR,
    "/api/vhosts/{vhost}/topic-permissions": ADMINISTRATOR,
    "/api/vhosts/{vhost}/connections": ALL,
    "/api/vhosts/{vhost}/channels": ALL,
    "/api/vhost-limits": ALL,
    "/api/vhost-limits/{vhost}": ALL,
    "/api/users": ADMINISTRATOR,
    "/api/users/without-permissions": ADMINISTRATOR,
    "/api/users/{user}": ADMINISTRATOR,
    "/api/users/{user}/permissions": ADMINISTRATOR,
    "/api/users/{user}/queues": ADMINISTRATOR,
    "/api/users/{user}/topic-permissions": ADMINISTRATOR,
    "/api/user-limits": ALL,
    "/api/user-limits/{user}": ("management", "administrator"),  # one's own
    "/api/auth/hash_password/{password}": ADMINISTRATOR,
    "/api/auth/attempts/{node}": MONITORING,
    "/api/auth/attempts/{node}/source": MONITORING,
    "/api/permissions": ADMINISTRATOR,
    "/api/permissions/{vhost}/{user}": ADMINISTRATOR,
    "/api/topic-permissions": ADMINISTRATOR,
    "/api/topic-permissions/{vhost}/{user}": ADMINISTRATOR,
    "/api/exchanges": ALL,
    "/api/exchanges/{vhost}": ALL,
    "/api/exchanges/{vhost}/{name}": ALL,
    "/api/exchanges/{vhost}/{name}/delayed": ALL,
    "/api/exchanges/{vhost}/{name}/bindings/source": ALL,
    "/api/exchanges/{vhost}/{name}/bindings/destination": ALL,
    "/api/queues": ALL,
    "/api/queues/detailed": ALL,
    "/api/queues/{vhost}": ALL,
    "/api/queues/{vhost}/{name}/refusals": ALL,
    "/api/queues/{vhost}/{name}/transfers": ALL,
    "/api/transfers": ALL,
    "/api/transfers/{id}": ALL,
    "/api/queues/{vhost}/{name}": ALL,
    "/api/queues/{vhost}/{name}/bindings": ALL,
    "/api/streams/{vhost}/{name}/search": ALL,
    "/api/history/{vhost}/search": ALL,
    "/api/history/{vhost}/life/{offset}": POLICYMAKER,
    "/api/queues/{vhost}/{name}/unacked": ALL,
    "/api/bindings": ALL,
    "/api/bindings/{vhost}": ALL,
    "/api/bindings/{vhost}/e/{source}/{kind}/{destination}": ALL,
    "/api/bindings/{vhost}/e/{source}/{kind}/{destination}/{properties_key}": ALL,
    "/api/connections": ALL,
    "/api/connections/username/{user}": ALL,
    "/api/connections/{name}": ALL,
    "/api/connections/{name}/channels": ALL,
    "/api/channels": ALL,
    "/api/channels/{name}": ALL,
    "/api/consumers": ALL,
    "/api/consumers/{vhost}": ALL,
    "/api/policies": ALL,
    "/api/policies/{vhost}": ALL,
    "/api/policies/{vhost}/{name}": POLICYMAKER,
    "/api/operator-policies": ALL,
    "/api/operator-policies/{vhost}": ALL,
    "/api/operator-policies/{vhost}/{name}": ADMINISTRATOR,
    "/api/parameters": POLICYMAKER,
    "/api/parameters/{component}": POLICYMAKER,
    "/api/parameters/{component}/{vhost}": POLICYMAKER,
    "/api/parameters/{component}/{vhost}/{name}": POLICYMAKER,
    "/api/global-parameters": POLICYMAKER,
    "/api/global-parameters/{name}": POLICYMAKER,
    "/api/definitions": ADMINISTRATOR,
    "/api/all-configuration": ADMINISTRATOR,
    "/api/definitions/{vhost}": ADMINISTRATOR,
    "/api/health/checks/alarms": ALL,
    "/api/health/checks/local-alarms": ALL,
    "/api/health/checks/virtual-hosts": ALL,
    "/api/health/checks/node-is-quorum-critical": ALL,
    "/api/health/checks/node-is-mirror-sync-critical": ALL,
    "/api/health/checks/quorum-queues-without-elected-leaders/all-vhosts": ALL,
    "/api/health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/{pattern}": ALL,
    "/api/health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}": ALL,
    "/api/health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern}": ALL,
    "/api/health/checks/port-listener/{port}": ALL,
    "/api/health/checks/protocol-listener/{protocol}": ALL,
    "/api/health/checks/certificate-expiration/{within}/{unit}": ALL,
    "/api/health/checks/is-in-service": PUBLIC,
    "/api/health/checks/ready-to-serve-clients": PUBLIC,
    "/api/health/checks/below-node-connection-limit": PUBLIC,
    "/api/health/checks/reached-target-cluster-size": PUBLIC,
    "/api/health/checks/metadata-store/initialized": ALL,
    "/api/health/checks/metadata-store/initialized/with-data": ALL,
    "/api/aliveness-test/{vhost}": ALL,
    "/api/healthchecks/node": ALL,
    "/api/healthchecks/node/{name}": ALL,
    "/api/shovels": SHOVELS,
    "/api/shovels/{vhost}": SHOVELS,
    "/api/shovels/vhost/{vhost}/{name}": SHOVELS,
    "/api/federation-links": SHOVELS,
    "/api/federation-links/{vhost}": SHOVELS,
    "/api/federation-links/state/down": SHOVELS,
    "/api/federation-links/{vhost}/state/down": SHOVELS,
    "/api/traces": ADMINISTRATOR,
    "/api/traces/{vhost}": ADMINISTRATOR,
    "/api/traces/{vhost}/{name}": ADMINISTRATOR,
    "/api/trace-files": ADMINISTRATOR,
    "/api/logs": MONITORING,
    "/api/tiers": MONITORING,
}
# Nothing of that name is there, so who may ask is told so.
MISSING = (
    "/api/connections/{name}",
    "/api/connections/{name}/channels",
    "/api/channels/{name}",
    "/api/nodes/{name}",
    "/api/nodes/{name}/memory",
    "/api/nodes/{name}/memory/relative",
    "/api/nodes/{name}/memory/ets",
    "/api/nodes/{name}/memory/ets/relative",
    "/api/nodes/{name}/memory/ets/{table}",
    "/api/nodes/{name}/memory/ets/{table}/relative",
    "/api/history/{vhost}/life/{offset}",
    "/api/healthchecks/node/{name}",
    "/api/traces/{vhost}/{name}",
    "/api/transfers/{id}",
    "/api/shovels/vhost/{vhost}/{name}",
)
# No listener has this port: the answer is the failed check.
FAILING = ("/api/health/checks/port-listener/{port}",)

WRITES: dict[tuple[str, str], tuple[str, ...]] = {
    ("PUT", "/api/cluster-name"): ADMINISTRATOR,
    ("POST", "/api/tiers/adopt"): ADMINISTRATOR,
    ("PUT", "/api/vhosts/{vhost}"): ADMINISTRATOR,
    ("POST", "/api/vhosts/{vhost}/start/{node}"): ADMINISTRATOR,
    ("POST", "/api/vhosts/{vhost}/deletion/protection"): ADMINISTRATOR,
    ("DELETE", "/api/vhosts/{vhost}/deletion/protection"): ADMINISTRATOR,
    ("PUT", "/api/feature-flags/quorum_queue/enable"): ADMINISTRATOR,
    ("DELETE", "/api/reset"): ADMINISTRATOR,
    ("PUT", "/api/vhost-limits/{vhost}/max-queues"): ADMINISTRATOR,
    ("DELETE", "/api/vhost-limits/{vhost}/max-queues"): ADMINISTRATOR,
    ("PUT", "/api/users/api-made"): ADMINISTRATOR,
    ("PUT", "/api/permissions/{vhost}/api-made"): ADMINISTRATOR,
    ("DELETE", "/api/permissions/{vhost}/api-made"): ADMINISTRATOR,
    ("PUT", "/api/topic-permissions/{vhost}/api-made"): ADMINISTRATOR,
    ("DELETE", "/api/topic-permissions/{vhost}/api-made"): ADMINISTRATOR,
    ("PUT", "/api/user-limits/api-made/max-channels"): ADMINISTRATOR,
    ("DELETE", "/api/user-limits/api-made/max-channels"): ADMINISTRATOR,
    ("DELETE", "/api/users/api-made"): ADMINISTRATOR,
    ("POST", "/api/users/bulk-delete"): ADMINISTRATOR,
    ("PUT", "/api/auth/hash_password"): ADMINISTRATOR,
    ("PUT", "/api/exchanges/{vhost}/api-made"): ALL,
    ("POST", "/api/exchanges/{vhost}/api-made/publish"): ALL,
    ("PUT", "/api/queues/{vhost}/api-made"): ALL,
    ("POST", "/api/queues/{vhost}/api-made/get"): ALL,
    ("POST", "/api/queues/{vhost}/api-made/peek"): ALL,
    ("POST", "/api/queues/{vhost}/api-made/preview"): ALL,
    ("POST", "/api/queues/{vhost}/api-made/copy"): ALL,
    ("POST", "/api/queues/{vhost}/api-made/move"): ALL,
    ("DELETE", "/api/queues/{vhost}/api-made/contents"): ALL,
    ("PUT", "/api/queues/{vhost}/api-made/pause"): ALL,
    ("PUT", "/api/queues/{vhost}/api-made/resume"): ALL,
    ("POST", "/api/bindings/{vhost}/e/api-made/q/api-made"): ALL,
    ("DELETE", "/api/bindings/{vhost}/e/api-made/q/api-made/key"): ALL,
    ("DELETE", "/api/queues/{vhost}/api-made"): ALL,
    ("DELETE", "/api/exchanges/{vhost}/api-made"): ALL,
    ("PUT", "/api/global-parameters/api-made"): POLICYMAKER,
    ("DELETE", "/api/global-parameters/api-made"): POLICYMAKER,
    ("PUT", "/api/policies/{vhost}/api-made"): POLICYMAKER,
    ("DELETE", "/api/policies/{vhost}/api-made"): POLICYMAKER,
    ("PUT", "/api/operator-policies/{vhost}/api-made"): ADMINISTRATOR,
    ("DELETE", "/api/operator-policies/{vhost}/api-made"): ADMINISTRATOR,
    ("PUT", "/api/parameters/vhost-limits/{vhost}/limits"): ADMINISTRATOR,
    ("DELETE", "/api/parameters/vhost-limits/{vhost}/limits"): ADMINISTRATOR,
    ("POST", "/api/definitions"): ADMINISTRATOR,
    ("POST", "/api/definitions/{vhost}"): ADMINISTRATOR,
    ("DELETE", "/api/auth/attempts/{node}"): ADMINISTRATOR,
}
BODIES = {
    "/api/cluster-name": {"name": "leveret@tests"},
    "/api/vhost-limits/{vhost}/max-queues": {"value": 1000},
    "/api/users/api-made": {"password": "x", "tags": ""},
    "/api/permissions/{vhost}/api-made": {"configure": "", "write": "", "read": ""},
    "/api/topic-permissions/{vhost}/api-made": {"exchange": "amq.topic", "write": "", "read": ""},
    "/api/user-limits/api-made/max-channels": {"value": 10},
    "/api/users/bulk-delete": {"users": []},
    "/api/auth/hash_password": {"password": "x"},
    "/api/exchanges/{vhost}/api-made/publish": {
        "properties": {},
        "routing_key": "key",
        "payload": "x",
        "payload_encoding": "string",
    },
    "/api/queues/{vhost}/api-made/get": {
        "count": 1,
        "ackmode": "ack_requeue_false",
        "encoding": "auto",
    },
    "/api/queues/{vhost}/api-made/peek": {"count": 1},
    "/api/queues/{vhost}/api-made/copy": {"target": QUEUE},
    "/api/queues/{vhost}/api-made/move": {"target": QUEUE},
    "/api/bindings/{vhost}/e/api-made/q/api-made": {"routing_key": "key"},
    "/api/global-parameters/api-made": {"value": 1},
    "/api/policies/{vhost}/api-made": {"pattern": "^none$", "definition": {"max-length": 9}},
    "/api/operator-policies/{vhost}/api-made": {
        "pattern": "^none$",
        "definition": {"max-length": 9},
    },
    "/api/parameters/vhost-limits/{vhost}/limits": {"value": {"max-queues": 999}},
}


@pytest.fixture(scope="module", autouse=True)
def a_queue(clients: dict[str, httpx.Client]) -> None:
    admin = clients["administrator"]
    assert admin.put(path("queues", VHOST, QUEUE), json={}).is_success
    assert admin.put(path("exchanges", VHOST, QUEUE), json={}).is_success
    binding = {"routing_key": "key"}
    between = path("bindings", VHOST, "e", "amq.direct", "q", QUEUE)
    assert admin.post(between, json=binding).status_code == 201


def filled(template: str) -> str:
    segments = template.removeprefix("/api/").split("/")
    return path(*(VALUES[part[1:-1]] if part[0] == "{" else part for part in segments))


def test_the_table_names_every_route_that_can_be_read(api: httpx.Client) -> None:
    described = api.get("/api/openapi.json").json()["paths"]
    readable = {re.sub(r"\{\w+:", "{", name) for name, row in described.items() if "get" in row}
    others = {name for name in readable if "/reports" in name}
    assert readable - others == set(GETS)


@pytest.mark.parametrize("template", GETS)
def test_it_lets_read_who_may(
    clients: dict[str, httpx.Client], anonymous: httpx.Client, template: str
) -> None:
    seen = {"no credentials": anonymous.get(filled(template))}
    seen |= {tag: clients[tag].get(filled(template)) for tag in TAGS}
    may = GETS[template]
    for identity, answer in seen.items():
        if identity not in may:
            assert answer.status_code == 401, (identity, answer.text)
        elif answer.status_code == 401:
            # Policies and parameters that are missing, and other users' things.
            raise AssertionError((identity, answer.text))
        elif template in MISSING or "policies/{vhost}/" in template:
            assert answer.status_code in (200, 404), (identity, answer.text)
        elif "{component}/{vhost}/{name}" in template or "global-parameters/" in template:
            assert answer.status_code == 404, (identity, answer.text)
        elif template == "/api/history/{vhost}/search":
            # No value to look for, or no right to the history.
            assert answer.status_code == 400, (identity, answer.text)
        elif template == "/api/streams/{vhost}/{name}/search":
            assert answer.status_code == 400, (identity, answer.text)  # a queue, and no key
        elif template in FAILING:
            assert answer.status_code == 503
            assert answer.json()["status"] == "failed"
        else:
            assert answer.status_code == 200, (identity, answer.text)
            if template != "/api/logs":
                answer.json()
    refused = seen["no credentials"]
    if "no credentials" not in may:
        assert refused.content == b""
        assert refused.headers["WWW-Authenticate"].startswith("Basic realm=")
    if "none" not in may:
        assert seen["none"].json() == {
            "error": "not_authorised",
            "reason": "Not management user",
        } or seen["none"].json()["error"] in ("not_authorised", "not_authorized")


def test_it_lets_change_who_may(
    clients: dict[str, httpx.Client], anonymous: httpx.Client, api: httpx.Client
) -> None:
    """In the table's order, so that each call finds what it needs; who may not goes first."""
    wrong = []
    for (method, template), may in WRITES.items():
        body = BODIES.get(template, {})
        for identity, client in [("no credentials", anonymous), *clients.items()]:
            if identity not in may:
                answer = client.request(method, filled(template), json=body)
                if answer.status_code != 401:
                    wrong.append((method, template, identity, answer.status_code, answer.text))
        for identity in may:
            if identity == "administrator":
                continue
            answer = clients[identity].request(method, filled(template), json=body)
            if answer.status_code == 401:
                wrong.append((method, template, identity, answer.status_code, answer.text))
            if method == "DELETE" and answer.is_success:
                restore(api, template)
        answer = api.request(method, filled(template), json=body)
        if not answer.is_success:
            wrong.append((method, template, "administrator", answer.status_code, answer.text))
    assert not wrong


def restore(api: httpx.Client, template: str) -> None:
    """Make again what a call deleted, for the next identity."""
    made = "/api/queues/{vhost}/api-made", "/api/exchanges/{vhost}/api-made"
    again = "/api/global-parameters/api-made", "/api/policies/{vhost}/api-made"
    if template in (*made, *again):
        api.put(filled(template), json=BODIES.get(template, {})).raise_for_status()
    elif "/bindings/" in template:
        whole = filled(template).removesuffix("/key")
        api.post(whole, json={"routing_key": "key"}).raise_for_status()


@pytest.mark.parametrize("template", [name for name in GETS if GETS[name] is not PUBLIC])
def test_a_wrong_password_opens_nothing(api_url: str, template: str) -> None:
    answer = httpx.get(api_url + filled(template), auth=("api-nobody-at-all", "wrong"), timeout=60)
    assert answer.status_code in (401, 429)
    assert answer.json()["error"] in ("not_authorized", "too_many_attempts")


@pytest.mark.parametrize(
    "value",
    ["Bearer abc", "Basic", "Basic !!!", "Basic " + "Z3Vlc3Q=", "Digest x", "basic \xff", ""],
)
def test_a_malformed_authorization_is_no_authorization(anonymous: httpx.Client, value: str) -> None:
    answer = anonymous.get("/api/whoami", headers=[("Authorization", value.encode("latin-1"))])
    assert answer.status_code == 401


def test_reading_needs_access_to_the_vhost(
    clients: dict[str, httpx.Client], api: httpx.Client
) -> None:
    assert api.put(path("vhosts", "api-private"), json={}).is_success
    for tag in ("management", "policymaker", "monitoring"):
        answer = clients[tag].get(path("queues", "api-private"))
        assert answer.status_code == 401, tag
        assert answer.json()["error"] == "not_authorised"
    assert api.get(path("queues", "api-private")).status_code == 200
    names = [row["name"] for row in clients["management"].get("/api/vhosts").json()]
    assert VHOST in names
    assert "api-private" not in names


def test_an_administrator_without_permissions_still_may_not_write(
    api_url: str, api: httpx.Client
) -> None:
    guest = ("guest", "guest")
    created = httpx.put(api_url + path("vhosts", "api-guests"), json={}, auth=guest, timeout=60)
    assert created.status_code == 201
    answer = api.put(path("queues", "api-guests", "q"), json={})
    assert answer.status_code == 401, answer.text
    assert answer.json()["error"] == "not_authorised"


def test_permission_patterns_hold_over_http(
    clients: dict[str, httpx.Client], api: httpx.Client
) -> None:
    api.put(path("users", "api-narrow"), json={"password": "x", "tags": "management"})
    patterns = {"configure": "^mine", "write": "^mine", "read": "^$"}
    assert api.put(path("permissions", VHOST, "api-narrow"), json=patterns).is_success
    narrow = httpx.Client(base_url=api.base_url, auth=("api-narrow", "x"), timeout=60)
    assert narrow.put(path("queues", VHOST, "mine"), json={}).status_code in (201, 204)
    answer = narrow.put(path("queues", VHOST, "yours"), json={})
    assert answer.status_code == 401
    assert "refused for user 'api-narrow'" in answer.json()["reason"]
    assert narrow.delete(path("queues", VHOST, "mine", "contents")).status_code == 401
    assert narrow.delete(path("queues", VHOST, QUEUE)).status_code == 401
    assert api.get(path("queues", VHOST, QUEUE)).status_code == 200
    narrow.close()
