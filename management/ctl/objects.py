"""Commands on queues, exchanges, bindings and messages."""

from __future__ import annotations

import sys
from typing import Any

from management.ctl.table import (
    ARGUMENTS,
    UNAVAILABLE,
    Call,
    Command,
    CommandError,
    Parameter,
    Rows,
    enter,
    json_object,
    queue,
    runs,
    whole,
)

_DURABLE = Parameter(name="--durable", flag=True, help="It survives a restart.")
_AUTO_DELETE = Parameter(name="--auto-delete", flag=True, help="It goes with its last use.")
_IF_UNUSED = Parameter(name="--if-unused", flag=True, also=("-u",), help="Only if it is unused.")

# Queues. Options of LavinMQ's command, and the argument each one sets.
_QUEUE_ARGUMENTS: dict[str, Parameter] = {
    argument: Parameter(name=f"--{option}", help=help, read=read)
    for argument, option, read, help in (
        ("x-queue-type", "type", str, "Queue type: classic, quorum or stream."),
        ("x-expires", "expires", whole, "Milliseconds without use after which it is deleted."),
        ("x-max-length", "max-length", whole, "Most ready messages."),
        ("x-max-length-bytes", "max-length-bytes", whole, "Most bytes of ready messages."),
        ("x-message-ttl", "message-ttl", whole, "Milliseconds after which messages expire."),
        ("x-delivery-limit", "delivery-limit", whole, "Most deliveries of one message."),
        ("x-max-priority", "max-priority", whole, "Highest priority, 1 to 255."),
        ("x-dead-letter-exchange", "dead-letter-exchange", str, "Where dead letters go."),
        ("x-dead-letter-routing-key", "dead-letter-routing-key", str, "Their routing key."),
    )
}
_QUEUE_FLAGS: dict[str, tuple[Parameter, str]] = {
    "x-overflow": (
        Parameter(name="--reject-on-overflow", flag=True, help="Refuse publishes above the limit."),
        "reject-publish",
    ),
    "x-queue-type": (Parameter(name="--stream-queue", flag=True, help="Make a stream."), "stream"),
}


@runs(
    Command(
        name="create_queue",
        group="queues",
        help="Declares a queue.",
        examples=(
            "create_queue jobs --durable --max-length 10000 --reject-on-overflow",
            "create_queue log --durable --stream-queue",
        ),
        verb="queue.declare",
        parameters=(
            queue(),
            _DURABLE,
            _AUTO_DELETE,
            *_QUEUE_ARGUMENTS.values(),
            *(parameter for parameter, _ in _QUEUE_FLAGS.values()),
            ARGUMENTS,
        ),
        says="Creating queue '{queue}' in vhost '{vhost}' ...",
        vhost=True,
        also=("declare_queue",),
    )
)
async def create_queue(call: Call) -> None:
    options = call.options
    arguments = dict(options["arguments"])
    for argument, parameter in _QUEUE_ARGUMENTS.items():
        if options[parameter.key] is not None:
            arguments[argument] = options[parameter.key]
    for argument, (parameter, value) in _QUEUE_FLAGS.items():
        if options[parameter.key]:
            arguments[argument] = value
    await call.ask(
        "queue.declare",
        vhost=call.vhost,
        name=options["queue"],
        durable=options["durable"],
        auto_delete=options["auto_delete"],
        arguments=arguments,
    )


async def _delete_queue(call: Call) -> str:
    answer = await call.ask(
        "queue.delete",
        vhost=call.vhost,
        name=call.options["queue"],
        if_unused=call.options["if_unused"],
        if_empty=call.options["if_empty"],
    )
    return f"Queue was successfully deleted with {answer['messages']} ready messages"


async def _purge_queue(call: Call) -> str:
    answer = await call.ask("queue.purge", vhost=call.vhost, name=call.options["queue"])
    return f"{answer['messages']} messages purged"


enter(
    Command(
        name="delete_queue",
        group="queues",
        help="Deletes a queue.",
        examples=("delete_queue jobs", "delete_queue jobs --if-empty --if-unused"),
        verb="queue.delete",
        parameters=(
            queue(),
            Parameter(name="--if-empty", flag=True, also=("-e",), help="Only if it is empty."),
            _IF_UNUSED,
        ),
        run=_delete_queue,
        says="Deleting queue '{queue}' on vhost '{vhost}' ...",
        vhost=True,
    ),
    Command(
        name="purge_queue",
        group="queues",
        help="Drops the ready messages of a queue.",
        examples=("purge_queue jobs",),
        verb="queue.purge",
        parameters=(queue(),),
        run=_purge_queue,
        says="Purging queue '{queue}' in vhost '{vhost}' ...",
        vhost=True,
    ),
    Command(
        name="pause_queue",
        group="queues",
        help="Stops deliveries of a queue; it still accepts publishes.",
        examples=("pause_queue jobs",),
        verb="queue.pause",
        parameters=(queue(),),
        says="Pausing queue '{queue}' in vhost '{vhost}' ...",
        vhost=True,
    ),
    Command(
        name="resume_queue",
        group="queues",
        help="Resumes deliveries of a paused queue.",
        examples=("resume_queue jobs",),
        verb="queue.resume",
        parameters=(queue(),),
        says="Resuming queue '{queue}' in vhost '{vhost}' ...",
        vhost=True,
    ),
)

enter(
    Command(
        name="restart_queue",
        group="queues",
        help="Lets a queue try at once what it waits for after the disk failed a read.",
        examples=("restart_queue jobs",),
        verb="queue.restart",
        parameters=(queue(),),
        says="Restarting queue '{queue}' in vhost '{vhost}' ...",
        vhost=True,
    ),
)


@runs(
    Command(
        name="list_unresponsive_queues",
        group="queues",
        help="Lists queues that do not answer. Queues of Leveret have no process of their own, so "
        "the list is empty whenever the broker answers.",
        examples=("list_unresponsive_queues --timeout 5",),
        verb="whoami",
        says="Listing unresponsive queues for vhost {vhost} ...",
        vhost=True,
    )
)
async def list_unresponsive_queues(call: Call) -> Rows:
    await call.ask("whoami")
    return Rows(("name",), [])


# Exchanges, bindings, messages.

_EXCHANGE = Parameter(name="exchange", help="Name of the exchange.", to="name", names="exchanges")
_BINDING = (
    Parameter(name="source", help="Exchange that messages come from.", names="exchanges"),
    Parameter(name="destination", help="Queue or exchange that messages go to.", names="queues"),
    Parameter(name="routing_key", help="Routing key.", optional=True, default=""),
    Parameter(
        name="--destination-type",
        help="Kind of the destination.",
        choices=("queue", "exchange"),
        default="queue",
    ),
)


@runs(
    Command(
        name="create_exchange",
        group="exchanges",
        help="Declares an exchange.",
        examples=(
            "create_exchange topic shop.orders --durable",
            "create_exchange fanout later --durable --delayed",
        ),
        verb="exchange.declare",
        parameters=(
            Parameter(name="type", help="direct, fanout, topic, headers or an x- type."),
            _EXCHANGE,
            _DURABLE,
            _AUTO_DELETE,
            Parameter(name="--internal", flag=True, help="Clients cannot publish to it."),
            Parameter(name="--delayed", flag=True, help="It delays messages (x-delay)."),
            Parameter(name="--alternate-exchange", help="Where unroutable messages go."),
            ARGUMENTS,
        ),
        says="Creating exchange '{exchange}' in vhost '{vhost}' ...",
        vhost=True,
        also=("declare_exchange",),
    )
)
async def create_exchange(call: Call) -> None:
    options = call.options
    arguments = dict(options["arguments"])
    kind = options["type"]
    if options["alternate_exchange"] is not None:
        arguments["alternate-exchange"] = options["alternate_exchange"]
    if options["delayed"]:
        arguments["x-delayed-type"], kind = kind, "x-delayed-message"
    await call.ask(
        "exchange.declare",
        vhost=call.vhost,
        name=options["exchange"],
        type=kind,
        durable=options["durable"],
        auto_delete=options["auto_delete"],
        internal=options["internal"],
        arguments=arguments,
    )


enter(
    Command(
        name="delete_exchange",
        group="exchanges",
        help="Deletes an exchange.",
        examples=("delete_exchange shop.orders",),
        verb="exchange.delete",
        parameters=(_EXCHANGE, _IF_UNUSED),
        says="Deleting exchange '{exchange}' in vhost '{vhost}' ...",
        vhost=True,
    ),
    Command(
        name="create_binding",
        group="exchanges",
        help="Binds a queue or an exchange to an exchange.",
        examples=("create_binding shop.orders jobs 'order.*'",),
        verb="binding.create",
        parameters=(*_BINDING, ARGUMENTS),
        says="Binding '{destination}' to '{source}' in vhost '{vhost}' ...",
        vhost=True,
    ),
)


@runs(
    Command(
        name="delete_binding",
        group="exchanges",
        help="Removes a binding: the one with this routing key and these arguments.",
        examples=("delete_binding shop.orders jobs 'order.*'",),
        verb="binding.delete",
        parameters=(*_BINDING, ARGUMENTS),
        says="Unbinding '{destination}' from '{source}' in vhost '{vhost}' ...",
        vhost=True,
    )
)
async def delete_binding(call: Call) -> None:
    options = call.options
    ends = {one: options[one] for one in ("source", "destination", "destination_type")}
    found = await call.rows("bindings", vhost=call.vhost, **ends)
    wanted = (options["routing_key"], options["arguments"])
    for row in found:
        if (row["routing_key"], row["arguments"]) == wanted:
            key = row["properties_key"]
            await call.ask("binding.delete", vhost=call.vhost, **ends, properties_key=key)
            return
    raise CommandError(
        f"'{ends['source']}' has no such binding to '{ends['destination']}'", UNAVAILABLE
    )


@runs(
    Command(
        name="publish_message",
        group="exchanges",
        help="Publishes one message and tells whether it reached a queue.",
        examples=(
            "publish_message amq.default jobs 'hello'",
            "publish_message shop.orders order.eu - --properties '{\"delivery_mode\": 2}' < body",
        ),
        verb="exchange.publish",
        parameters=(
            _EXCHANGE,
            Parameter(name="routing_key", help="Routing key."),
            Parameter(name="body", help="Body; - reads it from standard input."),
            Parameter(name="--properties", help="As a JSON object.", read=json_object, default={}),
        ),
        vhost=True,
        also=("publish",),
    )
)
async def publish_message(call: Call) -> str:
    options = call.options
    body = options["body"]
    answer = await call.ask(
        "exchange.publish",
        vhost=call.vhost,
        name=options["exchange"],
        routing_key=options["routing_key"],
        payload=sys.stdin.buffer.read() if body == "-" else body.encode("utf-8", "surrogateescape"),
        properties=options["properties"],
    )
    return "Message published" if answer["routed"] else "Message published; it reached no queue"


@runs(
    Command(
        name="get_messages",
        group="queues",
        help="Shows ready messages from the head of a queue, which stays as it is. With --ack they "
        "are taken out.",
        examples=("get_messages jobs --count 5", "get_messages jobs --ack"),
        verb="queue.peek",
        parameters=(
            queue(),
            Parameter(name="--count", help="How many.", read=whole, default=1),
            Parameter(name="--ack", flag=True, help="Take them out of the queue."),
        ),
        says="Getting messages of queue '{queue}' in vhost '{vhost}' ...",
        vhost=True,
        also=("get",),
    )
)
async def get_messages(call: Call) -> Rows:
    arguments = {
        "vhost": call.vhost,
        "name": call.options["queue"],
        "count": call.options["count"],
    }
    if call.options["ack"]:
        found = await call.ask("queue.get", ackmode="ack_requeue_false", **arguments)
    else:
        found = await call.ask("queue.peek", **arguments)
    columns = ("exchange", "routing_key", "redelivered", "properties", "payload")
    return Rows(columns, [[readable(row[one]) for one in columns] for row in found])


def readable(value: Any) -> Any:
    """A value of a message for people."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
