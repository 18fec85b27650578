"""The methods of a channel that are asked once in a while: declare, bind, consume, get, qos, tx and
their kin.

One function a method, found by its name; each checks permissions, does the thing through the vhost
and replies. Errors are raised. Replies to what has to be durable wait for the disk (`channel.hold`)
and keep their order.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker import arguments as argument_table
from broker.contracts import Consumer
from broker.errors import (
    AccessRefused,
    ChannelFault,
    NotAllowed,
    NotFound,
    NotImplementedYet,
    PreconditionFailed,
    describe,
)
from broker.wire.methods import frame, method_frame

if TYPE_CHECKING:
    from broker.wire.channel import WireChannel
    from broker.wire.session import Session

Command = Callable[..., None]

# basic.get and a body frame share what a delivery writes itself.
ACK, REJECT, REQUEUE = 0, 1, 2

_NEWLINES = re.compile("[\r\n]")


def run(
    session: Session, channel: WireChannel | None, number: int, name: str, arguments: dict[str, Any]
) -> None:
    """Carries out one method on a channel. Raises AMQPError."""
    if channel is None:
        _channel_open(session, number)
        return
    command = COMMANDS.get(name)
    if command is None:
        if name == "channel.open":
            raise ChannelFault("second 'channel.open' seen")
        raise NotImplementedYet(f"{name} is not implemented")
    command(session, channel, **arguments)


# -- channel ---------------------------------------------------------------------------------------


def _channel_open(session: Session, number: int) -> None:
    session.open_channel(number)
    session.send(method_frame(number, "channel.open-ok"))


def _channel_close(session: Session, channel: WireChannel, **_: Any) -> None:
    if not channel.closing:
        session.end_channel(channel)
        channel.closing = True
    channel.reply(
        method_frame(channel.number, "channel.close-ok"), lambda: _forget(session, channel)
    )


def _channel_close_ok(session: Session, channel: WireChannel) -> None:
    if channel.closing:
        session.drop_channel(channel)


def _forget(session: Session, channel: WireChannel) -> None:
    if session.find_channel(channel.number) is channel:
        session.drop_channel(channel)


def _channel_flow(session: Session, channel: WireChannel, active: bool) -> None:
    if not active:
        raise NotImplementedYet("active=false")
    channel.reply(method_frame(channel.number, "channel.flow-ok", active=True))


def _access_request(session: Session, channel: WireChannel, **_: Any) -> None:
    channel.reply(method_frame(channel.number, "access.request-ok", ticket=1))


# -- exchange --------------------------------------------------------------------------------------


def _exchange_declare(
    session: Session,
    channel: WireChannel,
    exchange: str,
    type: str,
    passive: bool,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    no_wait: bool,
    arguments: dict[str, Any],
) -> None:
    exchange = _name(exchange)
    if passive:
        _check_any(session, "exchange", exchange)
        session.vhost.exchange(exchange)
    else:
        session.check("configure", "exchange", exchange)
        alternate = arguments.get("alternate-exchange", arguments.get("x-alternate-exchange"))
        if isinstance(alternate, str):
            session.check("read", "exchange", exchange)
            session.check("write", "exchange", alternate)
        created = session.vhost.declare_exchange(
            exchange,
            type,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        )
        if created and durable:
            channel.hold()
    _answer(channel, no_wait, "exchange.declare-ok")


def _exchange_delete(
    session: Session, channel: WireChannel, exchange: str, if_unused: bool, no_wait: bool
) -> None:
    exchange = _name(exchange)
    session.check("configure", "exchange", exchange)
    if session.vhost.delete_exchange(exchange, if_unused=if_unused):
        channel.hold()
    _answer(channel, no_wait, "exchange.delete-ok")


def _exchange_bind(
    session: Session,
    channel: WireChannel,
    destination: str,
    source: str,
    routing_key: str,
    no_wait: bool,
    arguments: dict[str, Any],
) -> None:
    _change_binding(
        session,
        channel,
        _name(source),
        _name(destination),
        "exchange",
        routing_key,
        arguments,
        bind=True,
    )
    _answer(channel, no_wait, "exchange.bind-ok")


def _exchange_unbind(
    session: Session,
    channel: WireChannel,
    destination: str,
    source: str,
    routing_key: str,
    no_wait: bool,
    arguments: dict[str, Any],
) -> None:
    _change_binding(
        session,
        channel,
        _name(source),
        _name(destination),
        "exchange",
        routing_key,
        arguments,
        bind=False,
    )
    _answer(channel, no_wait, "exchange.unbind-ok")


def _change_binding(
    session: Session,
    channel: WireChannel,
    source: str,
    destination: str,
    kind: str,
    routing_key: str,
    arguments: dict[str, Any],
    *,
    bind: bool,
) -> None:
    vhost = session.vhost
    session.check("write", kind, destination)
    session.check("read", "exchange", source)
    exchange = vhost.exchanges.get(source)
    if exchange is not None and exchange.type == "topic":
        session.host.access.check_topic(session.user, vhost.name, "read", source, routing_key)
    if kind == "queue" and destination in vhost.queues:
        vhost.check_owner(vhost.queues[destination], session)
    if (vhost.bind if bind else vhost.unbind)(source, destination, kind, routing_key, arguments):
        ends = (
            vhost.exchanges.get(source),
            (vhost.queues if kind == "queue" else vhost.exchanges).get(destination),
        )
        if not bind or all(end is not None and end.durable for end in ends):
            channel.hold()


# -- queue -----------------------------------------------------------------------------------------


def _queue_declare(
    session: Session,
    channel: WireChannel,
    queue: str,
    passive: bool,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    no_wait: bool,
    arguments: dict[str, Any],
) -> None:
    name = _name(queue)
    if passive:
        _check_any(session, "queue", name)
        found = session.vhost.queue(name, session)
    else:
        session.check("configure", "queue", name)
        exchange = arguments.get("x-dead-letter-exchange")
        if isinstance(exchange, str):
            session.check("read", "queue", name)
            session.check("write", "exchange", exchange)
        found, created = session.vhost.declare_queue(
            name,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=arguments,
            owner=session if exclusive else None,
        )
        if created and found.exclusive:
            session.exclusive_queues.add(found.name)
        if created and found.durable:
            channel.hold()
    channel.last_queue = found.name
    _answer(
        channel,
        no_wait,
        "queue.declare-ok",
        queue=found.name,
        message_count=found.messages_ready,
        consumer_count=found.consumer_count,
    )


def _queue_bind(
    session: Session,
    channel: WireChannel,
    queue: str,
    exchange: str,
    routing_key: str,
    no_wait: bool,
    arguments: dict[str, Any],
) -> None:
    name = _queue_name(session, channel, queue)
    if not queue and not routing_key:
        routing_key = name
    _change_binding(
        session, channel, _name(exchange), name, "queue", routing_key, arguments, bind=True
    )
    _answer(channel, no_wait, "queue.bind-ok")


def _queue_unbind(
    session: Session,
    channel: WireChannel,
    queue: str,
    exchange: str,
    routing_key: str,
    arguments: dict[str, Any],
) -> None:
    name = _queue_name(session, channel, queue)
    if not queue and not routing_key:
        routing_key = name
    _change_binding(
        session, channel, _name(exchange), name, "queue", routing_key, arguments, bind=False
    )
    _answer(channel, False, "queue.unbind-ok")


def _queue_purge(session: Session, channel: WireChannel, queue: str, no_wait: bool) -> None:
    name = _queue_name(session, channel, queue)
    session.check("read", "queue", name)
    found = session.vhost.queue(name, session)
    count = found.purge()
    if count and found.durable:
        channel.hold(False)
    _answer(channel, no_wait, "queue.purge-ok", message_count=count)


def _queue_delete(
    session: Session,
    channel: WireChannel,
    queue: str,
    if_unused: bool,
    if_empty: bool,
    no_wait: bool,
) -> None:
    name = _queue_name(session, channel, queue)
    session.check("configure", "queue", name)
    found = session.vhost.queues.get(name)
    count = session.vhost.delete_queue(name, if_unused=if_unused, if_empty=if_empty, owner=session)
    session.exclusive_queues.discard(name)
    if found is not None and found.durable:
        channel.hold()
    _answer(channel, no_wait, "queue.delete-ok", message_count=count)


# -- basic -----------------------------------------------------------------------------------------


def _basic_qos(
    session: Session, channel: WireChannel, prefetch_size: int, prefetch_count: int, global_: bool
) -> None:
    if prefetch_size:
        raise NotImplementedYet(f"prefetch_size!=0 ({prefetch_size})")
    if global_:
        channel.global_prefetch_count = prefetch_count
        channel.resume()
    else:
        channel.prefetch_count = prefetch_count
    channel.reply(method_frame(channel.number, "basic.qos-ok"))


def _basic_consume(
    session: Session,
    channel: WireChannel,
    queue: str,
    consumer_tag: str,
    no_local: bool,
    no_ack: bool,
    exclusive: bool,
    no_wait: bool,
    arguments: dict[str, Any],
) -> None:
    name = _queue_name(session, channel, queue)
    if _is_direct_reply(name):
        raise NotImplementedYet("direct reply-to is not carried out yet")
    session.check("read", "queue", name)
    found = session.vhost.queue(name, session)
    if not consumer_tag:
        consumer_tag = f"amq.ctag-{base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip('=')}"
    elif consumer_tag in channel.consumers:
        raise NotAllowed(f"attempt to reuse consumer tag '{consumer_tag}'")
    argument_table.check("consumer", arguments, describe("queue", name, session.vhost.name))
    if found.exclusive_consumer_tag is not None or (exclusive and found.consumer_count):
        raise AccessRefused(f"{describe('queue', name, session.vhost.name)} in exclusive use")
    consumer = Consumer(
        found,
        channel,
        consumer_tag,
        no_ack,
        exclusive,
        channel.prefetch_count,
        arguments.get("x-priority", 0),
        arguments or None,
    )
    channel.add_consumer(consumer)

    def start() -> None:
        if consumer.active and not consumer.queue.deleted:
            consumer.queue.add_consumer(consumer)

    if no_wait:
        start()
    else:
        # Deliveries must not overtake consume-ok, which may wait for the disk.
        channel.reply(
            method_frame(channel.number, "basic.consume-ok", consumer_tag=consumer_tag), start
        )


def _basic_cancel(session: Session, channel: WireChannel, consumer_tag: str, no_wait: bool) -> None:
    consumer = channel.consumers.get(consumer_tag)
    if consumer is not None:
        channel.remove_consumer(consumer)
        consumer.queue.remove_consumer(consumer)
    _answer(channel, no_wait, "basic.cancel-ok", consumer_tag=consumer_tag)


def _basic_cancel_ok(session: Session, channel: WireChannel, consumer_tag: str) -> None:
    """The client's answer to our cancel: nothing to do."""


class Getter:
    """One basic.get that waits for its message."""

    def __init__(self, channel: WireChannel, no_ack: bool) -> None:
        self.channel = channel
        self.no_ack = no_ack

    def message(
        self,
        queue: Any,
        exchange: bytes,
        routing_key: bytes,
        listed: bytes,
        body: bytes,
        place: tuple[int, int, int, int],
    ) -> None:
        channel = self.channel
        if channel.closing or not channel.output.is_open:
            if not self.no_ack:
                queue.requeue_place(place)
            return
        consumer = Consumer(queue, channel, "", self.no_ack, active=False)
        tag = channel.take_got(consumer, place)
        payload = (
            b"\x00\x3c\x00\x47"
            + tag.to_bytes(8, "big")
            + (b"\x01" if place[3] else b"\x00")
            + bytes([len(exchange)])
            + exchange
            + bytes([len(routing_key)])
            + routing_key
            + (queue.messages_ready - 1).to_bytes(4, "big")
        )
        channel.reply(frame(1, channel.number, payload) + content(channel, listed, body))

    def empty(self, queue: Any) -> None:
        channel = self.channel
        channel.got_empty += 1
        if not channel.closing and channel.output.is_open:
            channel.reply(method_frame(channel.number, "basic.get-empty"))


def content(channel: WireChannel, listed: bytes, body: bytes) -> bytes:
    """Content header and body frames."""
    part = channel.output.frame_max - 8
    frames = [frame(2, channel.number, b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + listed)]
    frames += [frame(3, channel.number, body[at : at + part]) for at in range(0, len(body), part)]
    return b"".join(frames)


def _basic_get(session: Session, channel: WireChannel, queue: str, no_ack: bool) -> None:
    name = _queue_name(session, channel, queue)
    session.check("read", "queue", name)
    session.vhost.queue(name, session).get(Getter(channel, no_ack))


def _basic_recover(session: Session, channel: WireChannel, requeue: bool) -> None:
    if not requeue:
        raise NotImplementedYet("requeue=false")
    channel.requeue_all()
    channel.reply(method_frame(channel.number, "basic.recover-ok"))


def _basic_recover_async(session: Session, channel: WireChannel, requeue: bool) -> None:
    if not requeue:
        raise NotImplementedYet("requeue=false")
    channel.requeue_all()


def check_properties(session: Session, found: dict[str, Any]) -> dict[str, Any]:
    """Checks what RabbitMQ checks of a publish's properties, and gives them back. Raises
    PreconditionFailed."""
    expiration = found.get("expiration")
    if expiration is not None:
        if not re.fullmatch(r"-?\d+", expiration, re.ASCII):
            raise PreconditionFailed(f"invalid expiration '{expiration}': no_integer")
        if int(expiration) < 0:
            raise PreconditionFailed(
                f"invalid expiration '{expiration}': {{value_negative,{int(expiration)}}}"
            )
        if int(expiration) >= 2**32:
            raise PreconditionFailed(
                f"invalid expiration '{expiration}': {{value_too_big,{int(expiration)}}}"
            )
    for name in ("CC", "BCC"):
        keys = found.get("headers", {}).get(name, [])
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            kind = argument_table.kind_of(keys)
            raise PreconditionFailed(
                f'invalid message: {{unacceptable_type_in_header,{kind},"{name}"}}'
            )
    user_id = found.get("user_id")
    if user_id is not None and user_id != session.user:
        user = session.host.access.users.get(session.user)
        if user is None or "impersonator" not in user.tags:
            raise PreconditionFailed(
                f"user_id property set to '{user_id}' but authenticated user was '{session.user}'"
            )
    if found.get("reply_to") == "amq.rabbitmq.reply-to":
        raise PreconditionFailed("fast reply consumer does not exist")
    return found


# -- confirm and tx --------------------------------------------------------------------------------


def _confirm_select(session: Session, channel: WireChannel, no_wait: bool) -> None:
    if channel.transactional:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    channel.select_confirms()
    _answer(channel, no_wait, "confirm.select-ok")


def _tx_select(session: Session, channel: WireChannel) -> None:
    if channel.confirm:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if not channel.transactional:
        channel.transactional = True
        channel.transaction_publishes, channel.transaction_settles = [], []
    channel.reply(method_frame(channel.number, "tx.select-ok"))


def _tx_commit(session: Session, channel: WireChannel) -> None:
    _check_transactional(channel)
    publishes, channel.transaction_publishes = channel.transaction_publishes, []
    settles, channel.transaction_settles = channel.transaction_settles, []
    channel.transactional = False
    try:
        for settle in settles:
            channel.settle_committed(*settle)
        for message in publishes:
            channel.publish_committed(*message)
    finally:
        channel.transactional = True
    channel.hold()
    channel.reply(method_frame(channel.number, "tx.commit-ok"))


def _tx_rollback(session: Session, channel: WireChannel) -> None:
    _check_transactional(channel)
    channel.transaction_publishes, channel.transaction_settles = [], []
    channel.reply(method_frame(channel.number, "tx.rollback-ok"))


def _check_transactional(channel: WireChannel) -> None:
    if not channel.transactional:
        raise PreconditionFailed("channel is not transactional")


# -- what they share -------------------------------------------------------------------------------


def _answer(channel: WireChannel, no_wait: bool, name: str, **arguments: Any) -> None:
    if not no_wait:
        channel.reply(method_frame(channel.number, name, **arguments))


def _name(name: str) -> str:
    """RabbitMQ strips line breaks from names, and so do we: they would break logs and lists."""
    return _NEWLINES.sub("", name) if "\n" in name or "\r" in name else name


def _queue_name(session: Session, channel: WireChannel, name: str) -> str:
    """The queue a method means; an empty name is the one declared last on this channel. Raises
    NotFound."""
    if name:
        return _name(name)
    if channel.last_queue is None:
        raise NotFound("no previously declared queue")
    return channel.last_queue


def _is_direct_reply(name: str) -> bool:
    return name in ("amq.rabbitmq.reply-to", "amq.direct.reply-to")


def _check_any(session: Session, kind: str, name: str) -> None:
    """A passive declare needs any one of the three permissions, so that it does not leak what
    exists (CVE-2026-57221)."""
    access = session.host.access
    asked = name or ("amq.default" if kind == "exchange" else "")
    if not any(
        access.allowed(session.user, session.vhost.name, each, asked)
        for each in ("configure", "write", "read")
    ):
        raise AccessRefused(
            f"access to {describe(kind, asked, session.vhost.name)} refused "
            f"for user '{session.user}'"
        )


COMMANDS: dict[str, Command] = {
    "channel.close": _channel_close,
    "channel.close-ok": _channel_close_ok,
    "channel.flow": _channel_flow,
    "access.request": _access_request,
    "exchange.declare": _exchange_declare,
    "exchange.delete": _exchange_delete,
    "exchange.bind": _exchange_bind,
    "exchange.unbind": _exchange_unbind,
    "queue.declare": _queue_declare,
    "queue.bind": _queue_bind,
    "queue.unbind": _queue_unbind,
    "queue.purge": _queue_purge,
    "queue.delete": _queue_delete,
    "basic.qos": _basic_qos,
    "basic.consume": _basic_consume,
    "basic.cancel": _basic_cancel,
    "basic.cancel-ok": _basic_cancel_ok,
    "basic.get": _basic_get,
    "basic.recover": _basic_recover,
    "basic.recover-async": _basic_recover_async,
    "confirm.select": _confirm_select,
    "tx.select": _tx_select,
    "tx.commit": _tx_commit,
    "tx.rollback": _tx_rollback,
}
