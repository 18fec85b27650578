"""`python -m tests.web.screenshot`: makes the README's picture of the overview again, with some
minutes of the demo's traffic."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.appliance import ROOT, Appliance
from tests.web.conftest import CHROMIUM, FLAGS

PICTURE = ROOT / "docs/images/overview.png"
TRAFFIC_S = 200
SIZE = {"width": 1280, "height": 740}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        appliance = Appliance("serve", Path(directory)).start()
        demo = subprocess.Popen(
            [sys.executable, "manage.py", "demo", f"--data-dir={appliance.data_dir}"], cwd=ROOT
        )
        try:
            time.sleep(TRAFFIC_S)
            take(appliance.http_url)
        finally:
            demo.terminate()
            demo.wait()
            appliance.close()


def take(url: str) -> None:
    """Signs in and saves what the overview shows."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport=SIZE, color_scheme="light", base_url=url)
        page.goto("/login")
        page.fill("#username", "guest")
        page.fill("#password", "guest")
        page.click("button[type=submit]")
        page.wait_for_selector("#live-state:has-text('live')")
        page.wait_for_timeout(3_000)  # some samples that are pushed
        PICTURE.parent.mkdir(exist_ok=True)
        page.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main()
