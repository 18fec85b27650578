"""Whose rows of a report a user may see, asked of the broker by the web process."""

from __future__ import annotations

from management.appliance import broker
from management.broker_client import BrokerError
from management.request_user import User

PAGE_SIZE = 500


async def visible_vhosts(user: User) -> frozenset[str] | None:
    """The virtual hosts a user has permissions in; None for all. Raises BrokerError."""
    if not user.is_management:
        raise BrokerError(401, "not_authorised", "Not management user")
    if user.is_monitoring:
        return None
    names: set[str] = set()
    page, page_count = 1, 1
    while page <= page_count:
        answer = await broker().call(
            "list",
            as_user=user.name,
            noun="vhosts",
            columns=["name"],
            sort="name",
            page=page,
            page_size=PAGE_SIZE,
        )
        names.update(row["name"] for row in answer["items"])
        page, page_count = page + 1, answer["page_count"]
    return frozenset(names)


def require_administrator(user: User) -> None:
    """Raises BrokerError 401 unless the user may say what things cost and when reports run."""
    if not user.is_administrator:
        raise BrokerError(401, "not_authorised", "Not administrator user")


def require_monitoring(user: User) -> None:
    """Raises BrokerError 401 unless the user may run and cancel reports."""
    if not user.is_monitoring:
        raise BrokerError(401, "not_authorised", "Not monitor user")
