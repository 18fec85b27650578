"""Commands of rabbitmq-diagnostics that show the broker's process and what it keeps."""

from __future__ import annotations

import asyncio
import platform
import sys
import time
from typing import Any

from broker.schema.control_schema import NOUNS
from management.ctl.node import auth_attempts, size
from management.ctl.parsing import seconds
from management.ctl.table import (
    ALIASES,
    COMMANDS,
    Call,
    Command,
    Facts,
    Parameter,
    Rows,
    enter,
    runs,
)

# Versions and the process.


@runs(
    Command(
        name="server_version",
        group="node",
        help="Prints the version of the broker that runs.",
        examples=("server_version",),
        verb="overview",
        says="Asking for the version of the broker ...",
    )
)
async def server_version(call: Call) -> str:
    return str((await call.ask("overview", disable_stats=True))["product_version"])


@runs(
    Command(
        name="erlang_version",
        group="node",
        help="Prints the version of Python that the broker runs on, in place of Erlang's.",
        examples=("erlang_version", "erlang_version --details", "erlang_version --offline"),
        verb="process",
        parameters=(
            Parameter(name="--details", flag=True, help="With compiler and OpenSSL."),
            Parameter(name="--offline", flag=True, help="Of this program, not of the broker."),
        ),
        says="Asking for the version of Python ...",
    )
)
async def erlang_version(call: Call) -> str:
    if call.options["offline"]:
        full, short = sys.version.replace("\n", " "), platform.python_version()
        return f"Python {full}" if call.options["details"] else f"Python {short}"
    found = await call.ask("process")
    if call.options["details"]:
        return f"Python {found['python_full']}, {found['openssl']}"
    return f"Python {found['python']}"


@runs(
    Command(
        name="os_env",
        group="node",
        help="Shows the variables of the broker's environment that are settings (LEVERET_*); of "
        "secrets, and of names that are no setting, only that they are set.",
        examples=("os_env",),
        verb="process",
        says="Settings in the environment of the broker ...",
    )
)
async def os_env(call: Call) -> Facts:
    found = (await call.ask("process"))["environment"]
    return Facts({"": found or {"(none)": ""}}, found)


@runs(
    Command(
        name="command_line_arguments",
        group="node",
        help="Prints the command line of the broker's process, without secrets.",
        examples=("command_line_arguments",),
        verb="process",
        says="Command line of the broker ...",
    )
)
async def command_line_arguments(call: Call) -> Rows:
    return Rows(("argument",), [[word] for word in (await call.ask("process"))["command_line"]])


_UNITS = {"bytes": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3}


@runs(
    Command(
        name="memory_breakdown",
        group="node",
        help="Shows what the broker's memory is used for, as far as it is known, as "
        "/metrics/memory-breakdown does.",
        examples=("memory_breakdown --unit mb", "memory_breakdown --format json"),
        verb="memory",
        parameters=(
            Parameter(
                name="--unit",
                help="Unit of the text; without it each figure has its own.",
                choices=tuple(_UNITS),
            ),
        ),
        says="Asking what the memory is used for ...",
    )
)
async def memory_breakdown(call: Call) -> Facts:
    found = await call.ask("memory")
    total, unit = found["total"], call.options["unit"]

    def shown(count: int) -> str:
        text = size(count) if unit is None else f"{count / _UNITS[unit]:.4f} {unit}"
        return f"{text} ({100 * count / total if total else 0:.2f} %)"

    parts = dict(sorted(found["parts"].items(), key=lambda item: -item[1]))
    facts = {name: shown(count) for name, count in {**parts, "total": total}.items()}
    return Facts({"": facts}, {**parts, "total": total, "strategy": found["strategy"]})


@runs(
    Command(
        name="runtime_thread_stats",
        group="node",
        help="Shows how much of a core each thread of the broker used in a few seconds.",
        examples=("runtime_thread_stats --sample-interval 2",),
        verb="process",
        parameters=(
            Parameter(
                name="--sample-interval", help="Seconds between two looks.", read=seconds, default=5
            ),
        ),
        says="Looking at the threads for {sample_interval} seconds ...",
    )
)
async def runtime_thread_stats(call: Call) -> Rows:
    before, began = await _threads(call), time.monotonic()
    await asyncio.sleep(min(call.options["sample_interval"], 3600.0))
    after, took = await _threads(call), time.monotonic() - began
    rows = []
    for number, one in after.items():
        first = before.get(number, one)
        user, system = (
            round(100 * (one[key] - first[key]) / took, 1) for key in ("user_s", "sys_s")
        )
        rows.append([number, one["name"], one["state"], user, system, round(user + system, 1)])
    rows.sort(key=lambda row: -row[-1])
    return Rows(("id", "thread", "state", "user_percent", "system_percent", "percent"), rows)


async def _threads(call: Call) -> dict[int, dict[str, Any]]:
    return {one["id"]: one for one in (await call.ask("process"))["threads"]}


@runs(
    Command(
        name="maybe_stuck",
        group="health",
        help="Lists what does not get on: consumers that acknowledge nothing, publishers that wait "
        "for confirms, a disk that does not answer.",
        examples=("maybe_stuck",),
        verb="problems",
        says="Looking for what does not get on ...",
    )
)
async def maybe_stuck(call: Call) -> Any:
    rows, page = [], 1
    columns = ("trouble", "vhost", "name", "text")
    while True:
        answer = await call.ask("problems", page=page)
        rows += [
            [one.get(column) for column in columns]
            for one in answer["items"]
            if one["trouble"] == "stuck" or "disk" in one["trouble"]
        ]
        page += 1
        if page > answer["page_count"]:
            return Rows(columns, rows) if rows else "Nothing is stuck"


# TLS and passwords.

HASHES = (
    "argon2id",
    "rabbit_password_hashing_sha256",
    "rabbit_password_hashing_sha512",
    "rabbit_password_hashing_md5",
    "lavinmq_bcrypt",
)


@runs(
    Command(
        name="certificates",
        group="node",
        help="Lists the certificates of the broker's listeners, with their ends.",
        examples=("certificates", "certificates --format json"),
        verb="certificates",
        says="Certificates of the broker ...",
    )
)
async def certificates(call: Call) -> Rows:
    columns = ("file", "subject", "issuer", "names", "not_before", "not_after", "serial")
    found = await call.ask("certificates")
    return Rows(columns, [[one.get(name) for name in columns] for one in found])


@runs(
    Command(
        name="tls_versions",
        group="node",
        help="Lists the versions of TLS that the broker's listeners accept (tls_min_version).",
        examples=("tls_versions",),
        verb="process",
        says="Versions of TLS ...",
    )
)
async def tls_versions(call: Call) -> Rows:
    found = (await call.ask("process"))["tls"]["versions"]
    return Rows(("version",), [[name] for name in found])


@runs(
    Command(
        name="cipher_suites",
        group="node",
        help="Lists the cipher suites that the broker's listeners accept (tls_ciphers), by "
        "OpenSSL's names.",
        examples=("cipher_suites",),
        verb="process",
        parameters=(Parameter(name="--all", flag=True, help="Ignored: all are listed."),),
        says="Cipher suites ...",
        also=("list_ciphers",),
    )
)
async def cipher_suites(call: Call) -> Rows:
    found = (await call.ask("process"))["tls"]["ciphers"]
    return Rows(("cipher_suite",), [[name] for name in found])


@runs(
    Command(
        name="list_hashes",
        group="users",
        help="Lists the hashes that passwords can have: the first for new ones, the others where "
        "they were imported.",
        examples=("list_hashes",),
    )
)
async def list_hashes(call: Call) -> Rows:
    return Rows(("hash",), [[name] for name in HASHES])


# Logins.

_BY_SOURCE = Parameter(name="--by-source", flag=True, help="Split by user and address.")


@runs(
    Command(
        name="list_node_auth_attempt_stats",
        group="users",
        help="Counts logins by protocol; with --by-source by user and address, too.",
        examples=("list_node_auth_attempt_stats --by-source",),
        verb="auth.attempts",
        parameters=(_BY_SOURCE, Parameter(name="--reset", flag=True, help="Start anew.")),
        says="Listing login attempts ...",
    )
)
async def list_node_auth_attempt_stats(call: Call) -> Rows:
    return await auth_attempts(call)


enter(
    Command(
        name="reset_node_auth_attempt_metrics",
        group="users",
        help="Starts the counts of logins anew.",
        examples=("reset_node_auth_attempt_metrics",),
        verb="auth.attempts.reset",
        says="Starting the counts of logins anew ...",
    ),
    Command(
        name="enable_auth_attempt_source_tracking",
        group="users",
        help="Counts logins by user and address, as is so from the start on.",
        examples=("enable_auth_attempt_source_tracking",),
        verb="auth.attempts.track",
        fixed={"sources": True},
        says="Counting logins by user and address ...",
    ),
    Command(
        name="disable_auth_attempt_source_tracking",
        group="users",
        help="Counts further logins by protocol alone, until the next start.",
        examples=("disable_auth_attempt_source_tracking",),
        verb="auth.attempts.track",
        fixed={"sources": False},
        says="Counting logins by protocol alone ...",
    ),
)


# What there is.


@runs(
    Command(
        name="schema_info",
        group="node",
        help="Lists the kinds of things that the broker keeps: how many there are, and what names "
        "one of each.",
        examples=("schema_info",),
        verb="list",
        says="Asking what the broker keeps ...",
    )
)
async def schema_info(call: Call) -> Rows:
    rows = []
    for noun in NOUNS.values():
        page = await call.ask("list", noun=noun.name, page=1, page_size=1)
        rows.append([noun.name, page["total_count"], list(noun.key)])
    return Rows(("name", "size", "key"), rows)


@runs(
    Command(
        name="list_deprecated_features",
        group="node",
        help="Lists deprecated features: there are none.",
        examples=("list_deprecated_features",),
        verb="whoami",
        parameters=(Parameter(name="--used", flag=True, help="Only those in use."),),
        says="Listing deprecated features ...",
    )
)
async def list_deprecated_features(call: Call) -> Rows:
    await call.ask("whoami")
    return Rows(("name", "deprecation_phase", "desc"), [])


@runs(
    Command(
        name="check_if_any_deprecated_features_are_used",
        group="health",
        help="Fails if a deprecated feature is in use: there is none.",
        examples=("check_if_any_deprecated_features_are_used",),
        verb="whoami",
        says="Looking for deprecated features ...",
    )
)
async def check_if_any_deprecated_features_are_used(call: Call) -> str:
    await call.ask("whoami")
    return "Check passed"


@runs(
    Command(
        name="autocomplete",
        group="help",
        help="Prints the names of commands that begin with a text. Shells complete more with "
        "completion.",
        examples=("autocomplete list_q",),
        parameters=(Parameter(name="text", help="The beginning.", optional=True),),
    )
)
async def autocomplete(call: Call) -> str:
    text = call.options["text"] or ""
    return "\n".join(sorted(name for name in (*COMMANDS, *ALIASES) if name.startswith(text)))
