#!/bin/sh
# leveret serve|broker|web|reports|demo [options]; leveret healthy, for the health check.
set -eu
cd /opt/leveret
if [ "${1:-}" = healthy ]; then
    exec .venv/bin/python -c '
import json, os, socket, sys
with open(os.environ["LEVERET_DATA_DIR"] + "/run/addresses.json") as file:
    notes = json.load(file)
for name in ("amqp", "http"):
    host, port = notes[name][:2]
    socket.create_connection(("127.0.0.1" if host == "0.0.0.0" else host, port), 3).close()
'
fi
exec .venv/bin/python manage.py "$@"
