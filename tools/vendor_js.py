"""Refresh or check the third-party browser files in `frontend/static/vendor`.

Nothing needs Node to run or install Leveret: the few files the browser needs are committed with
their licences and a manifest of checksums. `vendor_js.py` downloads the versions pinned below with
`npm pack` and writes files, licences and manifest; `vendor_js.py --check` uses no network and ends
with status 1 if a file is missing, was changed, or is not in the manifest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

VENDOR = Path(__file__).resolve().parent.parent / "frontend" / "static" / "vendor"
MANIFEST = VENDOR / "manifest.json"


class Package(NamedTuple):
    """An npm package at one version, and which of its files (path inside it -> our name) go in."""

    name: str
    version: str
    licence: str
    files: dict[str, str]


PACKAGES = [
    Package(
        "uplot",
        "1.6.32",
        "MIT",
        {
            "dist/uPlot.iife.min.js": "uPlot.iife.min.js",
            "dist/uPlot.min.css": "uPlot.min.css",
            "LICENSE": "uPlot.LICENSE",
        },
    ),
    Package(
        "htmx.org",
        "4.0.1",
        "0BSD",
        {"dist/htmx.min.js": "htmx.min.js", "LICENSE": "htmx.LICENSE"},
    ),
    Package(
        "@cloudamqp/amqp-client",
        "4.1.1",
        "Apache-2.0",
        {
            "dist/amqp-websocket-client.mjs": "amqp-websocket-client.mjs",
            "LICENSE": "amqp-client.LICENSE",
        },
    ),
]


def download(package: Package, into: Path) -> dict[str, bytes]:
    """Return the wanted files of `package` by our name. Needs npm and the registry."""
    specifier = f"{package.name}@{package.version}"
    command = [shutil.which("npm") or "npm", "pack", "--silent", specifier]
    done = subprocess.run(command, cwd=into, check=True, capture_output=True, text=True)
    with tarfile.open(into / done.stdout.split()[-1]) as archive:
        files = {}
        for inside, ours in package.files.items():
            member = archive.extractfile(f"package/{inside}")
            if member is None:
                raise SystemExit(f"{specifier} holds no file {inside}")
            files[ours] = without_source_map(member.read())
        return files


def without_source_map(text: bytes) -> bytes:
    """Drop the last line if it points at a source map, which is not shipped and would be a 404."""
    lines = text.rstrip().split(b"\n")
    if lines[-1].startswith(b"//# sourceMappingURL="):
        lines.pop()
    return b"\n".join(lines) + b"\n"


def refresh() -> None:
    """Download every package, write its files and the manifest."""
    manifest: dict[str, dict[str, str]] = {}
    VENDOR.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        with tempfile.TemporaryDirectory() as scratch:
            for ours, content in download(package, Path(scratch)).items():
                (VENDOR / ours).write_bytes(content)
                manifest[ours] = {
                    "package": package.name,
                    "version": package.version,
                    "licence": package.licence,
                    "sha256": hashlib.sha256(content).hexdigest(),
                }
    MANIFEST.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")


def problems() -> list[str]:
    """Return one line for each difference between the manifest, the pins above and the disk."""
    manifest = json.loads(MANIFEST.read_text())
    found = []
    pinned = {ours: package for package in PACKAGES for ours in package.files.values()}
    present = {path.name for path in VENDOR.iterdir()} - {MANIFEST.name}
    for name in sorted(pinned.keys() | manifest.keys() | present):
        if name not in manifest:
            found.append(f"{name} is not in the manifest")
        elif name not in pinned:
            found.append(f"{name} is in the manifest but not among the packages of this script")
        elif manifest[name]["version"] != pinned[name].version:
            found.append(f"{name} is pinned to {pinned[name].version} but another version is here")
        elif name not in present:
            found.append(f"{name} is missing")
        elif hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() != manifest[name]["sha256"]:
            found.append(f"{name} differs from its checksum")
    return found


def main() -> int:
    """Run the command line; the status is 1 when a check failed."""
    parser = argparse.ArgumentParser(description="Refresh the vendored browser files.")
    parser.add_argument("--check", action="store_true", help="compare only, change nothing")
    if not parser.parse_args().check:
        refresh()
    found = problems()
    for line in found:
        print(
            f"frontend/static/vendor: {line}. Run tools/vendor_js.py to refresh.", file=sys.stderr
        )
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
