"""The usage feed: what every queue, exchange, user and connection moved, a file an hour.

`feed` takes differences of the broker's counters once in a while and appends them as JSON lines
(`docs/formats/usage.md`); the reports process adds them up with Spark. Nothing else in the broker
knows of it.
"""
