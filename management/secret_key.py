"""The key that signs cookies: `<data>/secret_key`, made at the first start, mode 0600."""

import os
import secrets
from pathlib import Path


def load_or_create(data_dir: Path) -> str:
    """Return the key; make the file if there is none.

    Raises `ValueError` when the file holds less than 32 characters, and `OSError` when it can be
    neither read nor written.
    """
    path = data_dir / "secret_key"
    try:
        key = path.read_text("ascii").strip()
    except FileNotFoundError:
        return _created(path)
    if len(key) < 32:
        raise ValueError(f"{path} is too short to sign with; delete it to have a new one made")
    return key


def _created(path: Path) -> str:
    """The file comes whole or not at all: half a key, left by a full disk or a power cut, would be
    refused at each start that follows."""
    key = secrets.token_urlsafe(48)
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(key + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return key
