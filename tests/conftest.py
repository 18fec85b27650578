"""Fixtures that start real processes; see `tests.appliance` for what they give.

`broker` and `leveret` start a fresh one for the test. `shared_broker` and `shared_leveret` are
started once per run for tests that neither stop it nor mind what others left in it: use names of
your own. `make_broker` and `make_leveret` start as many as a test needs, with settings.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx._transports.default as httpx_transports
import pytest
from hypothesis import HealthCheck, settings

from tests import forks, scheduling
from tests.appliance import Appliance
from tests.disks import SmallDisk

# The long form of one test, which opens pages for an hour on a busy machine, sets it.
TEST_SECONDS_MAX = int(os.environ.get("LEVERET_TEST_SECONDS_MAX", "300"))

# An example takes as long as the machine lets it: other tests run beside it.
settings.register_profile(
    "leveret", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("leveret")

Make = Callable[..., Appliance]


def _maker(what: str, directory: Path) -> Iterator[Make]:
    made: list[Appliance] = []

    def make(*, start: bool = True, **settings: Any) -> Appliance:
        place = directory / f"{what}{len(made)}"
        place.mkdir()
        appliance = Appliance(what, place, **settings)
        made.append(appliance)
        return appliance.start() if start else appliance

    yield make
    for appliance in reversed(made):
        appliance.close()


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Make]:
    """A function that starts a broker: `make_broker(segment_size=65536)`."""
    yield from _maker("broker", tmp_path)


@pytest.fixture
def make_leveret(tmp_path: Path) -> Iterator[Make]:
    """A function that starts a whole appliance: `make_leveret(session_lifetime=60)`."""
    yield from _maker("serve", tmp_path)


@pytest.fixture(scope="module")
def real_starts() -> Iterator[None]:
    """Appliances of this module are started as users start them, see `tests.forks`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forks, "allowed", False)
        yield


@pytest.fixture
def broker(make_broker: Make) -> Appliance:
    """A broker of the test's own."""
    return make_broker()


@pytest.fixture
def leveret(make_leveret: Make) -> Appliance:
    """A whole appliance of the test's own."""
    return make_leveret()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A file system of 64 MiB; a broker's `data_dir` may lie on it."""
    disk = SmallDisk(tmp_path / "disk", 64 << 20)
    yield disk
    disk.unmount()


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """One broker for all tests that can live together."""
    for make in _maker("broker", tmp_path_factory.mktemp("shared")):
        yield make()


@pytest.fixture(scope="session")
def shared_leveret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """One appliance for all tests that can live together."""
    for make in _maker("serve", tmp_path_factory.mktemp("shared")):
        yield make(problem_grace=0)


def slow_tests() -> set[str]:
    """The tests that are named in `slow_tests.txt`, without their cases."""
    lines = Path(__file__).with_name("slow_tests.txt").read_text().splitlines()
    return {line for line in lines if not line.startswith("#")}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End a test that hangs, so that it fails with a traceback instead of stopping the run."""

    def end(*_: object) -> None:
        raise TimeoutError(f"{item.name} took longer than {TEST_SECONDS_MAX} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(TEST_SECONDS_MAX)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the log of a failed test's processes."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, Appliance):
                report.sections.append((f"log of {name}", value.log()[-8000:]))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """See `tests.scheduling`; other ways of `--dist` are as they are."""
    return scheduling.Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow ones, and begin with what takes long, in a parallel run."""
    slow = slow_tests()
    for item in items:
        if item.nodeid.partition("[")[0] in slow:
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: scheduling.turn_of(item.nodeid))


def pytest_collection_finish() -> None:
    """Each full collection of garbage would walk over the objects of 8,000 tests: 0.25 s."""
    gc.collect()
    gc.freeze()


def _share_tls_context() -> None:
    """Every client of httpx reads all certificates of the machine, also where it speaks no TLS,
    which takes 30 ms: those that ask for nothing special share what the first has read."""
    make = httpx_transports.create_ssl_context
    made = functools.cache(lambda *certificates: make())

    def context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is not True or cert is not None or not trust_env:
            return make(verify=verify, cert=cert, trust_env=trust_env)
        return made(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))

    vars(httpx_transports)["create_ssl_context"] = context


def pytest_configure(config: pytest.Config) -> None:
    """Keep the machine's own settings out of the tests: Leveret's, and the one that has Python
    compile every module at every start, which doubles the time that a broker takes to start."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    for name in [name for name in os.environ if name.startswith("LEVERET_")]:
        if not name.startswith("LEVERET_TEST_") and name != "LEVERET_BOUNDSCHECK":
            del os.environ[name]
    os.environ["LEVERET_CONFIG"] = ""
    forks.allowed = not os.environ.get("LEVERET_TEST_REAL_STARTS")
    _share_tls_context()
    # A line for each channel and each nack would push what failed out of the log of a run.
    logging.getLogger("pika").setLevel(logging.CRITICAL)
