"""What can be said about the image without building it: no engine runs where the tests run."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.settings import config
from tests.appliance import ROOT

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
    assert grace > 3 * SETTINGS["LEVERET_STOP_TIMEOUT"].default


@pytest.mark.parametrize("path", [DOCKER / "entrypoint.sh", ROOT / ".ci" / "run"])
def test_it_has_shell_scripts_that_parse(path: Path) -> None:
    assert subprocess.run(["sh", "-n", str(path)], check=False).returncode == 0
    assert path.stat().st_mode & 0o111
