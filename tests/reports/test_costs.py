"""The cost statement: prices to the last digit, closed months that stay, late data beside them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from broker.store.files import disk
from management.reports import costs, tariff
from management.reports.catalog import COST
from management.reports.ledger import Ledger
from management.reports.tariff import Tariff
from tests.reports.conftest import reports_in
from tests.reports.feeds import TEN
from tests.reports.test_transforms import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRICES = Tariff(
    since="2026-09",
    currency="EUR",
    messages="0.4",
    bytes="0.085",
    storage="0.000333",
    connections="0.01",
)
DEARER = Tariff(since="2026-11", currency="EUR", messages="1")
NOW = datetime(2026, 11, 21, tzinfo=UTC)
VHOST, USER = COST.views


def month(number: int) -> datetime:
    return datetime(2026, number, 1, tzinfo=UTC)


def cost(price: str, quantity: int, unit: int) -> int:
    """An amount in millionths, by decimal arithmetic."""
    exact = Decimal(price) * quantity * 1_000_000 / unit
    return int(exact.quantize(Decimal(1), ROUND_HALF_UP))


def usage(number: int, **more: int) -> list[dict[str, Any]]:
    """What the virtual host `/` used in a month: `more` is of its queue."""
    at = month(number)
    return [
        {"kind": "exchange", "name": "x", "at": at, "publish_in": 1_234_567,
         "publish_in_bytes": 987_654_321},
        {"kind": "queue", "name": "q", "at": at, "deliver": 1_000_000, "get": 7,
         "deliver_bytes": 500_000_001, "message_bytes_s": 7_200_000_000_000_001, **more},
        {"kind": "user", "user": "anna", "at": at, "publish": 1_234_560, "publish_bytes": 5,
         "deliver_no_ack": 9, "connection_ms": 90_000_001},
    ]  # fmt: skip


def found(frame: Any) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: row["month"])


def test_it_prices_each_item_to_a_millionth(spark: SparkSession) -> None:
    live = costs.priced(rows(spark, *usage(10), *usage(8)), VHOST, [PRICES, DEARER])
    august, october = found(costs.statement(live, None, VHOST))
    expected = {
        "cost_messages": cost("0.4", 1_234_567 + 1_000_007, 10**6),
        "cost_bytes": cost("0.085", 987_654_321 + 500_000_001, 10**9),
        "cost_storage": cost("0.000333", 7_200_000_000_000_001, 3600 * 10**9),
        "cost_connections": cost("0.01", 90_000_001, 3_600_000),
    }
    assert {name: october[name] for name in expected} == expected
    assert october["cost"] == sum(expected.values())
    assert (october["storage"], october["currency"], october["state"]) == (2000, "EUR", "open")
    assert (august["cost"], august["currency"]) == (None, ""), "no tariff was in force"
    by_user = found(costs.statement(
        costs.priced(rows(spark, *usage(11)), USER, [PRICES, DEARER]), None, USER
    ))[0]  # fmt: skip
    assert (by_user["user"], by_user["cost"]) == ("anna", cost("1", 1_234_569, 10**6))


def test_a_closed_month_stays_as_it_is_and_late_data_are_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path)
    before = rows(spark, *usage(9), *usage(10), *usage(11))
    due = costs.due([month(9), month(10), month(11)], NOW, 86400)
    assert due == [month(9), month(10)]
    assert costs.due(due, datetime(2026, 11, 1, 23, tzinfo=UTC), 86400) == [month(9)]
    closed = costs.close_months(before, ledger, [PRICES], due, TEN)
    assert closed == ["2026-09", "2026-10"] == [one.month for one in ledger.months()]
    assert costs.close_months(before, ledger, [PRICES, DEARER], due, TEN) == []

    # Prices change, 1,500 messages of October arrive, a virtual host that was not there does too,
    # and September is older than what the tables keep.
    late = {"kind": "exchange", "at": month(10), "publish_in": 20, "vhost": "new"}
    after = rows(spark, *usage(10, deliver=1_001_500), *usage(11), late)
    changed = Tariff(since="2026-09", currency="USD", messages="99")
    live = costs.priced(after, VHOST, [changed])
    stored = costs.closed_rows(spark, ledger.paths("vhost", month(1), None))
    statement = found(costs.statement(live, stored, VHOST))
    by_key = {(row["month"].month, row["vhost"]): row for row in statement}
    assert set(by_key) == {(9, "/"), (10, "/"), (10, "new"), (11, "/")}
    original = found(costs.priced(before, VHOST, [PRICES]))[1]
    october = by_key[10, "/"]
    assert {name: october[name] for name in original} == original
    assert (october["state"], october["late_messages"]) == ("closed", 1500)
    assert october["late_cost"] > 0
    assert (by_key[9, "/"]["cost"], by_key[9, "/"]["late_messages"]) == (original["cost"], 0)
    new = by_key[10, "new"]
    assert (new["state"], new["cost"], new["messages_in"], new["late_messages"]) == (
        "closed", 0, 0, 20
    )  # fmt: skip
    assert (by_key[11, "/"]["state"], by_key[11, "/"]["currency"]) == ("open", "USD")


def test_a_month_that_was_half_closed_is_closed_whole_by_the_next_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, used = Ledger(tmp_path), rows(spark, *usage(10))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "write_atomic", full)
    with pytest.raises(OSError, match="No space left"):
        costs.close_months(used, ledger, [PRICES], [month(10)], TEN)
    monkeypatch.undo()
    assert ledger.months() == []
    assert costs.close_months(used, ledger, [PRICES], [month(10)], TEN) == ["2026-10"]
    with pytest.raises(FileExistsError, match="closed already"):
        ledger.close(ledger.months()[0], {})


def test_a_tariff_is_set_for_months_that_are_open_only(tmp_path: Path) -> None:
    reports = reports_in(tmp_path)
    closed = tmp_path / "reports" / "months" / "2026-10"
    closed.mkdir(parents=True)
    (closed / "closed.json").write_text("{}")
    (tmp_path / "reports" / "months" / "2026-11").mkdir()  # being closed when it was killed
    reports._changes.set_tariff({"since": "2026-11", "currency": "eur", "messages": "0.40"}, "anna")
    reports._changes.set_tariff({"since": "2026-12", "currency": "EUR"}, "anna")
    first, second = tariff.read(tmp_path / "reports")
    assert (first.since, first.currency, first.messages, first.bytes) == (
        "2026-11",
        "EUR",
        "0.4",
        "0",
    )
    with pytest.raises(ValueError, match="2026-10 is closed and does not change"):
        reports._changes.set_tariff({"since": "2026-10", "currency": "EUR"}, "anna")
    reports._changes.remove_tariff("2026-12", "anna")
    assert tariff.read(tmp_path / "reports") == [first] and second.since == "2026-12"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"since": "2026-13"}, "not a month such as 2026-11"),
        ({"since": "../../etc"}, "not a month"),
        ({"currency": "euro"}, "not three letters"),
        ({"messages": "-1"}, "prices are 0 to"),
        ({"storage": "NaN"}, "prices are 0 to"),
        ({"bytes": "0.0000001"}, "six digits"),
        ({"connections": "cheap"}, "the price of an hour of a connection is 'cheap'"),
        ({"tax": "19"}, "a tariff has no 'tax'"),
    ],
)
def test_a_wrong_tariff_is_refused_with_what_is_right(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tariff.checked({"since": "2026-11", "currency": "EUR", **given})


def test_amounts_are_spelled_as_decimals() -> None:
    spelled = [tariff.amount(value) for value in (0, 1, 500_000, 12_345_678, -2_000_000)]
    assert spelled == ["0", "0.000001", "0.5", "12.345678", "-2"]
