"""Where objects are: addresses of the pages of queues, exchanges, connections, vhosts, users.

A browser folds the path segments `.` and `..` away even when they are percent-encoded, so
objects of these names are addressed by query instead.
"""

from __future__ import annotations

from urllib.parse import urlencode

from management.paths import link

_FOLDED = {".", ".."}


def queue(vhost: str, name: str, tab: str = "") -> str:
    """The page of a queue, or one of its tabs."""
    return _address("queue", {"vhost": vhost, "name": name}, tab)


def exchange(vhost: str, name: str) -> str:
    """The page of an exchange; the default exchange is `amq.default`."""
    return _address("exchange", {"vhost": vhost, "name": name or "amq.default"})


def connection(name: str) -> str:
    """The page of a connection."""
    return _address("connection", {"name": name})


def connections_of(user: str) -> str:
    """The list of the connections of a user."""
    return f"{link('connections')}?{urlencode({'user': user})}"


def vhost(name: str) -> str:
    """The page of a vhost."""
    return _address("vhost", {"name": name})


def user(name: str) -> str:
    """The page of a user."""
    return _address("user", {"name": name})


def policy(vhost: str, name: str, operator: bool = False) -> str:
    """The page of a policy or operator policy."""
    names = {"vhost": vhost, "name": name, **({"operator": "1"} if operator else {})}
    return f"{link('policy')}?{urlencode(names)}"


def upstream(vhost: str, name: str = "", *, is_set: bool = False) -> str:
    """The page of an upstream or a set; without a name the form of a new one."""
    names = {"set": "1"} if is_set else {}
    if name:
        names |= {"vhost": vhost, "name": name}
    return f"{link('upstream')}?{urlencode(names)}" if names else link("upstream")


def federation_link(vhost: str, id: str) -> str:
    """The page of a link of federation."""
    return f"{link('federation-link')}?{urlencode({'vhost': vhost, 'id': id})}"


def shovel(vhost: str, name: str = "") -> str:
    """The page of a shovel; without a name the form of a new one."""
    query = f"?{urlencode({'vhost': vhost, 'name': name})}" if name else ""
    return f"{link('shovel')}{query}"


def life(vhost: str, offset: int) -> str:
    """The life of a message, by the offset of its record in the history."""
    return f"{link('life')}?{urlencode({'vhost': vhost, 'offset': offset})}"


def _address(view: str, names: dict[str, str], tab: str = "") -> str:
    if _FOLDED.isdisjoint(names.values()) and all(names.values()):
        return link(f"{view}-{tab}" if tab else view, *names.values())
    return f"{link(f'{view}-by-query')}?{urlencode({**names, **({'tab': tab} if tab else {})})}"
