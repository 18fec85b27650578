"""AMQP over a Unix socket: who may use it, and whose place it takes."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from tests.amqp import raw
from tests.appliance import Appliance, NotReadyError
from tests.conftest import Make


class UnixClient(raw.Client):
    """A raw AMQP client over a Unix socket, not yet signed in."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self.timeout = 10.0
        self.buffer = b""
        self.frame_max = 131072
        self.keep_heartbeats = False

    def use(self) -> UnixClient:
        self.start()
        self.send_method(0, "connection.open", virtual_host="/")
        self.expect("connection.open-ok", 0)
        self.call(1, "channel.open")
        return self


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "amqp.sock"


def refused(broker: Appliance) -> str:
    """Starts a broker that must not come up; returns its last line."""
    with pytest.raises(NotReadyError, match="ended with 69") as caught:
        broker.start()
    broker.process = None
    return str(caught.value).rstrip().splitlines()[-1]


def test_its_user_and_group_may_use_it(make_broker: Make, path: Path) -> None:
    make_broker(unix_path=path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    with UnixClient(path).use() as client:
        queue = client.call(1, "queue.declare", exclusive=True).queue
        client.publish(1, "", queue, bytes(300_000))
        got = client.get(1, queue, no_ack=True)
        assert got is not None and len(got.body) == 300_000
        client.close()


def test_it_is_gone_after_a_clean_stop_and_taken_over_after_a_kill(
    make_broker: Make, path: Path
) -> None:
    broker = make_broker(unix_path=path)
    assert broker.stop() == 0
    assert not path.exists()
    broker.start()
    broker.kill()
    assert path.exists(), "what this test is about"
    broker.start()
    with UnixClient(path).use() as client:
        client.fence(1)


def test_one_that_is_in_use_is_left_to_its_owner(make_broker: Make, path: Path) -> None:
    make_broker(unix_path=path)
    second = make_broker(start=False, unix_path=path)
    assert refused(second).endswith(f"cannot listen on {path}: another process listens there")
    with UnixClient(path).use() as client:
        client.fence(1)


def test_a_file_that_is_no_socket_is_never_removed(make_broker: Make, path: Path) -> None:
    path.write_text("dear diary")
    assert refused(make_broker(start=False, unix_path=path)).endswith(
        f"cannot listen on {path}: it exists and is no socket"
    )
    assert path.read_text() == "dear diary"


def test_a_link_is_not_followed(make_broker: Make, path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    path.symlink_to(tmp_path / "elsewhere")
    assert "it exists and is no socket" in refused(make_broker(start=False, unix_path=path))
    assert (tmp_path / "elsewhere").read_text() == "kept"


def test_a_missing_directory_is_made(make_broker: Make, tmp_path: Path) -> None:
    path = tmp_path / "run" / "leveret" / "amqp.sock"
    make_broker(unix_path=path)
    with UnixClient(path).use() as client:
        client.fence(1)


def test_a_place_that_cannot_be_had_is_told_in_one_line(make_broker: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "amqp.sock"
    line = refused(make_broker(start=False, unix_path=path))
    assert f"cannot listen on {path}: Not a directory" in line
