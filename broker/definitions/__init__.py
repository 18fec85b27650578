"""Definitions as one JSON document in RabbitMQ's format: in from any broker, out for any.

`document` reads the text, `plan` checks all of it against what is there, `applying` carries it out
or takes it back; `exporting` writes rows, `targets` says what another broker can read. Everything
is a generator that gives way after each object, so that the server can do it in slices.
"""
