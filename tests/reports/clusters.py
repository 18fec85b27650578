"""The same report on Spark of every kind: `make spark-clusters`, a few minutes.

In this process's JVM, on a standalone cluster of one master and two workers, and through a Spark
Connect server where the package `pyspark[connect]` is installed: all on this machine, on loopback.
Each is run by the line that `manage.py report-job` prints, and has to write the same rows.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pyspark

from management.reports import java
from management.reports.columns import IDENTITY, MERGED
from management.reports.tables import Tables, Written
from tests.reports.conftest import ROOT

HOURS, QUEUES = 48, 200
SECONDS_MAX = 600
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
RANGE = ["--from", "2026-11-01", "--to", "2026-12-01", "--grain", "hour", "--by", "queue"]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="leveret-clusters-") as name, ExitStack() as stack:
        place = Path(name)
        tables = _tables(place)
        environment = _environment(place)
        spark = Path(pyspark.__file__).parent / "bin" / "spark-class"
        port = _free_port()
        master = f"spark://127.0.0.1:{port}"
        deploy = [str(spark), "org.apache.spark.deploy"]
        _started(stack, [deploy[0], f"{deploy[1]}.master.Master", "--host", "127.0.0.1", "--port",
                         str(port), "--webui-port", "0"], environment, port, place)  # fmt: skip
        for number in range(2):
            own = _free_port()
            _started(stack, [deploy[0], f"{deploy[1]}.worker.Worker", master, "--host",
                             "127.0.0.1", "--port", str(own), "--webui-port", "0", "--cores", "1",
                             "--memory", "700m", "--work-dir", str(place / f"worker{number}")],
                     environment, own, place)  # fmt: skip
        results = {"local[2]": _run("local[2]", [], place, tables, environment)}
        memory = ["--conf", "spark.executor.memory=500m", "--conf", "spark.executor.cores=1"]
        results[f"{master}, two workers"] = _run(master, memory, place, tables, environment)
        if importlib.util.find_spec("grpc") is None:
            print("sc:// is left out: pip install 'pyspark[connect]'")
        else:
            own = _free_port()
            _started(stack, [str(spark.parent / "spark-submit"), "--class", CONNECT, "--master",
                             "local[2]", "--conf", f"spark.connect.grpc.binding.port={own}",
                             "--conf", "spark.connect.grpc.binding.address=127.0.0.1"],
                     environment, own, place)  # fmt: skip
            remote = f"sc://127.0.0.1:{own}"
            results[remote] = _run(remote, [], place, tables, environment)
        first = next(iter(results.values()))
        rows = first.count("\n") - 1
        for kind, text in results.items():
            print(f"{kind}: {'the same' if text == first else 'OTHER'} {rows} rows")
        right = rows == HOURS * QUEUES and all(text == first for text in results.values())
        return 0 if right else 1


def _tables(place: Path) -> Path:
    directory = place / "tables"
    here = Tables(directory)
    start = datetime(2026, 11, 20, tzinfo=UTC)
    for day in range(2):
        rows = [
            {"at": start + timedelta(days=day, hours=hour)}
            | dict.fromkeys(IDENTITY, "") | dict.fromkeys(MERGED, 0)
            | {"kind": "queue", "vhost": "/", "name": f"queue-{queue}", "publish": hour + queue + 1}
            for hour in range(24) for queue in range(QUEUES)
        ]  # fmt: skip
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), place / "new.parquet")
        here.publish([Written("hour", f"2026-11-2{day}", place / "new.parquet")], now_ms=day)
    return directory


def _environment(place: Path) -> dict[str, str]:
    (place / "conf").mkdir()
    (place / "conf" / "spark-defaults.conf").write_text(
        "spark.ui.enabled false\nspark.driver.host 127.0.0.1\n"
        "spark.driver.bindAddress 127.0.0.1\nspark.driver.memory 500m\n"
    )
    return os.environ | {
        "JAVA_HOME": str(java.find(None, os.environ, place / "java").home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(place / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
    }


def _run(
    master: str, options: list[str], place: Path, tables: Path, environment: dict[str, str]
) -> str:
    job = [sys.executable, "manage.py", "report-job", str(place / "job"), "--tables", str(tables)]
    line = shlex.split(subprocess.check_output([*job, "--master", master], cwd=ROOT, text=True))
    if "--py-files" in line:
        line[1:1] = options
    elif packages := os.environ.get("PYTHONPATH"):
        line[2] += f":{packages}"
    began = time.monotonic()
    done = subprocess.run(
        [*line, *RANGE], cwd=place, env=environment, capture_output=True, text=True,
        timeout=SECONDS_MAX,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{master}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    print(f"{master}: {time.monotonic() - began:.1f} s")
    return done.stdout


def _started(
    stack: ExitStack, command: list[str], environment: dict[str, str], port: int, place: Path
) -> None:
    stack.enter_context(_running(command, environment, place))
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@contextmanager
def _running(command: list[str], environment: dict[str, str], place: Path) -> Iterator[None]:
    with (place / "servers.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=place, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
