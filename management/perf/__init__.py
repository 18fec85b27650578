"""`manage.py perf`: load for a broker, with lavinmqperf's modes and options.

One process and one event loop on `broker.client`; it works against any AMQP 0-9-1 broker.
"""
