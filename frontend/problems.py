"""Problems as the pages show them: each line leads to what it is about.

`static/js/components/problems.js` writes the same from pushes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from frontend import addresses

NODE = "/node"


def shown(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The broker's rows with the address of each (`href`) and its words (`label`)."""
    return [{**row, "href": address(row), "label": row.get("user_provided_name")} for row in rows]


def address(row: Mapping[str, Any]) -> str:
    """Where to look at a problem; empty for one of the node."""
    kind = row["kind"]
    if kind == "queue":
        return addresses.queue(row["vhost"], row["name"], "consumers" if "consumer" in row else "")
    if kind == "connection":
        return addresses.connection(row["name"])
    if kind == "node":
        return ""
    query = {"vhost": row["vhost"], "state": row["trouble"]}
    if kind == "channels":
        query = {"vhost": row["vhost"], "sort": "-messages_unconfirmed"}
    return f"/{kind}?{urlencode(query)}"
