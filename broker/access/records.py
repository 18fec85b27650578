"""The records of users, permissions and parameters, as they are kept and as files hold them.

Shapes and keys are those of RabbitMQ's definitions files.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from broker.access.passwords import SHA256

USERS_FILE = "users.json"
PARAMETERS_FILE = "parameters.json"
ENDED_SESSIONS_FILE = "ended_sessions.json"

USER_LIMITS = ("max-connections", "max-channels")
VHOST_LIMITS = ("max-connections", "max-queues")

Kind = Literal["configure", "write", "read"]


class BadSetting(ValueError):
    """A change that cannot be made; the text says what is wrong with what."""


class User(msgspec.Struct, omit_defaults=True):
    """A user. `epoch` is new whenever password or tags change and never comes again, so sessions
    and remembered logins of before are over. `loopback_only`: logs in from this machine only."""

    name: str
    password_hash: str
    hashing_algorithm: str = SHA256
    tags: list[str] = []
    limits: dict[str, int] = {}
    epoch: int = 0
    loopback_only: bool = False

    def has_tag(self, *tags: str) -> bool:
        return any(tag in self.tags for tag in tags)


class Permission(msgspec.Struct, frozen=True):
    """The patterns of names that a user may configure, write and read in a vhost."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermission(msgspec.Struct, frozen=True):
    """The patterns of routing keys that a user may write and read on a topic exchange."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class Parameter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A setting of a component for one vhost; limits of a vhost are one. Of a shovel, `owner` is
    the user who last wrote it, in whose name it runs ("" is the appliance itself, None was written
    before owners were kept), and `paused` holds over restarts. `sealed` holds the secrets of the
    value in the file (`broker.access.sealing`); in memory only those that no key opens."""

    component: str
    vhost: str
    name: str
    value: Any
    owner: str | None = None
    paused: bool = False
    sealed: str = ""


class GlobalParameter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A setting of the whole node, of any JSON value; `sealed` as of a `Parameter`."""

    name: str
    value: Any
    sealed: str = ""


class UsersFile(msgspec.Struct):
    """Content of users.json. `next_epoch` is above every epoch that was ever given."""

    users: list[User]
    permissions: list[Permission] = []
    topic_permissions: list[TopicPermission] = []
    next_epoch: int = 1


class ParametersFile(msgspec.Struct):
    """Content of parameters.json."""

    parameters: list[Parameter] = []
    global_parameters: list[GlobalParameter] = []


def limit_of(limits: dict[str, int], name: str) -> int | None:
    """A limit; None if there is none or it is negative."""
    value = limits.get(name)
    return value if value is not None and value >= 0 else None


def set_limit(limits: dict[str, int], name: str, value: int | None) -> None:
    """Sets a limit; None or a negative value is no limit."""
    if value is None or value < 0:
        limits.pop(name, None)
    else:
        limits[name] = value
