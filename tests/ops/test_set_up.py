"""The set-up script and the build of compiled modules."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.appliance import ROOT


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def environment() -> ModuleType:
    return tool("environment")


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build's knowledge of a small tree: `a` cimports `b`, which includes `c.h`."""
    module = tool("compiled")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "MANIFEST", tmp_path / "build" / "compiled.json")
    room = tmp_path / "broker" / "room"
    room.mkdir(parents=True)
    (room / "a.pyx").write_text("from broker.room.b cimport twice, thrice\n")
    (room / "b.pyx").write_text("cdef int twice(int x): return x * 2\n")
    (room / "b.pxd").write_text('cdef extern from "c.h":\n    int once\n')
    (room / "c.h").write_text('#include "d.h"\n')
    (room / "d.h").write_text("static int once = 1;\n")
    return module


def build(compiled: ModuleType) -> None:
    for source in compiled.modules():
        compiled.binary(source).write_bytes(b"")
    built = {compiled.dotted(source): compiled.entry(source) for source in compiled.modules()}
    compiled.note(built)


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_it_builds_everything_at_first_and_nothing_after(compiled: ModuleType) -> None:
    assert names(compiled.to_build()) == ["a.pyx", "b.pyx"]
    build(compiled)
    assert compiled.to_build() == compiled.stale() == []


def test_a_module_whose_source_was_moved_can_not_be_imported_any_more(compiled: ModuleType) -> None:
    build(compiled)
    source = compiled.modules()[0]
    old = compiled.binary(source)
    (source.parent / "moved").mkdir()
    source.rename(source.parent / "moved" / source.name)
    compiled.note(compiled.manifest())
    assert not old.exists()
    assert len(compiled.manifest()) == 1


@pytest.mark.parametrize(
    ("changed", "rebuilt"),
    [
        ("a.pyx", ["a.pyx"]),
        ("b.pyx", ["b.pyx"]),
        ("b.pxd", ["a.pyx", "b.pyx"]),
        ("c.h", ["a.pyx", "b.pyx"]),
        ("d.h", ["a.pyx", "b.pyx"]),
    ],
)
def test_it_builds_what_depends_on_a_changed_file(
    compiled: ModuleType, changed: str, rebuilt: list[str]
) -> None:
    build(compiled)
    path = compiled.ROOT / "broker" / "room" / changed
    path.write_text(path.read_text() + "# more\n")
    assert names(compiled.stale()) == names(compiled.to_build()) == rebuilt


def test_it_goes_by_content_and_not_by_time(compiled: ModuleType) -> None:
    build(compiled)
    for path in (compiled.ROOT / "broker" / "room").iterdir():
        os.utime(path, (2**31, 2**31))
    assert compiled.stale() == []


def test_it_misses_a_module_that_was_deleted(compiled: ModuleType) -> None:
    build(compiled)
    compiled.binary(compiled.modules()[0]).unlink()
    assert names(compiled.stale()) == ["a.pyx"]


def test_it_builds_again_with_other_directives(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(compiled)
    before = compiled.directives(False)
    monkeypatch.setattr(compiled, "directives", lambda checked: {**before, "binding": True})
    assert names(compiled.stale()) == ["a.pyx", "b.pyx"]


def test_it_builds_again_for_bounds_checks(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(compiled)
    monkeypatch.setenv("LEVERET_BOUNDSCHECK", "1")
    assert names(compiled.to_build()) == ["a.pyx", "b.pyx"]
    assert compiled.stale() == []


def test_it_prints_the_line_to_run_when_it_may_not_install(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment.shutil, "which", lambda name: None)
    monkeypatch.setattr(environment.os, "geteuid", lambda: 1000)
    monkeypatch.delenv("LEVERET_TEST_BROWSER", raising=False)
    with pytest.raises(environment.SetUpError) as caught:
        environment.fetch_system_packages("test")
    line = str(caught.value).splitlines()[-1].strip()
    assert line.startswith("sudo apt-get install --no-install-recommends gcc")
    assert line.endswith("chromium")


def test_as_root_it_fetches_all_that_is_missing_and_installs_what_the_environment_needs_first(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    states = [["gcc", "python3-venv"], []]
    monkeypatch.setattr(environment, "missing_system_packages", lambda goal: states.pop(0))
    monkeypatch.setattr(environment.os, "geteuid", lambda: 0)
    monkeypatch.setattr(environment.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(
        environment, "run", lambda commands, *_: ran.extend(shlex.join(it) for it in commands)
    )
    for step in ("create_virtual_environment", "install_packages", "compile_modules"):
        monkeypatch.setattr(environment, step, lambda *_, step=step: ran.append(step))
    environment.set_up("start")
    install = "apt-get install --no-install-recommends --yes"
    fetched = ran.index(f"{install} --download-only gcc python3-venv")
    assert ran[fetched + 1] == f"{install} python3-venv"
    rest = ran[fetched + 2 :]
    assert rest.index("create_virtual_environment") < rest.index("install_packages")
    # It needs the compiler and Cython.
    compiled = rest.index("compile_modules")
    assert rest.index(f"{install} gcc") < compiled and rest.index("install_packages") < compiled
    assert sorted(rest) == [
        f"{install} gcc",
        "compile_modules",
        "create_virtual_environment",
        "install_packages",
        "install_packages",
    ]


def test_an_error_of_the_python_packages_is_told_and_nothing_is_compiled(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise environment.SetUpError("no room")

    monkeypatch.setattr(environment, "missing_system_packages", lambda goal: [])
    monkeypatch.setattr(environment, "create_virtual_environment", refuse)
    ran: list[str] = []
    for step in ("install_packages", "compile_modules"):
        monkeypatch.setattr(environment, step, lambda *_, step=step: ran.append(step))
    with pytest.raises(environment.SetUpError, match="no room"):
        environment.set_up("start")
    assert ran == []


def test_it_installs_what_a_lock_file_names_and_resolves_nothing(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`requirements-test.lock` has cython-lint, which needs Cython, of `requirements-build.lock`:
    that one may be installed at the same time, or not at all."""
    commands: list[list[str]] = []
    monkeypatch.setattr(environment, "watch", lambda command, *_: commands.append(command))
    monkeypatch.setattr(environment, "INSTALLED", tmp_path / "installed.json")
    environment.install_packages(environment.LOCKS["test"], environment.Progress(), "packages")
    assert len(commands) == 1
    assert {"--no-deps", "--require-hashes"} <= set(commands[0])
    environment.install_packages(environment.LOCKS["test"], environment.Progress(), "packages")
    assert len(commands) == 1


def test_it_needs_only_the_standard_library() -> None:
    for name in ("environment", "compiled"):
        code = f"import sys; sys.path.insert(0, 'tools'); import {name}"
        result = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code], cwd=ROOT, capture_output=True, check=False
        )
        assert result.returncode == 0, result.stderr


def test_it_lists_every_target_of_the_makefile() -> None:
    assert shutil.which("make")
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("run", "build", "test", "bench", "lint", "demo", "clean", "help"):
        assert f"make {target} " in shown.stdout


def test_it_imports_every_package_it_requires() -> None:
    """A dependency that nothing uses is one too many."""
    import re
    import tomllib

    from tests.tidy.sources import PACKAGES, files

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    loaded_by_others = {"httptools", "pandas"}  # uvicorn, PySpark
    module_of = {"argon2-cffi": "argon2", "django-ninja": "ninja", "google-re2": "re2"}
    text = "\n".join(path.read_text() for path in files(".py", ".pyx", under=PACKAGES))
    unused = []
    for requirement in [*project["dependencies"], *extras["reports"], *extras["demo"]]:
        match = re.match(r"[\w-]+", requirement)
        assert match is not None
        name = match[0]
        module = module_of.get(name, name.lower().replace("-", "_"))
        used = re.search(rf"^\s*(?:import|from) {module}\b|[\"']{module}[\"'.]", text, re.MULTILINE)
        if name not in loaded_by_others and not used:
            unused.append(name)
    assert not unused


def test_it_requires_every_package_it_imports() -> None:
    """What happens to be installed here is not there on a fresh machine."""
    import re
    import tomllib
    from importlib.metadata import packages_distributions

    from tests.tidy.sources import files, imports

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    declared = {
        re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")
        for requirement in [*project["dependencies"], *(item for extra in extras for item in extra)]
    }
    ours = {"api", "broker", "frontend", "management", "tests", "compiled", "manage", "setup"}
    # Part of Django, pandas, aio-pika, pytest, PySpark and django-ninja.
    with_others = {"asgiref", "numpy", "pamqp", "packaging", "py4j", "pydantic"}
    distributions = packages_distributions()
    missing = set()
    for path in files(".py"):
        for name, line in imports(path):
            top = name.split(".")[0]
            if top in sys.stdlib_module_names or top in ours or top in with_others:
                continue
            found = {item.lower().replace("_", "-") for item in distributions.get(top, [top])}
            if not found & declared and not (path.parent / f"{top}.py").exists():
                missing.add(f"{path.relative_to(ROOT)}:{line} imports {top}")
    assert not missing, "\n".join(sorted(missing))
