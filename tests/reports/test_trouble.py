"""Slow consumers, refused messages and dead letters: numbers counted by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from management.reports import parameters, trouble
from management.reports.catalog import REPORTS
from tests.reports.test_transforms import at, computed, result, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONSUMERS, REFUSED, DEAD = (REPORTS[name] for name in ("consumers", "refused", "dead-letters"))


def queue(name: str, **numbers: int) -> dict[str, Any]:
    return {"name": name, "at": at(0), "since": 0, "until": 3_600_000, "consumers": 2, **numbers}


def test_it_tells_which_queues_have_consumers_that_do_not_keep_up(spark: SparkSession) -> None:
    frame = rows(
        spark,
        queue("stuck", messages=9, messages_ms=9 * 3_600_000),
        queue("storm", deliver=300, redeliver=200, ack=100, publish=100),
        queue("slow", publish=100, deliver=100, ack=100, messages=50, messages_ms=50 * 3_600_000),
        queue("behind", publish=4000, deliver=3600, ack=3600, messages=400, messages_ms=3_600_000),
        queue("keeps up", publish=7200, deliver=7000, get_no_ack=200, ack=7000),
        queue("unserved", messages=5, consumers=0),
    )
    found = result(computed("consumers", frame, at(0)), "queue")
    assert {name: row["state"] for name, row in found.items()} == {
        name: name for name in ("stuck", "storm", "slow", "behind", "keeps up")
    }
    # 50 messages on average, and 100 in an hour left: half an hour each.
    assert (found["slow"]["wait"], found["stuck"]["wait"]) == (1_800_000, None)
    assert (found["behind"]["pace"], found["storm"]["redelivered_share"]) == (0.5, 66.7)


def test_it_names_clients_and_connections_that_do_not_finish_messages(spark: SparkSession) -> None:
    def client(kind: str, name: str = "", **numbers: int) -> dict[str, Any]:
        return {"kind": kind, "user": "anna", "client": "pika", "client_version": "1", "at": at(0),
                "name": name, "id": name, **numbers}  # fmt: skip

    frame = rows(
        spark,
        client("user", deliver=80, get=20, deliver_no_ack=7, ack=60, reject=10,
               connection_ms=120_000),
        client("connection", "one", deliver=40, ack=40, connection_ms=60_000),
        client("connection", "two", deliver=60, deliver_no_ack=7, ack=20, reject=10),
        client("connection", "publisher", publish=5),
    )  # fmt: skip
    by_client = computed("consumers", frame, at(0), by="client")
    pika = result(by_client, "client")["pika"]
    assert (pika["messages_out"], pika["to_ack"], pika["unfinished"]) == (107, 100, 30)
    assert (pika["unfinished_share"], pika["pace"]) == (30.0, 0.5)
    by_connection = computed("consumers", frame, at(0), by="connection")
    found = result(by_connection, "connection")
    assert {name: row["unfinished"] for name, row in found.items()} == {"one": 0, "two": 30}
    with pytest.raises(ValueError, match="grain is one of hour"):
        parameters.read(CONSUMERS, {"by": "connection", "grain": "day"})


def test_it_names_the_publishers_of_refused_and_unroutable_messages(spark: SparkSession) -> None:
    def publisher(user: str, **numbers: int) -> dict[str, Any]:
        return {"kind": "user", "user": user, "client": "pika", "at": at(0), **numbers}

    frame = rows(
        spark,
        publisher("anna", publish=1000, routed=990, return_unroutable=4, drop_unroutable=6,
                  refused=15, refused_bytes=150),
        publisher("anna", publish=1000, routed=1000) | {"at": at(1)},
        publisher("bert", publish=500, routed=500),
        {"kind": "exchange", "name": "x", "at": at(0), "publish_in": 200, "refused": 20},
        queue("full", publish=75, refused=25, refused_bytes=250),
        queue("roomy", publish=75),
    )  # fmt: skip
    found = result(trouble.refused(frame, REFUSED.view(), at(0), None), "user")
    assert set(found) == {"anna"}
    anna = found["anna"]
    assert (anna["returned"], anna["unroutable"], anna["refused"]) == (4, 6, 15)
    assert (anna["failed"], anna["failed_share"], anna["messages_in"]) == (25, 1.3, 2000)
    x = result(trouble.refused(frame, REFUSED.view("exchange"), at(0), None), "exchange")["x"]
    assert (x["failed"], x["failed_share"]) == (20, 10.0)
    full = result(trouble.refused(frame, REFUSED.view("queue"), at(0), None), "queue")
    assert {name: row["failed_share"] for name, row in full.items()} == {"full": 25.0}


def test_it_finds_hot_spots_of_dead_letters_by_origin_and_reason(spark: SparkSession) -> None:
    frame = rows(
        spark,
        queue("a", publish=100, dead_letter_expired=5, dead_letter_expired_bytes=50,
              discard_maxlen=3, discard_maxlen_bytes=9),
        queue("a", publish=100, dead_letter_expired=15) | {"at": at(1)},
        queue("b", publish=10, dead_letter_rejected=1, discard_rejected=1),
        queue("healthy", publish=10),
    )  # fmt: skip
    found = {
        (row["queue"], row["reason"]): row
        for row in trouble.dead_letters(frame, DEAD.view(), at(0), None).collect()
    }
    assert {key: (row["dead_letters"], row["discarded"]) for key, row in found.items()} == {
        ("a", "expired"): (20, 0), ("a", "maxlen"): (0, 3), ("b", "rejected"): (1, 1)
    }  # fmt: skip
    assert (found["a", "expired"]["share"], found["b", "rejected"]["share"]) == (10.0, 20.0)
    assert found["a", "expired"]["dead_letter_bytes"] == 50
    by_vhost = trouble.dead_letters(frame, DEAD.view("vhost"), at(0), None).collect()
    assert {row["reason"]: row["dead_letters"] for row in by_vhost} == {
        "expired": 20, "maxlen": 0, "rejected": 1
    }  # fmt: skip
