"""The HTTP API's description, as a page: every path by subject, with a command to try."""

from __future__ import annotations

from functools import cache
from itertools import groupby
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from api.service import api
from management.hosts import host_of

UNTAGGED = "other"
OF_EVERY_LIST = {
    "page",
    "page_size",
    "name",
    "use_regex",
    "sort",
    "sort_reverse",
    "columns",
    "disable_stats",
    "enable_queue_totals",
}


async def api_docs(request: HttpRequest) -> HttpResponseBase:
    """The operations of `/api/openapi.json`, grouped by tag."""
    description, groups = _described()
    facts = {
        "section": "api-docs",
        "description": description,
        "groups": groups,
        "web_host": host_of(request),
        "scheme": request.scheme,
    }
    return render(request, "api-docs.html", facts)


@cache
def _described() -> tuple[str, list[tuple[str, list[dict[str, Any]]]]]:
    """The description and the operations, which are the same until the process ends; the schema
    takes a tenth of a second to build."""
    schema = api.get_openapi_schema()
    return schema["info"].get("description", ""), _groups(schema)


def _groups(schema: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Operations by tag, each with method, path, summary, description and parameters."""
    operations = [
        {
            "tag": (operation.get("tags") or [UNTAGGED])[0],
            "method": method.upper(),
            "path": path,
            "summary": operation.get("summary", ""),
            "description": operation.get("description", ""),
            "parameters": [
                one["name"]
                for one in operation.get("parameters", [])
                if one.get("in") == "query" and not _is_common(one["name"])
            ],
        }
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]
    operations.sort(key=lambda one: (one["tag"] == UNTAGGED, one["tag"]))
    return [(tag, list(found)) for tag, found in groupby(operations, key=lambda one: one["tag"])]


def _is_common(name: str) -> bool:
    """Whether the page says once for all what a parameter does."""
    return name in OF_EVERY_LIST or name.endswith(("_age", "_incr"))
