"""Opens the Spark session a report runs in: in this process's own JVM, on a cluster, or through
Spark Connect.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from . import class_archive, java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPLICATION = "leveret reports"

# Most runs are short: starting quickly matters more to them than peak throughput (7.5 s against
# 9.8 s, and half the CPU). A run over many rows needs the second compiler.
JVM_FLAGS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
JVM_FLAGS_LARGE = "-XX:+UseSerialGC"

OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # Listing some thousand files is quicker here than as a job of as many tasks.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # One rename a file; nothing reads the directory before all of them are done.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.sql.debug.maxToStringFields": "30",
}

# A session in this machine's own JVM listens on loopback only. A cluster's workers must be able to
# call the driver back, so there the operator's own spark.driver.* options decide.
LOCAL_OPTIONS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

# Only these may be set on a server that is already running, which is what Spark Connect talks to.
CONNECT_OPTIONS = (
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
    "spark.sql.sources.parallelPartitionDiscovery.threshold",
    "spark.sql.parquet.compression.codec",
    "spark.sql.parquet.outputTimestampType",
)

# What a client of Spark Connect imports beside `pyspark[sql]`: `reports-connect` in pyproject.toml.
CONNECT_PACKAGES = {
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "zstandard": "zstandard",
}


class ConnectMissing(Exception):
    """Packages of Spark Connect are not installed; the text names them and what to do."""


def is_connect(master: str) -> bool:
    """Whether `master` names a Spark Connect server (`sc://host:port`), which has no JVM on this
    side.
    """
    return master.startswith("sc://")


def is_local(master: str) -> bool:
    """Whether `master` runs Spark inside a JVM on this machine."""
    return master == "local" or master.startswith("local[")


def open_session(
    master: str,
    options: Mapping[str, str],
    java_home: Path | None,
    scratch: Path,
    launcher_directory: Path,
    *,
    large: bool = False,
) -> tuple[SparkSession, str]:
    """Open the session and say in a few words what runs it, for the run record.

    `large` says that it is to read millions of rows.

    `options` are the operator's own `spark.*` keys and win over the ones set here. `scratch` is an
    existing absolute directory for temporary files; the caller removes it. What is made once for
    Java, such as `class_archive`, is below `launcher_directory`. Changes os.environ, so
    call it in a process of its own. Raises java.JavaMissing.
    """
    # Workers are started by this name; without it they take some python3 from PATH, which lacks our
    # packages.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["TMPDIR"] = str(scratch)
    if is_connect(master):
        return _open_connect(master, options)
    runtime = java.find(java_home, os.environ, launcher_directory)
    os.environ["JAVA_HOME"] = str(runtime.home)
    # The JVM's threads would each keep an arena of freed memory.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    if is_local(master):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    settings = dict(OPTIONS)
    archive = class_archive.flags(launcher_directory, runtime)
    settings["spark.driver.extraJavaOptions"] = " ".join(
        (JVM_FLAGS_LARGE if large else JVM_FLAGS, archive)
    ).strip()
    settings["spark.local.dir"] = settings["spark.sql.warehouse.dir"] = str(scratch)
    settings["spark.driver.defaultJavaOptions"] = _quoted(f"-Djava.io.tmpdir={scratch}")
    if is_local(master):
        settings.update(LOCAL_OPTIONS)
    settings.update(options)
    builder = SparkSession.builder.appName(APPLICATION).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    return spark, f"Spark {spark.version} on {master}, {runtime.source} Java {runtime.version}"


def _quoted(option: str) -> str:
    """One JVM option as Spark's launcher reads it: split at blanks, unless within double quotes."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def require_connect(master: str) -> None:
    """Raises ConnectMissing if what a client of Spark Connect imports is not installed."""
    missing = [name for module, name in CONNECT_PACKAGES.items() if not _is_there(module)]
    if missing:
        raise ConnectMissing(
            f"{master} needs {', '.join(missing)}, which Python does not have here:"
            " pip install 'leveret[reports-connect]' or 'pyspark[connect]' adds what is missing"
        )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False


def _open_connect(master: str, options: Mapping[str, str]) -> tuple[SparkSession, str]:
    require_connect(master)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(master)
    settings = {name: OPTIONS[name] for name in CONNECT_OPTIONS} | dict(options)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    return spark, f"Spark {spark.version} through Spark Connect at {master}"
