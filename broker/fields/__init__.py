"""AMQP's field tables and properties: read, checked, written."""
