"""The appliance's commands as Django sees them, so that `manage.py help` lists them."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand

from management import commands


class ApplianceCommand(BaseCommand):
    """Hands its options on as they are: the settings table reads them, not argparse."""

    name = ""
    requires_system_checks: list[str] = []

    @property
    def help(self) -> str:
        return commands.SUMMARIES[self.name]

    def run_from_argv(self, argv: list[str]) -> None:
        sys.exit(commands.enter(self.name, argv[2:]))

    def handle(self, *arguments: Any, **options: Any) -> None:
        sys.exit(commands.enter(self.name, [str(argument) for argument in arguments]))
