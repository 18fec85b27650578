"""A jump of the system's clock is said, and changes nothing."""

from __future__ import annotations

import pytest

from broker.server.clock_watch import ClockWatch


def test_it_says_when_the_clocks_move_apart(caplog: pytest.LogCaptureFixture) -> None:
    wall = own = 1_800_000_000_000
    watched = ClockWatch(lambda: wall, lambda: own)
    watched.look()
    wall, own = wall + 1900, own + 1000  # less than a second apart: nothing to say
    watched.look()
    assert not caplog.records
    wall += 3_600_000
    watched.look()
    watched.look()
    wall -= 10 * 86_400_000
    watched.look()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "moved by +3600.9 s" in said[0]
    assert "moved by -864000.0 s" in said[1]
    assert "now -860399.1 s beside the broker's" in said[1]
