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
    from broker.wire.session import Session


def exchange_declare(
    session: Session,
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
        check_any(session, "exchange", exchange)
        session.vhost.exchange(exchange)
    else:
        is_new = exchange not in session.vhost.exchanges
        session.rights.check_declare("exchange", exchange, arguments, is_new=is_new)
        created = session.vhost.declare_exchange(
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
    session: Session, channel: Channel, exchange: str, if_unused: bool, no_wait: bool
) -> None:
    exchange = plain_name(exchange)
    session.check("configure", "exchange", exchange)
    since = session.vhost.slices.begun
    if session.vhost.delete_exchange(exchange, if_unused=if_unused):
        channel.replies.hold()
    answer_when_over(session, channel, since, no_wait, "exchange.delete-ok")


def exchange_bind(
    session: Session,
    channel: Channel,
    destination: str,
    source: str,
    routing_key: str,
    no_wait: bool,
    arguments: dict[str, Any],
) -> None:
    change_binding(
        session,
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
    session: Session,
    channel: Channel,
    destination: str,
    source: str,
    routing_key: str,
    no_wait: bool,
    arguments: dict[str, Any],
) -> None:
    since = session.vhost.slices.begun
    change_binding(
        session,
        channel,
        plain_name(source),
        plain_name(destination),
        "exchange",
        routing_key,
        arguments,
        bind=False,
    )
    answer_when_over(session, channel, since, no_wait, "exchange.unbind-ok")
