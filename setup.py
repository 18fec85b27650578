"""The compiled modules: every `.pyx` file under `broker` (and those of the tests)."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)
sys.path.insert(0, str(ROOT / "tools"))

QUIET = "-q" in sys.argv
if QUIET:  # a global option: set-up tools wants it before the command's name
    sys.argv.remove("-q")
    sys.argv.insert(1, "-q")
    warnings.simplefilter("ignore")

import compiled  # noqa: E402 (tools/ is no package)
import translation  # noqa: E402
from setuptools import Extension, setup  # noqa: E402
from setuptools.command.build_ext import build_ext  # noqa: E402

# setuptools brings its own distutils, from the moment when it is imported.
# isort: split
from distutils.command import build_ext as distutils_build_ext  # noqa: E402

# Without what a debugger reads, a fifth of the compiler's time; symbols stay. No part of
# `compiled.flags()`: the code is the same.
UNSEEN_FLAGS = [] if compiled.checked() else ["-g0"]

# What Cython's C code begins with, an eighth of the compiler's time for most modules.
FIRST_HEADERS = ("Python.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h", "math.h")
PRECOMPILED_FROM = 8  # modules; for fewer it takes longer than it saves


class BuildChanged(build_ext):
    """Translate and compile several modules at a time and note what each was built from."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        self.force = True  # `extensions()` has already left out what is up to date
        # The longest first, so that no processor waits at the end for the one with the last module.
        self.extensions.sort(key=lambda extension: -SOURCES[extension.name].stat().st_size)

    def build_extensions(self) -> None:
        """Each module in a process of its own, which is forked when all declarations are read."""
        self.check_extensions_list(self.extensions)
        directives = compiled.directives(compiled.checked())
        context = translation.read_declarations([item.name for item in self.extensions], directives)

        def build(extension: Extension) -> None:
            source = SOURCES[extension.name].relative_to(ROOT)
            translation.translate(context, extension.name, str(source), extension.sources[0])
            # Not setuptools' own method: it would look for something to translate once more.
            distutils_build_ext.build_ext.build_extension(self, extension)

        count = len(self.extensions)
        # Not kept: nothing would tell that a header of the system has changed since.
        with tempfile.TemporaryDirectory(dir="build") as folder:
            if count >= PRECOMPILED_FROM:
                self._precompile_headers(Path(folder))
            for done, extension in enumerate(
                translation.forked(build, self.extensions, int(self.parallel or 1)), start=1
            ):
                if not QUIET:
                    print(f"[{done}/{count}] {extension.name}", flush=True)

    def _precompile_headers(self, folder: Path) -> None:
        """Compile the first headers once for each set of flags. A compiler to which the result is
        of no use reads the headers themselves."""
        made: dict[tuple[str, ...], Path] = {}
        for extension in self.extensions:
            flags = tuple(extension.extra_compile_args)
            if flags not in made:
                header = made[flags] = folder / str(len(made)) / "first.h"
                header.parent.mkdir()
                lines = (f"#include <{name}>\n" for name in FIRST_HEADERS)
                header.write_text("#define PY_SSIZE_T_CLEAN\n" + "".join(lines))
                places = [f"-I{place}" for place in self.compiler.include_dirs]
                command = [*self.compiler.compiler_so, *places, *flags, "-x", "c-header"]
                self.compiler.spawn([*command, str(header), "-o", f"{header}.gch"])
            extension.extra_compile_args = [*flags, "-include", str(made[flags])]

    def copy_extensions_to_source(self) -> None:
        """Replace, never overwrite: a running broker has the old file mapped."""
        for extension in self.extensions:
            compiled.binary(SOURCES[extension.name]).unlink(missing_ok=True)
        super().copy_extensions_to_source()
        built = {extension.name: ENTRIES[extension.name] for extension in self.extensions}
        compiled.note({**compiled.manifest(), **built})


def extensions() -> list[Extension]:
    """The modules to compile now: the changed ones in place, the product's for a package, those
    that plant faults for the crash tests."""
    # What needs no compiler; pip asks for the first two before it builds.
    if not {"egg_info", "dist_info", "build_py"}.isdisjoint(sys.argv):
        return []
    in_place = "--inplace" in sys.argv or "-i" in sys.argv
    if compiled.plants():
        if in_place or "build_ext" not in sys.argv:
            raise SystemExit("LEVERET_PLANTED: planted faults belong into no package")
        chosen = compiled.planting()  # for tests/crash/planted_build.py
    else:
        folders = os.environ.get("LEVERET_FOLDERS", "").split() or compiled.FOLDERS
        chosen = compiled.to_build(folders) if in_place else compiled.modules(["broker"])
    return [
        Extension(
            compiled.dotted(path),
            [str(Path("build", path.relative_to(ROOT).with_suffix(".c")))],
            extra_compile_args=[*compiled.flags(path), *UNSEEN_FLAGS],
            include_dirs=["."],
        )
        for path in chosen
    ]


if __name__ == "__main__":
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two builds at a time would write the same files
        SOURCES = {compiled.dotted(path): path for path in compiled.modules()}
        # Read before compiling: an edit made meanwhile must count as not yet built.
        ENTRIES = {name: compiled.entry(path) for name, path in SOURCES.items()}
        setup(ext_modules=extensions(), cmdclass={"build_ext": BuildChanged})
