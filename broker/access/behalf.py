"""On whose behalf the process `bridges` connects to a broker.

It connects from this machine, and the users that may log in from this machine only ("loopback
only", such as guest) are not meant for people elsewhere who write shovels. So each of its
connections carries a client property that tells whose definition it serves, and a broker that finds
the property takes the connection for one from elsewhere, unless the writer could log in from this
machine themselves. The property takes rights away and never gives any.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from broker.schema.shovel_keys import ON_BEHALF_OF

if TYPE_CHECKING:
    from broker.access.accounts import Access

TOKEN = secrets.token_hex(16)
"""By which this process knows its own bridges."""

LOCAL = "local"
"""Written on this machine: by the command line, or by a user who can log in only from here."""
ADMINISTRATOR = "administrator"
"""Of the broker that has the definition, where nothing is kept from them."""
OTHER = "other"


def on_behalf_of(access: Access, owner: str | None) -> dict[str, str]:
    """The value of the client property for a definition of this owner ("" is the appliance itself,
    None is not known): `broker`, which one it is, and `standing`."""
    user = access.users.get(owner) if owner else None
    standing = OTHER
    if owner == "" or (user is not None and user.loopback_only):
        standing = LOCAL
    elif user is not None and user.has_tag("administrator"):
        standing = ADMINISTRATOR
    return {"broker": TOKEN, "standing": standing}


def counts_as_local(client_properties: dict[str, Any]) -> bool:
    """Whether a connection from this machine may log in as a user of this machine only."""
    if ON_BEHALF_OF not in client_properties:
        return True
    told = client_properties[ON_BEHALF_OF]
    if not isinstance(told, dict):
        return False
    standing = told.get("standing")
    return standing == LOCAL or (standing == ADMINISTRATOR and told.get("broker") == TOKEN)
