"""`manage.py tiers`; see `management.doors`."""

from management.commands_door import DoorCommand


class Command(DoorCommand):
    name = "tiers"
