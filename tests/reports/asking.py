"""Asks an appliance for a report over the HTTP API, as programs do."""

from __future__ import annotations

import time
from typing import Any

import httpx

OVER = ("done", "failed", "cancelled")


def run_report(client: httpx.Client, report: str, patience: float) -> dict[str, Any]:
    """Runs a report now, to its end, and returns the record of the run.

    `client` has the API's address as its base. Raises TimeoutError if the run is not over after
    `patience` seconds, and httpx.HTTPError.
    """
    answer = client.post(f"/reports/{report}/run")
    answer.raise_for_status()
    path = f"/reports/{report}/runs/{answer.json()['run_id']}"
    deadline = time.monotonic() + patience
    while True:
        record: dict[str, Any] = client.get(path).raise_for_status().json()
        if record["state"] in OVER:
            return record
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {patience:g} s the run is not over: {record}")
        time.sleep(0.05)  # another process computes; there is no event to await
