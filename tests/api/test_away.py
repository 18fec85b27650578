"""While the broker is away the web process says so calmly, and recovers by itself."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.appliance import ROOT, Appliance
from tests.conftest import Make

PATIENCE_S = 30.0


class Web:
    """`manage.py web` alone, on the data directory of a broker that may come and go."""

    def __init__(self, broker: Appliance) -> None:
        broker.data_dir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(ROOT / "manage.py"), "web"]
        options = [f"--data-dir={broker.data_dir}", "--http-port=0"]
        self.process = subprocess.Popen([*command, *options], cwd=ROOT, start_new_session=True)
        note = broker.data_dir / "run" / "web.json"
        until(note.exists)
        self.client = httpx.Client(
            base_url="http://127.0.0.1:{}".format(json.loads(note.read_text())["http"][1]),
            timeout=30,
        )

    def close(self) -> None:
        self.client.close()
        self.process.terminate()
        assert self.process.wait(60) == 0


def until(condition: object) -> None:
    """Wait for what another process does and tells no one."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


@pytest.fixture
def broker(make_broker: Make) -> Appliance:
    return make_broker(start=False)


@pytest.fixture
def web(broker: Appliance) -> Iterator[Web]:
    started = Web(broker)
    yield started
    started.close()


def test_the_web_process_waits_for_the_broker_and_survives_it(web: Web, broker: Appliance) -> None:
    guest = ("guest", "guest")
    away = web.client.get("/api/whoami", auth=guest)
    assert away.status_code == 503
    assert away.json()["error"] == "broker_away"
    assert int(away.headers["Retry-After"]) <= 5
    assert web.client.get("/health").status_code == 503

    broker.start()
    until(lambda: web.client.get("/health").status_code == 200)
    assert web.client.get("/api/whoami", auth=guest).json()["name"] == "guest"
    sign_in(web.client)
    assert web.client.get("/queues").status_code == 200

    broker.kill()
    page = web.client.get("/queues")
    assert page.status_code == 503
    assert page.headers["Content-Type"].startswith("text/html")
    assert page.headers["Refresh"]
    assert "Traceback" not in page.text
    form = web.client.get("/login", headers={"Cookie": ""})
    assert form.status_code in (200, 503)
    static = web.client.get("/static/nothing")
    assert static.status_code in (302, 404, 503)

    broker.start()
    until(lambda: web.client.get("/queues").status_code == 200)
    assert web.client.get("/api/whoami").json()["name"] == "guest"


def sign_in(client: httpx.Client) -> None:
    form = client.get("/login").text
    token = form.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    fields = {"username": "guest", "password": "guest", "csrfmiddlewaretoken": token}
    assert client.post("/login", data=fields).status_code == 302


def test_a_port_in_use_is_one_line(shared_leveret: Appliance, broker: Appliance) -> None:
    broker.data_dir.mkdir(parents=True)
    command = [sys.executable, str(ROOT / "manage.py"), "web"]
    options = [f"--data-dir={broker.data_dir}", f"--http-port={shared_leveret.http_port}"]
    ended = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 69
    assert ended.stderr.count("\n") == 1
    assert "Address already in use" in ended.stderr
    assert "--http-port" in ended.stderr
