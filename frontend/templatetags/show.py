"""Template filters and tags: figures, names, live values, links to objects."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from broker.schema.control_schema import NOUNS
from frontend import addresses, figures
from frontend.arguments import amount, meaning
from management.reports.tariff import amount as amount_of

register = template.Library()

FORMATS = {
    "count": figures.count,
    "rate": figures.rate,
    "net": figures.net,
    "size": figures.size,
    "duration": figures.duration,
    "channels": figures.channels,
    "consumers": figures.consumers,
    "text": lambda value: figures.UNKNOWN if value is None else str(value),
}

for _name in ("count", "rate", "net", "size", "duration"):
    register.filter(_name, FORMATS[_name])

register.filter("money", figures.money)
register.filter("month", figures.month)
register.filter("amount", amount_of)
register.filter("meaning", meaning)

register.simple_tag(addresses.queue, name="queue_url")
register.simple_tag(addresses.exchange, name="exchange_url")
register.simple_tag(addresses.connection, name="connection_url")
register.simple_tag(addresses.vhost, name="vhost_url")
register.simple_tag(addresses.user, name="user_url")
register.simple_tag(addresses.policy, name="policy_url")


@register.filter
def name(value: Any) -> SafeString:
    """A name of a user's choosing: isolated from its surroundings, unseen characters escaped."""
    text = "" if value is None else str(value)
    if not text:
        return mark_safe('<bdi class="name name-empty">(empty)</bdi>')
    if text.isprintable():
        return SafeString(f'<bdi class="name" dir="auto">{escape(text)}</bdi>')
    parts = format_html_join(
        "",
        "{}",
        (
            (format_html('<span class="escape">{}</span>', part) if is_escape else part,)
            for part, is_escape in figures.name_parts(text)
        ),
    )
    return format_html('<bdi class="name" dir="auto">{}</bdi>', parts)


@register.filter
def plain(value: Any) -> str:
    """A name where only text can be, as in a title: unseen characters as escapes."""
    return "".join(part for part, _ in figures.name_parts(str(value)))


@register.filter
def exchange_name(value: Any) -> SafeString:
    """An exchange's name; the default exchange has none and is called by what it is."""
    return name(value) if value else mark_safe('<span class="name-empty">(default)</span>')


@register.simple_tag
def live(path: str, row: Any, kind: str = "count") -> SafeString:
    """A value that the page's script keeps up to date; `path` is its dotted key in `row`."""
    found = at(row, path)
    text = FORMATS[kind](found)
    return format_html(
        '<span class="live-value{}" data-live="{}" data-format="{}">{}</span>',
        tone(found, text),
        path,
        kind,
        text,
    )


def tone(value: Any, text: str) -> str:
    """The class, after a space, of a value that is unknown or that is written as nothing."""
    return " unknown" if value is None else " zero" if text in ("0", "0 B") else ""


@register.filter
def at(row: Any, path: str) -> Any:
    """The value at a dotted key of nested maps, or None."""
    for key in path.split("."):
        if not isinstance(row, dict):
            return None
        row = row.get(key)
    return row


@register.filter
def state_url(table: Any, word: str) -> str:
    """The address of a table filtered by a state."""
    return table.url(state=word, page="")


@register.filter
def row_key(row: dict[str, Any], noun: str) -> str:
    """The key of a row as JSON, for the form that acts on picked rows."""
    return as_json([at(row, key) for key in NOUNS[noun].key])


@register.filter
def moment(milliseconds: float | None) -> SafeString | str:
    """A `<time>` in UTC that the script turns into the viewer's zone."""
    if not milliseconds:
        return figures.UNKNOWN
    try:
        stamp = figures.moment(milliseconds)
    except (ValueError, OverflowError, OSError):
        # No calendar goes so far.
        return f"{milliseconds:.0f} ms"
    readable = stamp.replace("T", " ").replace("Z", " UTC")
    return format_html('<time class="nowrap" datetime="{}">{}</time>', stamp, readable)


@register.filter
def seconds_moment(seconds: Any) -> SafeString | str:
    """A timestamp property, which is in seconds; a number no calendar holds stays a number."""
    try:
        figures.moment(int(seconds) * 1000)
    except (TypeError, ValueError, OverflowError, OSError):
        return value(seconds)
    return moment(int(seconds) * 1000)


@register.filter
def as_json(value: Any) -> str:
    """Compact JSON for an attribute; the template's own escaping makes it safe there."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


@register.filter
def ticked(text: str) -> SafeString:
    """Text whose parts in backticks are code."""
    parts = str(text).split("`")
    forms = ("{}", "<code>{}</code>")
    return format_html_join(
        "", "{}", ((format_html(forms[n % 2], p),) for n, p in enumerate(parts))
    )


@register.filter
def literal(text: str) -> str:
    """A string literal that Python, JavaScript and Java all read, for snippets."""
    return json.dumps(text)


@register.filter
def value(value: Any) -> SafeString | str:
    """A value of an arguments or headers table as a person reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return name(value.decode("utf-8", "backslashreplace"))
    if isinstance(value, (dict, list)):
        return name(as_json(value))
    return name(value) if value != "" else name("")


@register.filter
def of_argument(given: Any, argument: str) -> SafeString | str:
    """The value of an argument; a number with its unit."""
    if isinstance(given, int) and not isinstance(given, bool):
        return amount(argument, given)
    return value(given)


@register.simple_tag
def spark(
    values: list[float | None] | None, series: int, label: str, live_name: str = ""
) -> SafeString:
    """A sparkline of `values`; the script (`components/sparks.js`) moves it, and writes its title
    in the same way, when `live_name` names a series."""
    line, area = figures.spark_path(values or [])
    known = [value for value in values or [] if value is not None]
    title = (
        f"{label}: from {figures.rate(min(known))} to {figures.rate(max(known))}"
        f", now {figures.rate(known[-1])}"
        if known
        else f"{label}: no data yet"
    )
    return format_html(
        '<svg class="spark s{}" viewBox="0 0 120 26" preserveAspectRatio="none"'
        ' data-spark="{}" data-label="{}" role="img">'
        '<title>{}</title><path class="area" d="{}"/><path class="line" d="{}"/></svg>',
        series,
        live_name,
        label,
        title,
        area,
        line,
    )


@register.simple_tag
def meter(part: float | None, whole: float | None, tone: str = "") -> SafeString:
    """A bar that is filled to part / whole."""
    share = 0.0 if not part or not whole else max(0.0, min(1.0, part / whole))
    return format_html(
        '<svg class="meter {}" role="img" viewBox="0 0 100 6" preserveAspectRatio="none">'
        "<title>{} %</title>"
        '<rect width="{}" height="6"/></svg>',
        tone,
        round(share * 100),
        f"{share * 100:.1f}",
    )
