"""What a policy may set: one row per key, with the x-argument it stands for.

The table feeds the check of definitions, the merging (`broker.vhosts.policies`), the form of the
policies page and docs/policies.md. What a value may be is the business of the argument's own row
(`broker.schema.arguments`), so a policy and a declaration are judged alike; the words of a refusal
are RabbitMQ's (`rabbit_policies`, `rabbit_parameter_validation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from broker.schema.arguments import BY_OWNER, Argument, against_lean, fault, is_there
from broker.schema.index_keys import BadKeys, index_keys
from broker.schema.message_history import LEVELS
from broker.schema.times import age_ms

APPLY_TO = ("all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams")

Rule = Literal["lower", "argument", "policy", "none"]


class PolicyKey(NamedTuple):
    """One row.

    `argument` is carried out in place of the key. `rule`: with an argument of the declaration too,
    the `lower` number holds, or the `argument`; `policy` is for keys without an argument, which
    hold for queues and exchanges alike, the operator policy's before the policy's; `none` is for
    keys that are not merged with arguments; `text` says what they do. `operator`: an operator
    policy may set it. `wrong` ends RabbitMQ's "is not a valid ..."; `unit` is ms, bytes or what is
    counted.
    """

    name: str
    argument: Argument
    rule: Rule
    wrong: str
    text: str
    operator: bool = False
    unit: str = ""

    @property
    def owner(self) -> str:
        """`queue` or `exchange`."""
        return self.argument.owner


def _key(
    name: str,
    argument: str,
    rule: Rule,
    wrong: str,
    text: str,
    *,
    owner: str = "queue",
    operator: bool = False,
    unit: str = "",
) -> PolicyKey:
    row = BY_OWNER[owner][argument]
    return PolicyKey(name, row, rule, wrong, text, operator, unit)


def _kept(name: str, kind: str, wrong: str, text: str, **bounds: Any) -> PolicyKey:
    """A key without effect: RabbitMQ knows it, and a definitions file that names it is taken."""
    operator = bounds.pop("operator", False)
    row = Argument(name, bounds.pop("owner", "queue"), kind, text, built=True, **bounds)
    return PolicyKey(name, row, "none", wrong, text, operator)


def _apart(name: str, kind: str, wrong: str, text: str, **bounds: Any) -> PolicyKey:
    """A key of rule `policy`."""
    row = Argument(name, "queue", kind, text, built=_RECORDS, **bounds)
    return PolicyKey(name, row, "policy", wrong, text, operator=True)


_RECORDS = is_there("features.history") and is_there("queues.stream_type")
_ONE_NODE = "kept and shown; there is one node"
_ON_DISK = "kept and shown; messages are on disk anyway"
_UPSTREAMS = "; exchanges and queues under it take messages from there"

KEYS: dict[str, PolicyKey] = {
    row.name: row
    for row in (
        _key(
            "max-length",
            "x-max-length",
            "lower",
            "maximum length",
            "ready messages a queue holds at most",
            operator=True,
            unit="messages",
        ),
        _key(
            "max-length-bytes",
            "x-max-length-bytes",
            "lower",
            "maximum length in bytes",
            "bytes of ready messages a queue holds at most",
            operator=True,
            unit="bytes",
        ),
        _key(
            "overflow",
            "x-overflow",
            "argument",
            "overflow value",
            "what happens when a queue is full",
            operator=True,
        ),
        _key(
            "message-ttl",
            "x-message-ttl",
            "lower",
            "message TTL",
            "messages expire after this time",
            operator=True,
            unit="ms",
        ),
        _key(
            "expires",
            "x-expires",
            "lower",
            "queue expiry",
            "a queue goes after this time without use",
            operator=True,
            unit="ms",
        ),
        _key(
            "dead-letter-exchange",
            "x-dead-letter-exchange",
            "argument",
            "dead letter exchange name",
            "where rejected, expired and dropped messages go",
        ),
        _key(
            "dead-letter-routing-key",
            "x-dead-letter-routing-key",
            "argument",
            "dead letter routing key",
            "the routing key they get instead of their own",
        ),
        _key(
            "delivery-limit",
            "x-delivery-limit",
            "lower",
            "delivery limit",
            "returns of a message before it is dead-lettered; -1 is none",
            operator=True,
            unit="deliveries",
        ),
        _key(
            "consumer-timeout",
            "x-consumer-timeout",
            "lower",
            "consumer timeout",
            "how long a delivery may stay unacknowledged",
            unit="ms",
        ),
        _key(
            "confirm-on",
            "x-confirm-on",
            "argument",
            "confirm mode",
            "when publishers get their confirm",
        ),
        _key(
            "max-age",
            "x-max-age",
            "lower",
            "max age",
            "a stream drops what is older: a number and Y, M, D, h, m or s, such as 7D",
        ),
        _key(
            "stream-max-segment-size-bytes",
            "x-stream-max-segment-size-bytes",
            "argument",
            "segment size",
            "size at which a stream begins its next segment; 4 KiB to 256 MiB",
            unit="bytes",
        ),
        _key(
            "stream-index",
            "x-stream-index",
            "argument",
            "list of index keys. Valid are message_id, correlation_id and header:NAME",
            "keys that a stream's messages can be found by: a list, or a text with commas, of"
            " message_id, correlation_id and header:NAME",
        ),
        _key(
            "stream-tier",
            "x-stream-tier",
            "argument",
            "stream tier value",
            "sealed segments of a stream are put into the object store",
        ),
        _key(
            "stream-local-max-bytes",
            "x-stream-local-max-bytes",
            "lower",
            "local maximum in bytes",
            "bytes of a tiered stream's segments that stay on this disk, too",
            unit="bytes",
        ),
        _key(
            "stream-local-max-age",
            "x-stream-local-max-age",
            "lower",
            "local max age",
            "a tiered stream's segments leave this disk at this age: a number and Y, M, D, h, m "
            "or s, such as 1D",
        ),
        _key(
            "alternate-exchange",
            "alternate-exchange",
            "argument",
            "alternate exchange name",
            "where an exchange's unroutable messages go",
            owner="exchange",
        ),
        _key(
            "delayed-message",
            "x-delayed-exchange",
            "argument",
            "delayed message flag",
            "an exchange holds messages back by their x-delay header",
            owner="exchange",
        ),
        _apart(
            "history",
            "string",
            "history value",
            "what is kept of messages in the vhost's stream amq.history: off, headers or full",
            choices=LEVELS,
        ),
        _apart(
            "history-keys",
            "any",
            "list of index keys. Valid are message_id, correlation_id and header:NAME",
            "keys that the history can be searched by, as of stream-index",
        ),
        _apart(
            "history-retention",
            "string",
            "max age",
            "how long records stay: a number and Y, M, D, h, m or s, such as 7D; the longest of"
            " all policies of the vhost holds",
        ),
        _apart(
            "history-events",
            "boolean",
            "history events flag",
            "the history also has what happens to the messages of a queue: delivered, acked,"
            " rejected, expired, dropped, dead-lettered, moved",
        ),
        _kept(
            "queue-mode",
            "string",
            "queue mode value",
            _ON_DISK,
            choices=("default", "lazy"),
        ),
        _kept(
            "queue-version", "integer", "queue version", _ON_DISK, least=1, most=2, operator=True
        ),
        _kept("max-in-memory-length", "integer", "maximum memory in bytes", _ON_DISK, least=0),
        _kept("max-in-memory-bytes", "integer", "maximum memory in bytes", _ON_DISK, least=0),
        _kept(
            "dead-letter-strategy",
            "string",
            "dead letter strategy",
            "kept and shown; a dead letter is always handed over at least once",
            choices=("at-most-once", "at-least-once"),
        ),
        _kept(
            "stream-filter-size-bytes",
            "integer",
            "filter size. Valid range is 16-255",
            "kept and shown; filters have one size",
            least=16,
            most=255,
        ),
        _kept("queue-leader-locator", "string", "queue leader locator value", _ONE_NODE),
        _kept("queue-master-locator", "string", "queue master locator value", _ONE_NODE),
        _kept("initial-cluster-size", "integer", "cluster size", _ONE_NODE, least=1),
        _kept("target-group-size", "integer", "target group size", _ONE_NODE, least=1),
        _kept("ha-mode", "string", "ha-mode value", _ONE_NODE, operator=True),
        _kept("ha-params", "any", "ha-params value", _ONE_NODE, operator=True),
        _kept("ha-sync-mode", "string", "ha-sync-mode value", _ONE_NODE, operator=True),
        _kept("ha-sync-batch-size", "integer", "ha-sync-batch-size value", _ONE_NODE, least=1),
        _kept("ha-promote-on-shutdown", "string", "ha-promote-on-shutdown value", _ONE_NODE),
        _kept("ha-promote-on-failure", "string", "ha-promote-on-failure value", _ONE_NODE),
        _kept(
            "federation-upstream",
            "string",
            "federation upstream name",
            f"name of an upstream{_UPSTREAMS}",
        ),
        _kept(
            "federation-upstream-set",
            "string",
            "federation upstream set name",
            f"name of a set of upstreams, `all` for every one{_UPSTREAMS}",
        ),
        _kept(
            "federation-upstream-pattern",
            "string",
            "federation upstream pattern",
            f"an RE2 expression for names of upstreams{_UPSTREAMS}",
        ),
    )
}


AGES = frozenset({"max-age", "stream-local-max-age", "history-retention"})
"""Keys whose values are a number and a unit, such as 7D."""


LISTS_OF_KEYS = ("stream-index", "history-keys")


class BadDefinition(ValueError):
    """A definition that no policy can have; the text is RabbitMQ's."""


def check(definition: Mapping[str, Any], *, operator: bool = False) -> None:
    """Checks what a policy wants to set. Raises BadDefinition."""
    if not definition:
        raise BadDefinition("no policy provided")
    unknown = [
        name for name in definition if name not in KEYS or (operator and not KEYS[name].operator)
    ]
    if unknown:
        raise BadDefinition(_unrecognised(unknown, definition, operator))
    for name, value in definition.items():
        row = KEYS[name]
        wrong = fault(row.argument, value) is not None or (name in AGES and not age_ms(value))
        if wrong:
            raise BadDefinition(f"{term(value)} is not a valid {row.wrong}")
        if name in LISTS_OF_KEYS:
            _check_keys(value, row.wrong)
        if not row.argument.built or value in row.argument.unbuilt:
            raise BadDefinition(f"{name} {term(value)}: this broker does not carry it out yet")


def _check_keys(value: Any, wrong: str) -> None:
    """Checks a list of keys of an index. Raises BadDefinition with what is wrong with it."""
    try:
        problem = "" if index_keys(value) else "it is empty"
    except BadKeys as error:
        problem = str(error)
    if problem:
        raise BadDefinition(f"{term(value)} is not a valid {wrong}: {problem}")


def check_together(definition: Mapping[str, Any]) -> None:
    """Checks what a policy wants to set against what else it wants to set. Raises
    BadDefinition."""
    if sum(key.startswith("federation-upstream") for key in definition) > 1:
        raise BadDefinition(
            "cannot specify federation-upstream-set, federation-upstream and"
            " federation-upstream-pattern together"
        )
    named = {KEYS[key].argument.name: value for key, value in definition.items()}
    name = against_lean(named)
    if name is not None:
        key = next(key for key in definition if KEYS[key].argument.name == name)
        raise BadDefinition(
            f"confirm-on 'ack-lean' keeps nothing of what it delivers and cannot go with '{key}'; "
            "use 'ack'"
        )


def _unrecognised(names: list[str], definition: Mapping[str, Any], operator: bool) -> str:
    listed = ",".join(f"{{{term(name)},{term(definition[name])}}}" for name in names[:8])
    text = f"[{listed}] are not recognised policy settings"
    if any(name.startswith("history") for name in names):
        text += "; of keys that begin with history there are " + ", ".join(
            name for name in KEYS if name.startswith("history")
        )
    elif operator and all(name in KEYS for name in names):
        allowed = ", ".join(
            row.name for row in KEYS.values() if row.operator and row.rule != "none"
        )
        text += f"; an operator policy may set {allowed}"
    return text


def lower(name: str, one: Any, other: Any) -> Any:
    """The stricter of two values of a key of rule `lower`; a negative number is no limit."""
    if name in AGES:
        return one if (age_ms(one) or 0) <= (age_ms(other) or 0) else other
    if one < 0 or other < 0:
        return max(one, other)
    return min(one, other)


def term(value: Any) -> str:
    """A JSON value as RabbitMQ's texts print it: an Erlang term, of a bounded length."""
    text = _term(value)
    return text if len(text) <= 300 else f"{text[:300]}..."


def _term(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        quoted = value[:300].replace("\\", "\\\\").replace('"', '\\"')
        shown = "".join(each if each.isprintable() else f"\\x{{{ord(each):X}}}" for each in quoted)
        return f'<<"{shown}"/utf8>>' if not value.isascii() else f'<<"{shown}">>'
    if isinstance(value, Mapping):
        pairs = (f"{_term(key)} => {_term(item)}" for key, item in list(value.items())[:20])
        return f"#{{{','.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(_term(item) for item in value[:20])}]"
    return str(value)
