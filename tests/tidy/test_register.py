"""Every argument, exchange type, header and policy key has a test of what it does and one of
values that it does not take."""

from __future__ import annotations

import functools
import re
import subprocess
import sys

import pytest

from broker.features.delayed.exchange import DelayedMessageExchange
from broker.routing.types import TYPES
from broker.schema.arguments import BY_OWNER
from broker.schema.policy_keys import KEYS
from tests.amqp import bad_values
from tests.control import policy_values
from tests.register import BAD_VALUE, BEHAVIOUR, WITHOUT_EFFECT
from tests.tidy.sources import ROOT, files, relative

EXCHANGE_TYPES = {*TYPES, DelayedMessageExchange.type}
# What is in the broker, by the name of its table.
TABLES: dict[str, set[str]] = {
    **{owner: {row.name for row in rows.values() if row.built} for owner, rows in BY_OWNER.items()},
    "exchange type": EXCHANGE_TYPES,
    "policy key": {row.name for row in KEYS.values() if row.rule != "none" and row.argument.built},
}
REFUSED: dict[str, set[str]] = {
    **{
        owner: {*rows, *bad_values.TAKES_ANYTHING.get(owner, ())}
        for owner, rows in bad_values.ALL.items()
    },
    "policy key": set(policy_values.BAD),
    **{what: set(tests) for what, tests in BAD_VALUE.items()},
}
# Quoted names that look like arguments and are none.
OTHER_NAMES = {
    "x-first-death-": "begins names of headers that dead lettering writes",
    "x-last-death-": "begins names of headers that dead lettering writes",
    "x-delivery-count": "a header that the broker writes",
    "x-stream-offset": "an argument of a consumer, and a header that the broker writes",
    "x-history-": "begins names of headers that records of the history have",
    "x-replay-": "begins names of headers that a replay writes",
    "x-recent-history": "an exchange type of RabbitMQ that is refused by name",
    "x-modulus-hash": "an exchange type of RabbitMQ that is refused by name",
    "x-": "begins names",
    "x-shovel": "header of the requests of a shovel to HTTP; tests/bridges",
    "x-forwarded-for": "header of proxies, which a shovel may not send; tests/bridges",
    "x-forwarded-proto": "likewise",
    "x-real-ip": "likewise",
}
NAME = re.compile(r"""["'](x-[a-z-]*)""")
AMQP_ROOMS = ("wire", "queues", "routing", "features", "store", "access")


def shown_by_the_page() -> set[str]:
    """The tests that docs/compatibility.md names."""
    page = (ROOT / "docs/compatibility.md").read_text()
    table = page.split("<!-- shown:")[1].split("\n\n")[1]
    tests = re.findall(r"^\|.*\| `(tests/\S+::\S+)` \|$", table, re.MULTILINE)
    assert len(tests) == len(table.splitlines()) - 2, "a row without a test"
    return set(tests)


@functools.cache
def collected() -> set[str]:
    """The ids of all tests in the files that the register names, with and without parameters."""
    registered = [
        test for tests in (*BEHAVIOUR.values(), *BAD_VALUE.values()) for test in tests.values()
    ]
    names = sorted({test.split("::")[0] for test in (*registered, *shown_by_the_page())})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *names], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    ids = {line for line in done.stdout.splitlines() if "::" in line}
    return ids | {each.split("[")[0] for each in ids}


@pytest.mark.parametrize("what", TABLES)
def test_each_has_a_test_of_what_it_does(what: str) -> None:
    assert TABLES[what] - set(BEHAVIOUR[what]) == set(), "without a test in tests/register.py"
    assert set(BEHAVIOUR[what]) - TABLES[what] == set(), "not in the broker's table"


@pytest.mark.parametrize("what", TABLES)
def test_each_has_values_that_it_does_not_take(what: str) -> None:
    refused = REFUSED[what]
    if what == "policy key":
        assert refused == set(KEYS)
        assert set(policy_values.GOOD) == set(KEYS)
        return
    assert TABLES[what] - refused == set(), "without bad values"
    assert refused - TABLES[what] == set(), "not in the broker's table"


@pytest.mark.parametrize("what", BEHAVIOUR)
def test_the_registered_tests_are_there(what: str) -> None:
    named = {*BEHAVIOUR[what].values(), *BAD_VALUE.get(what, {}).values()}
    assert named - collected() == set()


def test_each_policy_key_without_effect_is_named_to_its_test() -> None:
    kept = {f"{WITHOUT_EFFECT}[{row.name}]" for row in KEYS.values() if row.rule == "none"}
    assert kept - collected() == set()


def test_the_tests_that_the_page_of_compatibility_names_are_there() -> None:
    assert shown_by_the_page() - collected() == set()


def test_every_name_in_the_broker_is_in_a_table() -> None:
    known = (
        {name for rows in BY_OWNER.values() for name in rows} | EXCHANGE_TYPES | set(OTHER_NAMES)
    )
    unknown = {
        f"{relative(path)}: {name}"
        for path in files(".py", ".pyx", under=tuple(f"broker/{room}" for room in AMQP_ROOMS))
        for name in NAME.findall(path.read_text())
        if name not in known
    }
    assert unknown == set()
