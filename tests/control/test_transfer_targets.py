"""Where a transfer to an exchange leads, and whether its user may write there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.features.transfer.target import ToExchange
from broker.fields import properties
from broker.schema.errors import AccessRefused


class Rights:
    """Of a user who may write to topics below `mine`."""

    def check_topics(self, right: str, exchange: Any, keys: list[str]) -> None:
        for key in keys:
            if not key.startswith("mine."):
                raise AccessRefused(f"write access to topic '{key}' refused")


@pytest.mark.parametrize(("more", "refused"), [("mine.b", ""), ("theirs.a", "theirs.a")])
def test_keys_in_cc_need_the_same_rights_as_the_routing_key(more: str, refused: str) -> None:
    queue = object()

    def routing(*_: Any) -> Any:
        yield
        return (queue,)

    routes = SimpleNamespace(is_by_key=lambda exchange: True, routing=routing)
    vhost: Any = SimpleNamespace(topology_version=1, routes=routes, name="/")
    exchange: Any = SimpleNamespace(name="amq.topic")
    target = ToExchange(vhost, exchange, Rights())
    listed = properties.encode({"headers": {"CC": [more]}})
    queues, text = target(b"mine.a", listed)
    assert bool(queues) != bool(refused)
    assert not refused or f"'{refused}' refused" in str(text)
