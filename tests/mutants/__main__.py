"""Changes one line of the broker at a time: which changes do the tests notice?

`python -m tests.mutants --count 60 --seed 12` draws places in the compiled modules of broker/store,
broker/queues and broker/wire, a third of each (`sites.py`). Each is changed in a copy of the
checkout, which is then compiled and tested: by the tests of its package, if they pass by all
others, and if these pass by the slow ones, which only `make test-all` runs. A test that fails has
to fail twice with the change, and to pass without it. What no test noticed is printed with
"survived": it is a change without an effect, a matter of speed, or a hole in the tests.

`--checkout DIR --shared-with .` tests an older checkout, which has to be set up, with lines that
this one has, too; `--shared-with DIR` tests this one with the same lines. With `--near` the tests
of the package are the only ones.

Left out are the tests of the web app, of reports and of the checkout's order, which are not about
these packages, those of the benchmarks, and those of planted faults, which test other tests.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.appliance import ROOT
from tests.mutants.checkout import BuildError, Checkout
from tests.mutants.sites import PACKAGES, Site, all_sites, shared_sites, shares, shuffled

NEAR = {
    "store": (["tests/oracles"], ["tests/store", "tests/crash/test_states.py"]),
    "queues": (["tests/oracles"], ["tests/amqp"]),
    "wire": (["tests/oracles"], ["tests/amqp", "tests/fuzz"]),
}
"""Package -> runs of tests that are likely to notice a change."""
NOT_ABOUT_IT = ("bench", "mutants", "reports", "tidy", "web")
LEFT_OUT = (
    "--ignore=tests/crash/test_planted.py",
    "--deselect=tests/store/test_confirm_order.py::"
    "test_a_broker_that_confirms_one_more_than_it_has_is_found_out",
)
STAGES = ("near", "wide", "slow")
LIMITS = {"near": 900.0, "wide": 2400.0, "slow": 7200.0}
"""Stage -> seconds that a run of it may take."""
DURING = {"near": "make test", "wide": "make test", "slow": "only slow tests"}


@dataclass
class Mutant:
    """A change and what became of it. `state`: "make test" or "only slow tests", which noticed it,
    "survived", or until then "alive". `by`: the test that failed."""

    site: Site
    state: str = "alive"
    by: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        how = {"alive": "alive", "survived": "survived"}.get(self.state, f"killed by {self.by}")
        return f"{self.site}\n    {how}, {self.seconds:.0f} s"


def runs_of(stage: str, package: str, root: Path) -> list[list[str]]:
    """The arguments of pytest for each run of a stage in this checkout."""
    near = [[*run, *LEFT_OUT] for run in NEAR[package]]
    if stage == "near":
        return [[*run, "-m", "not slow"] for run in near]
    named = [folder for run in NEAR[package] for folder in run]
    others = sorted(
        {
            f"tests/{path.parent.name}"
            for path in (root / "tests").glob("*/test_*.py")
            if path.parent.name not in NOT_ABOUT_IT
        }
        - set(named)
    )
    if stage == "wide":
        return [[*others, *LEFT_OUT, "-m", "not slow"]]
    return [[*named, *LEFT_OUT, "-m", "slow"], [*others, *LEFT_OUT, "-m", "slow"]]


class Hunt:
    """One sample, tested stage by stage: what the first tests notice is known early."""

    def __init__(self, checkout: Checkout, places: Path | None) -> None:
        self.mutants: list[Mutant] = []
        self._checkout = checkout
        self._places = places
        self._sound: set[str] = set()
        """Tests that pass without a change."""

    def begin(self, chosen: dict[str, tuple[list[Site], int]], until: float) -> None:
        """The tests of its package for each change, of the packages in turn."""
        left = {package: iter(sites) for package, (sites, _) in chosen.items()}
        for number in range(max(count for _, count in chosen.values())):
            for package, (_, count) in chosen.items():
                if number < count and time.monotonic() < until:
                    self._begin_one(left[package])

    def _begin_one(self, left: Iterator[Site]) -> None:
        """With the first change of these that compiles."""
        for site in left:
            mutant = Mutant(site)
            try:
                self._test(mutant, "near")
            except BuildError:
                print(f"    does not compile: {site}", flush=True)
                continue
            self.mutants.append(mutant)
            self._note(mutant)
            return

    def resume(self, stage: str, until: float) -> None:
        """The tests of a later stage, for each that no test has noticed."""
        for mutant in [each for each in self.mutants if each.state == "alive"]:
            if time.monotonic() > until:
                return
            self._test(mutant, stage)
            if stage == STAGES[-1] and mutant.state == "alive":
                mutant.state = "survived"
            self._note(mutant)

    def _test(self, mutant: Mutant, stage: str) -> None:
        began = time.monotonic()
        for run in runs_of(stage, mutant.site.package, self._checkout.root):
            if (killer := self._killer(mutant.site, stage, run)) is not None:
                mutant.state, mutant.by = DURING[stage], killer
                break
        mutant.seconds += time.monotonic() - began

    def _killer(self, site: Site, stage: str, run: list[str]) -> str | None:
        """The test that notices the change, or None. Tests that fail for another reason are left
        out of a second run, and so on."""
        by_chance: list[str] = []
        while True:
            arguments = [*run, *(f"--deselect={test}" for test in by_chance)]
            with self._checkout.changed(site):
                go = self._checkout.run_slow if stage == "slow" else self._checkout.run
                outcome = go(arguments, LIMITS[stage])
                if outcome.hanging:
                    return f"{outcome.hanging[-1]}, which does not end"
                tests = [each for each in outcome.failed if "::" in each]
                if not outcome.failed or tests != outcome.failed:
                    return next(iter(outcome.failed), None)
                again = self._checkout.fails_again(tests)
            if again and self._pass_without(tests):
                return tests[0]
            print(f"    failed by chance: {', '.join(tests)}", flush=True)
            by_chance += tests

    def _pass_without(self, tests: list[str]) -> bool:
        if not self._sound.issuperset(tests):
            if self._checkout.fails_again(tests):
                return False
            self._sound.update(tests)
        return True

    def _note(self, mutant: Mutant) -> None:
        print(f"{len(self.mutants):3} {mutant}", flush=True)
        if self._places is not None:
            self._places.write_text(json.dumps(self.rows(), indent=1) + "\n")

    def rows(self) -> list[dict[str, str | int]]:
        """What `--json` writes."""
        return [
            {
                "path": each.site.path,
                "line": each.site.line,
                "before": each.site.before.strip(),
                "after": each.site.after.strip(),
                "state": each.state,
                "by": each.by,
                "seconds": round(each.seconds),
            }
            for each in self.mutants
        ]

    def __str__(self) -> str:
        states = ("make test", "only slow tests", "survived", "alive")
        lines = [f"{'killed by':10}" + "".join(f"{state:>17}" for state in states)]
        for package in PACKAGES:
            found = [each.state for each in self.mutants if each.site.package == package]
            lines.append(f"{package:10}" + "".join(f"{found.count(state):17}" for state in states))
        return "\n".join(lines)


def samples(options: argparse.Namespace) -> dict[str, tuple[list[Site], int]]:
    """Package -> its changes in the order of the sample, and how many of them are wanted."""
    other = options.shared_with
    root = options.checkout
    found = all_sites(root) if other is None else shared_sites(root, other)
    if options.only:
        chosen = {
            package: [site for site in sites if site.place in options.only]
            for package, sites in found.items()
        }
        return {package: (sites, len(sites)) for package, sites in chosen.items()}
    wanted = shares(options.count)
    order = shuffled(found, options.seed)
    return {package: (order[package], wanted[package]) for package in PACKAGES}


def folder(text: str) -> Path:
    return Path(text).resolve()


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="lines that are changed (60)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed, the same lines (1)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="FILE:LINE",
        help="all changes of this line instead of a sample; may be given again",
    )
    parser.add_argument("--checkout", type=folder, default=ROOT, metavar="DIR", help="not this one")
    parser.add_argument("--shared-with", type=folder, metavar="DIR", help="only lines of both")
    parser.add_argument("--near", action="store_true", help="only with the tests of the package")
    parser.add_argument("--list", action="store_true", help="print the sample and end")
    parser.add_argument("--jobs", type=int, default=2, help="test files at a time (2)")
    parser.add_argument("--minutes", type=float, default=1440, help="begin no other after (1440)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    return parser.parse_args(arguments)


def main() -> int:
    """Exit status 1 if a change survived."""
    options = options_of()
    chosen = samples(options)
    if options.list:
        print("\n".join(str(site) for sites, count in chosen.values() for site in sites[:count]))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the copy is removed
    until = time.monotonic() + options.minutes * 60
    checkout = Checkout(options.jobs, options.checkout)
    hunt = Hunt(checkout, options.json)
    try:
        hunt.begin(chosen, until)
        for stage in STAGES[1:] if not options.near else ():
            hunt.resume(stage, until)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    finally:
        print(f"seed {options.seed}\n{hunt}", flush=True)
        checkout.remove()
    return 1 if any(each.state == "survived" for each in hunt.mutants) else 0


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
