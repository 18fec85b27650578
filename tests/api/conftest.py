"""One appliance, one vhost of these tests' own, and a user for each tag."""

from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest

from tests.appliance import Appliance

VHOST = "api/tests"
TAGS = ("none", "management", "policymaker", "monitoring", "administrator")
PASSWORD = "a password: with colons"


def path(*segments: str) -> str:
    """A path below /api/ with each name quoted."""
    return "/api/" + "/".join(quote(segment, safe="") for segment in segments)


@pytest.fixture(scope="session")
def api_url(shared_leveret: Appliance) -> str:
    return shared_leveret.http_url


@pytest.fixture(scope="session")
def clients(api_url: str) -> Iterator[dict[str, httpx.Client]]:
    """A client for each tag by its name (`none` has no tag), each with all rights in `VHOST`."""
    guest = httpx.Client(base_url=api_url, auth=("guest", "guest"), timeout=30)
    assert guest.put(path("vhosts", VHOST), json={}).status_code in (201, 204)
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    guest.put(path("permissions", VHOST, "guest"), json=everything)
    by_tag = {}
    for tag in TAGS:
        user = f"api-{tag}"
        tags = "" if tag == "none" else tag
        assert guest.put(path("users", user), json={"password": PASSWORD, "tags": tags}).is_success
        assert guest.put(path("permissions", VHOST, user), json=everything).is_success
        by_tag[tag] = httpx.Client(base_url=api_url, auth=(user, PASSWORD), timeout=30)
    yield by_tag
    for client in [*by_tag.values(), guest]:
        client.close()


@pytest.fixture
def api(clients: dict[str, httpx.Client]) -> httpx.Client:
    """The administrator's client."""
    return clients["administrator"]


@pytest.fixture
def anonymous(api_url: str) -> Iterator[httpx.Client]:
    """A client without credentials, with cookies of its own."""
    with httpx.Client(base_url=api_url, timeout=30) as client:
        yield client
