"""Reports outside of the appliance: from a directory, through an object store, by spark-submit."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("obstore")

import pyarrow as pa
import pyarrow.parquet
from packaging.requirements import Requirement

from management import report_job
from management.reports import class_archive, folding, java, outside, session
from management.reports.columns import FEED_HELD, IDENTITY, MERGED
from management.reports.stores import Place, Store
from management.reports.tables import Tables, Written
from tests.reports.conftest import ARCHIVES, ROOT, TIMEOUT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS = (datetime(2026, 10, 31, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC))
CSV = (
    "at,vhost,messages_in,bytes_in,messages_out,bytes_out,queued,acknowledged,unroutable,received,"
    "sent\r\n2026-11-21T00:00:00Z,shop,20,0,0,0,0,0,0,0,0\r\n"
    "2026-10-31T00:00:00Z,shop,10,0,0,0,0,0,0,0,0\r\n"
)
QUESTION = ["traffic", "--by", "vhost", "--from", "2026-10-01", "--to", "2026-12-01"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of one exchange in two files, the older one without columns that came later."""
    directory = tmp_path_factory.mktemp("usage") / "tables"
    here = Tables(directory)
    for number, day in enumerate(DAYS):
        row = {"at": day} | dict.fromkeys(IDENTITY, "") | dict.fromkeys(MERGED, 0)
        row |= {"kind": "exchange", "vhost": "shop", "name": "orders"}
        row |= {"publish_in": 10 * (number + 1), "message_bytes_s": 3}
        if not number:
            row[FEED_HELD] = row.pop("message_bytes_s") * 1000
        path = directory.parent / "new.parquet"
        pyarrow.parquet.write_table(pa.Table.from_pylist([row]), path)
        here.publish([Written("day", f"2026-1{number}", path)], now_ms=number)
    return directory


@pytest.fixture
def computed(
    spark: SparkSession, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., tuple[int, str, str]]:
    """Computes with the session that there is; exit status, output, errors."""

    def compute(*options: str) -> tuple[int, str, str]:
        status = outside.main([*QUESTION, *options])
        written = capfdbinary.readouterr()
        return status, written.out.decode(), written.err.decode()

    return compute


def test_it_computes_from_the_tables_of_a_directory(
    computed: Callable[..., tuple[int, str, str]], tables: Path, tmp_path: Path
) -> None:
    assert computed("--tables", str(tables))[:2] == (0, CSV)
    output = tmp_path / "result.csv"
    assert computed("--tables", f"file://{tables}", "--output", str(output))[:2] == (0, "")
    assert output.read_bytes() == CSV.encode()
    status, _, error = computed("--tables", str(tmp_path))
    assert status == 1 and "no usage tables" in error


def test_it_reads_and_writes_a_store_through_the_driver(
    computed: Callable[..., tuple[int, str, str]],
    tables: Path,
    s3_endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store(Place("s3://usage/outside", s3_endpoint))
    for path in tables.rglob("*"):
        if path.is_file():
            store.put(f"tables/{path.relative_to(tables)}", path)
    place = ["--tables", "s3://usage/outside/tables", "--endpoint", s3_endpoint]
    assert computed(*place)[:2] == (0, CSV)
    monkeypatch.setattr(outside, "_shares_files", lambda _: False)
    assert computed(*place, "--output", "s3://usage/outside/result.csv")[:2] == (0, "")
    assert store.get("result.csv") == CSV.encode()


def test_without_the_jars_it_says_what_s3a_needs(
    computed: Callable[..., tuple[int, str, str]], tables: Path, s3_endpoint: str
) -> None:
    store = Store(Place("s3://usage/s3a", s3_endpoint))
    for path in tables.rglob("*.*"):
        if path.is_file():
            store.put(str(path.relative_to(tables)), path)
    status, output, error = computed("--tables", "s3a://usage/s3a", "--endpoint", s3_endpoint)
    assert (status, output) == (1, "")
    assert "has no classes for s3a://: put hadoop-aws" in error
    assert "Traceback" not in error


def test_rows_that_are_sent_are_those_that_are_read(spark: SparkSession, tables: Path) -> None:
    here = Tables(tables)
    paths = here.paths(here.files("day"))
    read, sent = (way(spark, paths) for way in (folding.read, folding.shipped))
    assert read.columns == sent.columns
    assert sorted(map(str, read.collect())) == sorted(map(str, sent.collect()))
    assert {row.message_bytes_s for row in sent.collect()} == {3}


def test_the_line_of_spark_submit_works_as_it_is_printed(tables: Path, tmp_path: Path) -> None:
    runtime = java.find(None, os.environ, tmp_path / "java")
    (tmp_path / "conf").mkdir()
    flags = f"{session.JVM_FLAGS} {class_archive.flags(ARCHIVES, runtime)}"
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        f"spark.ui.enabled false\nspark.driver.extraJavaOptions {flags}\n"
    )
    environment = os.environ | {
        "JAVA_HOME": str(runtime.home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment.pop("PYTHONPATH", None)

    def run(command: list[str], directory: Path) -> str:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=2 * TIMEOUT,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    job = [sys.executable, "manage.py", "report-job", str(tmp_path / "job")]
    line = run([*job, "--master", "local[2]", "--tables", str(tables)], ROOT)
    words = shlex.split(line)
    assert words[0] == "spark-submit"
    # From elsewhere: nothing may come from the checkout.
    range_ = ["--from", "2026-10-01", "--to", "2026-12-01"]
    assert run([*words, *range_], tmp_path).splitlines() == CSV.splitlines()


def test_a_client_of_spark_connect_is_plain_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_job.main([str(tmp_path), "--master", "sc://spark:15002", "--tables", "/t"]) == 0
    words = shlex.split(capsys.readouterr().out)
    archive, program = tmp_path / "leveret_reports.zip", tmp_path / "leveret_report.py"
    remote = ["env", "SPARK_REMOTE=sc://spark:15002", f"PYTHONPATH={archive}", "python3"]
    assert words[:6] == [*remote, str(program), "traffic"]
    assert archive.exists() and program.exists()


def test_without_the_packages_of_spark_connect_it_names_them_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tables: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # What it changes is restored.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "TMPDIR"):
        monkeypatch.setenv(name, "")
    # Where all of them are installed, it would look for the server.
    monkeypatch.setitem(session.CONNECT_PACKAGES, "no_such_package.grpc", "grpcio-of-a-test")
    with pytest.raises(session.ConnectMissing) as raised:
        session.open_session("sc://spark:15002", {}, None, tmp_path, tmp_path)
    text = str(raised.value)
    assert text.startswith("sc://spark:15002 needs ") and "grpcio-of-a-test" in text
    assert "pip install 'leveret[reports-connect]'" in text
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark:15002")
    assert outside.main([*QUESTION, "--tables", str(tables)]) == 1
    assert capsys.readouterr().err == f"leveret_report.py: {text}\n"


def test_what_spark_connect_needs_is_an_extra_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = [
        text for text in project["optional-dependencies"]["reports-connect"] if "[connect]" in text
    ]
    assert wanted.replace("[connect]", "[sql]") in project["optional-dependencies"]["reports"]
    there = [Requirement(text) for text in distribution("pyspark").requires or []]
    names = {one.name for one in there if one.marker and "connect" in str(one.marker)}
    assert set(session.CONNECT_PACKAGES.values()) <= names
