"""What one can do with a row of a table inside a page: a consumer, a binding, a channel.

A table has one form, in which the button of a row says which row it is (`asking.row_of` reads it):
a form for each of a hundred bindings, with its fields, makes the page half as large again. Only the
prefetch of a channel, which is typed, has a form in each row.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any
from urllib.parse import urlencode

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from frontend import figures

Row = dict[str, Any]
NOTHING = SafeString("")
CANCEL = "The client gets basic.cancel; unacknowledged messages stay with the channel"


def writers(context: Any) -> dict[str, Callable[[Row, Any], SafeString]]:
    """The cells with a button or a form, by kind of column."""
    user = context.get("user")
    opening = format_html(
        'method="post" action="{}"><input type="hidden" name="csrfmiddlewaretoken" value="{}">',
        context["table"].here,
        context.get("csrf_token", ""),
    )

    def cancel(row: Row, column: Any) -> SafeString:
        details = row["channel_details"]
        if not (user.is_administrator or details["user"] == user.name):
            return NOTHING
        fields = {
            "connection": details["connection_name"],
            "channel": details["number"],
            "consumer_tag": row["consumer_tag"],
        }
        return _button("Cancel", fields, f' title="{CANCEL}"')

    def unbind(row: Row, column: Any) -> SafeString:
        if not row["source"]:
            return NOTHING
        names = ("source", "destination", "destination_type", "properties_key")
        return _button("Unbind", {name: row[name] for name in names})

    def prefetch(row: Row, column: Any) -> SafeString:
        if not (user.is_administrator or row["user"] == user.name):
            return SafeString(figures.count(row["prefetch_count"]))
        return format_html(
            '<form class="inline-form" {}{}<input class="input short" type="number"'
            ' name="prefetch" min="0" max="65535" value="{}"'
            ' aria-label="Prefetch of channel {}"> <button class="button plain">Set</button>'
            "</form>",
            opening,
            _hidden({"channel": row["name"]}),
            row["prefetch_count"],
            row["number"],
        )

    return {"cancel": cancel, "unbind": unbind, "prefetch": prefetch}


def _button(label: str, fields: dict[str, Any], more: str = "") -> SafeString:
    """A button that sends the fields of its row."""
    return SafeString(
        f'<button class="button plain small" name="row" value="{escape(urlencode(fields))}"{more}>'
        f"{label}</button>"
    )


def _hidden(fields: dict[str, Any]) -> SafeString:
    if not fields:
        return NOTHING
    return format_html_join("", '<input type="hidden" name="{}" value="{}">', fields.items())
