"""Methods of class exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.wire.commands.rules import (
    answer,
    answer_when_over,
    change_binding,
    check_any,
    plain_name,
)

if TYPE_CHECKING:
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection


def exchange_declare(
    connection: Connection,
    channel: Channel,
    exchange: str,
    type: str,
    passive: bool,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    no_wait: bool,
    arguments: dict[str, Any],
) -> None:
    exchange = plain_name(exchange)
    if passive:
        check_any(connection, "exchange", exchange)
        connection.vhost.exchange(exchange)
    else:
        is_new = exchange not in connection.vhost.exchanges
        connection.rights.check_declare("exchange", exchange, arguments, is_new=is_new)
        created = connection.vhost.declare_exchange(
            exchange,
            type,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        )
        if created and durable:
            channel.replies.hold()
    answer(channel, no_wait, "exchange.declare-ok")


def exchange_delete(
    connection: Connection, channel: Channel, exchange: str, if_unused: bool, no_wait: bool
) -> None:
    exchange = plain_name(exchange)
    connection.check("configure", "exchange", exchange)
    since = connection.vhost.slices.begun
    if connection.vhost.delete_exchange(exchange, if_unused=if_unused):
        channel.replies.hold()
    answer_when_over(connection, channel, since, no_wait, "exchange.delete-ok")


def exchange_bind(
    connection: Connection,
    channel: Channel,
    destination: str,
    source: str,
    routing_key: str,
    no_wait: bool,
    arguments: dict[str, Any],
) -> None:
    change_binding(
        connection,
        channel,
        plain_name(source),
        plain_name(destination),
        "exchange",
        routing_key,
        arguments,
        bind=True,
    )
    answer(channel, no_wait, "exchange.bind-ok")


def exchange_unbind(
    connection: Connection,
    channel: Channel,
    destination: str,
    source: str,
    routing_key: str,
    no_wait: bool,
    arguments: dict[str, Any],
) -> None:
    since = connection.vhost.slices.begun
    change_binding(
        connection,
        channel,
        plain_name(source),
        plain_name(destination),
        "exchange",
        routing_key,
        arguments,
        bind=False,
    )
    answer_when_over(connection, channel, since, no_wait, "exchange.unbind-ok")
