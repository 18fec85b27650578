"""Rows and cells of the data tables: one function per kind of column.

A page of queues has 1,200 cells. Their markup is put together here, with what the cells of a column
share written once, since a template takes 90 ms for them. Which value of its row a number shows,
and how it is written, stands in the head of its column, where the page's script reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from html import escape
from typing import Any

from django import template
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from frontend import addresses, figures, row_forms, troubles
from frontend.tables import Column, Heading, Table
from frontend.templatetags.show import (
    FORMATS,
    at,
    exchange_name,
    moment,
    name,
    row_key,
    tone,
    value,
)

register = template.Library()

Row = dict[str, Any]


Write = Callable[[Row], str]


@register.simple_tag(takes_context=True)
def table_rows(context: Any) -> SafeString:
    """The rows of the table in the context, each with a box to pick it if the table has them."""
    table: Table = context["table"]
    # One virtual host is not worth a column on a small screen.
    has_one_vhost = len(context.get("vhosts") or ()) < 2 or bool(table.query.get("vhost"))
    first, *others = table.headings
    forms = row_forms.writers(context)
    cells = [_head_cell(first), *(_cell(heading, has_one_vhost, forms) for heading in others)]
    parts = []
    for place, row in enumerate(table.rows):
        parts.append("<tr>")
        if table.can_pick:
            parts.append(_box(place, row, table.noun))
        parts += [write(row) for write in cells]
        parts.append("</tr>\n")
    # Each part is HTML: the functions of `_cell` escape what is text.
    return mark_safe("".join(parts))  # noqa: S308


def _box(place: int, row: Row, noun: str) -> str:
    """The box that picks a row; it sends the row's key."""
    return (
        f'<td class="box"><input type="checkbox" name="row" value="{escape(row_key(row, noun))}"'
        f' aria-label="Select row {place + 1}"></td>'
    )


def _head_cell(heading: Heading) -> Write:
    """The function that writes a row's heading, which is no number, as HTML."""
    column = heading.column
    write = _KINDS[column.kind]
    return lambda row: (
        f'<th scope="row" class="name-cell">{conditional_escape(write(row, column))}</th>'
    )


def _cell(
    heading: Heading, has_one_vhost: bool, forms: dict[str, Callable[[Row, Column], SafeString]]
) -> Write:
    """The function that writes the cells of a column, as HTML. A number is its cell: an element in
    it for each of a thousand would take the browser a tenth more time."""
    column = heading.column
    is_vhost = column.label == "Virtual host"
    named = (
        "number" if column.is_number else "",
        "group-start" if heading.starts_group else "",
        "" if column.phone else "where" if is_vhost and not has_one_vhost else "wide",
        "truncate" if column.kind in ("text", "code", "value") else "",
        _CLASSES.get(column.kind, ""),
    )
    classes = " ".join(filter(None, named))
    label = _attribute(
        "data-label", column.label if is_vhost or (column.phone and column.is_number) else ""
    )
    if column.is_live:
        return _number_writer(column, classes, label)
    opening = format_html("<td{}{}>", _attribute("class", classes), label)
    write = forms.get(column.kind) or _KINDS[column.kind]
    return lambda row: f"{opening}{conditional_escape(write(row, column))}</td>"


def _number_writer(column: Column, classes: str, label: SafeString | str) -> Write:
    """The function that writes the numbers of a column, in which there is nothing to escape."""
    written, path = FORMATS[column.kind], column.key
    opening, dotted = f'<td class="{classes}', "." in path
    rest = f'"{label}>'

    def write(row: Row) -> str:
        found = at(row, path) if dotted else row.get(path)
        text = written(found)
        return f"{opening}{tone(found, text)}{rest}{text}</td>"

    return write


def _attribute(key: str, text: str) -> SafeString | str:
    return format_html(' {}="{}"', key, text) if text else ""


def _link(address: str, label: SafeString | str) -> SafeString:
    return SafeString(f'<a href="{escape(address)}">{conditional_escape(label)}</a>')


def _text(row: Row, column: Column) -> SafeString | str:
    found = at(row, column.key)
    return figures.UNKNOWN if found is None or found == "" else name(found)


CONNECTION_TONES = {
    "running": "good",
    "blocked": "bad",
    "blocking": "warn",
    "flow": "warn",
}
"""Shapes of a connection's states; static/js/components/connections.js has the same."""

BLOCKED = "Its publishes are not read while an alarm is in force"


@register.simple_tag
def connection_state(row: Row) -> SafeString:
    """The state of a connection or a channel as a word with its shape."""
    word = row.get("state") or "closed"
    return format_html(
        '<span class="state {}" data-connection-state title="{}">{}</span>',
        CONNECTION_TONES.get(word, "idle"),
        BLOCKED if word == "blocked" else "",
        word,
    )


def _connection_state(row: Row, column: Column) -> SafeString:
    return connection_state(row)


def _queue(row: Row, column: Column) -> SafeString:
    return _link(addresses.queue(row["vhost"], row["name"]), name(row["name"]))


def _queue_of_consumer(row: Row, column: Column) -> SafeString:
    queue = row["queue"]
    return _link(addresses.queue(queue["vhost"], queue["name"], "consumers"), name(queue["name"]))


def _exchange(row: Row, column: Column) -> SafeString:
    return _link(addresses.exchange(row["vhost"], row["name"]), exchange_name(row["name"]))


def _connection(row: Row, column: Column) -> SafeString:
    """A connection by what its client calls itself, with its address behind it."""
    given = row.get("user_provided_name") or at(row, "client_properties.connection_name")
    return client(row["name"], given)


def _connection_of(row: Row, column: Column) -> SafeString | str:
    """The connection of a channel or a consumer, by what its client calls itself."""
    details = row.get("connection_details") or row.get("channel_details") or {}
    found = details.get("connection_name") or details.get("name")
    return client(found, details.get("user_provided_name")) if found else figures.UNKNOWN


@register.simple_tag
def client(connection_name: str, given: str | None) -> SafeString:
    """A connection: what its client calls itself with the address behind it, or the address."""
    address, peer = addresses.connection(connection_name), _peer(connection_name)
    if not given:
        return _link(address, peer)
    return format_html(
        '<a href="{}">{}</a> <span class="hint nowrap">{}</span>', address, name(given), peer
    )


def _peer(connection_name: str) -> str:
    """The client's end of a connection's name: `10.0.0.7:53211 -> 10.0.0.1:5672`."""
    return connection_name.partition(" -> ")[0]


def _vhost(row: Row, column: Column) -> SafeString:
    return _link(addresses.vhost(at(row, column.key)), name(at(row, column.key)))


def _user(row: Row, column: Column) -> SafeString:
    return _link(addresses.user(at(row, column.key)), name(at(row, column.key)))


def _trouble(row: Row, column: Column) -> SafeString:
    return trouble(row)


def _features(row: Row, column: Column) -> SafeString | str:
    """What is particular about a queue or an exchange, as chips."""
    chips = []
    if row.get("type") not in (None, "classic", "direct", "fanout", "topic", "headers"):
        chips.append((row["type"], "Type"))
    if not row.get("durable"):
        chips.append(("transient", "Gone after a restart"))
    if row.get("auto_delete"):
        chips.append(("auto-delete", "Goes when its last user goes"))
    if row.get("exclusive"):
        chips.append(("exclusive", "Belongs to one connection"))
    if row.get("internal"):
        chips.append(("internal", "Only exchanges publish to it"))
    arguments = row.get("arguments") or {}
    if arguments:
        text = ", ".join(f"{key} = {found}" for key, found in arguments.items())
        chips.append((f"{len(arguments)} argument{'s' if len(arguments) > 1 else ''}", text))
    for noun in ("policy", "operator_policy"):
        if row.get(noun):
            chips.append((f"{noun.replace('_', ' ')} {row[noun]}", _effective(row)))
    if not chips:
        return mark_safe('<span class="unknown">–</span>')
    return format_html_join(" ", '<span class="chip" title="{1}">{0}</span>', chips)


def _effective(row: Row) -> str:
    definition = row.get("effective_policy_definition") or {}
    return ", ".join(f"{key} = {found}" for key, found in definition.items())


def _tags(row: Row, column: Column) -> SafeString | str:
    tags = at(row, column.key) or []
    if not tags:
        return mark_safe('<span class="unknown">none</span>')
    return format_html_join(" ", '<span class="chip">{}</span>', ((name(tag),) for tag in tags))


def _yes_no(row: Row, column: Column) -> str | SafeString:
    return "yes" if at(row, column.key) else mark_safe('<span class="zero">no</span>')


def _moment(row: Row, column: Column) -> SafeString | str:
    return moment(at(row, column.key))


def _code(row: Row, column: Column) -> SafeString:
    return format_html('<code class="name" dir="auto">{}</code>', at(row, column.key) or "")


def _value(row: Row, column: Column) -> SafeString | str:
    return value(at(row, column.key))


def _arguments(row: Row, column: Column) -> SafeString | str:
    found = at(row, column.key)
    return value(found) if found else mark_safe('<span class="unknown">–</span>')


def _consumer_tag(row: Row, column: Column) -> SafeString:
    chip = mark_safe(' <span class="chip">exclusive</span>') if row.get("exclusive") else ""
    return format_html("{}{}", name(row["consumer_tag"]), chip)


def _acknowledges(row: Row, column: Column) -> str:
    return "by hand" if row["ack_required"] else "automatically"


def _routing_key(row: Row, column: Column) -> SafeString:
    return name(row["routing_key"])


def _binding_source(row: Row, column: Column) -> SafeString:
    if row["source"]:
        return _link(addresses.exchange(row["vhost"], row["source"]), name(row["source"]))
    hint = mark_safe(' <span class="hint">every queue is bound to it by its name</span>')
    return format_html("{}{}", exchange_name(""), hint)


def _binding_destination(row: Row, column: Column) -> SafeString:
    destination = row["destination"]
    if row["destination_type"] == "queue":
        return _link(addresses.queue(row["vhost"], destination), name(destination))
    link = _link(addresses.exchange(row["vhost"], destination), name(destination))
    return format_html('{} <span class="chip">exchange</span>', link)


def _mode(row: Row, column: Column) -> SafeString:
    """What a channel is besides plain: confirms, or transactions with what waits in them."""
    parts = [mark_safe('<span class="chip">confirms</span>')] if row["confirm"] else []
    if row["transactional"]:
        parts.append(mark_safe('<span class="chip">transactions</span>'))
        if row["messages_uncommitted"]:
            size = figures.size(row["message_bytes_uncommitted"])
            parts.append(format_html('<span class="hint">{} uncommitted</span>', size))
    if not parts:
        return mark_safe('<span class="unknown">plain</span>')
    return format_html_join(" ", "{}", ((part,) for part in parts))


def _policy(row: Row, column: Column) -> SafeString:
    if not row.get("may_edit"):
        return name(row["name"])
    address = addresses.policy(row["vhost"], row["name"], bool(row["operator"]))
    return _link(address, name(row["name"]))


def _pattern(row: Row, column: Column) -> SafeString:
    return _code(row, column) if at(row, column.key) else mark_safe("every name")


def _applies_to(row: Row, column: Column) -> str:
    return str(at(row, column.key)).replace("_", " ")


def _definition(row: Row, column: Column) -> SafeString:
    """What a policy sets, as chips."""
    definition = at(row, column.key) or {}
    chips = ((key, value(found)) for key, found in definition.items())
    return format_html_join(" ", '<span class="chip">{} <b>{}</b></span>', chips)


def _reach(row: Row, column: Column) -> SafeString:
    """How many queues and exchanges are under a policy."""
    parts = [
        (figures.count(row[noun]), noun if row[noun] != 1 else noun[:-1])
        for noun in ("queues", "exchanges")
        if row.get(noun)
    ]
    if not parts:
        return mark_safe('<span class="zero">nothing now</span>')
    return format_html_join(", ", '<span class="nowrap">{} {}</span>', parts)


@register.simple_tag
def trouble(row: Row) -> SafeString:
    """The state of a queue or a consumer as a word with its shape."""
    return _trouble_word(row.get("trouble") or "fine")


@lru_cache(maxsize=64)
def _trouble_word(word: str) -> SafeString:
    return format_html(
        '<span class="state {}" data-trouble title="{}">{}</span>',
        troubles.tone(word),
        troubles.MEANING.get(word, ""),
        word,
    )


_KINDS: dict[str, Callable[[Row, Column], SafeString | str]] = {
    "text": _text,
    "queue": _queue,
    "consumer-queue": _queue_of_consumer,
    "exchange": _exchange,
    "connection": _connection,
    "connection-state": _connection_state,
    "connection-of": _connection_of,
    "vhost": _vhost,
    "user": _user,
    "trouble": _trouble,
    "features": _features,
    "policy": _policy,
    "pattern": _pattern,
    "applies-to": _applies_to,
    "definition": _definition,
    "reach": _reach,
    "tags": _tags,
    "yes-no": _yes_no,
    "moment": _moment,
    "code": _code,
    "value": _value,
    "arguments": _arguments,
    "consumer-tag": _consumer_tag,
    "acknowledges": _acknowledges,
    "key": _routing_key,
    "binding-source": _binding_source,
    "binding-destination": _binding_destination,
    "mode": _mode,
}
_CLASSES = {"key": "mono line-break", "arguments": "mono", "cancel": "act", "unbind": "act"}
"""Classes of all cells of such a column."""
