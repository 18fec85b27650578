"""What can be said about the image without building it: no engine runs where the tests run."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.settings import config
from management.ctl.main import main
from management.starting import PORTS
from tests.appliance import ROOT
from tests.conftest import Make

DOCKER = ROOT / "docker"
SETTINGS = {item.variable: item for item in config.settings()}


def instructions() -> list[tuple[str, str]]:
    text = (DOCKER / "Dockerfile").read_text()
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    pairs = (line.partition(" ") for line in joined.splitlines() if line.strip())
    return [(name, rest.strip()) for name, _, rest in pairs]


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return loaded


def test_it_copies_only_what_is_in_the_repository() -> None:
    for name, rest in instructions():
        if name == "COPY" and "--from" not in rest:
            for source in shlex.split(rest)[:-1]:
                assert (ROOT / source).exists(), f"COPY {source}"


def test_it_lets_everything_it_copies_into_the_build() -> None:
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    for name, rest in instructions():
        if name == "COPY" and "--from" not in rest:
            assert set(shlex.split(rest)[:-1]) <= allowed


def test_it_does_not_run_as_root() -> None:
    users = [rest for name, rest in instructions() if name == "USER"]
    assert users == ["leveret"]


def test_it_sets_only_settings_that_exist() -> None:
    found = re.findall(r"LEVERET_\w+", (DOCKER / "Dockerfile").read_text())
    found += list(compose()["services"]["leveret"]["environment"])
    assert found
    for name in found:
        assert name in SETTINGS, name


def test_it_offers_the_default_ports() -> None:
    exposed = next(rest for name, rest in instructions() if name == "EXPOSE").split()
    ports = ("AMQPS", "AMQP", "WS", "HTTPS", "HTTP", "METRICS")
    defaults = {port: str(SETTINGS[f"LEVERET_{port}_PORT"].default) for port in ports}
    assert exposed == list(defaults.values())
    published = compose()["services"]["leveret"]["ports"]
    plain = [number for port, number in defaults.items() if port not in ("AMQPS", "HTTPS")]
    assert [port.split(":")[2] for port in published] == plain
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_it_waits_longer_for_the_container_than_the_appliance_takes_to_stop() -> None:
    grace = int(compose()["services"]["leveret"]["stop_grace_period"].removesuffix("s"))
    assert grace > len(PORTS) * SETTINGS["LEVERET_STOP_TIMEOUT"].default


def test_it_has_a_data_directory_that_its_user_owns() -> None:
    """A new volume gets the owner of the directory that it is mounted on."""
    (volume,) = [rest for name, rest in instructions() if name == "VOLUME"]
    made = [rest for name, rest in instructions() if name == "RUN" and "useradd" in rest]
    (install,) = [part for part in made[0].split("&&") if part.split()[:1] == ["install"]]
    assert {"--directory", "--owner=leveret", "--group=leveret", volume} <= set(install.split())


def healthy(directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs the health check on a data directory."""
    text = (DOCKER / "entrypoint.sh").read_text()
    (check,) = re.findall(r"-c '\n(.*?)\n'", text, re.DOTALL)
    return subprocess.run(
        [sys.executable, "-c", check],
        env={**os.environ, "LEVERET_DATA_DIR": str(directory)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_it_is_healthy_while_the_broker_serves_clients(make_leveret: Make) -> None:
    leveret = make_leveret()
    assert healthy(leveret.data_dir).returncode == 0
    assert main(["-q", "--data-dir", str(leveret.data_dir), "stop_app"]) == 0
    ran = healthy(leveret.data_dir)
    assert ran.returncode == 1
    assert "/health answers 503" in ran.stderr


def test_it_is_not_healthy_when_the_web_process_only_accepts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (tmp_path / "run").mkdir()
        note = json.dumps({"http": silent.getsockname()})
        (tmp_path / "run" / "addresses.json").write_text(note)
        ran = healthy(tmp_path)
    assert ran.returncode == 1
    assert "the web process does not answer: TimeoutError" in ran.stderr


def test_it_is_not_healthy_before_it_has_started(tmp_path: Path) -> None:
    ran = healthy(tmp_path)
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize("path", [DOCKER / "entrypoint.sh", ROOT / ".ci" / "run"])
def test_it_has_shell_scripts_that_parse(path: Path) -> None:
    assert subprocess.run(["sh", "-n", str(path)], check=False).returncode == 0
    assert path.stat().st_mode & 0o111
