"""The OpenAPI description: it is there, and the API keeps to it under any input."""

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.appliance import Appliance
from tests.hostile.figures import cpu_seconds

EXAMPLES = 4


def test_no_input_breaks_it(leveret: Appliance) -> None:
    """As an administrator, who may do everything, on an appliance of its own."""
    described = schemathesis.openapi.from_url(leveret.http_url + "/api/openapi.json")
    described.config.update(base_url=leveret.http_url)
    broken: list[str] = []

    def check(case: schemathesis.Case) -> None:
        answer = case.call(auth=("guest", "guest"), timeout=120)
        if answer.status_code >= 500 and answer.status_code not in (501, 503):
            broken.append(f"{answer.status_code} {answer.text} for {case.as_curl_command()}")
        if answer.status_code >= 400 and answer.content:
            body = answer.json()
            if set(body) != {"error", "reason"} and "status" not in body:
                broken.append(f"{answer.text} for {case.as_curl_command()}")

    for found in described.get_all_operations():
        strategy = found.ok().as_strategy()
        settled = settings(
            max_examples=EXAMPLES,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        settled(given(strategy)(check))()
    assert not broken, "\n".join(broken[:20])


def test_every_operation_says_what_it_does(api: httpx.Client) -> None:
    paths = api.get("/api/openapi.json").json()["paths"]
    silent = [
        (method, path)
        for path, operations in paths.items()
        for method, operation in operations.items()
        if not operation.get("description")
    ]
    assert silent == []


def test_it_is_made_once(api: httpx.Client, shared_leveret: Appliance) -> None:
    """It took 0.1 s of the web process, and whoever asks needs no login."""
    first = api.get("/api/openapi.json").json()
    before = cpu_seconds(shared_leveret.pids["web"])
    for _ in range(20):
        assert httpx.get(f"{shared_leveret.http_url}/api/openapi.json", timeout=60).json() == first
    assert cpu_seconds(shared_leveret.pids["web"]) - before < 1.5
