"""Regular expressions made to be slow, wherever one is set or sent."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

import httpx
import pytest
import re2

from broker.access.patterns import BadPattern, Pattern
from broker.server.control.matching import matched
from broker.server.pace import Pace
from broker.settings.bounds import PATTERN_STEPS_MAX
from tests.api.conftest import path
from tests.appliance import ROOT, Appliance

SLOW = "((?:a|b|ab|ba)?){1000}$"
LARGEST = "(?:(?:a?b?a?b?){16}){9}$"
"""Just below the steps that a pattern may have."""


@pytest.mark.parametrize(
    "text", [SLOW, "^(?!a)" + SLOW, f"^(?!{SLOW}).*", "(?:(?:a?b?){50}){20}", "(?i)[a-zà-ÿ]{900}x"]
)
def test_a_pattern_that_takes_long_is_refused_where_it_is_sent(text: str) -> None:
    with pytest.raises(BadPattern, match=f"at most {PATTERN_STEPS_MAX}|too large"):
        Pattern.sent(text)


@pytest.mark.parametrize(
    "text",
    [
        "^(order|invoice)\\.(eu|us)\\..*$",
        "^(?!amq\\.).*",
        "^([a-z0-9-]{1,40}\\.){1,3}dlq$",
        "^(" + "|".join(f"team-{n}-service-{n * 7}" for n in range(60)) + ")$",
    ],
)
def test_patterns_of_daily_life_are_taken(text: str) -> None:
    Pattern.sent(text)


def test_patterns_that_are_kept_take_little_memory() -> None:
    """Each comes to as many states as fit into its memory."""
    program = """if True:
        import os, random, sys
        from broker.access.patterns import Pattern
        from tests.hostile.figures import resident_bytes
        letters = random.Random(1)
        names = ["".join(letters.choices("ab", k=255)) for _ in range(40)]
        Pattern.sent("a").matches("a")
        before = resident_bytes(os.getpid())
        for number in range(300):
            pattern = Pattern.sent("a.{12}c(%d)?" % number)
            for name in names:
                pattern.matches(name)
        for number in range(300):
            try:
                Pattern.sent("(?:(?:a?b?){50}){20}%d" % number)
            except ValueError:
                continue
            sys.exit("it was not refused")
        print((resident_bytes(os.getpid()) - before) >> 20)
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 32, done.stdout


LITERALS = [
    "^q1", "^q12?", "^q12*", "^q1+", "^q1{2}", "^q1{0,1}2", "^q1|q2", "^(q1|q2)", "(?i)^Q1",
    "^q1(?i)A", "^", "^$", "^q1$", "q1", "^q", "^(?!q1)q", r"^q1\.a", "^q.1", "^[q]1", "^q1[ab]",
    r"^q\d", r"\^q1", "^^q1", "^q1.*", r"^q1\b", "(?m)^q1", "^Q1", r"^q1\Q|a\E", "^ü", "^qü",
    "^(?:q1)", ".*", "^.*", ".*$", "^.*$", ".+",
]  # fmt: skip
NAMES = [
    "", "q", "q1", "q12", "q11", "q122", "q2", "Q1", "q1a", "q1A", "q1.a", "a\nq1", "^q1", "q1|a",
    "ü", "qü", "q1b", "aq1", "q1 ", "\n", "a\nb\n",
]  # fmt: skip


@pytest.mark.parametrize("text", LITERALS)
def test_what_is_compared_without_a_search_changes_nothing(text: str) -> None:
    pattern = Pattern.sent(text)
    by_re2 = re2.compile(text.replace("^(?!q1)q", "^(?:q[^1]|q$)"))
    assert [pattern.matches(name) for name in NAMES] == [
        by_re2.search(name) is not None for name in NAMES
    ]


def test_of_very_many_policies_few_are_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name that is declared is compared with all of them in one turn of the loop."""
    searched: list[str] = []

    def search(self: Any, octets: bytes, *_: Any) -> None:
        searched.append(self.pattern.decode())

    monkeypatch.setattr(re2._Regexp, "search", search)
    for text in (*(f"^orders{number}$" for number in range(100, 900)), "^(?!amq)", "orders", "^z?"):
        Pattern(text).matches("orders107")
    # Whose beginning says nothing, and the one that could be it.
    assert searched == ["^orders107$", "^(?:amq)", "^(?:)", "orders", "^z?"]


def test_a_stored_pattern_is_used_whatever_it_takes() -> None:
    assert Pattern(SLOW).matches("abab")


@pytest.fixture
def guest(shared_leveret: Appliance) -> httpx.Client:
    url = f"http://{shared_leveret.host}:{shared_leveret.http_port}"
    return httpx.Client(base_url=url, auth=("guest", "guest"), timeout=60)


@pytest.mark.parametrize(
    ("where", "body"),
    [
        (("policies", "/", "slow"), {"pattern": SLOW, "definition": {"max-length": 1}}),
        (("operator-policies", "/", "slow"), {"pattern": SLOW, "definition": {"max-length": 1}}),
        (("permissions", "/", "guest"), {"configure": SLOW, "write": ".*", "read": ".*"}),
        (("topic-permissions", "/", "guest"), {"exchange": "x", "write": SLOW, "read": ".*"}),
    ],
)
def test_every_setting_with_a_pattern_refuses_a_slow_one(
    guest: httpx.Client, where: tuple[str, ...], body: dict[str, Any]
) -> None:
    answer = guest.put(path(*where), json=body)
    assert answer.status_code == 400, answer.text
    assert "too large" in answer.text or "steps once compiled" in answer.text


def test_a_filter_of_a_list_refuses_a_slow_one(guest: httpx.Client) -> None:
    query = {"page": 1, "name": SLOW, "use_regex": "true"}
    answer = guest.get("/api/queues", params=query)
    assert answer.status_code == 400, answer.text


def test_a_scrape_refuses_a_slow_one(shared_leveret: Appliance) -> None:
    """The metrics port asks for no login by default."""
    url = f"http://{shared_leveret.host}:{shared_leveret.metrics_port}/metrics/detailed"
    query = {"family": "queue_metrics", "queue": SLOW}
    assert httpx.get(url, params={**query, "queue": "^a"}, timeout=60).status_code == 200
    answer = httpx.get(url, params=query, timeout=60)
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize(("text", "name"), [(LARGEST, "ab" * 100), ("^a|b+c", "ab" * 2000)])
async def test_a_match_that_takes_long_does_not_hold_the_loop(
    monkeypatch: pytest.MonkeyPatch, text: str, name: str
) -> None:
    may_end = threading.Event()
    asked: list[str] = []

    def match(self: Pattern, name: str) -> bool:
        asked.append(name)
        return may_end.wait(60)

    monkeypatch.setattr(Pattern, "matches", match)
    matching = asyncio.create_task(matched(Pattern(text), [name], Pace()))
    await asyncio.sleep(0)
    may_end.set()
    assert await matching == [True]
    assert asked == [name]


@pytest.mark.parametrize("text", ["^a", LARGEST])
async def test_names_long_and_short_are_found_alike(text: str) -> None:
    names = [f"{'ab' * length}{end}" for length in (0, 1, 100, 600) for end in ("", "c", "cb")]
    pattern = Pattern(text)
    assert await matched(pattern, names * 30, Pace()) == [pattern.matches(n) for n in names * 30]


async def test_long_requests_share_the_turns_of_the_loop() -> None:
    """However many there are, another user waits for one slice of one of them."""
    ended = asyncio.Event()
    longest = 0.0

    async def work() -> None:
        pace = Pace()
        while not ended.is_set():
            until = time.perf_counter() + 0.0001
            while time.perf_counter() < until:
                pass
            await pace()

    works = [asyncio.create_task(work()) for _ in range(50)]
    for turn in range(200):
        begun = time.thread_time()
        await asyncio.sleep(0)
        if turn > 5:  # each has begun
            longest = max(longest, time.thread_time() - begun)
    ended.set()
    await asyncio.gather(*works)
    # Fifty slices of 0.5 ms in one turn would be 25 ms.
    assert longest < 0.010
