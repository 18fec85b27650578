"""Who may see what all users of a vhost publish: the stream that holds its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.access.records import Kind
from broker.schema.message_history import HISTORY

if TYPE_CHECKING:
    from broker.access.accounts import Access

TAGS = frozenset({"administrator", "policymaker"})
"""With one of these a pattern for all names gives the history of a vhost, too."""


def refusal(
    access: Access, user: str, vhost: str, kind: Kind, resource_kind: str, name: str
) -> str:
    """Why a user may not do this to a queue that is the history, even if a pattern leads there;
    empty: it may. A pattern for all names does not mean everything that others publish."""
    if resource_kind != "queue" or name != HISTORY:
        return ""
    if kind == "write":
        return ": it is written by the broker alone"
    permission, account = access.permissions.get((user, vhost)), access.users.get(user)
    pattern = "" if permission is None else str(getattr(permission, kind)).replace("\\", "")
    if HISTORY in pattern or (account is not None and not TAGS.isdisjoint(account.tags)):
        return ""
    return ": it takes the tag administrator or policymaker, or a pattern that names it"
