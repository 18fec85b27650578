"""Periodic work goes on whatever happens in one of its steps."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker.process.garbage import YOUNG_EVERY_NS
from broker.server import periodic
from broker.server.timers import TimingWheel


def test_a_round_that_fails_is_not_the_last_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(periodic, "TICK_S", 0.001)
    garbage = SimpleNamespace(
        start=lambda now: None, tick=lambda now, is_quiet: None, walk_over_young=lambda: None
    )
    monkeypatch.setattr(periodic, "Garbage", lambda _: garbage)
    rounds = []

    async def beat() -> None:
        loop = asyncio.get_running_loop()
        third = asyncio.Event()

        def tick() -> None:
            rounds.append(loop.time())
            if len(rounds) == 3:
                third.set()
            elif len(rounds) == 1:
                raise RuntimeError("this one fails")

        broker: Any = SimpleNamespace(
            loop=loop,
            timers=TimingWheel(),
            turn=SimpleNamespace(),
            sockets=SimpleNamespace(),
            persister=SimpleNamespace(tick=tick),
            stall=SimpleNamespace(look=lambda: None),
            vhosts={},
            features=[],
        )
        broker.timers.start(loop)
        periodic.PeriodicWork(broker).start()
        assert broker.sockets.walk_over_young is garbage.walk_over_young
        assert broker.sockets.walk_every_ns == YOUNG_EVERY_NS
        async with asyncio.timeout(30):
            await third.wait()
        broker.timers.close()

    asyncio.run(beat())
    assert len(rounds) == 3
    assert [record.exc_info[1] for record in caplog.records if record.exc_info]
