"""Forms in the rows of tables inside pages: what one can do with a consumer, binding, channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from frontend import figures

Row = dict[str, Any]
NOTHING = SafeString("")


def writers(context: Any) -> dict[str, Callable[[Row, Any], SafeString]]:
    """The cells with a form, by kind of column; each form goes to the address of its table."""
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
        return format_html(
            '<form {}{}<button class="button plain small" name="action" value="cancel"'
            ' title="The client gets basic.cancel; unacknowledged messages stay with the channel">'
            "Cancel</button>"
            "</form>",
            opening,
            _hidden(fields),
        )

    def unbind(row: Row, column: Any) -> SafeString:
        if not row["source"]:
            return NOTHING
        names = ("source", "destination", "destination_type", "properties_key")
        return format_html(
            '<form {}{}<button class="button plain small" name="action" value="unbind">Unbind'
            "</button></form>",
            opening,
            _hidden({name: row[name] for name in names}),
        )

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


def _hidden(fields: dict[str, Any]) -> SafeString:
    if not fields:
        return NOTHING
    return format_html_join("", '<input type="hidden" name="{}" value="{}">', fields.items())
