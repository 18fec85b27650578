"""A data directory on two file systems, of which the syncs of rounds reach one, is refused."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.store.directory import one_file_system
from broker.store.directory.one_file_system import TwoFileSystems, check
from tests.appliance import NotReadyError
from tests.conftest import Make
from tests.crash.inside import Inside

VHOST = "vhosts/0000000100000001"
REFUSED = (
    *("vhosts", VHOST, f"{VHOST}/queues", f"{VHOST}/bodies", f"{VHOST}/delayed", "quarantine"),
    *(f"{VHOST}/queues/0000000100000002", f"{VHOST}/index/unsealed"),
)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system than the test's own."""
    place = Path(tempfile.mkdtemp(prefix="leveret-elsewhere-", dir="/dev/shm"))
    assert place.stat().st_dev != tmp_path.stat().st_dev
    yield place
    shutil.rmtree(place)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What a data directory has, and `there` beside it on the same file system."""
    data = tmp_path / "data"
    for path in (f"{VHOST}/queues/0000000100000002", f"{VHOST}/bodies", "run", "objects", "usage"):
        (data / path).mkdir(parents=True)
    (tmp_path / "there").mkdir()
    return data


def put(path: Path, elsewhere: Path) -> None:
    """Moves a directory, and leaves a link to it."""
    if path.exists():
        shutil.move(path, elsewhere / path.name)
    (elsewhere / path.name).mkdir(exist_ok=True)
    path.symlink_to(elsewhere / path.name)


def test_a_whole_data_directory_passes(data: Path) -> None:
    check(str(data))


def test_a_data_directory_that_is_elsewhere_as_a_whole_passes(
    tmp_path: Path, data: Path, elsewhere: Path
) -> None:
    put(data, elsewhere)
    check(str(data))


@pytest.mark.parametrize("path", REFUSED)
def test_a_directory_on_another_file_system_is_refused(
    data: Path, elsewhere: Path, path: str
) -> None:
    (data / path).parent.mkdir(exist_ok=True)
    put(data / path, elsewhere)
    with pytest.raises(TwoFileSystems) as caught:
        check(str(data))
    assert str(caught.value) == (
        f"{data / path} is on another file system than the data directory {data}, whose syncs do"
        " not reach it: move it there, or put the whole data directory on that file system"
    )


def test_a_link_within_the_file_system_is_followed(
    tmp_path: Path, data: Path, elsewhere: Path
) -> None:
    put(data / "vhosts", tmp_path / "there")
    check(str(data))
    put(data / VHOST / "queues", elsewhere)
    with pytest.raises(TwoFileSystems, match=f"{data / VHOST}/queues is on another"):
        check(str(data))


@pytest.mark.parametrize("path", ["run", "objects", "usage", "history", "reports"])
def test_what_no_round_syncs_may_be_elsewhere(data: Path, elsewhere: Path, path: str) -> None:
    put(data / path, elsewhere)
    check(str(data))


def test_a_mount_is_found_wherever_it_is(
    data: Path, elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test must not mount anything: a link that is too deep to be looked for stands for it."""
    mount = data / VHOST / "queues" / "0000000100000002" / "with a blank"
    put(mount, elsewhere)
    check(str(data))
    told = tmp_path / "mountinfo"
    escaped = str(mount).replace(" ", "\\040")
    told.write_text(
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        f"23 27 0:22 / {elsewhere} rw,relatime - tmpfs tmpfs rw\n"
        f"24 27 0:22 / {escaped} rw,relatime shared:1 - tmpfs tmpfs rw\n"
    )
    monkeypatch.setattr(one_file_system, "_MOUNTS", str(told))
    with pytest.raises(TwoFileSystems, match="with a blank is on another"):
        check(str(data))


def test_without_the_kernels_list_links_are_found(
    data: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_file_system, "_MOUNTS", "/proc/none")
    check(str(data))
    put(data / VHOST, elsewhere)
    with pytest.raises(TwoFileSystems):
        check(str(data))


def test_a_directory_that_nobody_may_list_is_passed_over(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `lost+found`. The tests may run as root, who may list all."""
    scandir = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("/lost+found"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    (data / "vhosts" / "lost+found").mkdir()
    monkeypatch.setattr(os, "scandir", refuse)
    check(str(data))


def test_a_broker_does_not_start_with_its_queues_elsewhere(
    make_broker: Make, elsewhere: Path
) -> None:
    broker = make_broker()
    broker.stop()
    (vhost,) = (broker.data_dir / "vhosts").iterdir()
    put(vhost / "queues", elsewhere)
    with pytest.raises(NotReadyError) as caught:
        broker.start()
    (line,) = [line for line in str(caught.value).splitlines() if "another file system" in line]
    assert f"{vhost}/queues is on another file system than the data directory" in line
    assert "Traceback" not in str(caught.value)
    assert "ended with 78" in str(caught.value)


def test_a_new_vhost_is_refused_where_another_file_system_came_since(
    tmp_path: Path, elsewhere: Path
) -> None:
    inside = Inside(tmp_path / "data").start()
    put(tmp_path / "data" / "vhosts", elsewhere)
    with pytest.raises(TwoFileSystems, match="is on another file system"):
        inside.definitions.prepare(1, ())
    inside.kill()
