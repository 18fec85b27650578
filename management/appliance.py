"""What the web process is part of: the configuration in force, and the broker."""

from typing import TYPE_CHECKING

from django.conf import settings

from management.broker_client import BrokerClient, shared

if TYPE_CHECKING:
    from broker.settings.config import Config


def config() -> "Config":
    """The configuration `management.web` was started with."""
    return settings.APPLIANCE


def broker() -> BrokerClient:
    """The broker's client of this event loop. Its calls raise `BrokerError`."""
    return shared(settings.APPLIANCE.control_socket)
