"""Health checks that fail, over HTTP: 503 and a body that says why."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest

from tests.api.conftest import VHOST, path
from tests.api.test_away import Web
from tests.appliance import Appliance
from tests.conftest import Make
from tests.listeners.certificates import Authority

GUEST = ("guest", "guest")


@pytest.fixture(scope="module")
def lonely_web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A web process whose broker does not run."""
    web = Web(Appliance("broker", tmp_path_factory.mktemp("lonely")))
    yield web.client
    web.close()


def failed(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 503, answer.text
    body: dict[str, Any] = answer.json()
    assert body["status"] == "failed"
    return body


def get(leveret: Appliance, check: str, auth: Any = GUEST) -> httpx.Response:
    return httpx.get(f"{leveret.http_url}/api/health/checks/{check}", auth=auth, timeout=30)


def test_one_that_has_no_more_room_fails(make_leveret: Make) -> None:
    leveret = make_leveret(connections_max=1)
    checks = ("below-node-connection-limit", "ready-to-serve-clients")
    for check in checks:
        assert get(leveret, check, auth=None).status_code == 200
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(leveret.amqp_url))):
        for check in checks:
            body = failed(get(leveret, check, auth=None))
            assert body["reason"] == "node connection limit is reached"
            assert body["connections"] == 1


def test_an_alarm_fails(make_leveret: Make) -> None:
    leveret = make_leveret(disk_free_limit=1 << 60)
    for check in ("alarms", "local-alarms"):
        body = failed(get(leveret, check))
        assert [row["resource"] for row in body["alarms"]] == ["disk space"]
    answer = httpx.get(f"{leveret.http_url}/api/healthchecks/node", auth=GUEST, timeout=60)
    assert failed(answer)["reason"].startswith("resource alarm(s) in effect:[{resource_limit,")


def test_certificates_that_expire_fail(make_leveret: Make, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    names = tmp_path / "names"
    names.mkdir()
    authority.issue("shop.example", days=3).rename(names / "shop.example.pem")
    leveret = make_leveret(
        tls_cert_file=authority.issue("localhost", days=20),
        tls_names_dir=names,
        tls_ca_file=authority.file,
        tls_verify="optional",
        amqps_port=0,
        https_port=0,
    )

    def expired(within: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = failed(get(leveret, f"certificate-expiration/{within}"))[
            "expired"
        ]
        return found

    assert get(leveret, "certificate-expiration/2/days").json() == {"status": "ok"}
    assert len(failed(get(leveret, "certificate-expiration/999999/years"))["expired"]) > 0
    rows = expired("1/weeks")
    assert {Path(row["certfile"]).name for row in rows} == {"shop.example.pem"}
    assert {row["protocol"] for row in rows} == {"amqp/ssl", "https"}
    assert {row["port"] for row in rows} == {
        leveret.addresses["amqps"][1],
        leveret.addresses["https"][1],
    }
    assert all(len(row["certfile_expires_on"]) == 1 for row in rows)
    assert {Path(row["certfile"]).name for row in expired("3/WEEKS")} == {
        "shop.example.pem",
        "localhost.pem",
    }
    # The authority's own is valid for 30 days.
    assert all(row["cacertfile_expires_on"] for row in expired("2/months"))
    answer = get(leveret, "certificate-expiration/1/moon")
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")


def test_a_vhost_whose_definitions_are_damaged_fails(make_leveret: Make) -> None:
    leveret = make_leveret()
    queues = f"{leveret.http_url}/api/queues/%2F"
    for name in ("one", "two", "three"):
        httpx.put(
            f"{queues}/{name}", json={"durable": True}, auth=GUEST, timeout=60
        ).raise_for_status()
    assert get(leveret, "virtual-hosts").json() == {"status": "ok"}
    assert leveret.stop() == 0
    (journal,) = leveret.data_dir.glob("vhosts/*/definitions.journal")
    content = journal.read_bytes()
    journal.write_bytes(content.replace(b"two", b"?wo", 1))
    leveret.start()
    body = failed(get(leveret, "virtual-hosts"))
    assert body["virtual-hosts"] == ["/"]
    assert body["reason"] == "Some virtual hosts are down"


def test_port_and_protocol_checks_know_every_listener(api: httpx.Client, api_url: str) -> None:
    port = int(api_url.rpartition(":")[2])
    assert api.get(path("health", "checks", "port-listener", str(port))).json()["port"] == port
    assert api.get(path("health", "checks", "protocol-listener", "http")).is_success
    rows = api.get("/api/overview").json()["listeners"]
    assert {"amqp", "http", "http/web-amqp"} <= {row["protocol"] for row in rows}
    answer = api.get(path("health", "checks", "port-listener", "x"))
    assert (answer.status_code, answer.json()["reason"]) == (400, "Invalid port")


def test_aliveness_fails_where_no_queue_can_be_declared(api: httpx.Client) -> None:
    assert api.get(path("aliveness-test", VHOST)).json() == {"status": "ok"}
    name = "api/aliveness"
    api.put(path("vhosts", name), json={}).raise_for_status()
    limit = path("vhost-limits", name, "max-queues")
    api.put(limit, json={"value": 0}).raise_for_status()
    body = failed(api.get(path("aliveness-test", name)))
    assert "queue limit" in body["reason"]
    assert api.get(path("aliveness-test", "no such")).status_code == 404


def test_aliveness_asks_for_the_users_permissions(
    clients: dict[str, httpx.Client], api: httpx.Client
) -> None:
    name = "api/aliveness-rights"
    api.put(path("vhosts", name), json={}).raise_for_status()
    nothing = {"configure": "^$", "write": "^$", "read": "^$"}
    api.put(path("permissions", name, "api-management"), json=nothing).raise_for_status()
    answer = clients["management"].get(path("aliveness-test", name))
    assert answer.status_code == 401


LEADERS = "quorum-queues-without-elected-leaders"


def test_leaders_are_asked_for_in_vhosts_that_exist(api: httpx.Client) -> None:
    checks = path("health", "checks", LEADERS)
    for where in ("all-vhosts", "all-vhosts/pattern/^q", "vhost/%2F", "vhost/%2F/pattern/^q"):
        assert api.get(f"{checks}/{where}").json() == {"status": "ok"}
    assert api.get(f"{checks}/vhost/none").status_code == 404
    assert api.get(f"{checks}/all-vhosts/pattern/(").status_code == 400


@pytest.mark.parametrize(
    "where",
    [
        "health/checks/alarms",
        "health/checks/is-in-service",
        "health/checks/node-is-quorum-critical",
        "health/checks/node-is-mirror-sync-critical",
        "health/checks/reached-target-cluster-size",
        "health/checks/metadata-store/initialized",
        "aliveness-test/%2F",
        "healthchecks/node",
    ],
)
def test_no_check_passes_while_the_broker_is_away(lonely_web: httpx.Client, where: str) -> None:
    body = failed(lonely_web.get(f"/api/{where}", auth=GUEST))
    assert body["error"] == "broker_away"
    assert body["reason"]
