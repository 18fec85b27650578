"""What a stream wrote in a round without a sync can be read when the next sync is over."""

from __future__ import annotations

from pathlib import Path

from broker.fields import properties
from tests.crash.inside import Inside, publish
from tests.crash.stream_script import ARGUMENTS, NAME, rows_of


def test_what_a_round_wrote_without_a_sync_is_read_after_the_next_sync(tmp_path: Path) -> None:
    inside = Inside(tmp_path / "data").start()
    try:
        inside.vhost.declare_queue(NAME, durable=True, arguments=ARGUMENTS)
        inside.tick()
        publish(inside.vhost, "", NAME, properties.encode({}), b"x")
        told: list[bool] = []
        inside.persister.after_round(lambda: told.append(True), False)
        inside.pump(lambda: bool(told))
        assert rows_of(inside) == []
        inside.tick()
        assert rows_of(inside) == [(0, b"x")]
    finally:
        inside.kill()
