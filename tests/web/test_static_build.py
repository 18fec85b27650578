"""How the web app's files are grouped: what a script may write, and what is refused by name."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from management import static_build
from tests.appliance import ROOT

SOURCES = ROOT / "frontend" / "static"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Two shared modules, a base, a page and the style sheets, the smallest there can be."""
    root = tmp_path / "sources"
    for name in {name for names in static_build.STYLES.values() for name in names}:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"/* {name} */\n")
    scripts = root / "js"
    (scripts / "components").mkdir(parents=True)
    (scripts / "components" / "a.js").write_text(
        'import { two } from "./b.js";\nconst own = 1;\nexport const one = own + two;\n'
    )
    (scripts / "components" / "b.js").write_text("const own = 2;\nexport const two = own;\n")
    (scripts / "base.js").write_text('import "./components/b.js";\nconst own = 3;\n')
    (scripts / "page.js").write_text('import { one as first } from "./components/a.js";\n')
    return root


def test_shared_modules_come_in_one_file_each_after_what_it_imports(sources: Path) -> None:
    base = static_build.files(sources)["js/base.js"].decode()
    places = [base.index(f"// js/{name}\n") for name in ("components/b.js", "components/a.js")]
    assert places == sorted(places)
    assert base.index("// js/base.js\n") > places[-1]
    assert "import" not in base
    assert "export const { two } = (() => {" in base


def test_a_page_imports_from_the_base(sources: Path) -> None:
    page = static_build.files(sources)["js/page.js"].decode()
    assert page == 'import { one as first } from "./base.js";\n'


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("page.js", 'import * as a from "./components/a.js";', "known forms of import"),
        ("base.js", 'import { two as zwei } from "./components/b.js";', "known forms of import"),
        ("components/b.js", "export default 1;", "known forms of export"),
        ("components/b.js", "export const one = 1;", "both export one"),
        ("components/b.js", 'import { one } from "./a.js";', "imports itself"),
        ("components/b.js", 'import { three } from "./c.js";', "c.js, which is not there"),
    ],
)
def test_it_refuses_what_it_cannot_group(sources: Path, name: str, text: str, reason: str) -> None:
    (sources / "js" / name).write_text(f"{text}\n")
    with pytest.raises(static_build.BuildError, match=reason):
        static_build.files(sources)


def test_large_files_are_compressed_and_old_ones_are_gone(tmp_path: Path) -> None:
    target = tmp_path / "static"
    target.mkdir()
    (target / "old.js").write_text("left from the version before")
    static_build.write(SOURCES, target)
    assert not (target / "old.js").exists()
    for name in ("css/site.css", "js/base.js", "vendor/htmx.min.js"):
        packed = target / f"{name}.gz"
        assert gzip.decompress(packed.read_bytes()) == (target / name).read_bytes()


def test_a_second_start_writes_only_what_differs(sources: Path, tmp_path: Path) -> None:
    target = static_build.write(sources, tmp_path / "static")
    page, base = target / "js" / "page.js", target / "js" / "base.js"
    page.write_bytes(b"")  # as a power cut may leave it
    untouched = base.stat().st_mtime_ns
    static_build.write(sources, target)
    assert page.read_bytes() == static_build.files(sources)["js/page.js"]
    assert base.stat().st_mtime_ns == untouched


def test_the_name_changes_with_any_source(sources: Path) -> None:
    before = static_build.build_name(sources)
    (sources / "js" / "page.js").write_text("// changed\n")
    assert static_build.build_name(sources) != before


def test_every_style_sheet_is_served_in_a_group() -> None:
    grouped = {name for names in static_build.STYLES.values() for name in names}
    assert {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.css")} == grouped
