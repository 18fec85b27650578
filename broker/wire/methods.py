"""The methods of AMQP 0-9-1 with RabbitMQ's extensions, as one table.

A row names class, method and the fields in wire order. Field kinds: `octet short long longlong
shortstr longstr table bit timestamp`; a name starting with `_` is reserved: sent as zero, ignored
when read. The table feeds both directions, the definitions journal and the tests.
"""

from __future__ import annotations

from broker.wire.method import Method


def _row(class_id: int, method_id: int, name: str, fields: str = "", client: bool = True) -> Method:
    pairs = tuple((field.split(":")[0], field.split(":")[1]) for field in fields.split())
    return Method(class_id, method_id, name, pairs, client)


ROWS = (
    _row(
        10,
        10,
        "connection.start",
        "version_major:octet version_minor:octet server_properties:table mechanisms:longstr "
        "locales:longstr",
        False,
    ),
    _row(
        10,
        11,
        "connection.start-ok",
        "client_properties:table mechanism:shortstr response:longstr locale:shortstr",
    ),
    _row(10, 20, "connection.secure", "challenge:longstr", False),
    _row(10, 21, "connection.secure-ok", "response:longstr"),
    _row(10, 30, "connection.tune", "channel_max:short frame_max:long heartbeat:short", False),
    _row(10, 31, "connection.tune-ok", "channel_max:short frame_max:long heartbeat:short"),
    _row(10, 40, "connection.open", "virtual_host:shortstr _capabilities:shortstr _insist:bit"),
    _row(10, 41, "connection.open-ok", "_known_hosts:shortstr", False),
    _row(
        10,
        50,
        "connection.close",
        "reply_code:short reply_text:shortstr class_id:short method_id:short",
    ),
    _row(10, 51, "connection.close-ok"),
    _row(10, 60, "connection.blocked", "reason:shortstr", False),
    _row(10, 61, "connection.unblocked", "", False),
    _row(10, 70, "connection.update-secret", "new_secret:longstr reason:shortstr"),
    _row(10, 71, "connection.update-secret-ok", "", False),
    _row(20, 10, "channel.open", "_out_of_band:shortstr"),
    _row(20, 11, "channel.open-ok", "_channel_id:longstr", False),
    _row(20, 20, "channel.flow", "active:bit"),
    _row(20, 21, "channel.flow-ok", "active:bit"),
    _row(
        20,
        40,
        "channel.close",
        "reply_code:short reply_text:shortstr class_id:short method_id:short",
    ),
    _row(20, 41, "channel.close-ok"),
    _row(
        30,
        10,
        "access.request",
        "realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit",
    ),
    _row(30, 11, "access.request-ok", "ticket:short", False),
    _row(
        40,
        10,
        "exchange.declare",
        "_ticket:short exchange:shortstr type:shortstr passive:bit durable:bit auto_delete:bit "
        "internal:bit no_wait:bit arguments:table",
    ),
    _row(40, 11, "exchange.declare-ok", "", False),
    _row(40, 20, "exchange.delete", "_ticket:short exchange:shortstr if_unused:bit no_wait:bit"),
    _row(40, 21, "exchange.delete-ok", "", False),
    _row(
        40,
        30,
        "exchange.bind",
        "_ticket:short destination:shortstr source:shortstr routing_key:shortstr no_wait:bit "
        "arguments:table",
    ),
    _row(40, 31, "exchange.bind-ok", "", False),
    _row(
        40,
        40,
        "exchange.unbind",
        "_ticket:short destination:shortstr source:shortstr routing_key:shortstr no_wait:bit "
        "arguments:table",
    ),
    _row(40, 51, "exchange.unbind-ok", "", False),
    _row(
        50,
        10,
        "queue.declare",
        "_ticket:short queue:shortstr passive:bit durable:bit exclusive:bit auto_delete:bit "
        "no_wait:bit arguments:table",
    ),
    _row(
        50, 11, "queue.declare-ok", "queue:shortstr message_count:long consumer_count:long", False
    ),
    _row(
        50,
        20,
        "queue.bind",
        "_ticket:short queue:shortstr exchange:shortstr routing_key:shortstr no_wait:bit "
        "arguments:table",
    ),
    _row(50, 21, "queue.bind-ok", "", False),
    _row(50, 30, "queue.purge", "_ticket:short queue:shortstr no_wait:bit"),
    _row(50, 31, "queue.purge-ok", "message_count:long", False),
    _row(
        50,
        40,
        "queue.delete",
        "_ticket:short queue:shortstr if_unused:bit if_empty:bit no_wait:bit",
    ),
    _row(50, 41, "queue.delete-ok", "message_count:long", False),
    _row(
        50,
        50,
        "queue.unbind",
        "_ticket:short queue:shortstr exchange:shortstr routing_key:shortstr arguments:table",
    ),
    _row(50, 51, "queue.unbind-ok", "", False),
    _row(60, 10, "basic.qos", "prefetch_size:long prefetch_count:short global_:bit"),
    _row(60, 11, "basic.qos-ok", "", False),
    _row(
        60,
        20,
        "basic.consume",
        "_ticket:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit "
        "exclusive:bit no_wait:bit arguments:table",
    ),
    _row(60, 21, "basic.consume-ok", "consumer_tag:shortstr", False),
    _row(60, 30, "basic.cancel", "consumer_tag:shortstr no_wait:bit"),
    _row(60, 31, "basic.cancel-ok", "consumer_tag:shortstr"),
    _row(
        60,
        40,
        "basic.publish",
        "_ticket:short exchange:shortstr routing_key:shortstr mandatory:bit immediate:bit",
    ),
    _row(
        60,
        50,
        "basic.return",
        "reply_code:short reply_text:shortstr exchange:shortstr routing_key:shortstr",
        False,
    ),
    _row(
        60,
        60,
        "basic.deliver",
        "consumer_tag:shortstr delivery_tag:longlong redelivered:bit exchange:shortstr "
        "routing_key:shortstr",
        False,
    ),
    _row(60, 70, "basic.get", "_ticket:short queue:shortstr no_ack:bit"),
    _row(
        60,
        71,
        "basic.get-ok",
        "delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr "
        "message_count:long",
        False,
    ),
    _row(60, 72, "basic.get-empty", "_cluster_id:shortstr", False),
    _row(60, 80, "basic.ack", "delivery_tag:longlong multiple:bit"),
    _row(60, 90, "basic.reject", "delivery_tag:longlong requeue:bit"),
    _row(60, 100, "basic.recover-async", "requeue:bit"),
    _row(60, 110, "basic.recover", "requeue:bit"),
    _row(60, 111, "basic.recover-ok", "", False),
    _row(60, 120, "basic.nack", "delivery_tag:longlong multiple:bit requeue:bit"),
    _row(85, 10, "confirm.select", "no_wait:bit"),
    _row(85, 11, "confirm.select-ok", "", False),
    _row(90, 10, "tx.select"),
    _row(90, 11, "tx.select-ok", "", False),
    _row(90, 20, "tx.commit"),
    _row(90, 21, "tx.commit-ok", "", False),
    _row(90, 30, "tx.rollback"),
    _row(90, 31, "tx.rollback-ok", "", False),
)

BY_INDEX = {row.index: row for row in ROWS}
BY_NAME = {row.name: row for row in ROWS}
CLASSES = frozenset(row.class_id for row in ROWS)
