"""Tables and results in an object store: a directory, and moto's S3 server."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("obstore")

import pyarrow as pa
import pyarrow.parquet

from management.reports import job, mirror
from management.reports.keeping import Keeping
from management.reports.orders import Specification
from management.reports.runs import Runs
from management.reports.stores import Place, Store, StoreFailed
from management.reports.tables import RETIRED_MS, Manifest, Tables, Written

NOW = 1_795_255_200_000


@pytest.fixture(params=["s3", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place of an object store that nothing is in yet."""
    if request.param == "file":
        return Place(f"file://{tmp_path}/store")
    return Place(f"s3://usage/{tmp_path.name}", request.getfixturevalue("s3_endpoint"))


class Appliance:
    """The tables and results of one, without a broker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tables = Tables(directory / "usage" / "tables")
        self.runs = Runs(directory / "reports")
        self.run = self.runs.new("traffic", None, NOW)
        result = self.runs.path("traffic", self.run.run_id) / "result"
        result.mkdir()
        pyarrow.parquet.write_table(pa.table({"vhost": ["/"]}), result / "part-0.parquet")
        self.publish("2026-10", 1)

    def publish(self, period: str, rows: int, now: int = NOW) -> None:
        path = self.directory / "new.parquet"
        pyarrow.parquet.write_table(pa.table({"publish": list(range(rows))}), path)
        self.tables.publish([Written("day", period, path)], now_ms=now)

    def copy(self, place: Place) -> int:
        reports = self.directory / "reports"
        return mirror.copy(Store(place), self.tables, reports, "traffic", self.run.run_id)


@pytest.fixture
def appliance(tmp_path: Path) -> Appliance:
    return Appliance(tmp_path / "data")


def names(place: Place) -> set[str]:
    return set(Store(place).sizes("usage")) | set(Store(place).sizes("reports"))


def test_tables_and_result_lie_in_the_store_under_their_names(
    appliance: Appliance, place: Place, tmp_path: Path
) -> None:
    month = appliance.directory / "reports" / "months" / "2026-10"
    month.mkdir(parents=True)
    (month / "closed.json").write_text("{}")
    assert appliance.copy(place) == 4
    result = f"reports/traffic/{appliance.run.run_id}/result/part-0.parquet"
    assert names(place) == {
        "usage/tables/owner", "usage/tables/manifest.json", "usage/tables/day/2026-10.1.parquet",
        "reports/months/2026-10/closed.json", result,
    }  # fmt: skip
    Store(place).fetch(result, tmp_path / "fetched.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "fetched.parquet")["vhost"].to_pylist() == ["/"]
    assert appliance.copy(place) == 1, "the result only: tables and months have not changed"


def test_it_copies_what_is_new_and_deletes_what_no_reader_needs(
    appliance: Appliance, place: Place
) -> None:
    appliance.copy(place)
    appliance.publish("2026-11", 2)
    appliance.publish("2026-10", 3)
    appliance.copy(place)
    days = {name for name in names(place) if "/day/" in name}
    assert days == {f"usage/tables/day/2026-{name}.parquet" for name in ("10.1", "10.3", "11.2")}
    manifest = msgspec.json.decode(
        Store(place).get("usage/tables/manifest.json") or b"", type=Manifest
    )
    assert [file.name for file in manifest.files] == ["2026-10.3.parquet", "2026-11.2.parquet"]
    appliance.tables.clean((), NOW + RETIRED_MS)
    appliance.copy(place)
    assert "usage/tables/day/2026-10.1.parquet" not in names(place)


def test_results_that_are_forgotten_here_go_from_the_store(
    appliance: Appliance, place: Place
) -> None:
    appliance.copy(place)
    old = appliance.runs.path("traffic", appliance.run.run_id)
    appliance.run = appliance.runs.new("traffic", None, NOW + 1000)
    old.rename(old.parent / "gone")
    appliance.copy(place)
    assert not any(old.name in name for name in names(place))


def test_it_leaves_the_copy_of_another_appliance_alone(
    appliance: Appliance, place: Place, tmp_path: Path
) -> None:
    appliance.copy(place)
    before = Store(place).get("usage/tables/manifest.json")
    other = Appliance(tmp_path / "other")
    other.publish("2026-12", 9)
    with pytest.raises(StoreFailed, match="the usage of another appliance"):
        other.copy(place)
    assert Store(place).get("usage/tables/manifest.json") == before


def test_a_restored_backup_replaces_files_of_the_same_name(
    appliance: Appliance, place: Place, tmp_path: Path
) -> None:
    appliance.copy(place)
    saved = (appliance.tables.directory / "manifest.json").read_bytes()
    appliance.publish("2026-11", 5)
    appliance.publish("2026-11", 6)
    appliance.copy(place)
    (appliance.tables.directory / "manifest.json").write_bytes(saved)
    appliance.tables = Tables(appliance.tables.directory)
    appliance.publish("2026-11", 50)
    appliance.copy(place)
    Store(place).fetch("usage/tables/day/2026-11.2.parquet", tmp_path / "fetched.parquet")
    assert len(pyarrow.parquet.read_table(tmp_path / "fetched.parquet")) == 50


@pytest.mark.parametrize(
    ("url", "away", "message"),
    [
        ("s3://no-such-bucket/x", False, "NoSuchBucket"),
        ("s3://usage/x", True, "error sending request"),
        ("gopher://usage", False, "is not s3://bucket/prefix or file:///directory"),
    ],
)
def test_a_store_that_fails_is_told_in_one_line_and_fails_no_run(
    appliance: Appliance,
    s3_endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    away: bool,
    message: str,
) -> None:
    monkeypatch.setattr("management.reports.stores.RETRIES", 0)
    place = Place(url, "http://127.0.0.1:1" if away else s3_endpoint)
    given = Specification(
        report="traffic", parameters={}, run_id=appliance.run.run_id, run_directory="",
        usage_directory="", work_directory="", keeping=Keeping(1, 1, 1),
        launcher_directory="", java_home=None,
        spark_master="", options={}, store=place,
        reports_directory=str(appliance.directory / "reports"),
    )  # fmt: skip
    intake: Any = SimpleNamespace(tables=appliance.tables)
    error = job._copy(given, intake)
    assert error is not None and message in error
    assert "\n" not in error and len(error) < 700
