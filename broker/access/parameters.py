"""Parameters of components and of the whole node, as `parameters.json` keeps them.

Limits of a vhost are RabbitMQ's component `vhost-limits`. Shovels and the links of federation run
in the process `bridges` (`broker.features.shovel`, `broker.features.federation`).
"""

from __future__ import annotations

from collections import Counter
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
Key = tuple[str, str, str]
"""Component, vhost and name; a global parameter has neither component nor vhost."""
Watcher = Callable[[Key | None], None]
"""Gets the key of what changed, or None for several at once."""

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
        self._stored: dict[Key, Parameter] = {}
        self.most = DEFAULTS.parameters
        """Stored ones of a vhost, and global ones."""
        self.watchers: list[Watcher] = []
        """Called after each change, too."""
        self.key = SecretsKey(files.path(SECRETS_KEY), files.disk)
        """Of the secrets at rest; the server may name another file."""
        self.unreadable: list[str] = []
        """What has secrets that the key does not open, each with the reason."""
        self._rows: dict[Key, Parameter] = {}
        """Each stored one as the file holds it, made when it changes: to make all of them at each
        change takes 100 us each."""
        self._global_rows: dict[str, GlobalParameter] = {}
        self._counts: Counter[str] = Counter()
        """Of the stored ones, by vhost."""
        self._files = files
        self._changed = changed

    def load(self) -> None:
        """Reads the file. Raises SettingsError, one line, if it cannot be used."""
        self.key.load()
        content = self._files.load(PARAMETERS_FILE, ParametersFile) or ParametersFile()
        where = self._files.path(PARAMETERS_FILE)
        self.vhost_limits, self._stored, self._rows = {}, {}, {}
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
            key = _key(row)
            self._stored[key] = self._unsealed(_named(row), row)
            self._rows[key] = row
        self._counts = Counter(vhost for _, vhost, _ in self._stored)
        rows = [self._unsealed(row.name, row) for row in content.global_parameters]
        self.node = {row.name: row.value for row in rows}
        self._global_rows = {row.name: row for row in content.global_parameters}
        if self._has_old:
            self._rows = {key: self._kept(_named(row), row) for key, row in self._stored.items()}
            self._global_rows = {row.name: self._kept(row.name, row) for row in rows}
            self._save(None)

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
        yield from self._limits()
        yield from self._stored.values()

    def _limits(self) -> Iterator[Parameter]:
        for vhost, limits in self.vhost_limits.items():
            yield Parameter(LIMITS, vhost, "limits", dict(limits))

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
        return self._counts[vhost]

    # Changes.

    def _check_room(self, there: int, who: str) -> None:
        if there >= self.most:
            raise BadSetting(f"{who} {there} parameters, and no more are allowed (parameters_max)")

    def put(self, parameter: Parameter) -> bool:
        """Stores a parameter of a component other than the limits; True if it is new. Raises
        BadSetting."""
        check_parameter(parameter)
        key = _key(parameter)
        created = key not in self._stored
        if created:
            self._check_room(self.count(parameter.vhost), f"vhost '{parameter.vhost}' has")
            self._counts[parameter.vhost] += 1
        self._stored[key] = parameter
        self._rows[key] = self._kept(_named(parameter), parameter)
        self._save(key)
        return created

    def delete(self, component: str, vhost: str, name: str) -> None:
        """Removes a stored parameter. Raises KeyError if there is none."""
        key = component, vhost, name
        self._remove(key)
        self._save(key)

    def _remove(self, key: Key) -> None:
        del self._stored[key]
        del self._rows[key]
        self._counts[key[1]] -= 1

    def put_vhost_limit(self, vhost: str, name: str, value: int | None) -> None:
        """Sets max-connections or max-queues of a vhost; None or a negative value is no limit."""
        check_limit(name, VHOST_LIMITS)
        limits = self.vhost_limits.setdefault(vhost, {})
        set_limit(limits, name, value)
        if not limits:
            del self.vhost_limits[vhost]
        self._save((LIMITS, vhost, "limits"))

    def put_global(self, name: str, value: Any) -> bool:
        """Sets a global parameter; True if it is new. Raises BadSetting."""
        created = name not in self.node
        if created:
            self._check_room(len(self.node), "there are")
        old = self._global_rows.get(name)
        if old is None or self.node[name] != value:
            self._global_rows[name] = self._kept(name, GlobalParameter(name, value))
        self.node[name] = value
        self._save(("", "", name))
        return created

    def delete_global(self, name: str) -> None:
        """Removes a global parameter. Raises KeyError if there is none."""
        del self.node[name]
        del self._global_rows[name]
        self._save(("", "", name))

    def pause(self, vhost: str, name: str, paused: bool) -> None:
        """Pauses or resumes a shovel. Raises KeyError if there is none."""
        key = SHOVEL, vhost, name
        self._stored[key] = msgspec.structs.replace(self._stored[key], paused=paused)
        self._rows[key] = msgspec.structs.replace(self._rows[key], paused=paused)
        self._save(key)

    def shovels(self) -> list[Parameter]:
        """Every stored shovel."""
        return [row for row in self._stored.values() if row.component == SHOVEL]

    def forget_vhost(self, vhost: str) -> None:
        """Removes every parameter of a vhost that is deleted."""
        keys = [key for key in self._stored if key[1] == vhost]
        for key in keys:
            self._remove(key)
        if self.vhost_limits.pop(vhost, None) is not None or keys:
            self._save(None)

    def _save(self, changed: Key | None) -> None:
        content = ParametersFile(
            # Rows are replaced, never altered: the lists are all there is to copy.
            parameters=[*self._limits(), *self._rows.values()],
            global_parameters=list(self._global_rows.values()),
        )
        self._files.put(PARAMETERS_FILE, content)
        self._changed()
        for watcher in self.watchers:
            watcher(changed)

    def _kept(self, what: str, row: Row) -> Row:
        """A row as the file holds it."""
        if row.sealed or not has_secrets(row.value):
            return row
        value, sealed = self.key.seal(what, row.value)
        return msgspec.structs.replace(row, value=value, sealed=sealed)


def _key(row: Parameter) -> Key:
    return row.component, row.vhost, row.name


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
