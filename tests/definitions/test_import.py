"""Definitions that come in: whole, or with a list of what was left out, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.access.passwords import SHA256, rabbit_hash
from broker.definitions.applying import Failed, carry_out
from broker.definitions.plan import Step
from broker.schema.errors import NotFound
from management.broker_client import BrokerClient
from tests.appliance import Appliance
from tests.control.test_real_broker import connect, control
from tests.definitions.conftest import FIXTURES, refused

LEFT_OUT = {
    "rabbitmq-3.10.8.json": [("global_parameters", "internal_cluster_id")],
    "rabbitmq-4.3.6.json": [
        ("exchanges", "amq.rabbitmq.log"),
        ("bindings", "amq.gen-r5VYbnGHe5FywbFQf_rpAQ"),
    ],
    "lavinmq-2.9.json": [],
    "leveret-0.1.json": [],
}


def rows(document: dict[str, Any], section: str) -> list[tuple[str, str]]:
    names = ("name", "destination", "exchange", "user")
    return [
        (section, next(row[name] for name in names if name in row))
        for row in document.get(section, [])
    ]


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
async def test_an_export_comes_in_whole_or_says_what_was_left_out(
    client: BrokerClient, name: str
) -> None:
    """Object by object: each one is there afterwards with its properties, or in the list."""
    text = (FIXTURES / name).read_bytes()
    given = json.loads(text)
    answer = await client.call("definitions.import", definitions=text)
    listed = [(row["section"], row.get("destination") or row["name"]) for row in answer["left_out"]]
    assert listed == LEFT_OUT[name]
    assert all(row["reason"] for row in answer["left_out"])
    assert answer["inactive"] == []

    now = await client.call("definitions.export", secrets=True)
    for section in ("permissions", "topic_permissions", "policies", "parameters"):
        for row in given.get(section, []):
            assert row in now[section], (section, row)
    assert {row["name"] for row in given["vhosts"]} <= {row["name"] for row in now["vhosts"]}
    for section in ("users", "queues", "exchanges"):
        there = {(row.get("vhost"), row["name"]): row for row in now[section]}
        for row in given.get(section, []):
            if (section, row["name"]) in listed or (
                row["name"].startswith(("amq.", ""))
                and not (row["name"] and not row["name"].startswith("amq."))
            ):
                continue
            found = there[row.get("vhost"), row["name"]]
            for key in ("password_hash", "tags", "durable", "auto_delete", "internal"):
                if key in row:
                    assert found[key] == row[key], (section, row["name"], key)
            if section == "queues":
                assert found["arguments"].items() >= row["arguments"].items()
    keys = ("vhost", "source", "destination", "destination_type", "routing_key")
    bound = {tuple(row[key] for key in keys) for row in now["bindings"]}
    for row in given["bindings"]:
        if row["source"] and ("bindings", row["destination"]) not in listed:
            assert tuple(row[key] for key in keys) in bound
    again = await client.call("definitions.import", definitions=text, dry_run=True)
    assert again["difference"] == [], "a second import changes nothing"


async def test_a_vhost_comes_and_goes_with_its_protection(client: BrokerClient) -> None:
    row = {"name": "shop", "metadata": {"protected_from_deletion": True, "tags": ["a"]}}
    answer = await client.call("definitions.import", definitions={"vhosts": [row]})
    assert answer["left_out"] == []
    assert (await client.call("item", noun="vhosts", name="shop"))["protected_from_deletion"]
    (shop,) = [
        one
        for one in (await client.call("definitions.export", target="rabbitmq"))["vhosts"]
        if one["name"] == "shop"
    ]
    assert shop["metadata"]["protected_from_deletion"] is True
    again = await client.call("definitions.import", definitions={"vhosts": [shop]}, dry_run=True)
    assert again["difference"] == []


def test_what_was_done_is_taken_back_when_a_later_change_fails() -> None:
    done: list[str] = []

    def step(name: str, fault: Exception | None = None) -> Step:
        def do() -> Callable[[], None]:
            if fault is not None:
                raise fault
            done.append(name)
            return lambda: done.append(f"not {name}")

        return Step("queues", {"name": name}, do)

    plan = SimpleNamespace(
        steps=[step("a"), step("b"), step("c", NotFound("no vhost")), step("d")], made=0
    )
    with pytest.raises(Failed, match=r"queues \{'name': 'c'\}: no vhost"):
        list(carry_out(plan))  # type: ignore[arg-type]
    assert done == ["a", "b", "not b", "not a"]


async def test_limits_beside_a_vhost_count_where_no_parameter_sets_them(
    client: BrokerClient,
) -> None:
    row = {"name": "shop", "limits": {"max-queues": 3}, "metadata": {"description": "d"}}
    await client.call("definitions.import", definitions={"vhosts": [row]})
    (limits,) = (await client.call("list", noun="vhost-limits"))["items"]
    assert (limits["vhost"], limits["value"]) == ("shop", {"max-queues": 3})


QUEUE = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
USER = {"name": "u", "tags": "", "password_hash": rabbit_hash("x"), "hashing_algorithm": SHA256}


@pytest.mark.parametrize(
    ("definitions", "problem"),
    [
        (b"{", "not_json"),
        (b"[]", "the document must be an object"),
        (b'{"queues": [], "queues": []}', '"queues" is in the document twice'),
        (b'{"queues": [NaN]}', "NaN is not a number"),
        (b'{"queues": []} x', "text behind the end"),
        (b'{"a": ' + b"[" * 100_000, "a[0] is nested over 64 levels"),
        (b'{"a": ' + b'{"a":' * 100_000, "a is nested over 64 levels"),
        (b"\xff\xfe{\0}\0", "byte 0 is neither JSON nor a part of a text in UTF-8"),
        (b'{"queues": [{"name": "\xff"}]}', "not_json: byte 22 is not UTF-8"),
        ('{"é": [{"name": "é" 1}]}'.encode(), "Expecting ',' delimiter at byte 22"),
        (b'{"queues": [1 2]}', ", or ] was expected at byte 14"),
        (b'{"queues": [truex]}', "not_json: Extra data at byte 16"),
        (b'{"queues": [}', "not_json: Expecting value at byte 12"),
        (b'{"queues": [{"name": "q', "not_json: Unterminated string starting at byte 21"),
        (b'{"queues": [{"a": [' + b"1," * 8_193 + b"1]}]}", "queues[0] holds over 8192 values"),
        (b'{"metadata": {"a": [' + b"1," * 8_193 + b"1]}}", "metadata holds over 8192 values"),
        (b'{"queues": ["' + b"x" * 2**20 + b'"]}', "queues[0] is longer than 1048576 bytes"),
        ({"queues": {"name": "q"}}, "queues is not a list"),
        ({"queues": [7]}, r"queues[0] is not an object"),
        ({"queues": [{"vhost": "/"}]}, "queues[0]: 'name' is missing"),
        ({"queues": [{"name": "q"}]}, "'vhost' is missing"),
        ({"queues": [{**QUEUE, "vhost": "nope"}]}, 'Please create virtual host "nope"'),
        ({"queues": [{**QUEUE, "durable": "yes"}]}, "durable is neither true nor false"),
        ({"queues": [{**QUEUE, "arguments": 7}]}, "arguments is not an object"),
        ({"queues": [{**QUEUE, "name": "q" * 256}]}, "longer than 255 bytes"),
        ({"queues": [{**QUEUE, "arguments": {"n": 2**63}}]}, "64 bits"),
        ({"queues": [{**QUEUE, "arguments": {"x-message-ttl": "1"}}]}, "x-message-ttl"),
        ({"queues": [{**QUEUE, "arguments": {"x-queue-type": "stream", "x-max-priority": 1}}]},
         "x-max-priority"),
        ({"queues": [QUEUE, {**QUEUE, "durable": False}]}, "queues[1]: it is in the document"),
        ({"queues": [{**QUEUE, "type": "quorum", "arguments": {"x-queue-type": "classic"}}]},
         "its x-queue-type is another one"),
        ({"exchanges": [{"name": "x", "vhost": "/", "type": 3}]}, "type is not text"),
        ({"bindings": [{"vhost": "/", "source": "x"}]}, "'destination_type' is missing"),
        ({"bindings": [{"vhost": "/", "source": "amq.topic", "destination": "q",
                        "destination_type": "topic"}]}, "neither queue nor exchange"),
        ({"users": [{"name": "a", "password_hash": "", "tags": 7}]}, "users[0]: tags"),
        ({"users": [{"name": "a", "password_hash": ""}]}, "tags_not_present"),
        ({"users": [{**USER, "password": "x"}]}, "both password and password_hash"),
        ({"users": [{**USER, "password_hash": "eA=="}]}, "wrong length"),
        ({"users": [{**USER, "limits": {"max-channels": "1"}}]}, "max-channels is not a number"),
        ({"vhosts": [{"name": ""}]}, "name is empty"),
        ({"vhosts": [{"name": "v", "description": "a", "metadata": {"description": "b"}}]},
         "description is another one in metadata"),
        ({"vhosts": [{"name": "v", "limits": {"max-colours": 1}}]}, "Unrecognised terms"),
        ({"permissions": [{"user": "nope", "vhost": "/", "configure": "", "write": "",
                           "read": ""}]}, "user 'nope' does not exist"),
        ({"permissions": [{"user": "guest", "vhost": "/", "configure": "(", "write": "",
                           "read": ""}]}, "invalid regular expression"),
        ({"policies": [{"name": "p", "vhost": "/"}]}, "policies[0]: 'pattern' is missing"),
        ({"policies": [{"name": "p", "vhost": "/", "pattern": "q"}]}, "no policy provided"),
        ({"policies": [{"name": "p", "vhost": "/", "pattern": "[",
                        "definition": {"max-length": 1}}]}, "pattern should be"),
        ({"policies": [{"name": "p", "vhost": "/", "pattern": "",
                        "definition": {"max-length": "1"}}]}, "not a valid maximum length"),
        ({"policies": [{"name": "p", "vhost": "/", "pattern": "", "apply-to": "topics",
                        "definition": {"max-length": 1}}]}, "apply-to 'topics' unrecognised"),
        ({"parameters": [{"component": "vhost-limits", "vhost": "/", "name": "limits",
                          "value": {"max-colours": 1}}]}, "Unrecognised terms"),
        ({"parameters": [{"component": "shovel", "vhost": "/", "name": "s", "value": {}}]},
         'Key "src-uri" not found'),
        ({"parameters": [{"component": "policy", "vhost": "/", "name": "s", "value": {}}]},
         "policies may not be set"),
        ({"global_parameters": [{"name": "g"}]}, "'value' is missing"),
        ({"vhosts": [{"name": "v"}], "queues": [{**QUEUE, "vhost": "v"}],
          "parameters": [{"component": "vhost-limits", "vhost": "v", "name": "limits",
                          "value": {"max-queues": 0}}]}, "would exceed the limit of 0"),
    ],
)  # fmt: skip
async def test_what_is_malformed_or_contradictory_changes_nothing(
    shared_client: BrokerClient, definitions: Any, problem: str
) -> None:
    if isinstance(definitions, dict):
        # What comes before and behind it is sound.
        definitions = {
            **definitions,
            "users": [{**USER, "name": "before"}, *definitions.get("users", [])],
            "exchanges": [
                {"name": "before", "vhost": "/", "type": "fanout"},
                *definitions.get("exchanges", []),
            ],
        }
        places = {"users[0]": "users[1]"}
        problem = places.get(problem[:8], problem[:8]) + problem[8:]
    assert problem in await refused(shared_client, definitions)


async def test_one_wrong_object_among_many_changes_nothing(client: BrokerClient) -> None:
    queues = [{**QUEUE, "name": f"q{number}"} for number in range(3000)]
    queues.append({**QUEUE, "name": "q3000", "arguments": {"x-expires": 0}})
    reason = await refused(client, json.dumps({"queues": queues}).encode())
    assert reason.startswith("definitions: queues[3000]: invalid arg 'x-expires'")


@pytest.mark.parametrize(
    ("definitions", "left_out"),
    [
        ({"queues": [{**QUEUE, "arguments": {"x-queue-type": "jms"}}]},
         [("q", None, "there is no queue type 'jms' here")]),
        ({"queues": [{**QUEUE, "name": "amq.gen-x"}]}, [("amq.gen-x", None, "amq.")]),
        ({"queues": [{**QUEUE, "exclusive": True}]}, [("q", None, "exclusive")]),
        ({"exchanges": [{"name": "x", "vhost": "/", "type": "x-jms-topic"}],
          "bindings": [{"vhost": "/", "source": "x", "destination": "amq.topic",
                        "destination_type": "exchange", "routing_key": ""}]},
         [("x", None, "no exchange type 'x-jms-topic'"), ("amq.topic", None, "is left out")]),
        ({"policies": [{"name": "p", "vhost": "/", "pattern": "", "definition": {"colour": 1}}]},
         [("p", "definition.colour", "no such policy key"), ("p", None, "nothing of its")]),
        ({"operator_policies": [{"name": "p", "vhost": "/", "pattern": "",
                                 "definition": {"max-length": 1, "dead-letter-exchange": "x"}}]},
         [("p", "definition.dead-letter-exchange", "operator policy cannot")]),
        ({"policies": [{"name": "p", "vhost": "/", "pattern": "a(?=b)",
                        "definition": {"max-length": 1}}]}, [("p", None, "RE2")]),
        ({"permissions": [{"user": "guest", "vhost": "/", "configure": "a(?<!b)", "write": "",
                           "read": ""}]}, [("guest", None, "RE2")]),
        ({"users": [{**USER, "hashing_algorithm": "my_hashing"}]},
         [("u", "password_hash", "my_hashing")]),
        ({"users": [{**USER, "limits": {"max-colours": 1}}]},
         [("u", "limits.max-colours", "no such limit")]),
        ({"vhosts": [{"name": "v", "default_queue_type": "jms"}]},
         [("v", "default_queue_type", "'jms'")]),
        ({"history": [1], "explanation": "text", "limits": []}, [("history", None, "section")]),
    ],
)  # fmt: skip
async def test_what_has_no_counterpart_is_left_out_and_fails_nothing(
    shared_client: BrokerClient, definitions: Any, left_out: list[tuple[str, str | None, str]]
) -> None:
    sound = {"name": "sound", "vhost": "/", "type": "fanout"}
    definitions = {**definitions, "exchanges": [*definitions.get("exchanges", []), sound]}
    answer = await shared_client.call("definitions.import", definitions=definitions)
    assert len(answer["left_out"]) == len(left_out)
    for row, (name, part, reason) in zip(answer["left_out"], left_out, strict=True):
        assert name in (row.get("name"), row.get("destination"), row.get("user"), row["section"])
        assert row.get("part") == part
        assert reason in row["reason"]
    assert await shared_client.call("item", noun="exchanges", vhost="/", name="sound")


async def test_what_is_there_and_cannot_change_is_kept_and_listed(client: BrokerClient) -> None:
    await client.call("queue.declare", vhost="/", name="q", durable=True, arguments={})
    await client.call("exchange.declare", vhost="/", name="x", type="topic", durable=True)
    definitions = {
        "queues": [{**QUEUE, "arguments": {"x-max-length": 1}}],
        "exchanges": [{"name": "x", "vhost": "/", "type": "fanout"}],
    }
    answer = await client.call("definitions.import", definitions=definitions)
    reasons = [row["reason"] for row in answer["left_out"]]
    assert "inequivalent arg 'type'" in reasons[0]
    assert "inequivalent arg 'x-max-length'" in reasons[1]
    assert (await client.call("item", noun="queues", vhost="/", name="q"))["arguments"] == {}


async def test_a_dry_run_answers_with_the_difference_and_changes_nothing(
    client: BrokerClient,
) -> None:
    await client.call("policy.put", vhost="/", name="p", pattern="a", definition={"expires": 5})
    shovel = {
        "src-uri": "amqp://u:secret@127.0.0.1:1",
        "dest-uri": "amqp://",
        "src-queue": "q",
        "dest-queue": "r",
    }
    definitions = {
        "queues": [QUEUE],
        "policies": [
            {"vhost": "/", "name": "p", "pattern": "b", "definition": {"expires": 5}, "priority": 0}
        ],
        "parameters": [{"component": "shovel", "vhost": "/", "name": "s", "value": shovel}],
    }
    before = await client.call("definitions.export")
    answer = await client.call("definitions.import", definitions=definitions, dry_run=True)
    assert await client.call("definitions.export") == before
    assert answer["dry_run"] is True
    parameter, policy, queue = answer["difference"]
    assert policy == {
        "section": "policies", "vhost": "/", "name": "p", "action": "change",
        "before": {"pattern": "a"}, "after": {"pattern": "b"},
    }  # fmt: skip
    assert (queue["action"], queue["after"]["durable"]) == ("create", True)
    assert "secret" not in json.dumps(parameter)
    await client.call("definitions.import", definitions=definitions)
    again = await client.call("definitions.import", definitions=definitions, dry_run=True)
    assert again["difference"] == []


async def test_an_export_without_secrets_takes_none_away(client: BrokerClient) -> None:
    value = {"uri": "amqp://u:secret@h"}
    where = {"component": "federation-upstream", "vhost": "/", "name": "f"}
    await client.call("parameter.put", **where, value=value)
    exported = await client.call("definitions.export")
    assert "secret" not in json.dumps(exported["parameters"])
    await client.call("definitions.import", definitions=exported)
    row = await client.call("item", noun="parameters", **where, secrets=True)
    assert row["value"] == value


async def test_a_user_keeps_its_password_where_the_document_has_none(client: BrokerClient) -> None:
    hashed = rabbit_hash("secret")
    await client.call("user.put", name="u", tags=[], password_hash=hashed)
    row = {"name": "u", "tags": ["monitoring"], "password_hash": "x", "hashing_algorithm": "mine"}
    for given in ({"name": "u", "tags": "management"}, row):
        await client.call("definitions.import", definitions={"users": [given]})
        user = await client.call("item", noun="users", name="u")
        assert user["password_hash"] == hashed
    assert user["tags"] == ["monitoring"]
    cleared = {"name": "u", "tags": [], "password_hash": ""}
    await client.call("definitions.import", definitions={"users": [cleared]})
    assert (await client.call("item", noun="users", name="u"))["password_hash"] == ""


async def test_a_password_in_the_clear_is_hashed_once(client: BrokerClient) -> None:
    definitions = {"users": [{"name": "u", "tags": [], "password": "secret"}]}
    await client.call("definitions.import", definitions=definitions)
    first = await client.call("item", noun="users", name="u")
    assert first["hashing_algorithm"] == "argon2id"
    await client.call("definitions.import", definitions=definitions)
    assert await client.call("item", noun="users", name="u") == first, "sessions go on"


async def test_one_vhost_takes_what_belongs_to_it(client: BrokerClient) -> None:
    await client.call("vhost.put", name="shop")
    definitions = {
        "users": [USER],
        "queues": [{"name": "q", "durable": True}],
        "exchanges": [{"name": "x", "type": "fanout"}],
        "bindings": [{"source": "x", "destination": "q", "destination_type": "queue"}],
        "policies": [{"name": "p", "pattern": "q", "definition": {"max-length": 1}}],
    }
    answer = await client.call("definitions.import", definitions=definitions, vhost="shop")
    assert [(row["section"], row["name"]) for row in answer["left_out"]] == [("users", "u")]
    row = await client.call("item", noun="queues", vhost="shop", name="q")
    assert (row["policy"], row["effective_policy_definition"]) == ("p", {"max-length": 1})
    again = await client.call("definitions.export", vhost="shop")
    answer = await client.call("definitions.import", definitions=again, vhost="shop", dry_run=True)
    assert answer["difference"] == []


async def test_what_the_journal_holds_of_an_import_survives_a_kill(
    make_broker: Callable[..., Appliance],
) -> None:
    broker = make_broker()
    text = (FIXTURES / "rabbitmq-3.10.8.json").read_bytes()
    async with control(broker) as client:
        await client.call("definitions.import", definitions=text)
        exported = await client.call("definitions.export", secrets=True)
    broker.kill()
    broker.start()
    async with control(broker) as client:
        now = await client.call("definitions.export", secrets=True)
    transient = {"q-trans", "aliveness-test"}
    exported["queues"] = [row for row in exported["queues"] if row["name"] not in transient]
    assert now == exported


@pytest.mark.parametrize("text", ["{}", "not json", '{"vhost": null, "definitions": 7}'])
def test_a_start_survives_a_note_of_an_import_that_cannot_be_read(
    make_broker: Callable[..., Appliance], text: str
) -> None:
    broker = make_broker(start=False)
    broker.data_dir.mkdir()
    note = broker.data_dir / "definitions_import.json"
    note.write_text(text)
    broker.start()
    assert not note.exists()
    assert Path(f"{note}.failed").read_text() == text
    assert "cannot be ended" in broker.log()


async def test_a_start_completes_an_import_that_a_crash_interrupted(
    make_broker: Callable[..., Appliance],
) -> None:
    broker = make_broker()
    connect(broker).close()
    broker.kill()
    definitions = {"queues": [QUEUE, {**QUEUE, "name": "q2"}]}
    note = broker.data_dir / "definitions_import.json"
    note.write_text(json.dumps({"vhost": None, "definitions": definitions}))
    broker.start()
    assert not note.exists()
    async with control(broker) as client:
        names = [row["name"] for row in (await client.call("list", noun="queues"))["items"]]
    assert sorted(names) == ["q", "q2"]
    assert "was completed: 2 changes" in broker.log()
