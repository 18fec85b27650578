"""What a person writes into the search box of a stream."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from management.search_words import BadWords, Words, moment, parse, parse_history

NOW = round(datetime(2026, 11, 23, 9, 30, tzinfo=UTC).timestamp() * 1000)


def at(*parts: int) -> int:
    return round(datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("4711", (None, "4711", None, None)),
        ("order_id=4711", ("order_id", "4711", None, None)),
        ("header:order_id = x", (None, "header:order_id = x", None, None)),
        ("header:order_id=4711", ("header:order_id", "4711", None, None)),
        ("order_id=4711 since yesterday", ("order_id", "4711", at(2026, 11, 22), None)),
        (
            "  order_id=4711   SINCE  2h until now ",
            ("order_id", "4711", NOW - 7_200_000, NOW),
        ),
        (
            "a until 2026-11-20 since 2026-11-20",
            (None, "a", at(2026, 11, 20), at(2026, 11, 21) - 1),
        ),
        ("a=b=c", ("a", "b=c", None, None)),
        ('a="b=c since today"', ("a", "b=c since today", None, None)),
        ('a="say \\"x\\" \\\\" since today', ("a", 'say "x" \\', at(2026, 11, 23), None)),
        ('""', (None, "", None, None)),
        ('id=""', ("id", "", None, None)),
        ("two words since now", (None, "two words", NOW, None)),
        ("since", (None, "since", None, None)),
        ("ö=é", ("ö", "é", None, None)),
    ],
)
def test_it_understands(text: str, words: tuple[str | None, str, int | None, int | None]) -> None:
    assert parse(text, NOW) == Words(*words)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "no value"),
        ("   ", "no value"),
        ("a=", "no value"),
        (" since yesterday", "no value|no time"),
        ("a since noon", "'noon' is no time: expected a day"),
        ("a since 2026-13-01", "is no time"),
        ("a since 9999999999999999999", "is no time"),
        ("a since today until yesterday", "ends before it begins"),
        ("a since today since today", "'since' is there twice"),
        ('"a" b', "'b' behind the quoted value"),
    ],
)
def test_it_says_what_it_does_not_understand(text: str, wrong: str) -> None:
    with pytest.raises(BadWords, match=wrong):
        parse(text, NOW)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2026-11-22 14:30", at(2026, 11, 22, 14, 30)),
        ("2026-11-22T14:30:05", at(2026, 11, 22, 14, 30, 5)),
        ("2026-11-22t14:30z", at(2026, 11, 22, 14, 30)),
        ("2026-11-22T14:30+02:00", at(2026, 11, 22, 12, 30)),
        ("7D", NOW - 7 * 86_400_000),
        ("30m", NOW - 1_800_000),
    ],
)
def test_it_reads_times(text: str, ms: int) -> None:
    assert moment(text, NOW) == ms


@pytest.mark.parametrize(
    ("text", "key", "value", "filters"),
    [
        ("order_id=4711 queue=orders since 2h", "order_id", "4711", {"queue": "orders"}),
        ('queue="a b" order_id=4711', "order_id", "4711", {"queue": "a b"}),
        ("m1 exchange=amq.default vhost=/", None, "m1", {"exchange": "", "vhost": "/"}),
        ('"queue=x since y" queue="q\\"1"', None, "queue=x since y", {"queue": 'q"1'}),
        ("header:queue=5", "header:queue", "5", {}),
        ("k=a b until now QUEUE=z", "k", "a b", {"queue": "z"}),
        ('"" queue=z', None, "", {"queue": "z"}),
    ],
)
def test_a_search_of_the_history_names_vhost_queue_and_exchange(
    text: str, key: str | None, value: str, filters: dict[str, str]
) -> None:
    found = parse_history(text, NOW)
    assert (found.words.key, found.words.value) == (key, value)
    names = ("vhost", "queue", "exchange")
    assert {name: getattr(found, name) for name in names} == dict.fromkeys(names) | filters


@pytest.mark.parametrize(
    "text", ["", "queue=orders", "since yesterday", "a queue=x queue=y", "a until 1D since 2h ago"]
)
def test_words_for_the_history_that_say_too_little_or_too_much_are_refused(text: str) -> None:
    with pytest.raises(BadWords):
        parse_history(text, NOW)
