"""The command `leveret` of an installed package and `python -m management`; manage.py runs it."""

from __future__ import annotations

import gc
import os
import sys


def main() -> int:
    """Runs the command that the first argument names; returns its exit status."""
    from management import commands

    name = sys.argv[1] if len(sys.argv) > 1 else "help"
    if name in commands.SUMMARIES:  # before Django: the broker must not pay for it
        status = commands.enter(name, sys.argv[2:])
        # The interpreter's end walks over all objects several times: 0.1 s of CPU for nothing.
        gc.freeze()
        return status
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "management.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
