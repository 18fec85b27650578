"""The list of policies and of operator policies."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend.asking import is_fragment, names_of
from frontend.tables import Column, Table, fragment, load

COLUMNS = (
    Column("name", "Policy", "policy", phone=True),
    Column("vhost", "Virtual host", "vhost"),
    Column("pattern", "Names with", "pattern", phone=True, help="RE2 pattern, found anywhere"),
    Column("apply-to", "Applies to", "applies-to"),
    Column("definition", "Sets", "definition", sort=None, phone=True),
    Column("priority", "Priority", "count", help="Of those that match, the highest holds"),
    Column("queues", "Reaches", "reach", sort=None, phone=True, help="How much is under it now"),
)
ALSO = ("exchanges",)


async def policies(request: HttpRequest) -> HttpResponseBase:
    """GET: both lists; the filter is for the first."""
    may_edit = request.user.is_policymaker
    table = await load(request, "policies", COLUMNS, default_sort="name", also=ALSO)
    facts: dict[str, Any] = {"section": "policies", "table": _linked(table, "", may_edit)}
    if is_fragment(request):
        return fragment(request, facts)
    operator_table = await load(
        request, "operator-policies", COLUMNS, default_sort="name", also=ALSO
    )
    facts |= {
        "operator_table": _linked(
            operator_table,
            "1",
            request.user.is_administrator,
        ),
        "vhosts": await names_of(request, "vhosts"),
    }
    return render(request, "policies.html", facts)


def _linked(table: Table, operator: str, may_edit: bool) -> Table:
    """The table with what its cells need to lead to the page of each policy."""
    for row in table.rows:
        row |= {"operator": operator, "may_edit": may_edit}
    return table
