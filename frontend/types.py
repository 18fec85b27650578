"""The types of queues and exchanges that a form offers: those that the broker says it has."""

from __future__ import annotations

from django.http import HttpRequest

from frontend.asking import ask

TEXTS = {
    "queue": {
        "classic": "classic: a queue as AMQP knows it",
        "quorum": "quorum: durable, delivery limit 20",
        "stream": "stream: a log that many read",
    },
    "exchange": {
        "topic": "topic: by words of the routing key",
        "direct": "direct: by the whole routing key",
        "fanout": "fanout: to every binding",
        "headers": "headers: by header values",
        "x-consistent-hash": "x-consistent-hash: one queue per key",
        "x-random": "x-random: to any one binding",
        "x-delayed-message": "x-delayed-message: later",
    },
}
"""In the order in which they are offered; a type without a text is offered behind them."""


async def types_of(request: HttpRequest, kind: str) -> list[tuple[str, str]]:
    """Names and texts for a select. `kind`: queue or exchange."""
    there = (await ask(request, "types"))[kind]
    known = [(name, text) for name, text in TEXTS[kind].items() if name in there]
    return known + [(name, name) for name in there if name not in TEXTS[kind]]
