"""Translate `.pyx` files to C in processes that share what the `.pxd` files declare.

Cython reads the declarations of a module anew for each module that cimports it, which is half of
the time of translating ours. Here one process reads each `.pxd` file once. A fork of it translates
one module and ends, so that no module sees what the translation of another one has changed. The C
code is what `cythonize` writes (tests/tidy/test_translation.py).
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import compiled
from Cython.Build.SharedModule import generate_shared_module
from Cython.Compiler import Errors
from Cython.Compiler.Main import CompilationOptions, Context, compile_single

Item = TypeVar("Item")


class Declarations(Context):  # type: ignore[misc] # Cython is not typed
    """Cython's context, holding the declarations of more modules than the translated one uses."""

    def keep_for_later(self) -> None:
        """From now on only what the translated module cimports, directly or not, is merged into it.

        The inline functions of a `.pxd` file become part of each module that uses it.
        """
        self._read, self.pxds = self.pxds, {}

    def find_module(self, *arguments: Any, **named: Any) -> Any:
        """As Cython's; declarations that were read before are added in the order of reading."""
        scope = super().find_module(*arguments, **named)
        if self._read:
            for used in (*scope.cimported_modules, scope):
                name = used.qualified_name
                if name in self._read:
                    self.pxds.setdefault(name, self._read[name])
        return scope

    _read: dict[str, Any] = {}


def options(directives: dict[str, Any]) -> CompilationOptions:
    """The options of a translation, as `cythonize` sets them."""
    chosen = CompilationOptions(
        compiler_directives=directives,
        include_path=["."],
        shared_utility_qualified_name=compiled.SHARED_UTILITIES,
    )
    chosen.configure_language_defaults("pyx")
    return chosen


def read_declarations(modules: list[str], directives: dict[str, Any]) -> Declarations:
    """The declarations of these modules, and of all that they cimport."""
    context = Declarations.from_options(options(directives))
    Errors.reset()
    Errors.open_listing_file(path=None, echo_to_stderr=True)
    for name in modules:
        context.find_module(name, need_pxd=0)
    if Errors.get_errors_count():
        raise SystemExit("the declarations above have errors")
    context.keep_for_later()
    return context


def translate(context: Declarations, name: str, source: str, target: str) -> None:
    """Write the C code of one module, once in a process. Raises SystemExit if it has errors, which
    are printed."""
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    if name == compiled.SHARED_UTILITIES:
        _write_shared_utilities(target)
        return
    context.options.output_file = target
    if compile_single(source, context.options, name, context=context).num_errors:
        raise SystemExit(1)


def _write_shared_utilities(target: str) -> None:
    chosen = CompilationOptions(
        shared_c_file_path=target,
        module_name=compiled.SHARED_UTILITIES,
        # No module has a typed memoryview, which is four fifths of the C code.
        shared_utility_features_disabled=["AutoPickle", "MemoryView"],
    )
    error, _ = generate_shared_module(chosen)
    if error:
        raise SystemExit(f"{compiled.SHARED_UTILITIES}: {error}")


def forked(work: Callable[[Item], None], items: Iterable[Item], processes: int) -> Iterator[Item]:
    """Do the work for each item in a fork of this process, for as many as `processes` at a time,
    and give the item when it is done. When one fails no other is begun, and SystemExit is raised
    when those that run have ended."""
    gc.collect()
    gc.freeze()  # what all forks share is not copied because of a collection in one of them
    running: dict[int, Item] = {}
    failed = False
    waiting = iter(items)
    while True:
        while not failed and len(running) < processes and (item := next(waiting, None)) is not None:
            sys.stdout.flush()
            process = os.fork()
            if not process:
                os._exit(_status(work, item))
            running[process] = item
        if not running:
            break
        process, status = os.wait()
        item = running.pop(process)
        if status:
            failed = True
        else:
            yield item
    if failed:
        raise SystemExit(1)


def _status(work: Callable[[Item], None], item: Item) -> int:
    # A translated tree is millions of objects that stay until its module is written.
    gc.disable()
    try:
        work(item)
    except SystemExit:
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0
