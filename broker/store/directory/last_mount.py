"""Whether all that the last run wrote can be read, synced or not: it can after a kill, and need not
after a power cut.

What a queue says of its deliveries is synced a little later than it counts, so that no delivery
waits for the disk. The page cache keeps it through the end of the process, but not through that of
the machine or of the mounted file system. So a run notes in `last_mount` on which boot of the
machine and on which mount of the file system it works, and which start of a broker it is; after a
clean stop the file says so. Where it says neither for this boot and mount, what queues say of their
deliveries may be too little: the broker takes every message for one that may have been delivered.

The note of a mount need not be on disk: without the page cache it is not believed.
"""

from __future__ import annotations

import ctypes
import os
import struct

from broker.store.files import disk

FILE = "last_mount"
_STOPPED = "stopped"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"

# Of linux/stat.h: a number that no other mount of this boot gets, since Linux 6.8.
_STATX_MNT_ID_UNIQUE = 0x4000
_STATX_BYTES, _MOUNT_AT = 256, 144
_AT_FDCWD = -100


def this_mount(directory: str) -> str:
    """Boot of the machine and mount of the file system; empty where the system does not tell."""
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx is None or statx(_AT_FDCWD, os.fsencode(directory), 0, _STATX_MNT_ID_UNIQUE, buffer):
        return ""
    (told,) = struct.unpack_from("=I", buffer)
    (mount,) = struct.unpack_from("=Q", buffer, _MOUNT_AT)
    try:
        boot = disk.read(_BOOT_ID).decode().strip()
    except OSError:
        return ""
    return f"{boot} {mount}" if boot and told & _STATX_MNT_ID_UNIQUE else ""


def has_all(directory: str) -> bool:
    """Whether all that the last run wrote can be read. To be asked before this start is counted.
    Raises OSError."""
    path = f"{directory}/{FILE}"
    if not disk.exists(path):
        return not disk.exists(_boots(directory))
    found = disk.read(path).decode("ascii", "replace")
    mount = this_mount(directory)
    starts = _starts(directory)
    return found == _line(starts, _STOPPED) or (bool(mount) and found == _line(starts, mount))


def note_start(directory: str) -> None:
    """All that recovery found doubtful is written, synced or not: from now on the directory is as
    this run says. Raises OSError."""
    disk.write_plain(
        f"{directory}/{FILE}", _line(_starts(directory), this_mount(directory)).encode()
    )


def note_stop(directory: str) -> None:
    """Everything is synced, and nothing will be written. Raises OSError."""
    disk.write_atomic(f"{directory}/{FILE}", _line(_starts(directory), _STOPPED).encode())


def _line(starts: str, what: str) -> str:
    return f"{starts} {what}\n"


def _boots(directory: str) -> str:
    return f"{directory}/boots"


def _starts(directory: str) -> str:
    """The number of starts. A broker that knows nothing of this file counts them too, so that what
    is in it is not believed after its run."""
    return disk.read(_boots(directory)).decode("ascii", "replace").strip()
