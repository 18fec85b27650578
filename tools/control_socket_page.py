"""Writes docs/control-socket.md from the tables in broker/schema/control_schema.py.

With --check it writes nothing and ends with 1 if the page is not what the tables say.
"""

from __future__ import annotations

import sys
import textwrap
import typing
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402
from written_page import written  # noqa: E402

from broker.schema import control_schema as schema  # noqa: E402
from broker.settings.bounds import ROW_BYTES_MAX  # noqa: E402

PAGE = ROOT / "docs" / "control-socket.md"

HEAD = f"""# The control socket

<!-- Written by tools/control_socket_page.py from broker/schema/control_schema.py. Do not edit. -->

The broker answers on `<data_dir>/control.sock`, a Unix socket that only its owner may open (mode
0600). The web process, the reports and tools ask it there; nothing of this is reachable from a
network. `management/broker_client.py` is a client for asyncio.

## Frames

A frame is a 32-bit big-endian length and that number of bytes of
[msgpack](https://msgpack.org), at most {schema.FRAME_MAX // 1024 // 1024} MiB. Requests of one
connection run side by side and are answered as they finish.

| Frame | Map |
|---|---|
| request | `{{id: n, verb: text, as: user or nil, args: {{...}}}}` |
| reply | `{{id: n, ok: value}}` or `{{id: n, error: {{status: n, error: text, reason: text}}}}` |
| push | `{{event: text, sub: n, seq: n, at: ms, data: ...}}` |

`as` is the user on whose behalf the request is made; that user's tags and permissions decide. nil
is the appliance itself, which may do everything. Times are milliseconds since 1970 by the broker's
clock. Rows have the keys of RabbitMQ's HTTP API.

## Pushes

`start` brings the whole state of a subscription, `delta` what changed since the last push, `resync`
says that pushes were left out because the reader was slow (a `start` follows), `ended` that the
subscription is over (data is an error: a right was lost, or the object is gone). Any other event is
one of the table of events. Pushes come at most once a second, events at once.

## Who may call

| Tag | Callers |
|---|---|
| appliance | no user: the appliance's own processes |
| anyone | every user |
| management | users with any of the tags management, policymaker, monitoring, administrator |
| policymaker, monitoring | users with that tag, and administrators |
| administrator | administrators |

| Scope | What is checked besides |
|---|---|
| node | nothing |
| own | others' things are hidden or refused, but for monitoring (to see) and administrator |
| vhost | the user has a permission row for the vhost, or is administrator |
| objects | as vhost, and then configure, write and read as over AMQP |

A verb that changes something is answered when the change is on disk. Its arguments have
{ROW_BYTES_MAX // 1024 // 1024} MiB at most, those of `definitions.import` apart.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, "## Verbs\n"]
    parts += [_verb(verb) for verb in schema.VERBS.values()]
    parts.append(
        "## Nouns\n\n| Noun | Row key | May list | May see one | Shown by | |\n"
        "|---|---|---|---|---|---|\n"
    )
    for noun in schema.NOUNS.values():
        key = ", ".join(f"`{name}`" for name in noun.key)
        who = f"{noun.list_tag} | {noun.item_tag} | {noun.scope}"
        parts[-1] += f"| {noun.name} | {key} | {who} | {noun.doc} |\n"
    words = ", ".join(schema.TROUBLE)
    parts.append(f"Words of `trouble`, worst first: {words}; consumers also: full.\n")
    parts.append("## Events\n\n| Event | Data |\n|---|---|\n")
    for name, data in schema.EVENTS.items():
        parts[-1] += f"| `{name}` | `{data.partition(':')[0]}`{data.partition('}')[2]} |\n"
    parts.append("## Errors\n\n| Status | Error | When |\n|---|---|---|\n")
    for failure in schema.ERRORS.values():
        parts[-1] += f"| {failure.status} | `{failure.error}` | {failure.doc} |\n"
    return "\n".join(parts)


def _verb(verb: schema.Verb) -> str:
    who = f"{verb.tag}, {verb.scope}" + ("; changes" if verb.changes else "")
    doc = textwrap.fill(verb.doc, 100, break_on_hyphens=False)
    text = f"### {verb.name}\n\n{doc}\n\nWho: {who}. Answers:\n`{verb.answers}`\n"
    fields = msgspec.structs.fields(verb.arguments)
    if fields:
        hints = typing.get_type_hints(verb.arguments)
        text += "\n| Argument | Type | Default |\n|---|---|---|\n"
        for field in fields:
            text += f"| `{field.name}` | {_type(hints[field.name])} | {_default(field)} |\n"
    return text


def _type(hint: object) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return " \\| ".join(f"`{value}`" for value in typing.get_args(hint))
    parts = typing.get_args(hint)
    if type(None) in parts:
        others = [_type(part) for part in parts if part is not type(None)]
        return " \\| ".join([*others, "nil"])
    name = hint.__name__ if isinstance(hint, type) and not parts else str(hint)
    name = name.replace("typing.", "").replace("NoneType", "nil").replace("memoryview", "bytes")
    return name.replace("|", "\\|")


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    default = field.default
    if default is msgspec.NODEFAULT:
        default = field.default_factory() if callable(field.default_factory) else None
    return "nil" if default is None else f"`{default!r}`"


if __name__ == "__main__":
    sys.exit(written(PAGE, page()))
