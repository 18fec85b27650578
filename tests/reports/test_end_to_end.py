"""From a published message to the number in the report: broker, feed, Spark, HTTP API."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from typing import Any

import httpx
import pika
import pyarrow.parquet
import pytest

from management.reports.catalog import REPORTS
from tests.appliance import Appliance
from tests.reports.asking import run_report
from tests.reports.conftest import ROOT, TIMEOUT, wait_until

pytest.importorskip("pyspark")

BODY = b"x" * 100


def api(appliance: Appliance, user: str = "guest") -> httpx.Client:
    host, port = appliance.addresses["http"]
    return httpx.Client(base_url=f"http://{host}:{port}/api", auth=(user, user), timeout=30)


def publish_and_consume(appliance: Appliance, vhost: str = "/") -> dict[str, list[int]]:
    """Traffic of a known size, until it is in the usage feed; messages in, bytes in, messages out,
    bytes out, acks by queue."""
    host, port = appliance.addresses["amqp"]
    parameters = pika.ConnectionParameters(host, port, vhost)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in ("orders", "=SUM(A1)", "held"):
            channel.queue_declare(name, durable=True)
        for _ in range(250):
            channel.basic_publish("", "orders", BODY)
        for _ in range(40):
            channel.basic_publish("", "=SUM(A1)", b"")
        for _ in range(7):
            channel.basic_publish("", "held", BODY * 10)
        for count, _ in enumerate(channel.consume("orders", inactivity_timeout=60), start=1):
            if count == 250:
                break
        channel.basic_ack(0, multiple=True)
        channel.cancel()
        for _ in range(10):
            method, _, _ = channel.basic_get("=SUM(A1)", auto_ack=True)
            assert method is not None
        channel.queue_declare("short-lived", exclusive=True)
        for _ in range(5):
            channel.basic_publish("", "short-lived", BODY)
        channel.queue_delete("short-lived")
    now = int(time.time() * 1000)
    wait_until(lambda: fed_until(appliance) >= now, "a round of the usage feed")
    return {
        "orders": [250, 25_000, 250, 25_000, 250],
        "=SUM(A1)": [40, 0, 10, 0, 0],
        "held": [7, 7_000, 0, 0, 0],
        "short-lived": [5, 500, 0, 0, 0],
    }


def fed_until(appliance: Appliance) -> int:
    """All that was counted before this moment, in milliseconds of UTC, is in the usage feed."""
    lines = [
        json.loads(line)
        for path in (appliance.data_dir / "usage").glob("*.jsonl*")
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")  # the broker may be writing its last one
    ]
    return max((line["until"] for line in lines if line["kind"] == "round"), default=0)


def run(client: httpx.Client) -> dict[str, Any]:
    """Run the report now, to its end."""
    record = run_report(client, "queue-usage", TIMEOUT)
    assert record["state"] == "done", record
    return record


def sums(table: dict[str, Any], vhost: str) -> dict[str, list[int]]:
    """The result's numbers per queue of one vhost, hours added up (a test may cross one)."""
    found: dict[str, list[int]] = {}
    for row in table["rows"]:
        if row[1] == vhost:
            total = found.setdefault(row[2], [0] * 5)
            found[row[2]] = [a + b for a, b in zip(total, row[3:8], strict=True)]
    return found


def test_it_reports_exactly_what_was_published_and_delivered(appliance: Appliance) -> None:
    client = api(appliance)
    first = client.get("/reports").json()
    assert {one["name"] for one in first} == set(REPORTS)
    assert all(one["last"] is None and one["available"] for one in first)
    assert client.get("/reports/queue-usage/runs/latest.json").status_code == 404

    assert client.put("/vhosts/shop").status_code == 201
    assert client.put("/users/anna", json={"password": "anna", "tags": "management"}).is_success
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    for user in ("guest", "anna"):
        assert client.put(f"/permissions/shop/{user}", json=everything).is_success
    expected = publish_and_consume(appliance)
    assert publish_and_consume(appliance, "shop") == expected

    record = run(client)
    assert record["asked_by"] == "guest"
    table = client.get("/reports/queue-usage/runs/latest.json").json()
    assert table["run_id"] == record["run_id"]
    assert sums(table, "/") == expected
    assert sums(table, "shop") == expected
    assert record["rows_written"] == table["row_count"] == len(table["rows"])

    csv = client.get(f"/reports/queue-usage/runs/{record['run_id']}.csv")
    assert csv.headers["content-type"].startswith("text/csv")
    assert "attachment" in csv.headers["content-disposition"]
    assert ",'=SUM(A1)," in csv.text
    assert client.get("/reports/queue-usage/runs/latest.parquet").content[:4] == b"PAR1"
    shown = client.get("/reports/queue-usage").json()
    assert shown["last"]["run_id"] == record["run_id"] and len(shown["runs"]) == 1


def test_it_shows_others_only_the_rows_of_their_virtual_hosts(appliance: Appliance) -> None:
    anna = api(appliance, "anna")
    table = anna.get("/reports/queue-usage/runs/latest.json").json()
    # A row for each queue and hour, and the test may have crossed one.
    count = len({(row[0], row[2]) for row in table["rows"]})
    assert {row[1] for row in table["rows"]} == {"shop"} and table["row_count"] == count
    assert len({row[2] for row in table["rows"]}) == 4
    lines = anna.get("/reports/queue-usage/runs/latest.csv").text.splitlines()
    assert len(lines) == count + 1 and all(",shop," in line for line in lines[1:])
    parquet = anna.get("/reports/queue-usage/runs/latest.parquet").content
    rows = pyarrow.parquet.read_table(io.BytesIO(parquet))
    assert set(rows["vhost"].to_pylist()) == {"shop"}
    page = anna.get("/reports/queue-usage/runs/latest.json?page=2&page_size=3").json()
    pages = -(-count // 3)
    assert (page["row_count"], page["page_count"]) == (count, pages)
    assert len(page["rows"]) == min(count - 3, 3)
    assert anna.get("/reports/queue-usage/runs/latest.json?page=1&page_size=0").status_code == 400
    record = anna.get("/reports/queue-usage/runs/latest").json()
    assert "rows_read" not in record and "asked_by" not in record
    assert anna.post("/reports/queue-usage/run").status_code == 401
    assert anna.delete(f"/reports/queue-usage/runs/{record['run_id']}").status_code == 401


def test_it_refuses_users_without_a_tag_and_reports_that_are_not_there(
    appliance: Appliance,
) -> None:
    client = api(appliance)
    assert client.put("/users/bert", json={"password": "bert", "tags": ""}).is_success
    assert api(appliance, "bert").get("/reports").status_code == 401
    assert client.get("/reports/no-such-report").status_code == 404
    assert client.post("/reports/..%2F..%2Fetc/run").status_code == 404
    assert client.get("/reports/queue-usage/runs/..%2Flock").status_code == 404
    assert client.get("/reports/queue-usage/runs/latest.exe").status_code == 404


def test_it_cancels_a_run_through_the_api(appliance: Appliance) -> None:
    client = api(appliance)
    run_id = client.post("/reports/queue-usage/run").json()["run_id"]
    path = f"/reports/queue-usage/runs/{run_id}"
    assert client.delete(path).status_code == 204
    wait_until(lambda: client.get(path).json()["ended_at"] is not None, "the run to end")
    assert client.get(path).json()["state"] == "cancelled"
    assert client.delete(path).status_code == 400


def test_the_command_writes_a_report(appliance: Appliance) -> None:
    publish_and_consume(appliance)

    def report(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "manage.py", "report", *options]
        command += ["--data-dir", str(appliance.data_dir)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)

    written = report("backlog", "--vhost", "/", "--format", "json")
    assert written.returncode == 0, written.stderr
    table = json.loads(written.stdout)
    names = [column["name"] for column in table["columns"]]
    held = {row[names.index("queue")]: row[names.index("held")] for row in table["rows"]}
    assert held["held"] > 0 and {row[0] for row in table["rows"]} == {"/"}
    again = report("backlog", "--vhost", "/", "--format", "json", "--cached")
    assert json.loads(again.stdout)["run_id"] == table["run_id"]
    wrong = report("backlog", "--from", "soon")
    assert (wrong.returncode, wrong.stdout) == (os.EX_USAGE, "")
    assert "not a date such as 2026-11-21" in wrong.stderr
    assert report("nonsense").returncode == 2
