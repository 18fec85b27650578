"""What limits have done to clients since the start, and what is counted against them now: for the
node's page, the API and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.wire.commands import added_queues

if TYPE_CHECKING:
    from broker.server.app import Broker


class Figure(NamedTuple):
    """A name as in the API's rows of nodes, its value, whether it only grows, and what it is."""

    name: str
    value: int
    counts: bool
    text: str


def limit_figures(broker: Broker) -> tuple[Figure, ...]:
    """All of them, of the broker's own listeners."""
    return (
        Figure(
            "connections_refused",
            broker.admission.refused,
            True,
            "Connections refused because as many are open as there is room for",
        ),
        Figure(
            "tls_handshakes",
            broker.admission.handshakes.count,
            False,
            "TLS handshakes under way",
        ),
        Figure(
            "tls_handshakes_aborted",
            broker.admission.handshakes.aborted,
            True,
            "TLS handshakes ended to make room for newer ones",
        ),
        *(Figure(*figure) for figure in added_queues.limit_figures()),
    )
