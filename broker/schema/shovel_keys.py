"""The keys of a shovel's definition: one table for the checks, the process that runs shovels, the
form of the web app and `docs/shovels.md`.

The keys are RabbitMQ's (https://www.rabbitmq.com/docs/shovel-dynamic) with those of LavinMQ; the
ones marked `own` are Leveret's. Errors have RabbitMQ's texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.schema.policy_keys import term

SOURCE, DESTINATION, DELIVERY, HTTP = "source", "destination", "delivery", "http"
GROUPS = {
    SOURCE: "Source",
    DESTINATION: "Destination",
    DELIVERY: "Delivery",
    HTTP: "HTTP destination",
}
NUMBER_MAX = 2**53
PREFETCH_MAX = 65535
NAME_MAX = 255
ACK_MODES = ("on-confirm", "on-publish", "no-ack")
ON_REFUSED = ("hold", "dead-letter", "drop")
PROTOCOLS = ("amqp091", "local", "amqp10")
NOT_RUN = "amqp10"
"""A protocol that is stored and not run."""
SECRET_KEYS = ("dest-signature-secret",)
ON_BEHALF_OF = "on_behalf_of"
"""Client property of the connections of a bridge: `broker.access.behalf` says what it is for."""
BY_SHOVEL = "X-Shovel"
"""Header of every request that a shovel sends over HTTP: its name."""


class ShovelKey(NamedTuple):
    """One key. `kind`: uris, text, number, boolean, choice, table, headers or delete-after; a text
    has at most `most` bytes, a number lies between `least` and `most`. `older` is its former name.
    """

    name: str
    group: str
    kind: str
    label: str
    text: str
    default: Any = None
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = NAME_MAX
    older: str = ""
    own: bool = False


KEYS: dict[str, ShovelKey] = {
    row.name: row
    for row in (
        ShovelKey(
            "src-uri",
            SOURCE,
            "uris",
            "URI",
            "amqp:// (this broker, as the user who saves it), amqp://user:password@host/vhost"
            " or amqps://…; of several the next is tried when one fails",
        ),
        ShovelKey(
            "src-protocol",
            SOURCE,
            "choice",
            "Protocol",
            "amqp091; local is the same at this broker; amqp10 is stored and does not run",
            "amqp091",
            PROTOCOLS,
        ),
        ShovelKey("src-queue", SOURCE, "text", "Queue", "The queue that messages are taken from"),
        ShovelKey(
            "src-queue-args",
            SOURCE,
            "table",
            "Queue arguments",
            "Arguments with which the queue is declared if it does not exist",
        ),
        ShovelKey(
            "src-exchange",
            SOURCE,
            "text",
            "Exchange",
            "Instead of a queue: an exchange; a queue of its own is bound to it while it runs",
        ),
        ShovelKey(
            "src-exchange-key",
            SOURCE,
            "text",
            "Binding key",
            "Key of that binding",
            "",
        ),
        ShovelKey(
            "src-consumer-args",
            SOURCE,
            "table",
            "Consumer arguments",
            "Arguments of basic.consume, such as x-priority",
        ),
        ShovelKey(
            "src-prefetch-count",
            SOURCE,
            "number",
            "Prefetch",
            "Messages that may be under way; 0 is no limit but that of memory",
            1000,
            most=PREFETCH_MAX,
            older="prefetch-count",
        ),
        ShovelKey(
            "src-delete-after",
            SOURCE,
            "delete-after",
            "Delete after",
            "never; queue-length: the shovel removes itself when it has moved what was in the queue"
            " at its start; or a number of messages",
            "never",
            older="delete-after",
        ),
        ShovelKey(
            "src-predeclared",
            SOURCE,
            "boolean",
            "Queue exists",
            "The queue must be there; it is never declared",
            False,
        ),
        ShovelKey(
            "dest-uri",
            DESTINATION,
            "uris",
            "URI",
            "As of the source; or http:// or https://, to which each message is sent as a POST",
        ),
        ShovelKey(
            "dest-protocol",
            DESTINATION,
            "choice",
            "Protocol",
            "As of the source; http and https follow from the URI",
            "amqp091",
            PROTOCOLS,
        ),
        ShovelKey("dest-queue", DESTINATION, "text", "Queue", "The queue that gets the messages"),
        ShovelKey(
            "dest-queue-args",
            DESTINATION,
            "table",
            "Queue arguments",
            "Arguments with which the queue is declared if it does not exist",
        ),
        ShovelKey(
            "dest-exchange",
            DESTINATION,
            "text",
            "Exchange",
            "Instead of a queue: an exchange; without both, each message goes to its own exchange",
        ),
        ShovelKey(
            "dest-exchange-key",
            DESTINATION,
            "text",
            "Routing key",
            "Routing key of what is published; if not set, each message keeps its own",
        ),
        ShovelKey(
            "dest-predeclared",
            DESTINATION,
            "boolean",
            "Queue exists",
            "The queue must be there; it is never declared",
            False,
        ),
        ShovelKey(
            "dest-add-forward-headers",
            DESTINATION,
            "boolean",
            "Add forward headers",
            "Adds the header x-shovelled, which says where the message has come from",
            False,
            older="add-forward-headers",
        ),
        ShovelKey(
            "dest-add-timestamp-header",
            DESTINATION,
            "boolean",
            "Add a timestamp header",
            "Adds the header x-shovelled-timestamp, seconds since 1970",
            False,
            older="add-timestamp-header",
        ),
        ShovelKey(
            "dest-publish-properties",
            DESTINATION,
            "table",
            "Properties",
            'Properties that replace those of each message, such as {"delivery_mode": 2}',
            older="publish-properties",
        ),
        ShovelKey(
            "ack-mode",
            DELIVERY,
            "choice",
            "Acknowledge",
            "on-confirm: when the destination has confirmed, so that nothing is lost; on-publish:"
            " when it is written to the connection; no-ack: the source forgets it when it is sent",
            "on-confirm",
            ACK_MODES,
        ),
        ShovelKey(
            "reconnect-delay",
            DELIVERY,
            "number",
            "Reconnect delay",
            "Seconds before the next attempt; it grows after ten failures; 0: the shovel stops at"
            " the first",
            5,
            most=86_400,
        ),
        ShovelKey(
            "on-refused",
            DELIVERY,
            "choice",
            "What is refused",
            "hold: publish it again, with growing waits; dead-letter: dead-letter it at the source;"
            " drop: count and drop it. If not set: drop with an exchange, else hold",
            None,
            ON_REFUSED,
            own=True,
        ),
        ShovelKey(
            "dead-letter-queue",
            DELIVERY,
            "text",
            "Dead-letter queue",
            "For dead-letter: a queue at the source; without it the source queue's own dead-letter"
            " exchange is used",
            own=True,
        ),
        ShovelKey(
            "dest-concurrency",
            HTTP,
            "number",
            "Requests at once",
            "With more than one, the order is not kept",
            1,
            least=1,
            most=100,
            own=True,
        ),
        ShovelKey(
            "dest-timeout",
            HTTP,
            "number",
            "Time limit",
            "Seconds for one request",
            30,
            least=1,
            most=600,
            own=True,
        ),
        ShovelKey(
            "dest-cacertfile",
            HTTP,
            "text",
            "Authority",
            "A name of bridges_certificates: the authority that signs the certificate of an https"
            " server; if not set, those of the system",
            own=True,
        ),
        ShovelKey(
            "dest-headers",
            HTTP,
            "headers",
            "Headers",
            'Headers of each request, such as {"X-Team": "billing"}',
            own=True,
        ),
        ShovelKey(
            "dest-signature-secret",
            HTTP,
            "text",
            "Signature secret",
            "Key of the HMAC-SHA256 over time and body in X-Shovel-Signature",
            own=True,
        ),
    )
}
OLDER = {row.older: row.name for row in KEYS.values() if row.older}
IGNORED = ("internal", "internal_owner")
"""Keys that RabbitMQ sets itself."""


def settled(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Every key with its value or its default; former names are read as the present ones."""
    found = {name: row.default for name, row in KEYS.items()}
    for name, value in definition.items():
        name = OLDER.get(name, name)
        if name in KEYS and value is not None:
            found[name] = value
    if found["on-refused"] is None:
        found["on-refused"] = "drop" if found["dest-exchange"] is not None else "hold"
    return found


def runs(definition: Mapping[str, Any]) -> bool:
    """Whether both protocols are among those that run here."""
    return NOT_RUN not in (definition.get("src-protocol"), definition.get("dest-protocol"))


def uris(value: Any) -> list[str]:
    """One URI or several, as a list."""
    return [value] if isinstance(value, str) else list(value)


def fault(name: str, value: Any) -> str | None:
    """What is wrong with a definition, its URIs aside; None if nothing is."""
    if not isinstance(value, dict):
        return f"{name} should be an object"
    for key in ("src-uri", "dest-uri"):
        if key not in value:
            return f'Key "{key}" not found in {name}'
        found = _uris_fault(key, value[key])
        if found is not None:
            return found
    if not runs(value):
        return None
    for key, item in value.items():
        row = KEYS.get(OLDER.get(key, str(key)))
        if row is None and key not in IGNORED:
            return f"Unrecognised terms [{{{term(key)},{term(item)}}}] in {name}"
        found = _value_fault(row, key, item) if row is not None else None
        if found is not None:
            return found
    return _contradiction(value)


def _uris_fault(key: str, value: Any) -> str | None:
    found = value if isinstance(value, list) else [value]
    if not found or not all(isinstance(uri, str) and uri for uri in found):
        return f"{key} should be a URI or a list of URIs, actually was {term(value)}"
    return None


def _value_fault(row: ShovelKey, key: str, value: Any) -> str | None:
    actually = f"actually was {term(value)}"
    wrong = None
    if row.kind == "text":
        if not isinstance(value, str):
            wrong = "binary"
        elif len(value.encode("utf-8", "surrogatepass")) > row.most:
            return f"{key} should have {row.most} bytes at most"
    elif row.kind == "boolean":
        wrong = None if isinstance(value, bool) else "a boolean"
    elif row.kind == "number":
        if isinstance(value, bool) or not isinstance(value, int):
            wrong = "a number"
        elif not row.least <= value <= row.most:
            wrong = f"a number from {row.least} to {row.most}"
    elif row.kind == "choice":
        if not isinstance(value, str) or value not in row.choices:
            wrong = "one of " + ", ".join(row.choices)
    elif row.kind == "delete-after":
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if value not in ("never", "queue-length") and not (is_number and 0 <= value <= NUMBER_MAX):
            wrong = 'a number greater than or equal to 0, "never" or "queue-length"'
    elif row.kind in ("table", "headers"):
        if not isinstance(value, dict):
            wrong = "an object"
        elif row.kind == "headers" and not all(isinstance(each, str) for each in value.values()):
            wrong = "an object of texts"
    return f"{key} should be {wrong}, {actually}" if wrong is not None else None


def _contradiction(value: dict[str, Any]) -> str | None:
    """Keys that do not go together."""
    given = settled(value)
    if given["src-queue"] is None and given["src-exchange"] is None:
        return "Must specify 'src-exchange' or 'src-queue'"
    if given["src-queue"] is not None and given["src-exchange"] is not None:
        return "Cannot specify 'src-exchange' and 'src-queue'"
    if given["dest-queue"] is not None and given["dest-exchange"] is not None:
        return "Cannot specify 'dest-exchange' and 'dest-queue'"
    if given["src-queue"] == "":
        return "src-queue should be the name of a queue, actually was empty"
    if given["ack-mode"] == "no-ack" and given["src-delete-after"] != "never":
        return "Cannot specify 'no-ack' and numerical 'delete-after'"
    if given["ack-mode"] != "on-confirm" and given["on-refused"] == "dead-letter":
        return "on-refused dead-letter needs ack-mode on-confirm"
    if given["dead-letter-queue"] is not None and given["on-refused"] != "dead-letter":
        return "dead-letter-queue needs on-refused dead-letter"
    return None
