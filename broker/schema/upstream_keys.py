"""The keys of a federation upstream and of an upstream set: one table for the checks, the process
that runs links, the form of the web app and `docs/federation.md`.

The keys, defaults and texts are RabbitMQ's (https://www.rabbitmq.com/docs/federation-reference).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.schema.policy_keys import term

UPSTREAM = "federation-upstream"
UPSTREAM_SET = "federation-upstream-set"
UPSTREAM_PATTERN = "federation-upstream-pattern"
POLICY_KEYS = (UPSTREAM, UPSTREAM_SET, UPSTREAM_PATTERN)
ALL = "all"
"""The set of every upstream of the virtual host."""

BOTH, EXCHANGES, QUEUES = "both", "exchanges", "queues"
GROUPS = {
    BOTH: "Federated exchanges and queues",
    EXCHANGES: "Federated exchanges",
    QUEUES: "Federated queues",
}
NAME_MAX = 255
NUMBER_MAX = 2**53
HOPS_MAX = 1000
PREFETCH_MAX = 65535
ACK_MODES = ("on-confirm", "on-publish", "no-ack")
DEFAULT_TAG = "federation-link-{upstream}"


class UpstreamKey(NamedTuple):
    """One key. `kind`: uris, text, number, boolean or choice; a text has at most `most` bytes, a
    number lies between `least` and `most`. `in_set`: an entry of a set may have it, too, and
    overrules the upstream's."""

    name: str
    group: str
    kind: str
    label: str
    text: str
    default: Any = None
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = NAME_MAX
    in_set: bool = True


KEYS: dict[str, UpstreamKey] = {
    row.name: row
    for row in (
        UpstreamKey(
            "uri",
            BOTH,
            "uris",
            "URI",
            "amqp://user:password@host/vhost or amqps://…; amqp:// is this broker. Without a path"
            " it is the virtual host's own name; of several the next is tried when one fails",
            in_set=False,
        ),
        UpstreamKey(
            "prefetch-count",
            BOTH,
            "number",
            "Prefetch",
            "Unacknowledged messages that a link may have under way",
            1000,
            most=PREFETCH_MAX,
        ),
        UpstreamKey(
            "reconnect-delay",
            BOTH,
            "number",
            "Reconnect delay",
            "Seconds before a link that failed is tried again",
            5,
            most=86_400,
        ),
        UpstreamKey(
            "ack-mode",
            BOTH,
            "choice",
            "Acknowledgement mode",
            "on-confirm: acknowledged upstream when this broker has confirmed; on-publish: when it"
            " is published here; no-ack: the upstream forgets what it sends",
            "on-confirm",
            ACK_MODES,
        ),
        UpstreamKey(
            "trust-user-id",
            BOTH,
            "boolean",
            "Trust user-id",
            "Keeps the property user-id of messages; without it, it is removed",
            False,
        ),
        UpstreamKey(
            "exchange",
            EXCHANGES,
            "text",
            "Exchange",
            "Exchange of the upstream; by default the one with the same name",
        ),
        UpstreamKey(
            "max-hops",
            EXCHANGES,
            "number",
            "Maximum hops",
            "Links that a message may pass before it is no longer federated",
            1,
            most=HOPS_MAX,
        ),
        UpstreamKey(
            "expires",
            EXCHANGES,
            "number",
            "Expires",
            "Milliseconds without a connection after which the upstream may delete the queue of a"
            " link; by default it never does",
            least=1,
            most=NUMBER_MAX,
        ),
        UpstreamKey(
            "message-ttl",
            EXCHANGES,
            "number",
            "Message TTL",
            "Milliseconds that messages are kept upstream while the link is down",
            most=NUMBER_MAX,
        ),
        UpstreamKey(
            "ha-policy",
            EXCHANGES,
            "text",
            "HA policy",
            "Argument x-ha-policy of the queue of a link; accepted, without effect",
        ),
        UpstreamKey(
            "queue-type",
            EXCHANGES,
            "choice",
            "Queue type",
            "Type of the queue of a link at the upstream",
            choices=("classic", "quorum"),
        ),
        UpstreamKey(
            "bind-nowait",
            EXCHANGES,
            "boolean",
            "Bind without waiting",
            "Does not wait for the upstream's answer to each binding",
            False,
        ),
        UpstreamKey(
            "channel-use-mode",
            EXCHANGES,
            "choice",
            "Channels",
            "multiple: commands have a channel of their own; single: one for all",
            "multiple",
            ("multiple", "single"),
        ),
        UpstreamKey(
            "resource-cleanup-mode",
            EXCHANGES,
            "choice",
            "Clean-up",
            "default: queue and exchange of a link are deleted at the upstream when the link ends;"
            " never: they stay and collect messages",
            "default",
            ("default", "never"),
        ),
        UpstreamKey(
            "queue",
            QUEUES,
            "text",
            "Queue",
            "Queue of the upstream; by default the one with the same name",
        ),
        UpstreamKey(
            "consumer-tag",
            QUEUES,
            "text",
            "Consumer tag",
            "Tag of the consumer at the upstream; by default federation-link- and the upstream's"
            " name",
        ),
    )
}


def settled(
    definition: Mapping[str, Any], overruled_by: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Every key with its value or its default; those of an entry of a set come first."""
    found = {name: row.default for name, row in KEYS.items()}
    for given in (definition, overruled_by or {}):
        for name, value in given.items():
            # Clients that always send every key send empty names.
            if name in KEYS and value is not None and value != "":
                found[name] = value
    return found


def uris(value: Any) -> list[str]:
    """One URI or several, as a list."""
    return [value] if isinstance(value, str) else list(value)


def fault(name: str, value: Any) -> str | None:
    """What is wrong with an upstream, its URIs aside; None if nothing is."""
    if not isinstance(value, dict):
        return f"{name} should be an object"
    if "uri" not in value:
        return f'Key "uri" not found in {name}'
    return _terms_fault(name, value, KEYS)


def set_fault(name: str, value: Any) -> str | None:
    """What is wrong with an upstream set; None if nothing is."""
    if not isinstance(value, list):
        return f"{name} should be a list of objects that name an upstream"
    known = {key: row for key, row in KEYS.items() if row.in_set}
    for entry in value:
        if not isinstance(entry, dict):
            return f"{name} should be a list of objects that name an upstream"
        if "upstream" not in entry:
            return f'Key "upstream" not found in {name}'
        if not isinstance(entry["upstream"], str):
            return f"upstream should be binary, actually was {term(entry['upstream'])}"
        rest = {key: item for key, item in entry.items() if key != "upstream"}
        wrong = _terms_fault(name, rest, known)
        if wrong is not None:
            return wrong
    return None


def _terms_fault(name: str, value: dict[str, Any], known: Mapping[str, UpstreamKey]) -> str | None:
    for key, item in value.items():
        row = known.get(key)
        if row is None:
            return f"Unrecognised terms [{{{term(key)},{term(item)}}}] in {name}"
        wrong = _value_fault(row, item)
        if wrong is not None:
            return wrong
    return None


def _value_fault(row: UpstreamKey, value: Any) -> str | None:
    wrong = None
    if row.kind == "uris":
        found = value if isinstance(value, list) else [value]
        if not found or not all(isinstance(uri, str) and uri for uri in found):
            wrong = "a URI or a list of URIs"
    elif row.kind == "text":
        if not isinstance(value, str):
            wrong = "binary"
        elif len(value.encode("utf-8", "surrogatepass")) > row.most:
            return f"{row.name} should have {row.most} bytes at most"
    elif row.kind == "boolean":
        wrong = None if isinstance(value, bool) else "boolean"
    elif row.kind == "number":
        if isinstance(value, bool) or not isinstance(value, int):
            wrong = "a number"
        elif not row.least <= value <= row.most:
            wrong = f"a number from {row.least} to {row.most}"
    elif not isinstance(value, str) or value not in row.choices:
        wrong = f"one of {', '.join(row.choices)}"
    return f"{row.name} should be {wrong}, actually was {term(value)}" if wrong else None
