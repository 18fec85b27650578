"""Policies as such: what they may say, which one an object is under, and what both amount to."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from broker.access import BadSetting
from broker.schema.policy_keys import (
    KEYS,
    LISTS_OF_KEYS,
    BadDefinition,
    PolicyKey,
    check,
    lower,
    term,
)
from broker.schema.times import AGE_MOST, age_ms
from broker.server.control.policy_rows import governed, setting_rows
from broker.settings.files import SettingsError, SettingsFiles
from broker.vhosts.policies import (
    OPERATOR_POLICIES_FILE,
    POLICIES_FILE,
    InForce,
    Policies,
    Policy,
    effective,
    settings,
)
from tests.control.disks import MemoryDisk
from tests.control.policy_values import BAD, GOOD
from tests.tidy.sources import ROOT

LIMIT = {"max-length": 5}


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def policies(disk: MemoryDisk) -> Policies:
    return Policies(SettingsFiles("/data", disk))


def put(
    policies: Policies,
    name: str,
    pattern: str = "",
    definition: dict[str, Any] | None = None,
    *,
    operator: bool = False,
    vhost: str = "/",
    apply_to: str = "all",
    priority: int = 0,
) -> bool:
    policy = Policy(vhost, name, pattern, definition or LIMIT, apply_to, priority)
    return policies.put(policy, operator=operator)


def names(found: InForce | None) -> tuple[str | None, str | None]:
    return (found.name, found.operator_name) if found is not None else (None, None)


def under(policies: Policies, name: str, owner: str = "queue", type: str = "classic") -> Any:
    return names(policies.of("/", owner, name, type))


# Which policy.


def test_it_takes_the_highest_priority_of_those_that_match(policies: Policies) -> None:
    put(policies, "low", "^a", priority=1)
    put(policies, "high", "b", priority=7)
    put(policies, "negative", "", priority=-3)
    assert under(policies, "ab") == ("high", None)
    assert under(policies, "ax") == ("low", None)
    assert under(policies, "xyz") == ("negative", None)


def test_it_takes_the_first_by_name_among_equals(policies: Policies) -> None:
    for name in ("later", "earlier", "middle"):
        put(policies, name, "q")
    assert under(policies, "q") == ("earlier", None)


def test_it_finds_a_pattern_anywhere_in_a_name(policies: Policies) -> None:
    put(policies, "p", "der")
    assert under(policies, "orders") == ("p", None)
    assert under(policies, "parcels") == (None, None)


def test_it_takes_an_operator_policy_besides(policies: Policies) -> None:
    put(policies, "p", "q")
    put(policies, "o", "q", operator=True)
    assert under(policies, "q") == ("p", "o")
    policies.delete("/", "p")
    assert under(policies, "q") == (None, "o")


@pytest.mark.parametrize(
    ("apply_to", "things"),
    [
        ("all", {"classic", "quorum", "stream", "exchange"}),
        ("queues", {"classic", "quorum", "stream"}),
        ("classic_queues", {"classic"}),
        ("quorum_queues", {"quorum"}),
        ("streams", {"stream"}),
        ("exchanges", {"exchange"}),
    ],
)
def test_it_applies_to_the_kinds_it_names(
    policies: Policies, apply_to: str, things: set[str]
) -> None:
    put(policies, "p", apply_to=apply_to)
    found = {
        kind
        for kind in ("classic", "quorum", "stream", "exchange")
        if under(
            policies, "x", *(("exchange", "fanout") if kind == "exchange" else ("queue", kind))
        )
        != (None, None)
    }
    assert found == things


def test_it_keeps_vhosts_apart(policies: Policies) -> None:
    put(policies, "p", vhost="shop")
    assert under(policies, "q") == (None, None)
    assert names(policies.of("shop", "queue", "q", "classic")) == ("p", None)
    for _ in policies.forget_vhost("shop"):
        pass
    assert policies.all() == []
    assert names(policies.of("shop", "queue", "q", "classic")) == (None, None)


def test_it_leaves_objects_under_unchanged_policies_alone(policies: Policies) -> None:
    put(policies, "p", "^a")
    before = policies.of("/", "queue", "a", "classic")
    put(policies, "other", "^b")
    assert policies.of("/", "queue", "a", "classic") is before
    put(policies, "p", "^a", {"max-length": 6})
    assert policies.of("/", "queue", "a", "classic") is not before


# What a definition may say.


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({}, "no policy provided"),
        ({"colour": "red"}, '[{<<"colour">>,<<"red">>}] are not recognised policy settings'),
        ({"max-priority": 5}, '[{<<"max-priority">>,5}] are not recognised policy settings'),
        ({"max-length": "5"}, '<<"5">> is not a valid maximum length'),
        ({"max-length": True}, "true is not a valid maximum length"),
        ({"max-length": -1}, "-1 is not a valid maximum length"),
        ({"max-length-bytes": 1.5}, "1.5 is not a valid maximum length in bytes"),
        ({"message-ttl": -5}, "-5 is not a valid message TTL"),
        ({"expires": 0}, "0 is not a valid queue expiry"),
        ({"overflow": "drop-tail"}, '<<"drop-tail">> is not a valid overflow value'),
        ({"dead-letter-exchange": 5}, "5 is not a valid dead letter exchange name"),
        ({"dead-letter-routing-key": []}, "[] is not a valid dead letter routing key"),
        (
            {"dead-letter-routing-key": "x" * 256},
            f'<<"{"x" * 256}">> is not a valid dead letter routing key',
        ),
        ({"delivery-limit": "x"}, '<<"x">> is not a valid delivery limit'),
        ({"consumer-timeout": -1}, "-1 is not a valid consumer timeout"),
        ({"confirm-on": "read"}, '<<"read">> is not a valid confirm mode'),
        ({"max-age": "7 days"}, '<<"7 days">> is not a valid max age'),
        ({"max-age": 7}, "7 is not a valid max age"),
        ({"alternate-exchange": None}, "null is not a valid alternate exchange name"),
        ({"delayed-message": "true"}, '<<"true">> is not a valid delayed message flag'),
        ({"queue-mode": "fast"}, '<<"fast">> is not a valid queue mode value'),
        ({"queue-version": 3}, "3 is not a valid queue version"),
        (
            {"stream-filter-size-bytes": 5},
            "5 is not a valid filter size. Valid range is 16-255",
        ),
        ({"dead-letter-strategy": {"a": 1}}, '#{<<"a">> => 1} is not a valid dead letter strategy'),
        ({"federation-upstream": 1}, "1 is not a valid federation upstream name"),
    ],
)
def test_it_refuses_a_definition_in_rabbitmqs_words(definition: Any, text: str) -> None:
    with pytest.raises(BadDefinition) as caught:
        check(definition)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(name, value, id=f"{name}={value!r}")
        for name, values in BAD.items()
        for value in values
    ],
)
def test_it_refuses_a_value_that_a_key_cannot_have(name: str, value: Any) -> None:
    text = f"{term(value)} is not a valid {KEYS[name].wrong}"
    for operator in (False, True) if KEYS[name].operator else (False,):
        with pytest.raises(BadDefinition) as caught:
            check({name: value}, operator=operator)
        if name in LISTS_OF_KEYS:
            assert str(caught.value).startswith(f"{text}: ")
        else:
            assert str(caught.value) == text


@pytest.mark.parametrize("name", KEYS)
def test_it_takes_each_key_of_the_table(name: str) -> None:
    row = KEYS[name]
    if not row.argument.built:
        with pytest.raises(BadDefinition, match="does not carry it out yet"):
            check({name: GOOD[name]})
        return
    check({name: GOOD[name]})
    if row.operator:
        check({name: GOOD[name]}, operator=True)
        return
    with pytest.raises(BadDefinition, match="are not recognised policy settings"):
        check({name: GOOD[name]}, operator=True)


def test_it_says_what_an_operator_policy_may_set() -> None:
    with pytest.raises(BadDefinition) as caught:
        check({"dead-letter-exchange": "x"}, operator=True)
    allowed = (
        "max-length, max-length-bytes, overflow, message-ttl, expires, delivery-limit, "
        "history, history-keys, history-retention, history-events"
    )
    assert str(caught.value).endswith(f"; an operator policy may set {allowed}")


def test_it_names_the_keys_of_history_where_another_is_asked_for() -> None:
    with pytest.raises(BadDefinition, match="there are history, history-keys, history-retention"):
        check({"history-max-age": "7D"})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"pattern": "("}, "pattern should be regular expression but is invalid: "),
        ({"apply_to": "people"}, "apply-to 'people' unrecognised; should be one of: 'all', "),
        ({"name": ""}, "policy name is empty"),
        ({"priority": 2**40}, "priority should be a number, actually was 1099511627776"),
        ({"definition": {}}, "no policy provided"),
    ],
)
def test_it_refuses_a_policy_that_cannot_be(
    policies: Policies, change: dict[str, Any], text: str
) -> None:
    given = {"vhost": "/", "name": "p", "pattern": "q", "definition": LIMIT, **change}
    with pytest.raises(BadSetting) as caught:
        policies.put(Policy(**given))
    assert str(caught.value).startswith(text)
    assert policies.all() == []


def test_it_prints_values_as_erlang_does() -> None:
    assert term('a"\n') == '<<"a\\"\\x{A}">>'
    assert term("é") == '<<"é"/utf8>>'
    assert term([1, None, False, {"a": "b"}]) == '[1,null,false,#{<<"a">> => <<"b">>}]'
    assert len(term("x" * 10_000)) < 400


# What both amount to.


@pytest.mark.parametrize(
    ("argument", "policy", "operator_policy", "value", "source"),
    [
        ({}, {"max-length": 9}, {}, 9, "policy"),
        ({"x-max-length": 4}, {"max-length": 9}, {}, 4, "argument"),
        ({"x-max-length": 9}, {"max-length": 4}, {}, 4, "policy"),
        ({}, {"max-length": 9}, {"max-length": 4}, 4, "operator policy"),
        ({}, {"max-length": 4}, {"max-length": 9}, 4, "policy"),
        ({"x-max-length": 2}, {"max-length": 4}, {"max-length": 9}, 2, "argument"),
        ({"x-max-length": 5}, {"max-length": 9}, {"max-length": 5}, 5, "argument"),
        ({"x-overflow": "drop-head"}, {"overflow": "reject-publish"}, {}, "drop-head", "argument"),
        ({}, {"overflow": "drop-head"}, {"overflow": "reject-publish"}, "reject-publish",
         "operator policy"),
    ],
)  # fmt: skip
def test_it_merges_by_the_rules_of_the_table(
    policies: Policies,
    argument: dict[str, Any],
    policy: dict[str, Any],
    operator_policy: dict[str, Any],
    value: Any,
    source: str,
) -> None:
    put(policies, "p", definition=policy)
    if operator_policy:
        put(policies, "o", definition=operator_policy, operator=True)
    found = policies.of("/", "queue", "q", "classic")
    (name,) = effective("queue", argument, found)
    assert effective("queue", argument, found)[name] == value
    (setting,) = settings("queue", argument, found)
    assert (setting.value, setting.source.kind) == (value, source)
    others = bool(argument) + bool(policy) + bool(operator_policy) - 1
    assert len(setting.overruled) == others


@pytest.mark.parametrize(
    ("name", "one", "other", "wanted"),
    [
        ("max-length", 3, 5, 3),
        ("max-length", 0, 5, 0),
        ("delivery-limit", -1, 5, 5),
        ("delivery-limit", 5, -1, 5),
        ("delivery-limit", -1, -1, -1),
        ("max-age", "1D", "25h", "1D"),
        ("max-age", "2m", "90s", "90s"),
    ],
)
def test_it_takes_the_stricter_value(name: str, one: Any, other: Any, wanted: Any) -> None:
    assert lower(name, one, other) == wanted


def test_it_reads_ages_as_rabbitmq_does() -> None:
    day = 86_400_000
    assert [age_ms(text) for text in ("1Y", "1M", "1D", "1h", "1m", "1s")] == [
        365 * day, 30 * day, day, 3_600_000, 60_000, 1_000,
    ]  # fmt: skip
    bad = ("", "D", "1", "-1D", "1D2h", "1d", "1D\n", "١D", 5, None)
    assert [age_ms(text) for text in bad] == [None] * len(bad)
    assert age_ms("9999999999Y") == age_ms("999999999999Y") == AGE_MOST


def test_it_keeps_the_alternate_exchange_of_the_declaration(policies: Policies) -> None:
    put(policies, "p", definition={"alternate-exchange": "of policy"})
    found = policies.of("/", "exchange", "x", "fanout")
    for name in ("alternate-exchange", "x-alternate-exchange"):
        assert effective("exchange", {name: "own"}, found) == {name: "own"}
    assert effective("exchange", {}, found) == {"alternate-exchange": "of policy"}
    assert effective("queue", {}, found) == {}


def test_it_leaves_keys_without_effect_out(policies: Policies) -> None:
    put(policies, "p", definition={"queue-mode": "lazy", "ha-mode": "all"})
    assert effective("queue", {}, policies.of("/", "queue", "q", "classic")) == {}


@pytest.mark.parametrize(
    ("kind", "held"),
    [
        ("classic", {"x-message-ttl", "x-dead-letter-exchange", "x-max-length", "x-confirm-on"}),
        ("quorum", {"x-message-ttl", "x-dead-letter-exchange", "x-max-length", "x-confirm-on"}),
        ("stream", {"x-max-age", "x-max-length"}),
    ],
)
def test_it_leaves_out_what_a_queue_of_that_type_has_no_use_for(
    policies: Policies, kind: str, held: set[str]
) -> None:
    definition = {
        "message-ttl": 5,
        "dead-letter-exchange": "dlx",
        "max-length": 5,
        "confirm-on": "ack",
        "max-age": "1D",
    }
    put(policies, "p", definition=definition)
    arguments = {"x-queue-type": kind}
    in_force = policies.of("/", "queue", "q", kind)
    assert set(effective("queue", arguments, in_force)) == {"x-queue-type", *held}
    assert {each.argument for each in settings("queue", arguments, in_force)} == {
        "x-queue-type",
        *held,
    }
    thing = SimpleNamespace(arguments=arguments, policy=in_force)
    shown = governed("queue", thing)["effective_policy_arguments"]
    assert {KEYS[key].argument.name for key in shown} == held


@pytest.mark.parametrize(
    ("argument", "policy", "operator_policy", "against"),
    [
        ({"x-dead-letter-exchange": "x"}, {"confirm-on": "ack-lean"}, {}, "x-dead-letter-exchange"),
        ({"x-confirm-on": "ack-lean"}, {"delivery-limit": 3}, {}, "x-delivery-limit"),
        ({"x-max-priority": 3}, {"confirm-on": "ack-lean"}, {}, "x-max-priority"),
        ({"x-queue-type": "quorum"}, {"confirm-on": "ack-lean"}, {}, "x-queue-type"),
        ({}, {"confirm-on": "ack-lean"}, {"delivery-limit": 3}, "x-delivery-limit"),
    ],
)
def test_it_keeps_what_is_delivered_where_something_needs_it(
    policies: Policies,
    argument: dict[str, Any],
    policy: dict[str, Any],
    operator_policy: dict[str, Any],
    against: str,
) -> None:
    put(policies, "p", definition=policy)
    if operator_policy:
        put(policies, "o", definition=operator_policy, operator=True)
    in_force = policies.of("/", "queue", "q", argument.get("x-queue-type", "classic"))
    assert effective("queue", argument, in_force)["x-confirm-on"] == "ack"
    (shown,) = [
        each
        for each in setting_rows("queue", SimpleNamespace(arguments=argument, policy=in_force))
        if each["argument"] == "x-confirm-on"
    ]
    assert (shown["value"], shown["against"]) == ("ack", against)
    assert [each["value"] for each in shown["overruled"]] == ["ack-lean"]


@pytest.mark.parametrize("other", [{"dead-letter-exchange": "x"}, {"delivery-limit": 3}])
def test_it_refuses_a_policy_whose_own_keys_cannot_go_together(
    policies: Policies, other: dict[str, Any]
) -> None:
    (key,) = other
    with pytest.raises(BadSetting, match=f"'ack-lean' .* cannot go with '{key}'"):
        put(policies, "p", definition={"confirm-on": "ack-lean", **other})
    put(policies, "p", definition={"confirm-on": "ack", **other})


# On disk.


def test_it_reads_back_what_it_wrote(policies: Policies, disk: MemoryDisk) -> None:
    put(policies, "p", "^a", {"max-length": 3, "overflow": "reject-publish"}, priority=2)
    put(policies, "o", "", operator=True, apply_to="queues")
    policies._files.flush()
    again = Policies(SettingsFiles("/data", disk))
    again.load()
    assert again.all() == policies.all()
    assert again.all(operator=True) == policies.all(operator=True)
    assert under(again, "a") == ("p", "o")
    (row,) = json.loads(disk.read(f"/data/{POLICIES_FILE}"))
    assert row == {
        "vhost": "/",
        "name": "p",
        "pattern": "^a",
        "definition": {"max-length": 3, "overflow": "reject-publish"},
        "apply-to": "all",
        "priority": 2,
    }


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        (POLICIES_FILE, {"pattern": "("}, "policy 'p' of vhost '/': pattern should be"),
        (POLICIES_FILE, {"definition": {"max-length": "5"}}, "is not a valid maximum length"),
        (POLICIES_FILE, {"priority": "high"}, "Expected `int`, got `str`"),
        (OPERATOR_POLICIES_FILE, {"definition": {"queue-mode": "lazy"}}, "not recognised"),
    ],
)
def test_it_names_the_place_of_what_a_person_wrote_wrong(
    policies: Policies, disk: MemoryDisk, name: str, change: dict[str, Any], text: str
) -> None:
    whole = {"vhost": "/", "name": "p", "pattern": "q", "definition": LIMIT, **change}
    disk.write_atomic(f"/data/{name}", json.dumps([whole]).encode(), 0o600)
    with pytest.raises(SettingsError) as caught:
        policies.load()
    assert name in str(caught.value)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_it_refuses_a_policy_that_is_there_twice(policies: Policies, disk: MemoryDisk) -> None:
    row = {"vhost": "/", "name": "p", "pattern": "q", "definition": LIMIT}
    disk.write_atomic(f"/data/{POLICIES_FILE}", json.dumps([row, row]).encode(), 0o600)
    with pytest.raises(SettingsError, match="is there twice"):
        policies.load()


def test_it_has_a_page_that_names_every_key() -> None:
    def argument(row: PolicyKey) -> str:
        return f"`{row.argument.name}`" if row.rule in ("lower", "argument") else ""

    page = (ROOT / "docs/policies.md").read_text()
    rows = [
        f"| `{row.name}` | {argument(row)} | {row.rule} "
        f"| {'yes' if row.operator else ''} | {row.text} |"
        for row in KEYS.values()
    ]
    table = page.split("|---|---|---|---|---|\n")[1].split("\n\n")[0]
    assert table.splitlines() == rows
