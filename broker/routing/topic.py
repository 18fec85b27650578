"""The topic exchange: `*` stands for one word, `#` for any number of words (AMQP 0-9-1 section
3.1.3.3).

Patterns form a tree by their words (`broker.routing.topic_tree`). What a key can cost there at most
is known, and a binding that would raise it above `topic_visits_max` is refused: a publish never
is. A run of wildcards is one and the same in any order, and has one `#` at most.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from broker.routing.binding import Binding
from broker.routing.exchange import NO_PROPERTIES, BoundExchange
from broker.routing.topic_tree import TopicTree
from broker.schema.errors import BoundReached

CAPACITY_KEPT = 4096
"""Nodes whose memory a tree keeps when its last pattern goes."""


class TopicExchange(BoundExchange):
    type = "topic"
    by_each_key = True

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self.tree = TopicTree()

    def check(self, binding: Binding) -> None:
        pattern = pattern_of(binding.routing_key)
        if "*" not in pattern and "#" not in pattern:
            return
        cost = self.tree.cost_with(pattern)
        # Stored bindings may be dearer than a limit that was lowered: what adds nothing to them
        # passes.
        if cost > max(self.bounds.topic_visits, self.tree.cost):
            raise BoundReached(
                f"a message could take {cost} steps through exchange '{self.name}', and at most "
                f"{self.bounds.topic_visits} are allowed (topic_visits_max): use fewer # and * "
                f"than in '{binding.routing_key}'"
            )

    def add(self, binding: Binding) -> None:
        self.tree.add(pattern_of(binding.routing_key), binding)

    def remove(self, binding: Binding) -> None:
        self.tree.remove(pattern_of(binding.routing_key), binding)
        if self.tree.capacity > CAPACITY_KEPT and self.tree.is_empty:
            # An exchange lives long, such as amq.topic.
            left, self.tree = self.tree, TopicTree()
            with contextlib.suppress(RuntimeError):  # no thread: it is freed here
                threading.Thread(target=left.give_back, name="topic memory", daemon=True).start()

    def match(
        self,
        routing_key: str,
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> Iterator[Binding]:
        return iter(self.tree.match(words(routing_key)))


def words(key: str) -> list[str]:
    """The words of a key or pattern; an empty key has none."""
    return key.split(".") if key else []


def pattern_of(key: str) -> list[str]:
    """The words of a binding's key, in each run of wildcards the `*` first and one `#` for all:
    `#.*.#` is `*.#`."""
    found: list[str] = []
    any_number = False
    for word in words(key):
        if word == "#":
            any_number = True
            continue
        if any_number and word != "*":
            found.append("#")
            any_number = False
        found.append(word)
    if any_number:
        found.append("#")
    return found
