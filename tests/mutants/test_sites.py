"""Which changes `make mutants` makes, and to what."""

from __future__ import annotations

from pathlib import Path

from tests.appliance import ROOT
from tests.mutants.sites import (
    PACKAGES,
    all_sites,
    shared_sites,
    shares,
    shuffled,
    sites_of,
)

CODE = '''# cython: language_level=3
"""A module with 1 < 2 in its text."""

from a cimport b

cdef enum:
    SIZE = 1
cdef int one = f("x == y", 0)


cdef class C(D):

    cdef int go(self, int a=0,
                bint b=True) except -1:
        """True + 1"""
        cdef char* p
        if a < self.most and self.on:   # or not
            self.x.work(a)
        log.warning("%d is not None", a + 1,
                    1)
        self.count += (a -
                       2)
        return 0
'''


def test_it_changes_code_and_nothing_else() -> None:
    found = [f"{site.line} {site.after.strip()}" for site in sites_of("x.pyx", CODE)]
    assert found == [
        '8 cdef int one = f("x == y", 1)',
        "17 if a <= self.most and self.on:   # or not",
        "17 if a < self.most or self.on:   # or not",
        "17 if not (a < self.most and self.on):   # or not",
        "18 pass",
        "21 self.count -= (a -",
        "21 self.count += (a +",
    ]


def test_a_change_is_one_of_a_line() -> None:
    site = next(site for site in sites_of("x.pyx", CODE) if site.after.strip() == "pass")
    changed = site.apply(CODE).split("\n")
    assert [line for line in CODE.split("\n") if line not in changed] == [site.before]
    assert site.after == "            pass"


def test_the_same_seed_draws_the_same_lines() -> None:
    sites = all_sites(ROOT)
    assert min(map(len, sites.values())) > 1000
    assert shuffled(sites, 12) == shuffled(sites, 12) != shuffled(sites, 13)
    assert shares(60) == dict.fromkeys(PACKAGES, 20)
    assert sum(shares(61).values()) == 61


def test_two_checkouts_share_the_lines_that_each_has_once(tmp_path: Path) -> None:
    texts = {
        "one": {"store/a.pyx": "a < b\nc == d\n", "wire/b.pyx": "e < f\n"},
        "other": {"store/log/x.pyx": "e < f\n\n    a < b\n", "store/y.pyx": "c == d\nc == d\n"},
    }
    for root, files in texts.items():
        for name, text in files.items():
            path = tmp_path / root / "broker" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    one, other = tmp_path / "one", tmp_path / "other"
    ours, theirs = shared_sites(one, other), shared_sites(other, one)
    assert [str(site) for site in ours["store"]] == ["broker/store/a.pyx:1: a < b → a <= b"]
    assert [str(site) for site in theirs["store"]] == ["broker/store/log/x.pyx:3: a < b → a <= b"]
    assert not (ours["queues"] or ours["wire"])
