"""Values that nothing can carry, in payloads and in forms: shown as they are, or refused in words,
and never an answer of 500."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import QueryDict
from pika.adapters.blocking_connection import BlockingChannel

from frontend import messages
from frontend.arguments import given
from frontend.asking import FormError, arguments_table, typed_json, whole_number
from frontend.messages import readable
from frontend.tables import page_number
from tests.web.person import Person

LONG = "9" * 5000
"""More digits than Python reads."""


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (rb'{"a":"\ud800"}', '{\n  "a": "\\ud800"\n}'),
        (b'{"a":1.10,"a":2}', '{\n  "a": 1.10,\n  "a": 2\n}'),
        (b"[0.1234567890123456789, 1e400]", "[\n  0.1234567890123456789,\n  1e400\n]"),
        (b'{ "a" : [ ], "b":[{}]}', '{\n  "a": [],\n  "b": [\n    {}\n  ]\n}'),
        (rb'["{,\"]: ", "\u00e9"]', '[\n  "{,\\"]: ",\n  "\\u00e9"\n]'),
        (f"[{LONG}]".encode(), f"[\n  {LONG}\n]"),
    ],
)
def test_json_is_indented_and_otherwise_as_it_was_sent(payload: bytes, shown: str) -> None:
    assert readable(payload) == ("JSON", shown)


@pytest.mark.parametrize("payload", [b"[1,]", b'{"a":1', b"[" * 3000, b"[" * 65 + b"]" * 65])
def test_what_is_no_json_or_nested_too_deep_is_shown_as_text(payload: bytes) -> None:
    assert readable(payload) == ("text", payload.decode())


def test_indenting_cannot_make_a_payload_many_times_as_long() -> None:
    payload = b"[" * 60 + b"1," * 30_000 + b"1" + b"]" * 60
    assert readable(payload) == ("JSON", payload.decode())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r'{"a":"\ud800"}', "half a surrogate pair"),
        (r'{"\udc00":1}', "half a surrogate pair"),
        (r'{"a":[{"b":"\ud800"}]}', "half a surrogate pair"),
        ('{"a":9223372036854775808}', "9223372036854775808 does not fit in 64 bits"),
        ('{"a":-9223372036854775809}', "does not fit in 64 bits"),
        (f'{{"a":{LONG}}}', "does not fit in 64 bits"),
        ('{"a":1e400}', "infinite"),
        ('{"a":NaN}', "infinite or none"),
        ('{"a":' + "[" * 3000 + "]" * 3000 + "}", "nested over 64 levels"),
        ("{bad", "The headers are not JSON"),
        ("[1]", "must be a JSON object"),
    ],
)
def test_a_table_that_amqp_cannot_carry_is_refused_in_words(text: str, reason: str) -> None:
    with pytest.raises(FormError, match=reason):
        arguments_table({"headers": text}, "headers")


def test_a_table_keeps_what_amqp_can_carry() -> None:
    value: dict[str, Any] = {"a": [2**63 - 1, -(2**63), 1.5, True, None, "é", {"b": []}]}
    text = '{"a":[9223372036854775807,-9223372036854775808,1.5,true,null,"\\u00e9",{"b":[]}]}'
    assert typed_json(text, "It is") == value


@pytest.mark.parametrize("text", [LONG, "9" * 20])
def test_a_number_with_too_many_digits_is_refused_in_words(text: str) -> None:
    with pytest.raises(FormError, match="count must be a whole number from 1 to 100"):
        whole_number({"count": text}, "count", 1, 100, 1)
    with pytest.raises(FormError, match="x-max-length must be a whole number"):
        given("queue", {"x-max-length": text})
    for name in ("priority", "timestamp"):
        with pytest.raises(FormError, match=f"{name} must be a whole number"):
            messages.to_publish(QueryDict(f"{name}={text}"))
    assert page_number(text) == 1


def test_messages_are_shown_whatever_is_in_them_when_they_are_taken_out(
    person: Person, channel: BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, rb'{"a":"\ud800"}')
    taking = {"action": "get", "how": "take", "count": "1"}
    answer = person.post(f"/queues/%2F/{queue}/messages", taking, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    assert "\\ud800" in answer.text


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/queues", {"action": "create", "name": "none", "arguments": r'{"a":"\ud800"}'}),
        ("/queues", {"action": "create", "name": "none", "x-max-length": LONG}),
        ("/queues", {"action": "purge", "typed": "1", "row": r'["/","\ud800"]'}),
        ("/queues", {"action": "purge", "typed": "1", "row": "[" * 3000}),
        ("/exchanges/%2F/amq.topic", {"action": "publish", "headers": f'{{"a":{2**64}}}'}),
        ("/exchanges/%2F/amq.topic", {"action": "publish", "priority": LONG}),
        ("/exchanges/%2F/amq.topic", {"action": "publish", "timestamp": "9" * 21}),
        ("/vhosts/%2F", {"action": "limit", "max-queues": LONG}),
        ("/users/guest", {"action": "limit", "max-channels": LONG}),
        ("/policy", {"name": "none", "max-length": "5", "priority": LONG}),
        ("/policy", {"name": "none", "max-length": LONG}),
        ("/policy", {"name": "none", "others": "[" * 3000}),
        ("/upstream?vhost=%2F&set=1", {"name": "none", "entries": r'["\ud800"]'}),
        ("/shovel", {"name": "none", "src-consumer-args": r'{"a":"\ud800"}'}),
    ],
)
def test_a_form_with_a_value_that_nothing_can_carry_is_refused(
    person: Person, path: str, fields: dict[str, str]
) -> None:
    person.refused(path, fields)


@pytest.mark.parametrize("path", ["/queues", "/problems", "/queues/%2F/amq.none/bindings"])
def test_a_page_with_too_many_digits_is_the_first(person: Person, path: str) -> None:
    answer = person.get(f"{path}?page={LONG}")
    assert answer.status_code == (404 if "none" in path else 200)
