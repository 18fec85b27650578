#!/usr/bin/env python3
"""The appliance's door: `manage.py serve`, `broker`, `web`, `reports`, `demo` and Django's own.

The long-running commands are recognised here, before Django is imported: the broker must not
pay for a web framework it never uses.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "management.settings")
    name = sys.argv[1] if len(sys.argv) > 1 else "help"
    if name in ("serve", "broker"):
        from management.doors import broker, serve

        return {"serve": serve, "broker": broker}[name](sys.argv[2:])
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
