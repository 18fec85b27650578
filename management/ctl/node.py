"""Commands that show the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.schema.control_schema import VERBS
from management.ctl.lists import COLUMN, same, table, wanted
from management.ctl.output import cell
from management.ctl.table import (
    COMMANDS,
    DATA,
    SOFTWARE,
    Call,
    Command,
    CommandError,
    Facts,
    Parameter,
    Rows,
    enter,
    runs,
)


def duration(ms: float) -> str:
    """Milliseconds as days, hours, minutes and seconds."""
    seconds = int(ms // 1000)
    parts = [(86400, "d"), (3600, "h"), (60, "min")]
    shown = []
    for size, unit in parts:
        if seconds >= size:
            shown.append(f"{seconds // size} {unit}")
            seconds %= size
    return " ".join([*shown, f"{seconds} s"])


def size(count: float) -> str:
    """Bytes in the largest binary unit that keeps a whole part."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


@runs(
    Command(
        name="status",
        group="node",
        help="Shows what the node runs, what it holds, and how far it is from its limits.",
        examples=("status", "status --format json"),
        verb="nodes",
        says="Status of the node ...",
    )
)
async def status(call: Call) -> Facts:
    node = (await call.ask("nodes"))[0]
    overview = await call.ask("overview")
    totals = overview["object_totals"]
    alarms = [name for name in ("mem_alarm", "disk_free_alarm") if node[name]]
    groups: dict[str, Mapping[str, Any]] = {
        "Runtime": {
            "Node": node["name"],
            "Leveret version": overview["product_version"],
            "RabbitMQ API version": overview["rabbitmq_version"],
            "Python version": overview["erlang_version"],
            "OS PID": node["os_pid"],
            "Uptime": duration(node["uptime"]),
            "Data directory": node["db_dir"],
            **({"Service": node["service"]} if node["service"] else {}),
        },
        "Alarms": dict.fromkeys(alarms, "in effect") or {"(none)": ""},
        "Resources": {
            "Memory": f"{size(node['mem_used'])} of {size(node['mem_limit'])}",
            "Free disk": f"{size(node['disk_free'])}; low watermark "
            f"{size(node['disk_free_limit'])}",
            "File descriptors": f"{node['fd_used']} of {node['fd_total']}",
            "Connections": f"{node['sockets_used']} of {node['sockets_total']}",
            "CPU": f"{node['cpu_used'] * 100:.1f} % of a core",
        },
        "Totals": {
            **{name.capitalize(): totals[name] for name in totals},
            "Messages": overview["queue_totals"]["messages"],
        },
        "Listeners": {
            f"{one['ip_address']}:{one['port']}": one["protocol"] for one in overview["listeners"]
        },
    }
    return Facts(groups, {**node, "overview": overview})


@runs(
    Command(
        name="cluster_status",
        group="node",
        help="Shows the nodes of the cluster: this one.",
        examples=("cluster_status",),
        verb="nodes",
        says="Cluster status of the node ...",
    )
)
async def cluster_status(call: Call) -> Facts:
    node = (await call.ask("nodes"))[0]
    overview = await call.ask("overview")
    name = node["name"]
    alarms = [name for name in ("mem_alarm", "disk_free_alarm") if node[name]]
    data = {
        "cluster_name": overview["cluster_name"],
        "disk_nodes": [name],
        "running_nodes": [name] if node["running"] else [],
        "versions": {name: {"leveret_version": overview["product_version"]}},
        "maintenance_status": {name: "maintenance" if node["being_drained"] else "regular"},
        "alarms": alarms,
        "partitions": {},
        "listeners": {name: overview["listeners"]},
    }
    groups: dict[str, Mapping[str, Any]] = {
        "Basics": {"Cluster name": overview["cluster_name"]},
        "Disk nodes": {name: ""},
        "Running nodes": {name if node["running"] else "(none)": ""},
        "Versions": {name: f"Leveret {overview['product_version']}"},
        "Maintenance status": {
            name: "under maintenance" if node["being_drained"] else "not under maintenance"
        },
        "Alarms": dict.fromkeys(alarms, "in effect") or {"(none)": ""},
        "Network partitions": {"(none)": ""},
    }
    return Facts(groups, data)


@runs(
    Command(
        name="listeners",
        group="node",
        help="Lists the ports the broker listens on.",
        examples=("listeners",),
        verb="overview",
        says="Listing listeners ...",
    )
)
async def listeners(call: Call) -> Rows:
    found = (await call.ask("overview"))["listeners"]
    columns = ("protocol", "ip_address", "port")
    return Rows(columns, [[one[name] for name in columns] for one in found])


@runs(
    Command(
        name="auth_attempts",
        group="users",
        help="Counts logins by protocol; with --by-source by user and address, too.",
        examples=("auth_attempts --by-source",),
        verb="auth.attempts",
        parameters=(
            Parameter(name="--by-source", flag=True, help="Split by user and address."),
            Parameter(name="--reset", flag=True, help="Start the counts anew."),
        ),
        says="Listing login attempts ...",
    )
)
async def auth_attempts(call: Call) -> Rows:
    found = await call.ask("auth.attempts", by_source=call.options["by_source"])
    if call.options["reset"]:
        await call.ask("auth.attempts.reset")
    columns = ["protocol"]
    if call.options["by_source"]:
        columns += ["username", "remote_address"]
    columns += ["auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded"]
    return Rows(tuple(columns), [[row[name] for name in columns] for row in found])


@runs(
    Command(
        name="set_cluster_name",
        group="node",
        help="Sets the name that pages and metrics show.",
        examples=("set_cluster_name warehouse",),
        verb="global-parameter.put",
        parameters=(Parameter(name="cluster_name", help="The name."),),
        says="Setting cluster name to {cluster_name} ...",
    )
)
async def set_cluster_name(call: Call) -> None:
    await call.ask("global-parameter.put", name="cluster_name", value=call.options["cluster_name"])


@runs(
    Command(
        name="environment",
        group="node",
        help="Shows every setting of the broker as it counts now; secrets are left out.",
        examples=("environment", "environment --format json"),
        verb="settings",
        says="Settings of the broker ...",
    )
)
async def environment(call: Call) -> Facts:
    found = await call.ask("settings")
    changed = (await call.ask("nodes"))[0]["overrides"]
    shown = {
        name: f"{cell(value)} (until the next start; the settings say "
        f"{cell(changed[name]['configured'])})"
        if name in changed
        else value
        for name, value in found.items()
    }
    return Facts({"": shown}, found)


@runs(
    Command(
        name="list_feature_flags",
        group="node",
        help="Lists RabbitMQ's feature flags, and whether this broker does what they stand for.",
        examples=("list_feature_flags", "list_feature_flags name state desc"),
        verb="feature-flags",
        parameters=(COLUMN,),
        says="Listing feature flags ...",
        columns=same("name", "state", "stability", "provided_by", "desc", "doc_url"),
        shown=("name", "state"),
    )
)
async def list_feature_flags(call: Call) -> Rows:
    command = COMMANDS["list_feature_flags"]
    return table(command, wanted(command, call), await call.ask("feature-flags"))


enter(
    Command(
        name="enable_feature_flag",
        group="node",
        help="Succeeds for a flag that is enabled, or all, and fails for another.",
        examples=("enable_feature_flag all",),
        verb="feature-flag.enable",
        parameters=(Parameter(name="name", help="Name of the feature flag."),),
        says='Enabling feature flag "{name}" ...',
    ),
    Command(
        name="reset_statistics",
        group="node",
        help="Starts the totals and histories of the node and its virtual hosts anew.",
        examples=("reset_statistics",),
        verb="statistics.reset",
        says="Resetting statistics ...",
    ),
)


# Users and parameters are left out: they hold hashes and passwords.
_REPORTED = (
    "queues",
    "exchanges",
    "bindings",
    "connections",
    "channels",
    "consumers",
    "vhosts",
    "permissions",
    "topic-permissions",
    "policies",
    "operator-policies",
)


@runs(
    Command(
        name="report",
        group="node",
        help="Prints status, settings and every list as one JSON object, for a support request. "
        "Users and parameters, with their hashes and passwords, are not in it.",
        examples=("report > report.json",),
        verb="list",
    )
)
async def report(call: Call) -> Any:
    found: dict[str, Any] = {
        "status": (await status(call)).data,
        "settings": await call.ask("settings"),
        "problems": await call.ask("problems"),
    }
    for noun in _REPORTED:
        found[noun] = await call.rows(noun)
    return found


def _tracing(name: str, on: bool, what: str) -> None:
    """Enters the command that turns tracing on or off."""

    async def run(call: Call) -> str:
        if "tracing" not in VERBS["vhost.put"].arguments.__struct_fields__:
            raise CommandError("this broker has no tracing", SOFTWARE)
        rows = await call.rows("vhosts", columns=["name"])
        if call.vhost not in (row["name"] for row in rows):
            raise CommandError(f"Virtual host '{call.vhost}' does not exist", DATA)
        await call.ask("vhost.put", name=call.vhost, tracing=on)
        return f"Trace {'enabled' if on else 'disabled'} for vhost {call.vhost}"

    enter(
        Command(
            name=name,
            group="vhosts",
            help=f"{what} the copies of messages that go to the exchange amq.rabbitmq.trace of a "
            "virtual host. Status 70 where the broker has no tracing.",
            examples=(f"{name} -p orders",),
            verb="vhost.put",
            run=run,
            vhost=True,
        )
    )


_tracing("trace_on", True, "Starts")
_tracing("trace_off", False, "Stops")
