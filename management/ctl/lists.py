"""Commands that list objects: columns named as rabbitmqctl names them, taken from the rows of the
control socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from management.ctl.table import (
    USAGE,
    Call,
    Command,
    CommandError,
    Parameter,
    Rows,
    enter,
    user,
)

COLUMN = Parameter(
    name="column",
    help="Columns to show, in this order; a dotted key such as message_stats.publish works too.",
    many=True,
    optional=True,
)


def same(*names: str) -> dict[str, str]:
    """Columns that rows name as rabbitmqctl does."""
    return {name: name for name in names}


def wanted(command: Command, call: Call) -> tuple[str, ...]:
    """The columns to show. Raises CommandError for an unknown one."""
    names = tuple(call.options.get("column") or command.shown)
    unknown = [name for name in names if name not in command.columns and "." not in name]
    if unknown:
        raise CommandError(
            f"{command.name} has no column {', '.join(unknown)}; "
            f"columns: {', '.join(command.columns)}",
            USAGE,
        )
    return names


def value(row: Mapping[str, Any], path: str) -> Any:
    """A value of a row under a dotted path, or None. A path that starts with `=` is the value."""
    if path.startswith("="):
        return path[1:]
    if path in row:
        return row[path]
    head, dot, rest = path.partition(".")
    inner = row.get(head)
    return value(inner, rest) if dot and isinstance(inner, Mapping) else None


def table(command: Command, names: tuple[str, ...], found: Sequence[Mapping[str, Any]]) -> Rows:
    """Rows of the control socket as a table."""
    paths = [command.columns.get(name, name) for name in names]
    return Rows(names, [[value(row, path) for path in paths] for row in found])


def listing(
    noun: str,
    command: Command,
    *,
    filters: Mapping[str, str] | None = None,
    own_vhost: bool = False,
) -> None:
    """Enters a command that lists a noun. `filters`: argument of verb `list` to parameter;
    `own_vhost`: rows are those of the vhost of `-p`."""

    async def run(call: Call) -> Rows:
        names = wanted(command, call)
        arguments: dict[str, Any] = {one: call.options[key] for one, key in (filters or {}).items()}
        if own_vhost:
            arguments["vhost"] = call.vhost
        if command.columns:
            paths = [command.columns.get(name, name) for name in names]
            arguments["columns"] = sorted({path.partition(".")[0] for path in paths} - {""})
        found = await call.rows(noun, **arguments)
        return table(command, names, found)

    parameters = (*command.parameters, COLUMN)
    enter(replace(command, run=run, verb="list", vhost=own_vhost, parameters=parameters))


listing(
    "queues",
    Command(
        name="list_queues",
        group="queues",
        help="Lists queues with their properties and message counts.",
        examples=(
            "list_queues",
            "list_queues -p orders name messages consumers policy",
            "list_queues --format json name messages_ready messages_unacknowledged",
        ),
        says="Listing queues for vhost {vhost} ...",
        shown=("name", "messages"),
        columns={
            **same(
                "name",
                "type",
                "durable",
                "auto_delete",
                "exclusive",
                "arguments",
                "policy",
                "operator_policy",
                "effective_policy_definition",
                "state",
                "messages",
                "messages_ready",
                "messages_unacknowledged",
                "messages_persistent",
                "messages_ram",
                "messages_ready_ram",
                "messages_unacknowledged_ram",
                "message_bytes",
                "message_bytes_ready",
                "message_bytes_unacknowledged",
                "message_bytes_persistent",
                "message_bytes_ram",
                "consumers",
                "consumer_utilisation",
                "consumer_capacity",
                "head_message_timestamp",
                "exclusive_consumer_tag",
                "single_active_consumer_tag",
                "memory",
                "idle_since",
                "disk_bytes",
                "segments",
                "trouble",
                "vhost",
                "node",
            ),
            "owner_pid": "owner_pid_details.name",
            "leader": "node",
        },
    ),
    own_vhost=True,
)
listing(
    "exchanges",
    Command(
        name="list_exchanges",
        group="exchanges",
        help="Lists exchanges.",
        examples=("list_exchanges", "list_exchanges -p orders name type durable policy"),
        says="Listing exchanges for vhost {vhost} ...",
        shown=("name", "type"),
        columns=same(
            "name",
            "type",
            "durable",
            "auto_delete",
            "internal",
            "arguments",
            "policy",
            "operator_policy",
            "vhost",
        ),
    ),
    own_vhost=True,
)
listing(
    "bindings",
    Command(
        name="list_bindings",
        group="exchanges",
        help="Lists bindings, those of the default exchange included.",
        examples=("list_bindings", "list_bindings source_name routing_key destination_name"),
        says="Listing bindings for vhost {vhost}...",
        shown=(
            "source_name",
            "source_kind",
            "destination_name",
            "destination_kind",
            "routing_key",
            "arguments",
        ),
        columns={
            "source_name": "source",
            "source_kind": "=exchange",
            "destination_name": "destination",
            "destination_kind": "destination_type",
            "routing_key": "routing_key",
            "arguments": "arguments",
            "properties_key": "properties_key",
            "vhost": "vhost",
        },
    ),
    own_vhost=True,
)
listing(
    "connections",
    Command(
        name="list_connections",
        group="connections",
        help="Lists connections. The name of a connection is its pid, too.",
        examples=("list_connections", "list_connections name user vhost client_properties"),
        says="Listing connections ...",
        shown=("name", "user", "peer_host", "peer_port", "state"),
        columns={
            "pid": "name",
            **same(
                "name",
                "user_provided_name",
                "user",
                "vhost",
                "state",
                "protocol",
                "auth_mechanism",
                "host",
                "port",
                "peer_host",
                "peer_port",
                "channels",
                "channel_max",
                "frame_max",
                "timeout",
                "connected_at",
                "client_properties",
                "ssl",
                "ssl_protocol",
                "ssl_cipher",
                "ssl_hash",
                "ssl_key_exchange",
                "peer_cert_subject",
                "peer_cert_issuer",
                "peer_cert_validity",
                "recv_oct",
                "recv_cnt",
                "send_oct",
                "send_cnt",
                "send_pend",
            ),
        },
    ),
)
listing(
    "channels",
    Command(
        name="list_channels",
        group="connections",
        help="Lists channels. The name of a channel is its pid, too.",
        examples=("list_channels", "list_channels name prefetch_count messages_unacknowledged"),
        says="Listing channels ...",
        shown=("name", "user", "consumer_count", "messages_unacknowledged"),
        columns={
            "pid": "name",
            "connection": "connection_details.name",
            **same(
                "name",
                "number",
                "user",
                "vhost",
                "transactional",
                "confirm",
                "consumer_count",
                "messages_unacknowledged",
                "messages_unconfirmed",
                "messages_uncommitted",
                "acks_uncommitted",
                "prefetch_count",
                "global_prefetch_count",
                "state",
                "idle_since",
            ),
        },
    ),
)
listing(
    "consumers",
    Command(
        name="list_consumers",
        group="connections",
        help="Lists the consumers of a virtual host.",
        examples=("list_consumers", "list_consumers queue_name consumer_tag unacked trouble"),
        says="Listing consumers in vhost {vhost} ...",
        shown=(
            "queue_name",
            "channel_pid",
            "consumer_tag",
            "ack_required",
            "prefetch_count",
            "active",
            "arguments",
        ),
        columns={
            "queue_name": "queue.name",
            "channel_pid": "channel_details.name",
            **same(
                "consumer_tag",
                "ack_required",
                "exclusive",
                "prefetch_count",
                "active",
                "activity_status",
                "unacked",
                "trouble",
                "arguments",
            ),
        },
    ),
    own_vhost=True,
)
listing(
    "vhosts",
    Command(
        name="list_vhosts",
        group="vhosts",
        help="Lists virtual hosts.",
        examples=("list_vhosts", "list_vhosts name description tags messages"),
        says="Listing vhosts ...",
        shown=("name",),
        columns=same(
            "name",
            "description",
            "tags",
            "default_queue_type",
            "tracing",
            "protected_from_deletion",
            "cluster_state",
            "messages",
            "messages_ready",
            "messages_unacknowledged",
        ),
    ),
)
listing(
    "users",
    Command(
        name="list_users",
        group="users",
        help="Lists users with their tags.",
        examples=("list_users", "list_users --format json"),
        says="Listing users ...",
        shown=("user", "tags"),
        columns={"user": "name", **same("tags", "limits", "hashing_algorithm")},
    ),
)

_PERMISSION = same("vhost", "user", "configure", "write", "read")
_TOPIC = same("vhost", "user", "exchange", "write", "read")
for _noun, _name, _what, _columns in (
    ("permissions", "permissions", "permissions", _PERMISSION),
    ("topic-permissions", "topic_permissions", "topic permissions", _TOPIC),
):
    listing(
        _noun,
        Command(
            name=f"list_{_name}",
            group="access",
            help=f"Lists the {_what} of a virtual host.",
            examples=(f"list_{_name} -p orders",),
            says=f'Listing {_what} for vhost "{{vhost}}" ...',
            shown=tuple(name for name in _columns if name != "vhost"),
            columns=_columns,
        ),
        own_vhost=True,
    )
    listing(
        _noun,
        Command(
            name=f"list_user_{_name}",
            group="access",
            help=f"Lists the {_what} of a user in every virtual host.",
            examples=(f"list_user_{_name} ada",),
            parameters=(user(),),
            says=f'Listing {_what} for user "{{username}}" ...',
            shown=tuple(name for name in _columns if name != "user"),
            columns=_columns,
        ),
        filters={"user": "username"},
    )

_POLICY = {
    **same("vhost", "name", "pattern", "apply-to", "definition", "priority"),
    **same("queues", "exchanges"),
}
for _noun, _name, _what in (
    ("policies", "list_policies", "policies"),
    ("operator-policies", "list_operator_policies", "operator policy overrides"),
):
    listing(
        _noun,
        Command(
            name=_name,
            group="policies",
            help=f"Lists {_what} of a virtual host, with the queues and exchanges under each.",
            examples=(_name, f"{_name} -p orders name definition queues"),
            says=f'Listing {_what} for vhost "{{vhost}}" ...',
            shown=("vhost", "name", "pattern", "apply-to", "definition", "priority"),
            columns=_POLICY,
        ),
        own_vhost=True,
    )
listing(
    "parameters",
    Command(
        name="list_parameters",
        group="parameters",
        help="Lists the parameters of components in a virtual host.",
        examples=("list_parameters", "list_parameters --format json"),
        says='Listing runtime parameters for vhost "{vhost}" ...',
        shown=("component", "name", "value"),
        columns=same("component", "name", "value", "vhost"),
    ),
    own_vhost=True,
)
listing(
    "global-parameters",
    Command(
        name="list_global_parameters",
        group="parameters",
        help="Lists global parameters.",
        examples=("list_global_parameters",),
        says="Listing global runtime parameters ...",
        shown=("name", "value"),
        columns=same("name", "value"),
    ),
)
