"""The methods of a channel off the hot path: declare, bind, consume, get, qos, tx and
their kin, a module per class of methods.

One function a method; each checks permissions, does the thing through the vhost and replies.
Errors are raised. Replies to what has to be durable wait for the disk (`Replies.hold`) and keep
their order.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.schema.errors import AMQPError, ChannelFault, CommandInvalid
from broker.wire.commands import channels, consuming, exchanges, publishing, queues

Command = Callable[..., None]


def unknown(name: str) -> AMQPError:
    """What is wrong with a method that is none of these."""
    if name == "channel.open":
        return ChannelFault("second 'channel.open' seen")
    return CommandInvalid(f"unimplemented method {name}")


COMMANDS: dict[str, Command] = {
    "channel.close": channels.channel_close,
    "channel.close-ok": channels.channel_close_ok,
    "channel.flow": channels.channel_flow,
    "access.request": channels.access_request,
    "exchange.declare": exchanges.exchange_declare,
    "exchange.delete": exchanges.exchange_delete,
    "exchange.bind": exchanges.exchange_bind,
    "exchange.unbind": exchanges.exchange_unbind,
    "queue.declare": queues.queue_declare,
    "queue.bind": queues.queue_bind,
    "queue.unbind": queues.queue_unbind,
    "queue.purge": queues.queue_purge,
    "queue.delete": queues.queue_delete,
    "basic.qos": consuming.basic_qos,
    "basic.consume": consuming.basic_consume,
    "basic.cancel": consuming.basic_cancel,
    "basic.cancel-ok": consuming.basic_cancel_ok,
    "basic.get": consuming.basic_get,
    "basic.recover": consuming.basic_recover,
    "basic.recover-async": consuming.basic_recover_async,
    "confirm.select": publishing.confirm_select,
    "tx.select": publishing.tx_select,
    "tx.commit": publishing.tx_commit,
    "tx.rollback": publishing.tx_rollback,
}
