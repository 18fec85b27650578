"""The broker that the models are compared with; see tests/amqp/conftest.py for its settings."""

from tests.amqp.conftest import amqp_address

__all__ = ["amqp_address"]
