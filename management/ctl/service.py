"""Commands that switch off and on that clients are served, and that change settings until the next
start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from management.ctl.health import await_startup
from management.ctl.node import size
from management.ctl.table import (
    DATA,
    UNAVAILABLE,
    Call,
    Command,
    CommandError,
    Facts,
    Parameter,
    runs,
)

# Serving clients.


def _closed(answer: dict[str, Any]) -> str:
    count = answer["closed"]
    return "1 connection was closed" if count == 1 else f"{count:,} connections were closed"


@runs(
    Command(
        name="stop_app",
        group="node",
        help="Stops serving clients: closes the listeners and every client's connection "
        "(320). "
        "The node counts as not running; control socket, pages and metrics answer, and messages "
        "stay. It holds until start_app or the next start; stop ends the processes.",
        examples=("stop_app",),
        verb="app.stop",
        says="Stopping the application ...",
    )
)
async def stop_app(call: Call) -> str:
    closed = _closed(await call.ask("app.stop"))
    return f"The application is stopped; {closed}. start_app lets clients connect again"


@runs(
    Command(
        name="start_app",
        group="node",
        help="Serves clients again after stop_app, and also after drain and suspend_listeners. "
        "Succeeds where they are served already.",
        examples=("start_app",),
        verb="app.start",
        says="Starting the application ...",
    )
)
async def start_app(call: Call) -> str:
    answer = await call.ask("app.start")
    return "The application is started" if answer["changed"] else "The application runs already"


@runs(
    Command(
        name="suspend_listeners",
        group="node",
        help="Lets no further client connect; those that are connected stay. Pages, API and "
        "metrics answer. It holds until resume_listeners or the next start.",
        examples=("suspend_listeners",),
        verb="listeners.suspend",
        says="Suspending the listeners for clients ...",
    )
)
async def suspend_listeners(call: Call) -> str:
    answer = await call.ask("listeners.suspend")
    return "The listeners are suspended" if answer["changed"] else "They were suspended already"


@runs(
    Command(
        name="resume_listeners",
        group="node",
        help="Lets clients connect again.",
        examples=("resume_listeners",),
        verb="listeners.resume",
        says="Resuming the listeners for clients ...",
    )
)
async def resume_listeners(call: Call) -> str:
    answer = await call.ask("listeners.resume")
    return "The listeners accept clients" if answer["changed"] else "They accept clients already"


@runs(
    Command(
        name="drain",
        group="node",
        help="Puts the node into maintenance: closes the listeners and every client's connection "
        "(320), and health checks say that it is not in service. It holds until revive or the next "
        "start.",
        examples=("drain",),
        verb="node.drain",
        says="Putting the node into maintenance ...",
    )
)
async def drain(call: Call) -> str:
    return f"The node is in maintenance; {_closed(await call.ask('node.drain'))}"


@runs(
    Command(
        name="revive",
        group="node",
        help="Ends the maintenance: clients may connect again.",
        examples=("revive",),
        verb="node.revive",
        says="Ending the maintenance of the node ...",
    )
)
async def revive(call: Call) -> str:
    answer = await call.ask("node.revive")
    return "The maintenance is over" if answer["changed"] else "The node is not in maintenance"


@runs(
    Command(
        name="check_running",
        group="health",
        help="Fails if the broker does not answer, or if its application is stopped (stop_app).",
        examples=("check_running",),
        verb="nodes",
        says="Checking that the application runs ...",
        also=("is_running",),
    )
)
async def check_running(call: Call) -> str:
    if not (await call.ask("nodes"))[0]["running"]:
        raise CommandError("the application is stopped; start_app starts it", UNAVAILABLE)
    return "The application runs"


@runs(
    Command(
        name="is_booting",
        group="health",
        help="Says whether the broker is still starting. Its control socket opens at the end of "
        "the start, so that one that answers has started; without an answer the command fails.",
        examples=("is_booting", "is_booting --format json"),
        verb="whoami",
        says="Asking for the state of the start ...",
    )
)
async def is_booting(call: Call) -> Any:
    await call.ask("whoami")
    return Facts({"": {"Booting": "no"}}, {"booting": False})


def _waits(name: str, what: str) -> None:
    """Enters a command for rolling upgrades of clusters, which one node is through with once it
    runs."""

    @runs(
        Command(
            name=name,
            group="health",
            help=f"{what}: on one node, as soon as the broker answers.",
            examples=(name,),
            verb="whoami",
        )
    )
    async def run(call: Call) -> str:
        await await_startup(call)
        return "There is nothing to wait for: queues have one copy, on this node"


_waits("await_online_quorum_plus_one", "Waits until no quorum queue would lose its quorum")
_waits("await_online_synchronized_mirror", "Waits until every mirrored queue has a mirror")
_waits("post_upgrade", "Does what is to be done after an upgrade")


# Settings until the next start.

_UNTIL = "It holds until the next start, whatever a reload of the settings says."


async def _set(call: Call, name: str, value: str, shown: Callable[[Any], str]) -> str:
    answer = await call.ask("setting.put", name=name, value=value)
    return (
        f"{name} is {shown(answer['value'])} until the next start; the settings say "
        f"{shown(answer['configured'])}"
    )


@runs(
    Command(
        name="set_vm_memory_high_watermark",
        group="node",
        help="Sets memory_high_watermark, above which nothing is published: a share of the "
        f"machine's memory, or absolute and a size. {_UNTIL}",
        examples=(
            "set_vm_memory_high_watermark 0.5",
            "set_vm_memory_high_watermark absolute 2GB",
        ),
        verb="setting.put",
        parameters=(
            Parameter(name="limit", help="A share such as 0.5, a size, or absolute."),
            Parameter(name="size", help="The size behind absolute.", optional=True),
        ),
        says="Setting the memory watermark ...",
    )
)
async def set_vm_memory_high_watermark(call: Call) -> str:
    limit, given = call.options["limit"], call.options["size"]
    if (limit == "absolute") != (given is not None):
        raise CommandError("write a share, a size, or absolute and a size", DATA)
    return await _set(call, "memory_high_watermark", given or limit, _memory)


@runs(
    Command(
        name="set_disk_free_limit",
        group="node",
        help="Sets disk_free_limit, below which nothing is published: a size, or mem_relative "
        f"and a share of the machine's memory. {_UNTIL}",
        examples=("set_disk_free_limit 2GB", "set_disk_free_limit mem_relative 1.5"),
        verb="setting.put",
        parameters=(
            Parameter(name="limit", help="A size, or mem_relative."),
            Parameter(name="share", help="The share behind mem_relative.", optional=True),
        ),
        says="Setting the limit of free disk space ...",
    )
)
async def set_disk_free_limit(call: Call) -> str:
    limit, share = call.options["limit"], call.options["share"]
    if (limit == "mem_relative") != (share is not None):
        raise CommandError("write a size, or mem_relative and a share", DATA)
    if share is not None:
        try:
            part = float(share)
        except ValueError:
            raise CommandError(f"'{share[:100]}' is not a number", DATA) from None
        if not 0 < part <= 1000:
            raise CommandError("a share of the memory is above 0, and 1000 at most", DATA)
        limit = str(int(part * (await call.ask("nodes"))[0]["mem_total"]))
    return await _set(call, "disk_free_limit", limit, _disk)


@runs(
    Command(
        name="set_log_level",
        group="node",
        help=f"Sets the level of the broker's log: debug, info, warning or error. {_UNTIL}",
        examples=("set_log_level debug",),
        verb="setting.put",
        parameters=(Parameter(name="level", help="The level."),),
        says='Setting the log level to "{level}" ...',
    )
)
async def set_log_level(call: Call) -> str:
    return await _set(call, "log_level", call.options["level"], str)


def _memory(value: int | float) -> str:
    return size(value) if isinstance(value, int) else f"{value:g} of the memory"


def _disk(value: int) -> str:
    return size(value) if value else "the default"


# Memory.


@runs(
    Command(
        name="force_gc",
        group="node",
        help="Collects garbage and gives freed memory back to the system, and says how much it "
        "was.",
        examples=("force_gc", "gc_collect --format json"),
        verb="memory.release",
        says="Collecting garbage ...",
        also=("gc_collect",),
    )
)
async def force_gc(call: Call) -> Facts:
    found = await call.ask("memory.release")
    back = max(0, found["before"] - found["after"])
    facts = {
        "Memory before": size(found["before"]),
        "Memory after": size(found["after"]),
        "Given back": size(back),
        "Garbage in circles": f"{found['garbage']:,} objects",
    }
    return Facts({"": facts}, {**found, "given_back": back})
