#!/bin/sh
# leveret serve|broker|web|reports|demo [options]; leveret healthy, for the health check.
set -eu
cd /opt/leveret
if [ "${1:-}" = healthy ]; then
    # The web process answers 200 where the broker answers it and accepts clients. A connection alone
    # would say nothing: the kernel accepts it for a process that hangs.
    exec .venv/bin/python -c '
import http.client, json, os, sys
try:
    with open(os.environ["LEVERET_DATA_DIR"] + "/run/addresses.json") as file:
        host, port = json.load(file)["http"][:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    connection = http.client.HTTPConnection(host, port, timeout=4)
    connection.request("GET", "/health")
    answer = connection.getresponse()
    if answer.status != 200:
        sys.exit(f"/health answers {answer.status}: {answer.read(1000)!r}")
except (OSError, KeyError, ValueError, http.client.HTTPException) as error:
    sys.exit(f"the web process does not answer: {error!r}")
'
fi
exec .venv/bin/python manage.py "$@"
