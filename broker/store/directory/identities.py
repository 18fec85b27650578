"""Random ids of the appliance and of the node, in files of their own, each made once.

The appliance is the data: its copies on other machines have the same id. The node is the machine's
part: every data directory has another one. A backup leaves both files out (`snapshot.LEFT_OUT`):
what starts on the copy is another appliance, which changes nothing that is the original's outside
of its data directory.
"""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

from broker.store.files import disk

APPLIANCE = "appliance_id"
NODE = "node_id"

_REMEDY = {
    APPLIANCE: "then this is a new appliance, and `ctl adopt_tiers` takes what is in the object "
    "store",
    NODE: "the next start makes a new one",
}


class Identities(NamedTuple):
    """32 hexadecimal digits each."""

    appliance: str
    node: str


def identities(directory: str) -> Identities:
    """The ids in a data directory; a missing one is made. A directory of an earlier version keeps
    its appliance's and gets a node's. Raises OSError, and ValueError if a file holds no id."""
    return Identities(_read_or_make(directory, APPLIANCE), _read_or_make(directory, NODE))


def _read_or_make(directory: str, name: str) -> str:
    path = f"{directory}/{name}"
    if not disk.exists(path):
        disk.write_atomic(path, f"{secrets.token_hex(16)}\n".encode())
    found = disk.read(path).decode("ascii", "replace").strip()
    if re.fullmatch("[0-9a-f]{32}", found) is None:
        raise ValueError(
            f"{path}: {found[:40]!r} is not an id of 32 hexadecimal digits; restore the file, or "
            f"remove it: {_REMEDY[name]}"
        )
    return found
