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
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_text("ascii").strip()
        if len(key) < 32:
            reason = f"{path} is too short to sign with; delete it to have a new one made"
            raise ValueError(reason) from None
        return key
    key = secrets.token_urlsafe(48)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key + "\n")
        file.flush()
        os.fsync(file.fileno())
    return key
