"""What a publish has to fulfil, and the methods of classes confirm and tx."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from broker.fields.properties import copied_to
from broker.schema import arguments as argument_table
from broker.schema.errors import AccessRefused, PreconditionFailed, describe
from broker.wire.commands import added_queues
from broker.wire.commands.rules import answer
from broker.wire.commit import Commit
from broker.wire.method_frames import method_frame
from broker.wire.transaction import Limits, Transaction

if TYPE_CHECKING:
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection


def check_target(rights: Any, vhost: Any, name: str, routing_key: str) -> Any:
    """The exchange that a publish of any protocol names. Raises AccessRefused or NotFound."""
    rights.check("write", "exchange", name)
    exchange = vhost.exchange(name)
    if exchange.internal:
        raise AccessRefused(f"cannot publish to internal {describe('exchange', name, vhost.name)}")
    rights.check_topics("write", exchange, (routing_key,))
    return exchange


def check_properties(
    rights: Any,
    channel: Channel | None,
    exchange: Any,
    routing_key: str,
    found: dict[str, Any],
    keys_max: int,
) -> list[str]:
    """Checks what RabbitMQ checks of the properties of a publish of any protocol. Returns its
    routing keys: its own, which `check_target` has let pass, and those of CC and BCC, `keys_max` at
    most. Raises PreconditionFailed, or AccessRefused for one of these."""
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
    if len(added) > keys_max:
        raise PreconditionFailed(
            f"the message has {len(added)} routing keys in CC and BCC, and {keys_max} may be there "
            "(routing_keys_max): bind the queues to an exchange"
        )
    if "user_id" in found:
        rights.check_user_id(found["user_id"])
    answering = added_queues.of_name(found.get("reply_to", ""))
    if answering is not None:
        answering.reply_name(channel)
    rights.check_topics("write", exchange, added)
    return [routing_key, *added]


def confirm_select(connection: Connection, channel: Channel, no_wait: bool) -> None:
    if channel.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    channel.select_confirms()
    connection.receive_freely()
    answer(channel, no_wait, "confirm.select-ok")


def tx_select(connection: Connection, channel: Channel) -> None:
    if channel.confirm:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        config = connection.host.config
        limits = Limits(
            config.max_uncommitted_messages,
            config.max_uncommitted_bytes,
            config.max_uncommitted_user_bytes,
        )
        channel.transaction = Transaction(limits, connection.user, connection.host.uncommitted)
    channel.replies.send(method_frame(channel.number, "tx.select-ok"))


def tx_commit(connection: Connection, channel: Channel) -> None:
    Commit(connection, channel, _transaction(channel).take()).begin()


def tx_rollback(connection: Connection, channel: Channel) -> None:
    connection.vhost.slices.begin(_transaction(channel).take().emptied())
    channel.replies.send(method_frame(channel.number, "tx.rollback-ok"))


def _transaction(channel: Channel) -> Transaction:
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.transaction
