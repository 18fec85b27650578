"""`manage.py ctl`; see `management.commands`."""

from management.base_command import ApplianceCommand


class Command(ApplianceCommand):
    name = "ctl"
