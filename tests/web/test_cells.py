"""Rows of the data tables, which are put together outside the templates: text in them is text."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.tables import Column, Table
from frontend.templatetags import cells
from management.request_user import User

HOSTILE = '<img src=x onerror="alert(1)">'
CHANNEL = {"user": HOSTILE, "connection_name": HOSTILE, "number": 1}
BINDING = {
    "source": HOSTILE,
    "destination": HOSTILE,
    "destination_type": "queue",
    "properties_key": HOSTILE,
}


def rows_of(column: Column, row: dict[str, Any]) -> str:
    table = Table("queues", (Column("name", "Queue", "queue"), column), {}, "name", "/queues", True)
    table.rows = [{"vhost": "/", "name": HOSTILE, **row}]
    user = User("guest", ("administrator",))
    return cells.table_rows({"table": table, "vhosts": ["/"], "user": user})


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        *((kind, {"key": HOSTILE}) for kind in ("text", "vhost", "user")),
        *((kind, {"key": HOSTILE}) for kind in ("code", "value", "pattern")),
        ("value", {"key": {HOSTILE: [HOSTILE]}}),
        ("tags", {"key": [HOSTILE]}),
        ("definition", {"key": {HOSTILE: HOSTILE}}),
        ("trouble", {"trouble": HOSTILE}),
        ("connection-state", {"state": HOSTILE}),
        ("connection", {"user_provided_name": HOSTILE}),
        ("consumer-tag", {"consumer_tag": HOSTILE}),
        ("arguments", {"key": {HOSTILE: HOSTILE}}),
        ("key", {"routing_key": HOSTILE}),
        ("binding-source", {"source": HOSTILE}),
        ("binding-destination", {"destination": HOSTILE, "destination_type": "queue"}),
        ("binding-destination", {"destination": HOSTILE, "destination_type": "exchange"}),
        ("unbind", BINDING),
        ("cancel", {"consumer_tag": HOSTILE, "channel_details": CHANNEL}),
        ("prefetch", {"name": HOSTILE, "user": HOSTILE, "number": 1, "prefetch_count": 2}),
        ("features", {"type": HOSTILE, "arguments": {HOSTILE: HOSTILE}, "policy": HOSTILE}),
    ],
)
def test_every_kind_of_cell_shows_hostile_text_as_text(kind: str, row: dict[str, Any]) -> None:
    written = rows_of(Column("key", "Heading", kind), row)
    assert "<img" not in written
    assert "&lt;img" in written


def test_a_hostile_heading_stays_in_its_attribute() -> None:
    column = Column("messages", HOSTILE, "count", phone=True)
    assert "<img" not in rows_of(column, {"messages": 1})
