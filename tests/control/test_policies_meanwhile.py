"""Objects that go while a policy is brought to all of a vhost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.vhosts.applied_policies import AppliedPolicies
from tests.inside import running


async def test_an_exchange_that_was_deleted_before_its_turn_gets_no_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what a policy made for it, such as the link of a federation, would stay for good."""
    async with running(tmp_path) as broker:
        vhost = broker.vhosts["/"]
        for name in ("first", "second", "again"):
            vhost.declare_exchange(name, "direct")
        steps = vhost.apply_policies()
        next(steps)
        deleted = [vhost.exchanges[name] for name in ("second", "again")]
        for name in ("second", "again"):
            vhost.delete_exchange(name)
        vhost.declare_exchange("again", "direct")
        brought: list[Any] = []
        monkeypatch.setattr(
            AppliedPolicies, "to_exchange", lambda self, exchange: brought.append(exchange)
        )
        for _ in steps:
            pass
        assert vhost.exchanges["first"] in brought
        assert not [exchange for exchange in deleted if exchange in brought]
