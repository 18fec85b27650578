"""The topic exchange: `*` stands for one word, `#` for any number of words (AMQP 0-9-1 section
3.1.3.3).

Patterns form a tree by their words. A key walks it word by word with the set of nodes reached so
far, so that matching costs at most words times nodes, however many `#` the patterns hold; there is
no backtracking to attack. A run of wildcards is one and the same in any order, and has one `#` at
most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.routing.exchange import NO_PROPERTIES, Binding, BoundExchange, Identity, identity


class Node:
    """The patterns that share the words up to here. `loops`: it stands behind a `#` and stays
    reached, whatever words come."""

    __slots__ = ("any_number", "any_one", "bindings", "loops", "words")

    def __init__(self, loops: bool = False) -> None:
        self.words: dict[str, Node] = {}
        self.any_one: Node | None = None
        self.any_number: Node | None = None
        self.bindings: dict[Identity, Binding] = {}
        self.loops = loops

    def is_empty(self) -> bool:
        return not (self.words or self.any_one or self.any_number or self.bindings)


class TopicExchange(BoundExchange):
    type = "topic"

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self._root = Node()

    def add(self, binding: Binding) -> None:
        node = self._root
        for word in pattern_of(binding.routing_key):
            node = _child(node, word)
        node.bindings[identity(binding)] = binding

    def remove(self, binding: Binding) -> None:
        path = [self._root]
        pattern = pattern_of(binding.routing_key)
        for word in pattern:
            path.append(_child(path[-1], word))
        del path[-1].bindings[identity(binding)]
        for word, parent, node in zip(
            reversed(pattern), reversed(path[:-1]), reversed(path[1:]), strict=True
        ):
            if not node.is_empty():
                break
            if word == "*":
                parent.any_one = None
            elif word == "#":
                parent.any_number = None
            else:
                del parent.words[word]

    def match(
        self,
        routing_key: str,
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> Iterator[Binding]:
        reached = _reach([self._root])
        for word in words(routing_key):
            following: list[Node] = []
            for node in reached:
                if node.loops:
                    following.append(node)
                child = node.words.get(word)
                if child is not None:
                    following.append(child)
                if node.any_one is not None:
                    following.append(node.any_one)
            reached = _reach(following)
        for node in reached:
            yield from node.bindings.values()


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


def _child(node: Node, word: str) -> Node:
    if word == "*":
        if node.any_one is None:
            node.any_one = Node()
        return node.any_one
    if word == "#":
        if node.any_number is None:
            node.any_number = Node(loops=True)
        return node.any_number
    return node.words.setdefault(word, Node())


def _reach(nodes: list[Node]) -> dict[Node, None]:
    """The nodes, each once, and those behind their `#`, which may stand for no word at all."""
    reached: dict[Node, None] = {}
    for each in nodes:
        node: Node | None = each
        while node is not None and node not in reached:
            reached[node] = None
            node = node.any_number
    return reached
