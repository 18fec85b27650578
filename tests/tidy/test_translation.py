"""Translating `.pyx` files in forks that share declarations (tools/translation.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.appliance import ROOT

# In a process of their own: `forked` waits for all children of a process.
TRANSLATE = """
import sys
from pathlib import Path
sys.path.insert(0, "tools")
import compiled, translation

shared, plain = map(Path, sys.argv[1:])
names = ["broker.kernel.largest", "broker.kernel.octets", "broker.store.log.damage"]
directives = compiled.directives(False)
context = translation.read_declarations(names, directives)

def work(name):
    source = name.replace(".", "/") + ".pyx"
    translation.translate(context, name, source, str(shared / name))
    alone = translation.options(directives)
    alone.output_file = str(plain / name)
    translation.compile_single(source, alone, name)

print(*sorted(translation.forked(work, names, 2)))
"""
FAIL = """
import sys
sys.path.insert(0, "tools")
import translation

def work(number):
    if number == 2:
        raise ValueError("number two")

for number in translation.forked(work, range(1, 100), 1):
    print(number)
"""


def run(script: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_c_code_has_the_lines_that_cython_writes_for_each_module_alone(tmp_path: Path) -> None:
    shared, plain = tmp_path / "shared", tmp_path / "plain"
    shared.mkdir()
    plain.mkdir()
    result = run(TRANSLATE, shared, plain)
    names = result.stdout.split()
    assert names == sorted(path.name for path in shared.iterdir()), result.stderr
    assert len(names) == 3
    for name in names:
        # Their order may differ, and a prototype may come twice.
        assert set((shared / name).read_text().splitlines()) == set(
            (plain / name).read_text().splitlines()
        )


def test_functions_that_cython_needs_in_each_module_are_compiled_once() -> None:
    """A module that is built without them is an eighth larger, and takes as much longer."""
    modules = list((ROOT / "broker").rglob("*.so"))
    with_them = [path for path in modules if b"broker.kernel.shared_utilities" in path.read_bytes()]
    assert len(with_them) > 0.9 * len(modules)


def test_no_module_is_begun_after_one_that_has_an_error() -> None:
    result = run(FAIL)
    assert result.returncode == 1
    assert result.stdout.split() == ["1"]
    assert "ValueError: number two" in result.stderr


def test_the_modules_that_each_message_passes_are_optimized_and_no_others() -> None:
    script = """
import sys
sys.path.insert(0, "tools")
import compiled
modules = {compiled.dotted(source): source for source in compiled.modules()}
hot = [*compiled.EACH_MESSAGE, *(name for names in compiled.HOT.values() for name in names)]
assert len(hot) == len(set(hot))
assert set(hot) < set(modules), set(hot) - set(modules)
for name, source in modules.items():
    level = [flag for flag in compiled.flags(source) if flag.startswith("-O")]
    each = name in compiled.EACH_MESSAGE
    assert level == (["-O2"] if each else ["-O1"] if name in hot else ["-Og"]), name
"""
    assert run(script).stderr == ""
