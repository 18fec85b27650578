"""The types of queues and exchanges that a form offers: those that the broker says it has."""

from __future__ import annotations

from django.http import HttpRequest

from frontend.asking import ask

TEXTS = {
    "queue": {
        "classic": "classic: a queue as AMQP knows it",
        "quorum": "quorum: durable, with a delivery limit of 20",
        "stream": "stream: a log that many read, each at its place",
    },
    "exchange": {
        "topic": "topic: by words of the routing key, with * and #",
        "direct": "direct: by the whole routing key",
        "fanout": "fanout: to every binding",
        "headers": "headers: by header values",
        "x-consistent-hash": "x-consistent-hash: one queue for each key, binding keys are weights",
        "x-random": "x-random: to one of its bindings by chance",
        "x-delayed-message": "x-delayed-message: later, then as another type",
    },
}
"""In the order in which they are offered; a type without a text is offered behind them."""


async def types_of(request: HttpRequest, kind: str) -> list[tuple[str, str]]:
    """Names and texts for a select. `kind`: queue or exchange."""
    there = (await ask(request, "types"))[kind]
    known = [(name, text) for name, text in TEXTS[kind].items() if name in there]
    return known + [(name, name) for name in there if name not in TEXTS[kind]]
