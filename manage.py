#!/usr/bin/env python3
"""The appliance's door: `manage.py serve`, `broker`, `web`, `ctl` and others, and Django's own."""

from __future__ import annotations

import os
import sys


def main() -> int:
    from management import doors

    name = sys.argv[1] if len(sys.argv) > 1 else "help"
    if name in doors.SUMMARIES:  # before Django: the broker must not pay for it
        return doors.enter(name, sys.argv[2:])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "management.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
