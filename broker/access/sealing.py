"""Secrets of stored parameters, encrypted at rest (docs/formats/settings.md).

In a file a value has `***` in the place of each secret, so that it can still be read and edited,
and `sealed` beside it holds what belongs there: AES-256-GCM under the first key of the file
`secrets_key`, bound to what the value is of. Further lines of that file are older keys, which only
decrypt.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.access.secrets import STARS, masked, without_secrets
from broker.settings.files import Disk, SettingsError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SECRETS_KEY = "secrets_key"
"""Its name in the data directory, where no setting names another file."""
KEY_BYTES = 32
_NONCE_BYTES = 12
UNREADABLE = (
    "its passwords cannot be decrypted: restart with the right secrets_key, or save it with them"
)
_MODE = 0o600
_FORM = "1"
_KEY = re.compile(f"[0-9a-fA-F]{{{2 * KEY_BYTES}}}")

Secret = tuple[list[str | int], str]
"""The way to a text in a JSON value, and the text."""


def has_secrets(value: Any) -> bool:
    """Whether anything in a JSON value is secret."""
    return without_secrets(value) is not value


class Unreadable(ValueError):
    """Sealed secrets that the keys do not open; the text says why."""


class SecretsKey:
    """The keys of one file."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._keys: dict[str, bytes] = {}
        """By their id; the first one seals."""

    def load(self) -> None:
        """Reads the file, or makes it with a new key. Raises SettingsError."""
        try:
            text = self._disk.read(str(self.path))
        except FileNotFoundError:
            text = f"{secrets.token_hex(KEY_BYTES)}\n".encode()
            try:
                self._disk.write_atomic(str(self.path), text, _MODE)
            except OSError as error:
                raise SettingsError(
                    f"secrets_key {self.path}: it is not there and cannot be made: {error.strerror}"
                ) from error
        except OSError as error:
            raise SettingsError(
                f"secrets_key {self.path}: cannot be read: {error.strerror}"
            ) from error
        lines = text.decode("ascii", "replace").split()
        if not lines or not all(_KEY.fullmatch(line) for line in lines):
            raise SettingsError(
                f"secrets_key {self.path}: each line is a key of {2 * KEY_BYTES} hexadecimal"
                f" digits, as `openssl rand -hex {KEY_BYTES}` makes one"
            )
        keys = [bytes.fromhex(line) for line in lines]
        self._keys = {hashlib.sha256(key).hexdigest()[:8]: key for key in keys}

    def seal(self, what: str, value: Any) -> tuple[Any, str]:
        """A value with stars for its secrets, and those encrypted; "" if it has none. `what` names
        the thing that has the value."""
        if not has_secrets(value):
            return value, ""
        shown = masked(value)
        text = json.dumps(list(_differing(value, shown, []))).encode()
        id = next(iter(self._keys))
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._cipher(id).encrypt(nonce, text, what.encode())
        return shown, f"{_FORM}:{id}:{base64.b64encode(sealed).decode()}"

    def is_current(self, sealed: str) -> bool:
        """Whether it was sealed with the key that seals now."""
        return sealed.split(":")[1:2] == [next(iter(self._keys))]

    def unseal(self, what: str, value: Any, sealed: str) -> Any:
        """The value with its secrets; what was edited since stays as it was edited. Raises
        Unreadable."""
        from cryptography.exceptions import InvalidTag

        form, _, rest = sealed.partition(":")
        id, _, coded = rest.partition(":")
        if form != _FORM:
            raise Unreadable("they are sealed in a form that this version does not know")
        if id not in self._keys:
            raise Unreadable(f"{self.path} does not hold the key {id} that they are sealed with")
        try:
            data = base64.b64decode(coded, validate=True)
            text = self._cipher(id).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], what.encode())
        except (binascii.Error, InvalidTag, ValueError):
            raise Unreadable("they were changed, or moved from something of another name") from None
        for way, secret in json.loads(text):
            value = _put_back(value, way, secret)
        return value

    def _cipher(self, id: str) -> AESGCM:
        # Only where something is secret: it takes memory.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._keys[id])


def _differing(value: Any, shown: Any, way: list[str | int]) -> Iterator[Secret]:
    """The texts of a value that are shown otherwise."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _differing(item, shown[name], [*way, name])
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _differing(item, shown[place], [*way, place])
    elif value != shown:
        yield way, value


def _put_back(value: Any, way: list[str | int], secret: str) -> Any:
    """A copy of the value with the secret at its place, if that still shows it."""
    if not way:
        return secret if value in (STARS, masked(secret)) else value
    step, rest = way[0], way[1:]
    if isinstance(value, dict) and step in value:
        return {**value, step: _put_back(value[step], rest, secret)}
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return [*value[:step], _put_back(value[step], rest, secret), *value[step + 1 :]]
    return value
