"""The client side of the wire: an AMQP 0-9-1 client for `perf`, and for bridges between brokers.

`core.pyx` is the protocol without input and output; `aio.py` runs it on an event loop. On the way
of a message no Python object is made: deliveries are runs of bytes in a `Batch`, confirms move
counters. It uses the tables of `broker.wire` and the kernel, and works with any broker.
"""
