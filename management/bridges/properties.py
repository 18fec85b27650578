"""What shovels and links of federation have in common where they change the properties of messages.

A message that cannot be published with what is to be added to it raises ValueError: it counts as
refused (`broker.client.flight`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from broker.client.aio import Connection
from broker.client.properties import ListedProperties, Malformed

USER_ID_BIT = 4
KNOWN_MOST = 256
KNOWN_BYTES_MOST = 4096
"""A longer list is not remembered: headers may have many megabytes, and few messages share them."""

Key = TypeVar("Key")
Changed = TypeVar("Changed")


class Known(dict[Key, Changed]):
    """New forms of property lists by what they were made from: many messages have the same."""

    def get_or(self, key: Key, listed: bytes, make: Callable[[], Changed]) -> Changed:
        """The form of this key. Raises what `make` raises."""
        if key in self:
            return self[key]
        made = make()
        if len(listed) <= KNOWN_BYTES_MOST:
            if len(self) >= KNOWN_MOST:
                self.clear()
            self[key] = made
        return made


def login_of(connection: Connection) -> str | None:
    """The user of a connection; None where only the server knows who that is."""
    endpoint = connection.endpoint
    return endpoint.user if endpoint.mechanism != "EXTERNAL" else None


def keep_own(properties: ListedProperties, user: str | None) -> None:
    """Removes the user-id, unless it is this user's: brokers close the channel for another one."""
    found = properties.take(USER_ID_BIT)
    if found is not None and found == user:
        properties.set_property("user_id", found)


def published_by(user: str | None, listed: bytes) -> bytes:
    """The properties of a message that this user is to publish otherwise as it is."""
    if not int.from_bytes(listed[:2], "big") >> USER_ID_BIT & 1:
        return listed
    try:
        properties = ListedProperties(listed)
    except Malformed:
        return listed
    keep_own(properties, user)
    return properties.encode()
