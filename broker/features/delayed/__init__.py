"""Delayed messages: an exchange holds a message back for as long as its header `x-delay` says.

`holding` is the queue that such a message waits in, `schedule` the index that knows which one is
due next (`docs/formats/delayed.md`), `exchange` the type of RabbitMQ's plugin. An exchange of any
other type does the same with the argument `x-delayed-exchange`.
"""

from __future__ import annotations

from typing import Any

from broker.features.delayed.exchange import DelayedMessageExchange
from broker.features.delayed.feature import Delayed
from broker.routing.types import TYPES
from broker.settings.bounds import bounds_of


def build(host: Any) -> Delayed:
    """Delayed messages of a broker. Makes the exchange type known."""
    TYPES[DelayedMessageExchange.type] = DelayedMessageExchange
    return Delayed(host.turn, host.persister, host.later, bounds_of(host.config))
