"""`python -m tests.bench.topics`: what a topic exchange with 100,000 patterns costs, ordinary and
chosen to hurt.

Each row binds up to 100,000 patterns, those that `topic_visits_max` refuses left out, and routes
keys of at most 255 bytes that visit as much as they can. The budget is 1 ms for the slowest key.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import time
from collections.abc import Iterable, Iterator

from broker.routing.binding import Binding
from broker.routing.topic import TopicExchange
from broker.schema.errors import PreconditionFailed

BUDGET_MS = 1.0
Row = tuple[str, Iterable[str], list[str]]


def rows(count: int) -> Iterator[Row]:
    """Name, patterns and keys of each row."""
    chance = random.Random(4711)

    def some(words: list[str], length: int) -> str:
        return ".".join(chance.choice(words) for _ in range(length))[:255]

    names = [f"w{number}" for number in range(50)]
    many = some(names, 60)
    yield "no wildcards", (f"{some(names, 5)}.{n}" for n in range(count)), [f"{many[:200]}.1"]
    yield "app.*.region.#", (f"app{n}.*.eu.#" for n in range(count)), ["app7.a.eu.b.c", "app7.a.us"]
    yield "#.word", (f"#.w{n}" for n in range(count)), [many]
    yield "#.word.#", (f"#.w{n}.#" for n in range(count)), [many]
    letters = [*"abcdefgh", "*", "*", "#"]
    mixed = [some([*"abcdefgh"], 121) for _ in range(20)]
    yield "random", (some(letters, chance.randrange(3, 7)) for _ in range(count)), mixed
    longest = ".".join("a" * 121)
    every = (".".join(chosen) for chosen in itertools.product("a*", repeat=17))
    yield "all of a and *", itertools.islice(every, count), [".".join("a" * 17)]
    behind = (".".join(("#", *chosen, "b")) for chosen in itertools.product("a*", repeat=16))
    yield "the same behind #", itertools.islice(behind, count), [longest]
    wild = (some(["#", "*", "a"], chance.randrange(1, 60)) for _ in range(count))
    yield "random # and *", wild, [longest]
    yield (
        "empty words",
        (some(["", "#", "*"], chance.randrange(1, 60)) for _ in range(count)),
        ["." * 255],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--patterns", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    head = ("bound", "refused", "bind us", "median ms", "worst ms")
    print(f"{'patterns':20}", *(f"{each:>10}" for each in head))
    worst = 0.0
    for name, patterns, keys in rows(options.patterns):
        exchange = TopicExchange("x")
        bound = refused = 0
        begun = time.perf_counter()
        for pattern in patterns:
            binding = Binding("x", "queue", "queue", pattern, {})
            try:
                exchange.check(binding)
            except PreconditionFailed:
                refused += 1
            else:
                bound += exchange.bind(binding)
        bind_us = (time.perf_counter() - begun) / options.patterns * 1e6
        times = []
        for key in keys * options.repeats:
            begun = time.perf_counter()
            list(exchange.match(key, {}))
            times.append((time.perf_counter() - begun) * 1e3)
        worst = max(worst, statistics.median(times))
        print(
            f"{name:20} {bound:10} {refused:10} {bind_us:10.1f} {statistics.median(times):10.3f} "
            f"{max(times):10.3f}"
        )
    return 0 if worst <= BUDGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
