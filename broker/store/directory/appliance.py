"""Who this appliance is: a random id, in a file of its own, made once.

A backup leaves the file out (`snapshot.LEFT_OUT`): what starts on the copy is another appliance,
which changes nothing that is the original's outside of its data directory.
"""

from __future__ import annotations

import re
import secrets

from broker.store.files import disk

NAME = "appliance_id"


def identity(directory: str) -> str:
    """The id of the appliance whose data directory this is: 32 hexadecimal digits. Raises OSError,
    and ValueError if the file holds something else."""
    path = f"{directory}/{NAME}"
    if not disk.exists(path):
        disk.write_atomic(path, f"{secrets.token_hex(16)}\n".encode())
    found = disk.read(path).decode("ascii", "replace").strip()
    if re.fullmatch("[0-9a-f]{32}", found) is None:
        raise ValueError(
            f"{path}: '{found[:40]}' is not an appliance's id; restore the file, or remove it: "
            "then this is a new appliance, and `ctl adopt_tiers` takes what is in the object store"
        )
    return found
