"""What the page's policy would refuse, or would fail silently under it, is in no template."""

import re
from pathlib import Path

import pytest

from tests.appliance import ROOT

TEMPLATES = ROOT / "frontend" / "templates"
SCRIPTS = ROOT / "frontend" / "static" / "js"
REFUSED = {
    "a style attribute": r"\sstyle\s*=",
    "an event attribute": r"<[^>]*\son\w+\s*=",
    "hx-on": r"hx-on",
    "a value from a script": r"[\"']js:",
    "a trigger filter": r'hx-trigger="[^"]*\[',
    "an inline script": r"<script(?![^>]*\bsrc=)",
    "an inline style sheet": r"<style",
    "unescaped text": r"\|\s*safe\b|autoescape off",
}
EVALUATES = r"\beval\(|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write"


@pytest.mark.parametrize("path", sorted(TEMPLATES.rglob("*.html")), ids=lambda path: path.name)
def test_a_template_holds_nothing_the_policy_refuses(path: Path) -> None:
    text = path.read_text()
    found = [what for what, pattern in REFUSED.items() if re.search(pattern, text)]
    assert found == []


@pytest.mark.parametrize("path", sorted(SCRIPTS.rglob("*.js")), ids=lambda path: path.name)
def test_a_script_makes_no_elements_from_strings(path: Path) -> None:
    assert re.search(EVALUATES, path.read_text()) is None
