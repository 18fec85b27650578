"""The benchmark: `python -m tests.bench` loads Leveret and RabbitMQ with one generator."""
