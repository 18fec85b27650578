#!/usr/bin/env python3
"""The appliance's commands in a copy of the repository: `manage.py serve`, `broker`, `web`, `ctl`
and others, and Django's own. An installed package has them as `leveret serve` and so on."""

from __future__ import annotations

import sys

from management.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
