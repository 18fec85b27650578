"""Federation: exchanges and queues that take messages from those of other brokers
(docs/federation.md). The process `bridges` runs the links.

`links` says which there are, `watching` what they have to know of bindings and consumers, `news`
tells the process what changed, `exchange` is the type that other brokers declare here when they
federate from this one.
"""

from __future__ import annotations

from typing import Any


def build(host: Any) -> Any:
    """The federation of a broker; control verbs find it as `host.federation`. Makes the exchange
    type known."""
    from broker.features.federation.exchange import FederationUpstreamExchange
    from broker.features.federation.feature import Federation
    from broker.routing.types import TYPES

    TYPES[FederationUpstreamExchange.type] = FederationUpstreamExchange
    host.federation = Federation(host)
    return host.federation
