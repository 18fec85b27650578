"""The error table: what a wrong (or odd) client sends, and what it is told.

One row per case. `tests/amqp/test_error_rows.py` sends each row's bytes and checks the answer, and
`docs/compatibility.md` shows the same rows (`python -m tests.amqp.error_rows` prints them).
`{n}` in a string stands for a name of the row's own, made new for each run.

A row whose `rabbitmq` is set differs on purpose from RabbitMQ 3.10, for the reason in `why`; all
others were seen to answer the same there, or do so by its source.
"""

import struct
from dataclasses import dataclass, field
from typing import Any

from tests.amqp import raw
from tests.amqp.field_tables import Typed

# Steps


@dataclass(frozen=True)
class Call:
    """A method that is answered by its -ok: it sets the stage."""

    name: str
    fields: dict[str, Any]
    channel: int = 1
    elsewhere: bool = False
    """On a second connection, which stays open."""


@dataclass(frozen=True)
class Send:
    """A method sent without waiting."""

    name: str
    fields: dict[str, Any]
    channel: int = 1


@dataclass(frozen=True)
class Bytes:
    """Bytes sent without waiting."""

    data: bytes


def call(name: str, channel: int = 1, **fields: Any) -> Call:
    """Sent and answered by its -ok before the next step."""
    return Call(name, fields, channel)


def elsewhere(name: str, **fields: Any) -> Call:
    """As `call`, but by another connection."""
    return Call(name, fields, 1, elsewhere=True)


def send(name: str, channel: int = 1, **fields: Any) -> Send:
    """Sent; the row's answer is due."""
    return Send(name, fields, channel)


# Answers


@dataclass(frozen=True)
class ChannelClose:
    """channel.close with this code, the ids of the method named, and a text that has `text`."""

    code: int
    method: str
    text: str = ""

    def __str__(self) -> str:
        return _said("channel", self.code, self.method, self.text)


@dataclass(frozen=True)
class ConnectionClose:
    """connection.close likewise; the method may be its ids (`60.99`), or empty for 0 and 0."""

    code: int
    method: str = ""
    text: str = ""

    def __str__(self) -> str:
        return _said("connection", self.code, self.method, self.text)


def _said(scope: str, code: int, method: str, text: str) -> str:
    about = f" ({method})" if method else ""
    quoted = f" `{text}`" if text else ""
    return f"{scope}.close {code}{about}{quoted}"


@dataclass(frozen=True)
class Reply:
    """This method, with these field values."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        fields = ", ".join(f"{key} {value!r}" for key, value in self.fields.items())
        return self.name + (f" ({fields})" if fields else "")


@dataclass(frozen=True)
class ProtocolHeader:
    """The 8 octets of the protocol that is spoken here, then the end of the TCP connection."""

    def __str__(self) -> str:
        return "`AMQP 0 0 9 1`, then TCP ends"


@dataclass(frozen=True)
class Dropped:
    """The TCP connection ends without a frame."""

    def __str__(self) -> str:
        return "TCP ends without a frame"


@dataclass(frozen=True)
class NotSent:
    """The row is not sent to this broker, because of what its answer is known to be."""

    known: str

    def __str__(self) -> str:
        return self.known


Answer = ChannelClose | ConnectionClose | Reply | ProtocolHeader | Dropped | NotSent


@dataclass(frozen=True)
class Row:
    """One case. `stage` is how far the connection is when the steps begin."""

    id: str
    situation: str
    steps: tuple[Call | Send | Bytes, ...]
    answer: Answer
    rabbitmq: Answer | None = None
    why: str = ""
    stage: str = "channel"
    """`connected`, `start` (connection.start is here), `tune` (connection.tune is here),
    `tuned` (tune-ok is sent), `open` (no channel yet) or `channel` (channel 1 is open)."""
    handshake: dict[str, Any] = field(default_factory=dict)


def reply(name: str, **fields: Any) -> Reply:
    """The answer is a method."""
    return Reply(name, fields)


DECLARE, BIND, UNBIND, PURGE, DELETE = (
    f"queue.{verb}" for verb in ("declare", "bind", "unbind", "purge", "delete")
)
CONSUME, GET, PUBLISH, QOS = (f"basic.{verb}" for verb in ("consume", "get", "publish", "qos"))
REPLY = "amq.rabbitmq.reply-to"
LOCKED = (
    r"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{n}' in vhost '/'\. "
    r"It could be originally declared on another connection or the exclusive property value "
    r"does not match that of the original declaration\."
)


def _start_ok(response: bytes, mechanism: str = "PLAIN", **capabilities: bool) -> Send:
    return send(
        "connection.start-ok",
        0,
        client_properties={"capabilities": capabilities},
        mechanism=mechanism,
        response=response,
        locale="en_US",
    )


def _tune_ok(**values: int) -> tuple[Send, Send]:
    chosen = {"channel_max": 2047, "frame_max": 131072, "heartbeat": 0, **values}
    return (
        send("connection.tune-ok", 0, **chosen),
        send("connection.open", 0, virtual_host="/"),
    )


def _argument(**table: Any) -> Send:
    names = {name.replace("_", "-"): value for name, value in table.items()}
    return send(DECLARE, queue="{n}", arguments=names)


REFUSED = (
    r"ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN\. "
    r"For details see the broker logfile\."
)
RUNNING = "CHANNEL_ERROR - unexpected method in connection state running"


def _above(name: str, asked: int, most: int) -> str:
    return rf"negotiated {name} = {asked} is higher than the maximum allowed value \({most}\)"


_TUNE_WHY = "the client learns why at once; newer RabbitMQ does the same"

HANDSHAKE = [
    Row(
        "header-0-9-1",
        "sends `AMQP 0 0 9 1`",
        (Bytes(raw.PROTOCOL_HEADER),),
        reply("connection.start", version_major=0, version_minor=9),
        stage="connected",
    ),
    Row(
        "header-0-9",
        "sends `AMQP 1 1 0 9` (AMQP 0-9)",
        (Bytes(b"AMQP\x01\x01\x00\x09"),),
        reply("connection.start", version_major=0, version_minor=9),
        stage="connected",
    ),
    *(
        Row(f"header-{name}", f"sends {words}", (Bytes(data),), ProtocolHeader(), stage="connected")
        for name, words, data in (
            ("0-9-2", "`AMQP 0 0 9 2`", b"AMQP\x00\x00\x09\x02"),
            ("0-10", "`AMQP 1 1 0 10` (AMQP 0-10)", b"AMQP\x01\x01\x00\x0a"),
            ("1-0", "`AMQP 0 1 0 0` (AMQP 1.0)", b"AMQP\x00\x01\x00\x00"),
            ("1-0-sasl", "`AMQP 3 1 0 0` (AMQP 1.0 with SASL)", b"AMQP\x03\x01\x00\x00"),
            ("http", "an HTTP request", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            ("tls", "a TLS hello", bytes.fromhex("16030100c8010000c40303") + bytes(range(190))),
            ("zeros", "eight zero octets", bytes(8)),
        )
    ),
    Row(
        "header-0-8",
        "sends `AMQP 1 1 8 0` (AMQP 0-8)",
        (Bytes(b"AMQP\x01\x01\x08\x00"),),
        ProtocolHeader(),
        reply("connection.start", version_major=8, version_minor=0),
        "no client has spoken it since 2009, and its methods differ from 0-9-1's",
        stage="connected",
    ),
    Row(
        "login-refused-told",
        "wrong password, capability authentication_failure_close",
        (_start_ok(raw.plain_response("guest", "wrong"), authentication_failure_close=True),),
        ConnectionClose(
            403,
            "",
            REFUSED,
        ),
        stage="start",
    ),
    Row(
        "login-refused-unknown-user",
        "unknown user, capability authentication_failure_close",
        (_start_ok(raw.plain_response("{n}", "x"), authentication_failure_close=True),),
        ConnectionClose(403, "", REFUSED),
        stage="start",
    ),
    Row(
        "login-refused-untold",
        "wrong password without that capability",
        (_start_ok(raw.plain_response("guest", "wrong")),),
        Dropped(),
        stage="start",
    ),
    Row(
        "mechanism-unknown",
        "chooses a mechanism that was not offered",
        (_start_ok(b"x", "KERBEROS"),),
        Dropped(),
        stage="start",
    ),
    Row(
        "plain-malformed",
        "PLAIN response without its separators",
        (_start_ok(b"guest"),),
        Dropped(),
        stage="start",
    ),
    Row(
        "open-before-start-ok",
        "connection.open where start-ok is due",
        (send("connection.open", 0, virtual_host="/"),),
        Dropped(),
        stage="start",
    ),
    Row(
        "tune-frame-max-above",
        "tune-ok with frame_max above the offer",
        _tune_ok(frame_max=262144),
        ConnectionClose(530, "connection.tune-ok", _above("frame_max", 262144, 131072)),
        Dropped(),
        _TUNE_WHY,
        stage="tune",
    ),
    Row(
        "tune-frame-max-none",
        "tune-ok with frame_max 0 (no limit) where the offer has one",
        _tune_ok(frame_max=0),
        ConnectionClose(530, "connection.tune-ok", _above("frame_max", 0, 131072)),
        Dropped(),
        _TUNE_WHY,
        stage="tune",
    ),
    Row(
        "tune-frame-max-below",
        "tune-ok with frame_max 4095, below the minimum of 4096",
        _tune_ok(frame_max=4095),
        ConnectionClose(
            530,
            "connection.tune-ok",
            r"negotiated frame_max = 4095 is lower than the minimum allowed value \(4096\)",
        ),
        Dropped(),
        _TUNE_WHY,
        stage="tune",
    ),
    Row(
        "tune-frame-max-minimum",
        "tune-ok with frame_max 4096",
        _tune_ok(frame_max=4096),
        reply("connection.open-ok"),
        stage="tune",
    ),
    Row(
        "tune-channel-max-above",
        "tune-ok with channel_max above the offer",
        _tune_ok(channel_max=4095),
        ConnectionClose(530, "connection.tune-ok", _above("channel_max", 4095, 2047)),
        Dropped(),
        _TUNE_WHY,
        stage="tune",
    ),
    Row(
        "tune-channel-max-none",
        "tune-ok with channel_max 0 (no limit) where the offer has one",
        _tune_ok(channel_max=0),
        ConnectionClose(530, "connection.tune-ok", _above("channel_max", 0, 2047)),
        Dropped(),
        _TUNE_WHY,
        stage="tune",
    ),
    Row(
        "vhost-unknown",
        "connection.open of a vhost that does not exist",
        (send("connection.open", 0, virtual_host="{n}"),),
        ConnectionClose(530, "connection.open", "NOT_ALLOWED - vhost {n} not found"),
        stage="tuned",
    ),
    Row(
        "vhost-empty",
        "connection.open of an empty vhost",
        (send("connection.open", 0, virtual_host=""),),
        reply("connection.open-ok"),
        rabbitmq=ConnectionClose(530, "connection.open", "vhost"),
        why="it is what `amqp://host/` means to many clients; LavinMQ does the same",
        stage="tuned",
    ),
    Row(
        "open-twice",
        "a second connection.open",
        (send("connection.open", 0, virtual_host="/"),),
        ConnectionClose(504, "connection.open", RUNNING),
        stage="open",
    ),
    Row(
        "channel-open-on-zero",
        "channel.open on channel 0",
        (send("channel.open", 0),),
        ConnectionClose(504, "channel.open", RUNNING),
        stage="open",
    ),
    Row(
        "method-on-zero",
        "basic.qos on channel 0",
        (send(QOS, 0, prefetch_count=1),),
        ConnectionClose(504, QOS, RUNNING),
        stage="open",
    ),
    Row(
        "update-secret",
        "connection.update-secret by a user with a password",
        (send("connection.update-secret", 0, new_secret=b"x", reason="again"),),
        reply("connection.update-secret-ok"),
        stage="open",
    ),
]

TOO_MANY = r"number of channels opened \(2\) has reached the negotiated channel_max \(2\)"
_HEAD = struct.pack(">HHQ", 60, 0, 10) + b"\x00\x00"

FRAMING = [
    Row(
        "frame-end-wrong",
        "a method frame with a wrong end octet",
        (Bytes(raw.frame(1, 1, raw.method(1, QOS)[7:-1], end=0)),),
        ConnectionClose(501, "", "type 1, all octets = <<.*>>: {invalid_frame_end_marker,0}"),
    ),
    Row(
        "frame-too-large",
        "a frame longer than frame_max",
        (Bytes(struct.pack(">BHI", 3, 1, 200_000) + bytes(200_001)),),
        ConnectionClose(501, "", "type 3, all octets = <<>>: {frame_too_large,200000,131064}"),
    ),
    Row(
        "frame-head-too-large",
        "the seven octets before a frame longer than frame_max, and nothing behind them",
        (Bytes(struct.pack(">BHI", 3, 1, 200_000)),),
        ConnectionClose(501, "", "type 3, all octets = <<>>: {frame_too_large,200000,131064}"),
    ),
    Row(
        "frame-type-unknown",
        "a frame of type 99",
        (Bytes(raw.frame(99, 1, b"x")),),
        ConnectionClose(501, "", "type 99, all octets = <<.*>>: unknown_frame"),
    ),
    Row(
        "heartbeat-on-channel",
        "a heartbeat on channel 1",
        (Bytes(raw.frame(8, 1, b"")),),
        ConnectionClose(505),
    ),
    Row(
        "header-on-zero",
        "a content header on channel 0",
        (Bytes(raw.frame(2, 0, _HEAD)),),
        ConnectionClose(505),
    ),
    Row(
        "body-on-zero",
        "a body frame on channel 0",
        (Bytes(raw.frame(3, 0, b"x")),),
        ConnectionClose(505),
    ),
    Row(
        "channel-not-open",
        "a method on a channel that was never opened",
        (send(DECLARE, 7, queue="{n}"),),
        ConnectionClose(504, DECLARE, "expected 'channel.open'"),
    ),
    Row(
        "channel-open-twice",
        "channel.open on an open channel",
        (send("channel.open", 1),),
        ConnectionClose(504, "channel.open", "second 'channel.open' seen"),
    ),
    Row(
        "header-without-method",
        "a content header where a method is due",
        (Bytes(raw.frame(2, 1, _HEAD)),),
        ConnectionClose(505, "", "expected method frame, got non method frame instead"),
    ),
    Row(
        "body-without-method",
        "a body frame where a method is due",
        (Bytes(raw.frame(3, 1, b"x")),),
        ConnectionClose(505, "", "expected method frame, got non method frame instead"),
    ),
    Row(
        "method-for-header",
        "a method where a content header is due",
        (send(PUBLISH), send(QOS)),
        ConnectionClose(
            505,
            PUBLISH,
            "expected content header for class 60, got non content header frame instead",
        ),
    ),
    Row(
        "body-for-header",
        "a body frame where a content header is due",
        (send(PUBLISH), Bytes(raw.frame(3, 1, b"x"))),
        ConnectionClose(505, PUBLISH, "expected content header for class 60"),
    ),
    Row(
        "header-of-other-class",
        "a content header of class 50 after basic.publish",
        (send(PUBLISH), Bytes(raw.header(1, 1, class_id=50))),
        ConnectionClose(
            505, PUBLISH, "expected content header for class 60, got one for class 50 instead"
        ),
    ),
    Row(
        "method-for-body",
        "a method where a body is due",
        (send(PUBLISH), Bytes(raw.header(1, 10)), send(QOS)),
        ConnectionClose(505, PUBLISH, "expected content body, got non content body frame instead"),
    ),
    Row(
        "body-longer-than-announced",
        "more body than the header announced",
        (send(PUBLISH, routing_key="{n}"), Bytes(raw.header(1, 3) + raw.body(1, b"four"))),
        ConnectionClose(501, PUBLISH, "content body frame exceeds remaining content size"),
        NotSent("takes it silently; 501 from 4.4 on"),
        "the surplus would be a message that no client sent",
    ),
    Row(
        "body-too-large",
        "a header that announces 134217729 octets, more than max_message_size",
        (send(PUBLISH, routing_key="{n}"), Bytes(raw.header(1, 134_217_729))),
        ChannelClose(
            406,
            PUBLISH,
            "message size 134217729 is larger than configured max size 134217728",
        ),
        NotSent("the same, but after the whole body has arrived"),
        "refused at the header: nothing is sent in vain",
    ),
    Row(
        "body-too-large-nowhere",
        "the same to an exchange that does not exist",
        (send(PUBLISH, exchange="{n}"), Bytes(raw.header(1, 134_217_729))),
        ChannelClose(
            406,
            PUBLISH,
            "message size 134217729 is larger than configured max size 134217728",
        ),
        NotSent("the same, but after the whole body has arrived"),
        "the size is looked at first",
    ),
    Row(
        "body-size-absurd",
        "a header that announces 2^63 octets",
        (send(PUBLISH, routing_key="{n}"), Bytes(raw.header(1, 1 << 63))),
        ChannelClose(
            406,
            PUBLISH,
            "message size 9223372036854775808 is larger than configured max size 134217728",
        ),
        NotSent("waits for the body; 501 from 4.4 on"),
        "as above",
    ),
    Row(
        "arguments-truncated",
        "queue.declare with its arguments cut short",
        (Bytes(raw.raw_method(1, 50, 10, b"\x00\x00\x05ab")),),
        ConnectionClose(501, DECLARE, "cannot decode"),
    ),
    Row(
        "arguments-table-lies",
        "queue.declare whose table is longer than its frame",
        (Bytes(raw.raw_method(1, 50, 10, b"\x00\x00\x01q\x00\x7f\xff\xff\xff")),),
        ConnectionClose(501, DECLARE, "cannot decode"),
    ),
    Row(
        "headers-malformed",
        "a message with a header of an unknown field type",
        (
            send(PUBLISH, routing_key="{n}"),
            Bytes(raw.frame(2, 1, struct.pack(">HHQHI", 60, 0, 0, 1 << 13, 3) + b"\x01hZ")),
        ),
        ConnectionClose(501, PUBLISH, "cannot decode"),
        NotSent("541 (by its source)"),
        "every fault is answered by its own code",
    ),
    Row(
        "method-unknown",
        "an unknown method of a known class (60.99)",
        (Bytes(raw.raw_method(1, 60, 99)),),
        ConnectionClose(501, "60.99", "cannot decode"),
        Dropped(),
        "every fault is answered",
    ),
    Row(
        "class-unknown",
        "a method of an unknown class (99.10)",
        (Bytes(raw.raw_method(1, 99, 10)),),
        ConnectionClose(503, "99.10", "COMMAND_INVALID"),
        Dropped(),
        "every fault is answered",
    ),
    Row(
        "method-of-the-server",
        "a method that only a server sends (queue.declare-ok)",
        (send("queue.declare-ok", queue="{n}"),),
        ConnectionClose(503, "queue.declare-ok"),
    ),
    Row(
        "method-of-connections",
        "connection.open on channel 1",
        (send("connection.open", virtual_host="/"),),
        ConnectionClose(503, "connection.open", "COMMAND_INVALID - unimplemented method"),
    ),
    Row(
        "flow-ok-unasked",
        "channel.flow-ok, which answers nothing",
        (send("channel.flow-ok", active=True),),
        ConnectionClose(503, "channel.flow-ok", "COMMAND_INVALID - unimplemented method"),
    ),
    Row(
        "channels-too-many",
        "a third channel where channel_max is 2",
        (call("channel.open", 9), send("channel.open", 3)),
        ConnectionClose(530, "channel.open", TOO_MANY),
        ConnectionClose(530, "", TOO_MANY),
        "names the method at fault",
        handshake={"channel_max": 2},
    ),
    Row(
        "channel-number-high",
        "channel number 9 where channel_max is 2 (the count is limited, not the number)",
        (send("channel.open", 9),),
        reply("channel.open-ok"),
        handshake={"channel_max": 2},
    ),
]

NO_INTEGER = '"expected integer, got longstr"'
TOO_HIGH = "{max_value_exceeded,300}"
NO_TYPE = "\"unsupported queue type 'bogus'\""
NO_EXCHANGE = ChannelClose(404, "exchange.bind", "NOT_FOUND - no exchange '{n}' in vhost '/'")
NOT_PERMITTED = ChannelClose(
    403, "exchange.bind", "ACCESS_REFUSED - operation not permitted on the default exchange"
)
_ALTERNATE_NUMBER = {"alternate-exchange": 1}

TOPOLOGY = [
    Row(
        "queue-passive-missing",
        "passive declare of a missing queue",
        (send(DECLARE, queue="{n}", passive=True),),
        ChannelClose(404, DECLARE, "NOT_FOUND - no queue '{n}' in vhost '/'"),
    ),
    Row(
        "exchange-passive-missing",
        "passive declare of a missing exchange",
        (send("exchange.declare", exchange="{n}", type="direct", passive=True),),
        ChannelClose(404, "exchange.declare", "NOT_FOUND - no exchange '{n}' in vhost '/'"),
    ),
    Row(
        "queue-redeclare-durable",
        "redeclare of a durable queue as transient",
        (call(DECLARE, queue="{n}", durable=True), send(DECLARE, queue="{n}")),
        ChannelClose(
            406,
            DECLARE,
            "PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{n}' in vhost '/': "
            "received 'false' but current is 'true'",
        ),
    ),
    Row(
        "queue-redeclare-auto-delete",
        "redeclare with another auto_delete",
        (call(DECLARE, queue="{n}"), send(DECLARE, queue="{n}", auto_delete=True)),
        ChannelClose(
            406,
            DECLARE,
            "inequivalent arg 'auto_delete' for queue '{n}' in vhost '/': "
            "received 'true' but current is 'false'",
        ),
    ),
    Row(
        "queue-redeclare-exclusive",
        "redeclare with another exclusive by the same connection",
        (call(DECLARE, queue="{n}"), send(DECLARE, queue="{n}", exclusive=True)),
        ChannelClose(405, DECLARE, LOCKED),
    ),
    Row(
        "queue-redeclare-same",
        "redeclare with the same properties",
        (call(DECLARE, queue="{n}", durable=True), send(DECLARE, queue="{n}", durable=True)),
        reply("queue.declare-ok", queue="{n}", message_count=0, consumer_count=0),
    ),
    *(
        Row(
            f"locked-{verb}",
            f"{name}{words} of another connection's exclusive queue",
            (elsewhere(DECLARE, queue="{n}", exclusive=True), send(name, **fields)),
            ChannelClose(405, name, LOCKED),
        )
        for verb, name, words, fields in (
            ("declare", DECLARE, "", {"queue": "{n}", "exclusive": True}),
            ("passive", DECLARE, " (passive)", {"queue": "{n}", "passive": True}),
            ("bind", BIND, "", {"queue": "{n}", "exchange": "amq.direct"}),
            ("consume", CONSUME, "", {"queue": "{n}"}),
            ("get", GET, "", {"queue": "{n}"}),
            ("purge", PURGE, "", {"queue": "{n}"}),
            ("delete", DELETE, "", {"queue": "{n}"}),
        )
    ),
    Row(
        "queue-reserved-name",
        "declare of a queue `amq.…`",
        (send(DECLARE, queue="amq.{n}"),),
        ChannelClose(
            403,
            DECLARE,
            r"ACCESS_REFUSED - queue name 'amq.{n}' contains reserved prefix 'amq\.\*'",
        ),
    ),
    Row(
        "queue-reserved-name-passive",
        "passive declare of a missing queue `amq.…`",
        (send(DECLARE, queue="amq.{n}", passive=True),),
        ChannelClose(404, DECLARE, "no queue 'amq.{n}' in vhost '/'"),
    ),
    Row(
        "exchange-reserved-name",
        "declare of an exchange `amq.…`",
        (send("exchange.declare", exchange="amq.{n}", type="direct"),),
        ChannelClose(
            403,
            "exchange.declare",
            r"ACCESS_REFUSED - exchange name 'amq.{n}' contains reserved prefix 'amq\.\*'",
        ),
    ),
    Row(
        "exchange-redeclare-amq",
        "declare of amq.topic as it is",
        (send("exchange.declare", exchange="amq.topic", type="topic", durable=True),),
        reply("exchange.declare-ok"),
    ),
    *(
        Row(
            f"last-queue-{verb}",
            f'{name} of queue "" before any declare on the channel',
            (send(name, **fields),),
            ChannelClose(404, name, "NOT_FOUND - no previously declared queue"),
        )
        for verb, name, fields in (
            ("bind", BIND, {"exchange": "amq.direct", "routing_key": "k"}),
            ("consume", CONSUME, {}),
            ("get", GET, {}),
            ("purge", PURGE, {}),
            ("delete", DELETE, {}),
        )
    ),
    Row(
        "last-queue-passive",
        'passive declare of queue ""',
        (send(DECLARE, passive=True),),
        ChannelClose(404, DECLARE, "no previously declared queue|no queue ''"),
    ),
    Row(
        "last-queue-used",
        'queue.purge of "" after a declare',
        (call(DECLARE, queue="{n}"), send(PURGE)),
        reply("queue.purge-ok", message_count=0),
    ),
    *(
        Row(
            f"argument-{name}",
            f"{words}",
            (send(DECLARE, queue="{n}", arguments={argument: value}),),
            ChannelClose(
                406,
                DECLARE,
                f"PRECONDITION_FAILED - invalid arg '{argument}' for queue '{{n}}' in vhost '/': "
                f"{wrong}",
            ),
        )
        for name, words, argument, value, wrong in (
            ("ttl-text", "x-message-ttl as text", "x-message-ttl", "1", NO_INTEGER),
            ("ttl-negative", "x-message-ttl -1", "x-message-ttl", -1, "{value_negative,-1}"),
            ("expires-zero", "x-expires 0", "x-expires", 0, "{value_zero,0}"),
            ("priority-300", "x-max-priority 300", "x-max-priority", 300, TOO_HIGH),
            ("length-text", "x-max-length as text", "x-max-length", "9", NO_INTEGER),
            ("length-negative", "x-max-length -1", "x-max-length", -1, "{value_negative,-1}"),
            ("overflow-bogus", "x-overflow `bogus`", "x-overflow", "bogus", "invalid_overflow"),
            ("type-bogus", "x-queue-type `bogus`", "x-queue-type", "bogus", NO_TYPE),
            (
                "dlrk-alone",
                "x-dead-letter-routing-key without an exchange",
                "x-dead-letter-routing-key",
                "k",
                "routing_key_but_no_dlx_defined",
            ),
            (
                "dlrk-number",
                "x-dead-letter-routing-key as a number",
                "x-dead-letter-routing-key",
                1,
                "{unacceptable_type,signedint}",
            ),
            (
                "sac-number",
                "x-single-active-consumer as a number",
                "x-single-active-consumer",
                1,
                "{unacceptable_type,signedint}",
            ),
        )
    ),
    Row(
        "argument-dlx-number",
        "x-dead-letter-exchange as a number",
        (_argument(x_dead_letter_exchange=1),),
        ChannelClose(
            406,
            DECLARE,
            "PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in "
            "queue '{n}' in vhost '/'",
        ),
    ),
    Row(
        "argument-alternate-number",
        "alternate-exchange as a number",
        (send("exchange.declare", exchange="{n}", type="direct", arguments=_ALTERNATE_NUMBER),),
        ChannelClose(
            406,
            "exchange.declare",
            "PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in "
            "exchange '{n}' in vhost '/'",
        ),
    ),
    Row(
        "argument-other-type",
        "x-max-age, which only streams have, on a classic queue",
        (_argument(x_max_age="7D"),),
        ChannelClose(
            406,
            DECLARE,
            "PRECONDITION_FAILED - invalid arg 'x-max-age' for queue '{n}' in vhost '/' of queue "
            "type",
        ),
    ),
    Row(
        "argument-ttl-added",
        "redeclare with x-message-ttl of a queue without",
        (call(DECLARE, queue="{n}"), _argument(x_message_ttl=1000)),
        ChannelClose(
            406,
            DECLARE,
            "inequivalent arg 'x-message-ttl' for queue '{n}' in vhost '/': "
            "received the value '1000' of type 'signedint' but current is none",
        ),
    ),
    Row(
        "queue-exclusive-durable",
        "redeclare of an exclusive queue, first durable, then not",
        (
            call(DECLARE, queue="{n}", exclusive=True, durable=True),
            send(DECLARE, queue="{n}", exclusive=True),
        ),
        reply("queue.declare-ok", queue="{n}"),
    ),
    Row(
        "argument-ttl-changed",
        "redeclare with another x-message-ttl",
        (
            call(DECLARE, queue="{n}", arguments={"x-message-ttl": 1000}),
            _argument(x_message_ttl=2000),
        ),
        ChannelClose(
            406,
            DECLARE,
            "inequivalent arg 'x-message-ttl' for queue '{n}' in vhost '/': "
            "received '2000' but current is '1000'",
        ),
    ),
    Row(
        "argument-ttl-removed",
        "redeclare without x-message-ttl",
        (
            call(DECLARE, queue="{n}", arguments={"x-message-ttl": 1000}),
            send(DECLARE, queue="{n}"),
        ),
        ChannelClose(
            406,
            DECLARE,
            "inequivalent arg 'x-message-ttl' for queue '{n}' in vhost '/': "
            "received none but current is the value '1000' of type 'signedint'",
        ),
    ),
    Row(
        "argument-ttl-wider",
        "redeclare with the same x-message-ttl as a 64-bit integer",
        (
            call(DECLARE, queue="{n}", arguments={"x-message-ttl": 1000}),
            _argument(x_message_ttl=Typed("l", 1000)),
        ),
        reply("queue.declare-ok", queue="{n}"),
    ),
    *(
        Row(
            f"argument-{name}",
            f"redeclare of {argument} {first} with {words}",
            (
                call(DECLARE, queue="{n}", arguments={argument: first}),
                send(DECLARE, queue="{n}", arguments={argument: second}),
            ),
            ChannelClose(
                406,
                DECLARE,
                f"inequivalent arg '{argument}' for queue '{{n}}' in vhost '/': "
                f"received {received} but current is '{first}'$",
            ),
        )
        for name, argument, first, second, words, received in (
            ("ttl-double", "x-message-ttl", 10, 10.0, "10.0", "'10.0'"),
            ("ttl-float", "x-message-ttl", 10, Typed("f", 10.0), "10.0 in four octets", "'10.0'"),
            ("ttl-bool", "x-message-ttl", 1, True, "true", "'true'"),
            ("ttl-as-text", "x-message-ttl", 10, "10", "the text 10", "'10'"),
            ("ttl-void", "x-message-ttl", 10, None, "void", "none"),
            ("expires-double", "x-expires", 100000, 1e5, "1.0e5", r"'1\.0e5'"),
            ("length-double", "x-max-length", 10, 10.0, "10.0", "'10.0'"),
            ("bytes-double", "x-max-length-bytes", 10, 10.0, "10.0", "'10.0'"),
            ("priority-double", "x-max-priority", 5, 5.0, "5.0", "'5.0'"),
        )
    ),
    Row(
        "argument-sac-changed",
        "redeclare of x-single-active-consumer true with 1",
        (
            call(DECLARE, queue="{n}", arguments={"x-single-active-consumer": True}),
            _argument(x_single_active_consumer=1),
        ),
        ChannelClose(
            406,
            DECLARE,
            "inequivalent arg 'x-single-active-consumer' for queue '{n}' in vhost '/': "
            "received '1' but current is 'true'",
        ),
    ),
    Row(
        "argument-ttl-timestamp",
        "redeclare with the same x-message-ttl as a timestamp",
        (
            call(DECLARE, queue="{n}", arguments={"x-message-ttl": 1000}),
            _argument(x_message_ttl=Typed("T", 1000)),
        ),
        reply("queue.declare-ok", queue="{n}"),
    ),
    Row(
        "argument-unknown",
        "an argument that the broker does not have",
        (_argument(x_colour="red"),),
        reply("queue.declare-ok", queue="{n}"),
    ),
    Row(
        "argument-unknown-changed",
        "redeclare with another value of an argument that the broker does not have",
        (
            call(DECLARE, queue="{n}", arguments={"x-colour": "red"}),
            _argument(x_colour="blue"),
        ),
        reply("queue.declare-ok", queue="{n}"),
    ),
    Row(
        "argument-queue-mode",
        "x-queue-mode `lazy`",
        (_argument(x_queue_mode="lazy"),),
        reply("queue.declare-ok", queue="{n}"),
    ),
    Row(
        "argument-queue-version",
        "x-queue-version 2",
        (_argument(x_queue_version=2),),
        reply("queue.declare-ok", queue="{n}"),
    ),
    Row(
        "argument-queue-type",
        "x-queue-type `classic`",
        (_argument(x_queue_type="classic"),),
        reply("queue.declare-ok", queue="{n}"),
    ),
    Row(
        "argument-queue-type-again",
        "redeclare with x-queue-type `classic` of a queue declared without a type",
        (call(DECLARE, queue="{n}"), _argument(x_queue_type="classic")),
        reply("queue.declare-ok", queue="{n}"),
    ),
    Row(
        "argument-queue-type-changed",
        "redeclare with x-queue-type `quorum` of a classic queue",
        (
            call(DECLARE, queue="{n}", durable=True),
            send(DECLARE, queue="{n}", durable=True, arguments={"x-queue-type": "quorum"}),
        ),
        ChannelClose(406, DECLARE, "x-queue-type"),
    ),
    Row(
        "bind-queue-missing",
        "queue.bind of a missing queue",
        (send(BIND, queue="{n}", exchange="amq.direct"),),
        ChannelClose(404, BIND, "NOT_FOUND - no queue '{n}' in vhost '/'"),
    ),
    Row(
        "bind-exchange-missing",
        "queue.bind to a missing exchange",
        (call(DECLARE, queue="{n}"), send(BIND, queue="{n}", exchange="{n}.x")),
        ChannelClose(404, BIND, "NOT_FOUND - no exchange '{n}.x' in vhost '/'"),
    ),
    *(
        Row(
            f"unbind-{name}",
            f"queue.unbind of a missing {words}",
            (call(DECLARE, queue="{n}"), send(UNBIND, **fields)),
            reply("queue.unbind-ok"),
        )
        for name, words, fields in (
            ("missing", "binding", {"queue": "{n}", "exchange": "amq.direct", "routing_key": "k"}),
            ("queue-missing", "queue", {"queue": "{n}.q", "exchange": "amq.direct"}),
            ("exchange-missing", "exchange", {"queue": "{n}", "exchange": "{n}.x"}),
        )
    ),
    *(
        Row(
            f"default-exchange-{verb}",
            f"{name} on the default exchange",
            (call(DECLARE, queue="{n}"), send(name, **fields)),
            ChannelClose(
                403, name, "ACCESS_REFUSED - operation not permitted on the default exchange"
            ),
        )
        for verb, name, fields in (
            ("bind", BIND, {"queue": "{n}", "routing_key": "k"}),
            ("unbind", UNBIND, {"queue": "{n}", "routing_key": "{n}"}),
            ("declare", "exchange.declare", {"type": "direct"}),
            ("delete", "exchange.delete", {}),
        )
    ),
    *(
        Row(
            f"exchange-{verb}-{name}",
            f"exchange.{verb} {words}",
            (send(f"exchange.{verb}", source=source, destination=destination),),
            answer,
        )
        for verb, name, words, source, destination, answer in (
            ("bind", "missing", "from a missing exchange", "{n}", "amq.fanout", NO_EXCHANGE),
            ("bind", "to-missing", "to a missing exchange", "amq.fanout", "{n}", NO_EXCHANGE),
            ("bind", "default", "from the default exchange", "", "amq.fanout", NOT_PERMITTED),
            ("bind", "to-default", "to the default exchange", "amq.fanout", "", NOT_PERMITTED),
            (
                "unbind",
                "missing",
                "of a missing exchange",
                "{n}",
                "amq.fanout",
                reply("exchange.unbind-ok"),
            ),
        )
    ),
    Row(
        "bind-x-match",
        "headers binding with x-match `some`",
        (
            call(DECLARE, queue="{n}"),
            send(BIND, queue="{n}", exchange="amq.headers", arguments={"x-match": "some"}),
        ),
        ChannelClose(406, BIND, "Invalid x-match field value .*; expected all(,| or) any"),
    ),
    Row(
        "exchange-type-unknown",
        "exchange.declare of an unknown type",
        (send("exchange.declare", exchange="{n}", type="x-nonsense"),),
        ChannelClose(406, "exchange.declare", "unknown exchange type 'x-nonsense'"),
        ConnectionClose(503, "exchange.declare", "unknown exchange type 'x-nonsense'"),
        "as RabbitMQ 4 and LavinMQ: other channels of the connection live on",
    ),
    *(
        Row(
            f"exchange-redeclare-{name}",
            f"redeclare of an exchange with another {name}",
            (
                call("exchange.declare", exchange="{n}", type="direct"),
                send("exchange.declare", exchange="{n}", **{"type": "direct", **fields}),
            ),
            ChannelClose(
                406,
                "exchange.declare",
                f"inequivalent arg '{name}' for exchange '{{n}}' in vhost '/': received "
                f"'{received}' but current is '{current}'",
            ),
        )
        for name, fields, received, current in (
            ("type", {"type": "fanout"}, "fanout", "direct"),
            ("durable", {"durable": True}, "true", "false"),
            ("auto_delete", {"auto_delete": True}, "true", "false"),
            ("internal", {"internal": True}, "true", "false"),
        )
    ),
    Row(
        "exchange-redeclare-alternate",
        "redeclare of an exchange with another alternate exchange",
        (
            call("exchange.declare", exchange="{n}", type="direct"),
            send(
                "exchange.declare",
                exchange="{n}",
                type="direct",
                arguments={"alternate-exchange": "b"},
            ),
        ),
        ChannelClose(
            406,
            "exchange.declare",
            "inequivalent arg 'alternate-exchange' for exchange '{n}' in vhost '/': received the "
            "value 'b' of type 'longstr' but current is none",
        ),
    ),
    Row(
        "exchange-delete-amq",
        "exchange.delete of amq.direct",
        (send("exchange.delete", exchange="amq.direct"),),
        ChannelClose(
            403,
            "exchange.delete",
            "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed",
        ),
    ),
    Row(
        "queue-delete-missing",
        "queue.delete of a missing queue",
        (send(DELETE, queue="{n}"),),
        reply("queue.delete-ok", message_count=0),
    ),
    Row(
        "exchange-delete-missing",
        "exchange.delete of a missing exchange",
        (send("exchange.delete", exchange="{n}"),),
        reply("exchange.delete-ok"),
    ),
    Row(
        "queue-purge-missing",
        "queue.purge of a missing queue",
        (send(PURGE, queue="{n}"),),
        ChannelClose(404, PURGE, "NOT_FOUND - no queue '{n}' in vhost '/'"),
    ),
    Row(
        "queue-delete-if-unused",
        "queue.delete with if_unused of a queue with a consumer",
        (
            call(DECLARE, queue="{n}"),
            call(CONSUME, queue="{n}"),
            send(DELETE, queue="{n}", if_unused=True),
        ),
        ChannelClose(406, DELETE, "PRECONDITION_FAILED - queue '{n}' in vhost '/' in use"),
    ),
    Row(
        "queue-delete-if-empty",
        "queue.delete with if_empty of a queue with a message",
        (
            call("confirm.select"),
            call(DECLARE, queue="{n}"),
            Bytes(b"publish {n}"),
            send(DELETE, queue="{n}", if_empty=True),
        ),
        ChannelClose(406, DELETE, "PRECONDITION_FAILED - queue '{n}' in vhost '/' not empty"),
    ),
    Row(
        "exchange-delete-if-unused",
        "exchange.delete with if_unused of an exchange with a binding",
        (
            call("exchange.declare", exchange="{n}", type="direct"),
            call(DECLARE, queue="{n}"),
            call(BIND, queue="{n}", exchange="{n}"),
            send("exchange.delete", exchange="{n}", if_unused=True),
        ),
        ChannelClose(
            406, "exchange.delete", "PRECONDITION_FAILED - exchange '{n}' in vhost '/' in use"
        ),
    ),
]

PUBLISHING = [
    Row(
        "publish-exchange-missing",
        "basic.publish to a missing exchange",
        (send(PUBLISH, exchange="{n}"), Bytes(raw.content(1, b"x"))),
        ChannelClose(404, PUBLISH, "NOT_FOUND - no exchange '{n}' in vhost '/'"),
    ),
    Row(
        "publish-exchange-missing-mandatory",
        "the same with mandatory",
        (send(PUBLISH, exchange="{n}", mandatory=True), Bytes(raw.content(1, b"x"))),
        ChannelClose(404, PUBLISH, "NOT_FOUND - no exchange '{n}' in vhost '/'"),
    ),
    Row(
        "publish-internal",
        "basic.publish to an internal exchange",
        (
            call("exchange.declare", exchange="{n}", type="direct", internal=True),
            send(PUBLISH, exchange="{n}"),
            Bytes(raw.content(1, b"x")),
        ),
        ChannelClose(
            403,
            PUBLISH,
            "ACCESS_REFUSED - cannot publish to internal exchange '{n}' in vhost '/'",
        ),
    ),
    Row(
        "publish-immediate",
        "basic.publish with immediate",
        (send(PUBLISH, routing_key="{n}", immediate=True), Bytes(raw.content(1, b"x"))),
        ConnectionClose(540, PUBLISH, "NOT_IMPLEMENTED - immediate=true"),
    ),
    Row(
        "publish-mandatory-unroutable",
        "basic.publish with mandatory that reaches no queue",
        (send(PUBLISH, routing_key="{n}", mandatory=True), Bytes(raw.content(1, b"x"))),
        reply(
            "basic.return", reply_code=312, reply_text="NO_ROUTE", exchange="", routing_key="{n}"
        ),
    ),
    Row(
        "publish-unroutable-confirmed",
        "basic.publish that reaches no queue, with confirms",
        (call("confirm.select"), send(PUBLISH, routing_key="{n}"), Bytes(raw.content(1, b"x"))),
        reply("basic.ack", delivery_tag=1, multiple=False),
    ),
    *(
        Row(
            f"publish-{name}",
            f"basic.publish with {words}",
            (
                call(DECLARE, queue="{n}"),
                send(PUBLISH, routing_key="{n}"),
                Bytes(raw.content(1, b"x", values)),
            ),
            ChannelClose(406, PUBLISH, text),
        )
        for name, words, values, text in (
            (
                "expiration-text",
                "expiration `abc`",
                {"expiration": "abc"},
                "invalid expiration 'abc': no_integer",
            ),
            (
                "expiration-negative",
                "expiration `-5`",
                {"expiration": "-5"},
                "invalid expiration '-5': {value_negative,-5}",
            ),
            (
                "user-id",
                "the user_id of somebody else",
                {"user_id": "bob"},
                "user_id property set to 'bob' but authenticated user was 'guest'",
            ),
            (
                "cc-text",
                "a CC header that is no array",
                {"headers": {"CC": "a"}},
                'invalid message: {unacceptable_type_in_header,"CC",longstr}',
            ),
            (
                "bcc-text",
                "a BCC header that is no array",
                {"headers": {"BCC": "a"}},
                'invalid message: {unacceptable_type_in_header,"BCC",longstr}',
            ),
        )
    ),
    Row(
        "reply-to-without-consumer",
        "basic.publish with reply_to `amq.rabbitmq.reply-to` and no consumer of it",
        (send(PUBLISH, routing_key="{n}"), Bytes(raw.content(1, b"x", {"reply_to": REPLY}))),
        ChannelClose(406, PUBLISH, "fast reply consumer does not exist"),
    ),
    Row(
        "reply-to-with-acks",
        "basic.consume of `amq.rabbitmq.reply-to` with acks",
        (send(CONSUME, queue=REPLY),),
        ChannelClose(406, CONSUME, "reply consumer cannot acknowledge"),
    ),
    Row(
        "reply-to-twice",
        "a second basic.consume of `amq.rabbitmq.reply-to` on a channel",
        (call(CONSUME, queue=REPLY, no_ack=True), send(CONSUME, queue=REPLY, no_ack=True)),
        ChannelClose(406, CONSUME, "reply consumer already set"),
    ),
    Row(
        "reply-to-passive",
        "passive declare of `amq.rabbitmq.reply-to`",
        (send(DECLARE, queue=REPLY, passive=True),),
        reply("queue.declare-ok", queue=REPLY),
    ),
    Row(
        "reply-to-declare",
        "declare of `amq.rabbitmq.reply-to`",
        (send(DECLARE, queue="amq.rabbitmq.reply-to"),),
        reply("queue.declare-ok", queue="amq.rabbitmq.reply-to"),
    ),
    Row(
        "reply-to-bind",
        "queue.bind of `amq.rabbitmq.reply-to`",
        (send(BIND, queue=REPLY, exchange="amq.direct", routing_key="k"),),
        ChannelClose(403, BIND, "ACCESS_REFUSED - queue 'amq.rabbitmq.reply-to' in vhost '/'"),
        NotSent("404 in old ones; 403 since CVE-2026-57215"),
        "as newer RabbitMQ: it is no queue",
    ),
    Row(
        "confirm-after-tx",
        "confirm.select on a transactional channel",
        (call("tx.select"), send("confirm.select")),
        ChannelClose(
            406, "confirm.select", "PRECONDITION_FAILED - cannot switch from tx to confirm mode"
        ),
    ),
    Row(
        "tx-after-confirm",
        "tx.select on a confirming channel",
        (call("confirm.select"), send("tx.select")),
        ChannelClose(
            406, "tx.select", "PRECONDITION_FAILED - cannot switch from confirm to tx mode"
        ),
    ),
    Row(
        "tx-commit-outside",
        "tx.commit on a channel that is not transactional",
        (send("tx.commit"),),
        ChannelClose(406, "tx.commit", "PRECONDITION_FAILED - channel is not transactional"),
    ),
    Row(
        "tx-rollback-outside",
        "tx.rollback on a channel that is not transactional",
        (send("tx.rollback"),),
        ChannelClose(406, "tx.rollback", "PRECONDITION_FAILED - channel is not transactional"),
    ),
    Row(
        "access-request",
        "access.request (AMQP 0-8)",
        (send("access.request", realm="/data", active=True),),
        reply("access.request-ok", ticket=1),
    ),
    Row(
        "channel-flow-on",
        "channel.flow active",
        (send("channel.flow", active=True),),
        reply("channel.flow-ok", active=True),
    ),
    Row(
        "channel-flow-off",
        "channel.flow not active",
        (send("channel.flow", active=False),),
        ConnectionClose(540, "channel.flow", "NOT_IMPLEMENTED - active=false"),
    ),
]

CONSUMING = [
    Row(
        "consume-queue-missing",
        "basic.consume of a missing queue",
        (send(CONSUME, queue="{n}"),),
        ChannelClose(404, CONSUME, "NOT_FOUND - no queue '{n}' in vhost '/'"),
    ),
    Row(
        "get-queue-missing",
        "basic.get of a missing queue",
        (send(GET, queue="{n}"),),
        ChannelClose(404, GET, "NOT_FOUND - no queue '{n}' in vhost '/'"),
    ),
    Row(
        "get-single-active-consumer",
        "basic.get of a queue with x-single-active-consumer",
        (
            call(DECLARE, queue="{n}", arguments={"x-single-active-consumer": True}),
            send(GET, queue="{n}"),
        ),
        ChannelClose(405, GET, "RESOURCE_LOCKED"),
        reply("basic.get-empty"),
        "as newer RabbitMQ: a get would take what the active consumer is due",
    ),
    Row(
        "consumer-tag-twice",
        "basic.consume with a tag in use on the channel",
        (
            call(DECLARE, queue="{n}"),
            call(CONSUME, queue="{n}", consumer_tag="t1"),
            send(CONSUME, queue="{n}", consumer_tag="t1"),
        ),
        ConnectionClose(530, CONSUME, "NOT_ALLOWED - attempt to reuse consumer tag 't1'"),
    ),
    Row(
        "consume-beside-exclusive",
        "basic.consume beside an exclusive consumer",
        (
            call(DECLARE, queue="{n}"),
            call(CONSUME, queue="{n}", exclusive=True),
            send(CONSUME, queue="{n}"),
        ),
        ChannelClose(403, CONSUME, "ACCESS_REFUSED - queue '{n}' in vhost '/' in exclusive use"),
    ),
    Row(
        "consume-exclusive-beside",
        "exclusive basic.consume beside another consumer",
        (
            call(DECLARE, queue="{n}"),
            call(CONSUME, queue="{n}"),
            send(CONSUME, queue="{n}", exclusive=True),
        ),
        ChannelClose(403, CONSUME, "ACCESS_REFUSED - queue '{n}' in vhost '/' in exclusive use"),
    ),
    Row(
        "cancel-unknown",
        "basic.cancel of an unknown tag",
        (send("basic.cancel", consumer_tag="{n}"),),
        reply("basic.cancel-ok", consumer_tag="{n}"),
    ),
    *(
        Row(
            f"{verb}-unknown",
            f"basic.{verb} of an unknown delivery tag",
            (send(f"basic.{verb}", delivery_tag=99),),
            ChannelClose(406, f"basic.{verb}", "PRECONDITION_FAILED - unknown delivery tag 99"),
        )
        for verb in ("ack", "nack", "reject")
    ),
    Row(
        "ack-zero",
        "basic.ack of tag 0",
        (send("basic.ack"),),
        ChannelClose(406, "basic.ack", "PRECONDITION_FAILED - unknown delivery tag 0"),
    ),
    Row(
        "ack-zero-multiple",
        "basic.ack of tag 0 with multiple and nothing unacked, then basic.qos",
        (send("basic.ack", multiple=True), send(QOS)),
        reply("basic.qos-ok"),
    ),
    Row(
        "ack-unknown-multiple",
        "basic.ack of an unknown tag with multiple",
        (send("basic.ack", delivery_tag=99, multiple=True),),
        ChannelClose(406, "basic.ack", "PRECONDITION_FAILED - unknown delivery tag 99"),
    ),
    Row(
        "qos-prefetch-size",
        "basic.qos with a prefetch_size",
        (send(QOS, prefetch_size=10),),
        ConnectionClose(540, QOS, r"NOT_IMPLEMENTED - prefetch_size!=0 \(10\)"),
    ),
    Row(
        "recover-without-requeue",
        "basic.recover without requeue",
        (send("basic.recover", requeue=False),),
        ConnectionClose(540, "basic.recover", "NOT_IMPLEMENTED - requeue=false"),
    ),
    Row(
        "recover-requeue",
        "basic.recover with requeue",
        (send("basic.recover", requeue=True),),
        reply("basic.recover-ok"),
    ),
]

SECTIONS = {
    "Handshake": HANDSHAKE,
    "Framing": FRAMING,
    "Exchanges, queues, bindings": TOPOLOGY,
    "Publish, confirm, transactions": PUBLISHING,
    "Consume, acknowledge, prefetch": CONSUMING,
}
ROWS = [row for rows in SECTIONS.values() for row in rows]


def document() -> str:
    """The rows as Markdown tables, as they stand in docs/compatibility.md."""
    lines = []
    for section, rows in SECTIONS.items():
        lines += [
            f"### {section}",
            "",
            "| Test | The client | Leveret answers | RabbitMQ 3.10, where it differs | Why |",
            "|---|---|---|---|---|",
        ]
        for row in rows:
            cells = [f"`{row.id}`", row.situation, str(row.answer)]
            cells += ["" if row.rabbitmq is None else str(row.rabbitmq), row.why]
            lines.append("| " + " | ".join(_plain(cell) for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _plain(cell: str) -> str:
    shown = cell.replace("{n}", "…").replace(r"\(", "(").replace(r"\)", ")").replace(r"\.", ".")
    return shown.replace(r"\*", "*").replace("|", "\\|")


if __name__ == "__main__":
    print(document())
