"""The HTTP API in RabbitMQ's shape: one module per noun."""
