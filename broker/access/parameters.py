"""Parameters of components and of the whole node, as `parameters.json` keeps them.

Limits of a vhost are RabbitMQ's component `vhost-limits`. Shovels and the links of federation run
in the process `bridges` (`broker.features.shovel`, `broker.features.federation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from broker.access.reading import check_limit
from broker.access.records import (
    PARAMETERS_FILE,
    VHOST_LIMITS,
    BadSetting,
    GlobalParameter,
    Parameter,
    ParametersFile,
    limit_of,
    set_limit,
)
from broker.access.sealing import SECRETS_KEY, SecretsKey, Unreadable, has_secrets
from broker.schema import shovel_keys, upstream_keys
from broker.schema.policy_keys import term
from broker.schema.upstream_keys import UPSTREAM, UPSTREAM_SET
from broker.settings.bounds import DEFAULTS
from broker.settings.files import SettingsError, SettingsFiles

Row = TypeVar("Row", Parameter, GlobalParameter)

LIMITS = "vhost-limits"
SHOVEL = "shovel"

_MANDATORY: dict[str, tuple[str, ...]] = {
    SHOVEL: ("src-uri", "dest-uri"),
    UPSTREAM: ("uri",),
    UPSTREAM_SET: (),
}
_FAULTS: dict[str, Callable[[str, Any], str | None]] = {
    SHOVEL: shovel_keys.fault,
    UPSTREAM: upstream_keys.fault,
    UPSTREAM_SET: upstream_keys.set_fault,
}
STORED = tuple(_MANDATORY)
"""Components whose parameters are stored."""


class Parameters:
    """All parameters. `changed()` is called after each change."""

    def __init__(self, files: SettingsFiles, changed: Callable[[], None]) -> None:
        self.vhost_limits: dict[str, dict[str, int]] = {}
        self.node: dict[str, Any] = {}
        """Global parameters by name."""
        self._stored: dict[tuple[str, str, str], Parameter] = {}
        self.most = DEFAULTS.parameters
        """Stored ones of a vhost, and global ones."""
        self.watchers: list[Callable[[], None]] = []
        """Called after each change, too."""
        self.key = SecretsKey(files.path(SECRETS_KEY), files.disk)
        """Of the secrets at rest; the server may name another file."""
        self.unreadable: list[str] = []
        """What has secrets that the key does not open, each with the reason."""
        self._sealed: dict[str, tuple[Any, Any, str]] = {}
        """What was sealed last of each: the value, and how it was written. A value that did not
        change is not sealed again."""
        self._sealed_globals: dict[str, str] = {}
        """Global parameters that the key does not open."""
        self._files = files
        self._changed = changed

    def load(self) -> None:
        """Reads the file. Raises SettingsError, one line, if it cannot be used."""
        self.key.load()
        content = self._files.load(PARAMETERS_FILE, ParametersFile) or ParametersFile()
        where = self._files.path(PARAMETERS_FILE)
        self.vhost_limits, self._stored = {}, {}
        self._has_old = False
        for row in content.parameters:
            if row.component == LIMITS:
                try:
                    limits = msgspec.convert(row.value, dict[str, int])
                    for name in limits:
                        check_limit(name, VHOST_LIMITS)
                except (msgspec.ValidationError, BadSetting) as error:
                    raise SettingsError(
                        f"{where}: limits of vhost '{row.vhost}': {error}"
                    ) from error
                self.vhost_limits[row.vhost] = limits
                continue
            try:
                check_shape(row)
            except BadSetting as error:
                raise SettingsError(f"{where}: {row.component} '{row.name}': {error}") from error
            self._stored[row.component, row.vhost, row.name] = self._unsealed(_named(row), row)
        rows = [self._unsealed(row.name, row) for row in content.global_parameters]
        self.node = {row.name: row.value for row in rows}
        self._sealed_globals = {row.name: row.sealed for row in rows if row.sealed}
        if self._has_old:
            self._save()

    def _unsealed(self, what: str, row: Row) -> Row:
        """A row of the file with its secrets; with stars and as it is where no key opens them."""
        if not row.sealed:
            # Of a version that did not seal, or written by hand.
            self._has_old |= has_secrets(row.value)
            return row
        try:
            value = self.key.unseal(what, row.value, row.sealed)
        except Unreadable as error:
            self.unreadable.append(f"{what.replace(chr(0), ' ')}: {error}")
            return row
        self._has_old |= not self.key.is_current(row.sealed)
        return msgspec.structs.replace(row, value=value, sealed="")

    # Questions.

    def all(self) -> Iterator[Parameter]:
        """Every parameter of a component; the limits of a vhost are one, named `limits`."""
        for vhost, limits in self.vhost_limits.items():
            yield Parameter(LIMITS, vhost, "limits", dict(limits))
        yield from self._stored.values()

    def get(self, component: str, vhost: str, name: str) -> Parameter | None:
        if component == LIMITS:
            limits = self.vhost_limits.get(vhost) if name == "limits" else None
            return Parameter(LIMITS, vhost, name, dict(limits)) if limits is not None else None
        return self._stored.get((component, vhost, name))

    def vhost_limit(self, vhost: str, name: str) -> int | None:
        """max-connections or max-queues of a vhost; None if unlimited."""
        return limit_of(self.vhost_limits.get(vhost, {}), name)

    def count(self, vhost: str) -> int:
        """How many a vhost has, its limits not counted."""
        return sum(key[1] == vhost for key in self._stored)

    # Changes.

    def _check_room(self, there: int, who: str) -> None:
        if there >= self.most:
            raise BadSetting(f"{who} {there} parameters, and no more are allowed (parameters_max)")

    def put(self, parameter: Parameter) -> bool:
        """Stores a parameter of a component other than the limits; True if it is new. Raises
        BadSetting."""
        check_parameter(parameter)
        key = parameter.component, parameter.vhost, parameter.name
        created = key not in self._stored
        if created:
            self._check_room(self.count(parameter.vhost), f"vhost '{parameter.vhost}' has")
        self._stored[key] = parameter
        self._save()
        return created

    def delete(self, component: str, vhost: str, name: str) -> None:
        """Removes a stored parameter. Raises KeyError if there is none."""
        del self._stored[component, vhost, name]
        self._save()

    def put_vhost_limit(self, vhost: str, name: str, value: int | None) -> None:
        """Sets max-connections or max-queues of a vhost; None or a negative value is no limit."""
        check_limit(name, VHOST_LIMITS)
        limits = self.vhost_limits.setdefault(vhost, {})
        set_limit(limits, name, value)
        if not limits:
            del self.vhost_limits[vhost]
        self._save()

    def put_global(self, name: str, value: Any) -> bool:
        """Sets a global parameter; True if it is new. Raises BadSetting."""
        created = name not in self.node
        if created:
            self._check_room(len(self.node), "there are")
        if self.node.get(name) != value:
            self._sealed_globals.pop(name, None)
        self.node[name] = value
        self._save()
        return created

    def delete_global(self, name: str) -> None:
        """Removes a global parameter. Raises KeyError if there is none."""
        del self.node[name]
        self._sealed_globals.pop(name, None)
        self._save()

    def pause(self, vhost: str, name: str, paused: bool) -> None:
        """Pauses or resumes a shovel. Raises KeyError if there is none."""
        key = SHOVEL, vhost, name
        self._stored[key] = msgspec.structs.replace(self._stored[key], paused=paused)
        self._save()

    def shovels(self) -> list[Parameter]:
        """Every stored shovel."""
        return [row for row in self._stored.values() if row.component == SHOVEL]

    def forget_vhost(self, vhost: str) -> None:
        """Removes every parameter of a vhost that is deleted."""
        keys = [key for key in self._stored if key[1] == vhost]
        for key in keys:
            del self._stored[key]
        if self.vhost_limits.pop(vhost, None) is not None or keys:
            self._save()

    def _save(self) -> None:
        content = ParametersFile(
            parameters=[self._kept(_named(row), row) for row in self.all()],
            global_parameters=[
                self._kept(name, GlobalParameter(name, value, self._sealed_globals.get(name, "")))
                for name, value in self.node.items()
            ],
        )
        self._files.put(PARAMETERS_FILE, content)
        self._changed()
        for watcher in self.watchers:
            watcher()

    def _kept(self, what: str, row: Row) -> Row:
        """A row as the file holds it."""
        if row.sealed or not has_secrets(row.value):
            self._sealed.pop(what, None)
            return row
        known = self._sealed.get(what)
        if known is None or known[0] is not row.value:
            known = self._sealed[what] = row.value, *self.key.seal(what, row.value)
        return msgspec.structs.replace(row, value=known[1], sealed=known[2])


def _named(row: Parameter) -> str:
    """By which sealed secrets are bound to a parameter."""
    return f"{row.component}\0{row.vhost}\0{row.name}"


def check_parameter(parameter: Parameter) -> None:
    """Checks a parameter that is to be stored. Raises BadSetting with RabbitMQ's text."""
    check_shape(parameter)
    find = _FAULTS.get(parameter.component)
    fault = find(parameter.name, parameter.value) if find is not None else None
    if fault is not None:
        raise BadSetting(fault)


def check_shape(parameter: Parameter) -> None:
    """Checks what every version of RabbitMQ demands of a shovel, an upstream and an upstream set;
    other components may have any value. Raises BadSetting with RabbitMQ's text."""
    component, name, value = parameter.component, parameter.name, parameter.value
    if not component or not name:
        raise BadSetting("a parameter needs a component and a name")
    if component == UPSTREAM_SET:
        rows = value if isinstance(value, list) else [None]
        if not all(isinstance(row, dict) and isinstance(row.get("upstream"), str) for row in rows):
            raise BadSetting(f"{name} should be a list of objects that name an upstream")
        return
    mandatory = _MANDATORY.get(component)
    if mandatory is None:
        return
    if not isinstance(value, dict):
        raise BadSetting(f"{name} should be an object")
    for key in mandatory:
        if key not in value:
            raise BadSetting(f'Key "{key}" not found in {name}')
        uris = value[key] if isinstance(value[key], list) else [value[key]]
        if not uris or not all(isinstance(uri, str) and uri for uri in uris):
            raise BadSetting(f"{key} of {name} should be a URI or a list of URIs")


def limits_fault(value: Any) -> str | None:
    """What is wrong with the limits of a vhost, in RabbitMQ's words; None if nothing is."""
    if not isinstance(value, dict):
        return f"limits should be a dictionary, actually was {term(value)}"
    for name, limit in value.items():
        if name not in VHOST_LIMITS:
            return f"Unrecognised terms [{{{term(name)},{term(limit)}}}] in limits"
        if isinstance(limit, bool) or not isinstance(limit, int):
            return f"{name} should be a number, actually was {term(limit)}"
    return None
