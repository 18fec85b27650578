"""What a publish has to fulfil, and the methods of classes confirm and tx."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from broker import arguments as argument_table
from broker.errors import AccessRefused, PreconditionFailed, describe
from broker.wire.commands import added_queues
from broker.wire.commands.rules import answer
from broker.wire.methods import method_frame
from broker.wire.properties import copied_to
from broker.wire.transaction import Transaction

if TYPE_CHECKING:
    from broker.wire.channel import WireChannel
    from broker.wire.session import Session


def check_target(rights: Any, vhost: Any, name: str, routing_key: str) -> Any:
    """The exchange that a publish by any door names. Raises AccessRefused or NotFound."""
    rights.check("write", "exchange", name)
    exchange = vhost.exchange(name)
    if exchange.internal:
        raise AccessRefused(f"cannot publish to internal {describe('exchange', name, vhost.name)}")
    rights.check_topics("write", exchange, (routing_key,))
    return exchange


def check_properties(
    rights: Any,
    channel: WireChannel | None,
    exchange: Any,
    routing_key: str,
    found: dict[str, Any],
) -> list[str]:
    """Checks what RabbitMQ checks of the properties of a publish by any door. Returns its routing
    keys: its own, which `check_target` has let pass, and those of CC and BCC. Raises
    PreconditionFailed, or AccessRefused for one of these."""
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
    headers = found.get("headers", {})
    for name in ("CC", "BCC"):
        if not isinstance(headers.get(name, []), list):
            kind = argument_table.kind_of(headers[name])
            raise PreconditionFailed(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}'
            )
    added = copied_to(headers, "CC", "BCC")
    if "user_id" in found:
        rights.check_user_id(found["user_id"])
    answering = added_queues.of_name(found.get("reply_to", ""))
    if answering is not None:
        answering.reply_name(channel)
    rights.check_topics("write", exchange, added)
    return [routing_key, *added]


def confirm_select(session: Session, channel: WireChannel, no_wait: bool) -> None:
    if channel.transactional:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    channel.select_confirms()
    answer(channel, no_wait, "confirm.select-ok")


def tx_select(session: Session, channel: WireChannel) -> None:
    if channel.confirm:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if not channel.transactional:
        channel.transactional = True
        channel.transaction = Transaction(session.host.config.max_uncommitted_bytes)
    channel.reply(method_frame(channel.number, "tx.select-ok"))


def tx_commit(session: Session, channel: WireChannel) -> None:
    """All or nothing as far as can be known: what would fail fails before the first message goes,
    and while a message was refused nothing is settled, so that what it was made of comes again."""
    transaction = _transaction(channel)
    publishes, settles = transaction.take()
    if transaction.version != session.host.topology.version:
        # They were checked when they came; an exchange or a permission may be gone.
        for target in {message[:3] for message in publishes}:
            channel.check_target(*target)
    channel.transactional = False
    try:
        if sum([channel.publish_committed(*message) for message in publishes]):
            raise PreconditionFailed(
                "partial tx completion: a queue refused a message, and nothing was settled"
            )
        for settle in settles:
            channel.settle_committed(*settle)
    finally:
        channel.transactional = True
    channel.hold(records=True)
    channel.reply(method_frame(channel.number, "tx.commit-ok"))


def tx_rollback(session: Session, channel: WireChannel) -> None:
    _transaction(channel).clear()
    channel.reply(method_frame(channel.number, "tx.rollback-ok"))


def _transaction(channel: WireChannel) -> Transaction:
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.transaction
